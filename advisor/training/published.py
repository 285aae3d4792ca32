"""The layouts in which PipeWeave and NeuSight publish their measurements, turned into ROWS.

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
from collections.abc import Sequence
from pathlib import Path

from advisor.rows.rows import Rows, parse_rows
from advisor.system.errors import InputError

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


def read(path: Path, text: str) -> Rows:
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
