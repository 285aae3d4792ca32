"""Measured rows for training and evaluation, grouped so that one GPU's launches make one batch, and whole groups of them to leave out.

The layouts in which PipeWeave and NeuSight publish their measurements, turned into ROWS.

PipeWeave (repository `zksainx/pipeweave`): `pipetuning_test/moe_dse/moe_dse_<GPU>.csv` with weight_type, M, E, topk, H, N, the six
configuration columns and avg_duration (microseconds), the GPU in the file's name; `dataset/*.csv` with avg_duration, the device in
`hardware`, and the features of its analytical model.
NeuSight (repository `sitar-lab/NeuSight`): `scripts/asplos/data/dataset/**.csv`, one FP32 operator per row, with OPName, Latency
(milliseconds), Device, Kernel Name, Grid x, y, z, Block x, y, z, and B, M, N, K (`bmm`, `linear`: M by N times N by K) or B, H. Its
convolutions, which we do not model, are left out.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch
from advisor.rows.columns import CONFIG_COLUMNS, OF_DEFAULTS, complete_configurations, configuration_columns
from advisor.rows.rows import TEXT_SIZE_LIMIT_BYTES, UNTILED_OPERATORS, Rows, is_tiled, parse_rows
from advisor.rows.types_and_origin import settle_dtypes, simulated_rows
from advisor.system.errors import InputError, several
from advisor.system.reading import read_text

# Their name of a column (lower case) -> ours.
COLUMNS = {
    "hardware": "gpu",
    "device": "gpu",
    "weight_type": "gemm",
    "avg_duration": "latency_us",
    "duration": "latency_us",
    "opname": "op",
    "latency": "latency_us",
    "kernel name": "kernel",
}
MARKS = frozenset({"hardware", "device", "weight_type", "avg_duration", "duration", "opname", "latency"})
"""Columns, lower case, by which a file of theirs is known."""

FILE_GPUS = {"PRO6000S": "RTX PRO 6000 S"}
"""GPUs that file names spell in a way no device does."""

LEFT_OUT = frozenset({"conv", "dropout", "mem", "fused_relu_add"})
"""NeuSight's operators that we do not model."""

_SWEEP = re.compile(r"moe_dse_(?P<gpu>[A-Za-z0-9-]+)(_[0-9_]+|_top[0-9]+)?\.csv(\.gz)?$")


def is_published(header: tuple[str, ...]) -> bool:
    """Whether a header is one of theirs rather than ours."""
    return "latency_us" not in header and "best_us" not in header and any(name.lower() in MARKS for name in header)


def read_published(path: Path, text: str) -> Rows:
    """Rows of a file in one of the published layouts.

    Args:
        path: Its name tells the GPU, where no column does.
        text: Its content.

    Raises:
        InputError: No GPU or no latency is to be found, or a latency is not a number.
    """
    reader = csv.reader(io.StringIO(text))
    theirs = next(reader, [])
    header = [COLUMNS.get(name.lower(), name) for name in theirs]
    # A file may hold latencies under two names, and many columns of features: the first latency counts, unknown columns go.
    keep = [i for i, name in enumerate(header) if name not in header[:i] and (name in _ours() or name in COLUMNS.values())]
    milliseconds = "Latency" in theirs or "latency" in theirs
    match = _SWEEP.search(path.name)
    gpu = FILE_GPUS.get(match["gpu"], match["gpu"]) if match else None
    names = [header[i] for i in keep]
    if "latency_us" not in names or ("gpu" not in names and gpu is None):
        raise InputError(
            f"{path.name}: not a published layout",
            ", ".join(theirs),
            "a column of latencies, and a GPU",
            "rename the columns as in data/README.md",
        )
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    extra = {} if "gpu" in names else {"gpu": gpu or ""}
    if milliseconds and "dtype" not in names:
        extra["dtype"] = "fp32"  # all of NeuSight's
    writer.writerow([*names, *extra, *_LAUNCH])
    at, op = names.index("latency_us"), names.index("op") if "op" in names else None
    for line, row in enumerate(reader, start=2):
        cells = [row[i] if i < len(row) else "" for i in keep]
        if not row or (op is not None and cells[op].lower() in LEFT_OUT):
            continue
        if milliseconds and cells[at]:
            try:
                cells[at] = repr(float(cells[at]) * 1e3)
            except ValueError:
                raise InputError(f"{path.name}: line {line}: latency", cells[at], "a number of milliseconds", "correct it") from None
        writer.writerow([*cells, *extra.values(), *(_joined(theirs, row, name) for name in _LAUNCH.values())])
    return parse_rows(out.getvalue(), path.name, str(path), required=("gpu",))


_LAUNCH = {"grid": "Grid", "block": "Block"}
"""Our column -> how NeuSight's three begin."""


def _joined(header: Sequence[str], row: Sequence[str], name: str) -> str:
    """`Grid x, Grid y, Grid z` as 4x1x384, or nothing."""
    places = [header.index(f"{name} {axis}") for axis in "xyz" if f"{name} {axis}" in header]
    return "x".join(row[i] for i in places if i < len(row))


def _ours() -> tuple[str, ...]:
    from advisor.rows.columns import CONFIG_COLUMNS
    from advisor.rows.rows import SIZE_COLUMNS, TEXT_COLUMNS

    return (*SIZE_COLUMNS, *CONFIG_COLUMNS, *TEXT_COLUMNS)


Model = tuple[int, int, int, int]  # E, topk, H, N


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Launches of one GPU and one kind, with their latencies.

    Attributes:
        kind: of the products of fused MoE "served" (configuration unknown), "exact" or "best" (of a sweep); of all else "gemm/fp8",
            "elementwise/add/fp32", "fused_moe/combine/bf16", …
        gpu: The GPU.
        problem: Columns [n].
        configuration: Columns [n], where known.
        latency_us: [n].
        paired_us: For "best": the default's latency in the same sweep, [n], NaN where it was not swept.
        paired_configuration: Its configuration, columns [n], 0 where a cell is empty; None where the file has no such columns.
        source: File name.
        rows: Their numbers in the file, from 0, [n]; None where they are of no file.
        simulated: Which of them say that nothing was run for their latency, [n]; None where none does.
    """

    kind: str
    gpu: GpuSpec
    problem: ProblemBatch
    configuration: ConfigurationBatch | None
    latency_us: Array
    paired_us: Array | None = None
    paired_configuration: ConfigurationBatch | None = None
    source: str = ""
    rows: NDArray[np.int64] | None = None
    simulated: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return self.latency_us.size

    def take(self, index: NDArray) -> Measured:
        """Rows `index`."""
        return Measured(
            kind=self.kind,
            gpu=self.gpu,
            problem=self.problem.take(index),
            configuration=self.configuration.take(index) if self.configuration else None,
            latency_us=self.latency_us[index],
            paired_us=self.paired_us[index] if self.paired_us is not None else None,
            paired_configuration=self.paired_configuration.take(index) if self.paired_configuration else None,
            source=self.source,
            rows=self.rows[index] if self.rows is not None else None,
            simulated=self.simulated[index] if self.simulated is not None else None,
        )

    def models(self) -> list[Model]:
        """(E, topk, H, N) of every row; empty for other families."""
        if self.problem.family != "fused_moe":
            return []
        columns = [np.broadcast_to(self.problem.sizes[n], self.latency_us.shape).astype(int) for n in ("E", "topk", "H", "N")]
        return list(zip(*(c.tolist() for c in columns), strict=True))


def files(paths: Iterable[Path | str]) -> list[Path]:
    """CSV files named, and those in folders named (not `gpus.csv`, which holds no launches)."""
    collected: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            collected += sorted(p for p in path.iterdir() if p.name.endswith((".csv", ".csv.gz")) and p.name != "gpus.csv")
        else:
            collected.append(path)
    if not collected:
        raise InputError("no measured rows", ", ".join(map(str, paths)), "CSV files, or folders with some", "name them")
    return collected


def read(
    paths: Iterable[Path | str],
    *,
    exclude_gpus: Sequence[str] = (),
    exclude_models: Sequence[Model] = (),
    progress: Callable[[str], None] | None = None,
) -> list[Measured]:
    """Read measured rows in any of the layouts of the published data.

    Args:
        paths: CSV files or folders.
        exclude_gpus: Names of GPUs to leave out entirely.
        exclude_models: MoE models to leave out entirely.
        progress: Told what is being read.

    Raises:
        InputError: A file cannot be read, or no row is left that has a latency.
    """
    paths = list(paths)
    left_out = {load_gpu(name).name for name in exclude_gpus}
    models = {tuple(m) for m in exclude_models}
    out: list[Measured] = []
    for path in files(paths):
        if progress:
            progress(f"reading {path.name}")
        rows = _rows(path)
        if (assumed := settle_dtypes(rows, path.name)) and progress:
            progress(f"{path.name}: {assumed}")
        marks = simulated_rows(rows)
        for batch in _measured(rows, path.name):
            if marks.any() and batch.rows is not None:
                batch = replace(batch, simulated=marks[batch.rows])
            if batch.gpu.name in left_out:
                continue
            if models and batch.problem.family == "fused_moe":
                keep = np.array([m not in models for m in batch.models()], dtype=bool)
                batch = batch.take(keep)
            if len(batch):
                out.append(batch)
    if not out:
        left = " (after what is excluded)" if left_out or models else ""
        raise InputError(
            f"no row has a latency{left}",
            ", ".join(map(str, paths)),
            "rows with latency_us, or best_us of sweeps",
            "`advisor measure` writes such rows",
        )
    if progress and (parts := simulated(out)):
        progress(parts)
    return out


def simulated(measured: Iterable[Measured]) -> str | None:
    """A sentence on how many rows of which files are simulated; None where none are."""
    rows: dict[str, set[int]] = {}
    marked: dict[str, set[int]] = {}
    for part in measured:
        if part.rows is not None:
            rows.setdefault(part.source, set()).update(part.rows.tolist())
            if part.simulated is not None:
                marked.setdefault(part.source, set()).update(part.rows[part.simulated].tolist())
    phrases = [f"{len(which)} of {several(len(rows[source]), 'row')} of {source}" for source, which in marked.items() if which]
    return f"simulated, not measured: {', '.join(phrases)}" if phrases else None


def _rows(path: Path) -> Rows:
    """Rows of a file in our layout, or in one of the published ones."""
    text = read_text(path, path.name, "a CSV file", TEXT_SIZE_LIMIT_BYTES, unpack=True)
    if is_published(tuple(text.partition("\n")[0].strip().split(","))):
        return read_published(path, text)
    return parse_rows(text, path.name, str(path), required=("gpu",))


def _measured(rows: Rows, name: str) -> Iterable[Measured]:
    from advisor.pipelines.from_rows import batches

    by_name: dict[str, GpuSpec] = {}

    def find(text: str) -> GpuSpec:
        if text not in by_name:
            by_name[text] = load_gpu(text)
        return by_name[text]

    sweep = "best_us" in rows.columns
    defaults = _default_configurations(rows, name) if sweep else None
    for batch in batches(rows, find):
        problem, index = batch.problem, batch.rows
        if sweep:
            best, default = rows.columns["best_us"][index], rows.columns.get("default_us")
            paired = default[index] if default is not None else np.full(index.size, np.nan)
            good = np.isfinite(best) & (best > 0)
            configuration = defaults.take(index) if defaults is not None else None
            yield Measured(
                kind="best",
                gpu=batch.gpu,
                problem=problem,
                configuration=None,
                latency_us=best,
                paired_us=paired,
                paired_configuration=configuration,
                source=name,
                rows=index,
            ).take(good)
            if configuration is not None:
                known = np.isfinite(paired) & (configuration.parameters["BLOCK_SIZE_M"] > 0)
                yield Measured(
                    kind="exact", gpu=batch.gpu, problem=problem, configuration=configuration, latency_us=paired, source=name, rows=index
                ).take(known)
        if "latency_us" in rows.columns:
            latency = rows.columns["latency_us"][index]
            good = np.isfinite(latency) & (latency > 0)
            if problem.family == "fused_moe" and problem.op not in UNTILED_OPERATORS:
                kind = "exact" if batch.configuration is not None else "served"
            else:
                kind = f"{problem.family}/{problem.op}/{problem.dtype}"
            yield Measured(
                kind=kind, gpu=batch.gpu, problem=problem, configuration=batch.configuration, latency_us=latency, source=name, rows=index
            ).take(good)


def _default_configurations(rows: Rows, name: str) -> ConfigurationBatch | None:
    """The configurations in columns `default_BLOCK_SIZE_M` … of a sweep's summary; 0 where all cells are empty, None without columns."""
    columns = configuration_columns(name, rows.text, OF_DEFAULTS)
    if not columns:
        return None
    tiled = np.array([is_tiled(*kind) for kind in zip(rows.family, rows.op, strict=True)], dtype=bool)
    complete_configurations(name, columns, tiled, OF_DEFAULTS)
    by_field = {field: columns.get(field, np.zeros(len(rows))).astype(np.float64) for field in CONFIG_COLUMNS}
    return ConfigurationBatch(
        parameters={n: by_field[n] for n in CONFIG_COLUMNS[:4]}, num_warps=by_field["num_warps"], num_stages=by_field["num_stages"]
    )


MODEL_FOLDS = 4
CALIBRATION_FOLDS = 12
"""Folds of models for the intervals: with few folds a fold knows far fewer models than the final fit does, and its errors are too
large (four folds: 80 % intervals held 84 % to 87 %)."""

GPU_FOLDS = 6
SCALE_FOLDS = 6
"""Folds of models for the forest of expected error sizes; with two, it knows too little and the quantiles over it come out 2 % too wide."""


def leave_out(labels: Sequence[object], folds: int, apart: Collection[object] = ()) -> Iterator[tuple[list[object], NDArray[np.bool_]]]:
    """Deal the sorted distinct labels into folds; yields the labels left out and a mask of their rows.

    Every fold leaves at least one label in; with a single label there is nothing to yield. Labels of `apart` are dealt first, so that no
    two of them are left out together while there are folds enough.
    """
    names = sorted(set(labels), key=lambda label: (label not in apart, str(label)))
    count = min(folds, len(names))
    if len(names) < 2:
        return
    for k in range(count):
        out = names[k::count]
        chosen = set(out)
        yield out, np.array([label in chosen for label in labels], dtype=bool)
