"""The constants of `compiled.phases`, by robust least squares of the log error, and what is left of it.

Measured launches of kernels of published packages and of files beside them, each compiled as it was launched.

A folder of them holds `launches.jsonl`, or files `*launches.jsonl.gz` such as those of `ceilings/measurements/`.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.demand import Counted
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.records import kernel_launch
from advisor.compiled.phases import LONG_US, Constants, shipped
from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.pipelines import Array
from advisor.pipelines.demand import Demand, Phases
from advisor.pipelines.occupancy import Resources
from advisor.pipelines.schedule import latency_us
from advisor.python_source.source import SourceFile, read_source
from advisor.rows.launches import recorded_launch
from advisor.system import grouped
from advisor.system.errors import AdvisorError, InputError, MissingDependencyError, NothingMatchedError
from advisor.system.reading import read_bytes
from advisor.system.settings import read_settings
from advisor.training.silicon.library_kernels import summed

FILE = "launches.jsonl"
LIMIT_BYTES = 256_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One launch: the GPU, the kernel, its latency in microseconds, and what was found of the compiled code."""

    gpu: GpuSpec
    kernel: str
    us: float
    analysis: KernelAnalysis


def is_layout(path: Path | str) -> bool:
    """Whether a folder holds measured launches of this kind."""
    return bool(_files(Path(path)))


def _files(folder: Path) -> list[Path]:
    return [folder / FILE] if (folder / FILE).is_file() else sorted(folder.glob(f"*{FILE}.gz"))


def read(
    paths: Iterable[Path | str], exclude_gpus: Iterable[str] = (), progress: Callable[[str], None] = lambda text: None
) -> list[Measured]:
    """The launches of some folders, compiled; those that cannot be are told to `progress`.

    Raises:
        InputError: A line is none, or nothing is left.
    """
    measured: list[Measured] = []
    packages: dict[str, list[Release]] = {}
    counted = Counted()

    def compiled(row: dict[str, Any]) -> Measured | str:
        gpu = load_gpu(row["gpu"])
        try:
            row, source = as_defined(row, packages[_package(row)])
            launch = kernel_launch(recorded_launch("0", row, 1, [], [], {}), source)
            inspection = inspect_launch(launch, Target.of(gpu), pool, counted=counted)
            analysis = kernel_analysis(inspection, gpu, row["cache"])
        except AdvisorError as error:
            return f"{row['kernel']} on {gpu.name}: left out: {error}"
        return Measured(gpu=gpu, kernel=row["kernel"], us=float(row["measured_us"]), analysis=analysis)

    excluded = frozenset(exclude_gpus)
    for path in paths:
        rows = [row for file in _files(Path(path)) for row in _rows(file) if load_gpu(row["gpu"]).name not in excluded]
        for row in rows:
            if (package := _package(row)) not in packages:
                beside = (Path(path) / row["file"]).is_file()
                named = (row["as_of"].rpartition(" ")[0] for row in rows if _package(row) == package)
                distribution = next(filter(None, named), package)
                packages[package] = [Release(built=date.max, folder=Path(path))] if beside else releases(package, progress, distribution)
        progress(f"compiling {len(rows)} launches of {', '.join(sorted({_package(row) for row in rows}))}")
        with Pool() as pool, ThreadPoolExecutor(max_workers=pool.size) as threads:
            for item in threads.map(compiled, rows):
                if isinstance(item, str):
                    progress(item)
                else:
                    measured.append(item)
    if not measured:
        raise InputError("no measured launch that can be compiled", None, f"a folder with {FILE}")
    return measured


REQUIRED = ("gpu", "kernel", "file", "as_of", "signature", "constexprs", "arguments", "tensors", "contents", "grid", "cache", "measured_us")


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        text = read_bytes(path, path.name, "measured launches", LIMIT_BYTES, unpack=True).decode()
        rows = [json.loads(line) for line in text.splitlines()]
    except ValueError as error:
        raise InputError(f"{path}: a line is not JSON", str(error), "one measured launch a line") from None
    for number, row in enumerate(rows, 1):
        lacking = REQUIRED if not isinstance(row, dict) else [key for key in REQUIRED if key not in row]
        if lacking:
            raise InputError(f"{path}: line {number} is no measured launch", f"without {', '.join(lacking)}", ", ".join(REQUIRED))
    return rows


def _package(row: Mapping[str, Any]) -> str:
    return str(row["file"]).partition("/")[0]


def as_defined(row: dict[str, Any], candidates: Iterable[Release]) -> tuple[dict[str, Any], SourceFile]:
    """A launch as the release defines its kernel that fits it best, nearest to its date among equals, and the file.

    Kernels change between releases: a constant that the release does not take is dropped, and where as many arguments are left, those
    of other names are taken by their places. A kernel that is said to be of the newest code, and is not in it, is of the oldest that fits.

    Raises:
        InputError: No release has the kernel.
    """
    fits = []
    for release in candidates:
        path = release.folder / row["file"]
        if path.is_file() and row["kernel"] in (source := _source(path)).definitions:
            parameters = [p.name for p in source.kernel(row["kernel"]).parameters]
            given = [name for name, kind in row["signature"].items() if name in parameters or kind != "constexpr"]
            arguments = dict(zip(given, parameters, strict=False))
            if len(given) != len(parameters) or any(a != b and (a in parameters or b in given) for a, b in arguments.items()):
                arguments = {name: name for name in given if name in parameters}
            fits.append((len(parameters) + len(row["signature"]) - 2 * len(arguments), release.built, arguments, source))
    if not fits:
        raise InputError(f"no release has {row['kernel']} in {row['file']}")
    least = min(missing for missing, *_ in fits)
    when = _when(row["as_of"], candidates, newest=date.max if not least else date.min)
    _, _, arguments, source = min((fit for fit in fits if fit[0] == least), key=lambda fit: abs(fit[1] - when))
    renamed = {
        key: {arguments[name]: value for name, value in row[key].items() if name in arguments}
        for key in ("signature", "constexprs", "arguments", "tensors", "contents")
    }
    return {**row, **renamed}, source


_source = lru_cache(maxsize=64)(read_source)  # parsed once for all launches of its kernels


def _when(as_of: str, candidates: Iterable[Release], newest: date) -> date:
    """The day of a launch's code: given as one, as the release "NAME VERSION", or as the newest code, "HEAD".

    Raises:
        InputError: It is none of these.
    """
    if as_of == "HEAD":
        return newest
    try:
        return date.fromisoformat(as_of)
    except ValueError:
        version = as_of.rpartition(" ")[2]
        built = [candidate.built for candidate in candidates if candidate.folder.name.split("-")[1:2] == [version]]
        if not built:
            raise InputError(f"no release is {as_of}", as_of, "a day, NAME VERSION, or HEAD") from None
        return built[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release: the day that its wheel was built, and the folder that it is unpacked in."""

    built: date
    folder: Path


def releases(package: str, progress: Callable[[str], None], distribution: str = "") -> list[Release]:
    """All releases of a package, the oldest first, by the name that pip knows it by (else the package's own); those that the cache folder
    lacks are fetched, unless it holds wheels of another name (put there by hand).

    Raises:
        MissingDependencyError: There are none in the cache folder, and pip cannot fetch them.
    """
    wheels = read_settings().cache_dir / "releases" / package
    wheels.mkdir(parents=True, exist_ok=True)
    have = {(name, version) for name, version, *_ in (wheel.name.split("-") for wheel in wheels.glob("*.whl"))}
    distribution = (distribution or package).replace("-", "_")  # as wheels are named
    try:
        versions = _versions(distribution, wheels) if not have or distribution in {name for name, _ in have} else []
    except MissingDependencyError:
        if not have:
            raise
        versions = []
    lacking = [version for version in versions if (distribution, version) not in have]
    if lacking:
        progress(f"fetching {len(lacking)} releases of {package} with pip, to be parsed")
    for version in lacking:
        _pip(["download", "--no-deps", "--only-binary", ":all:", "-d", str(wheels), f"{distribution}=={version}"], wheels)
    return sorted(_unpacked(wheels), key=lambda release: release.built)


def _unpacked(wheels: Path) -> Iterator[Release]:
    for wheel in wheels.glob("*.whl"):
        folder = wheels / wheel.name.removesuffix(".whl")
        with zipfile.ZipFile(wheel) as archive:
            built = max(member.date_time[:3] for member in archive.infolist())
            if not folder.is_dir():
                archive.extractall(folder)
        yield Release(built=date(*built), folder=folder)


def _versions(package: str, wheels: Path) -> list[str]:
    listed = _pip(["index", "versions", package], wheels).partition("Available versions:")[2].splitlines()
    return [version.strip() for version in listed[0].split(",")] if listed else []


def _pip(arguments: list[str], wheels: Path) -> str:
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode and arguments[0] == "index":
        why = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        raise MissingDependencyError(f"pip cannot fetch what was measured: {why}", remedy=f"put the wheels of its releases into {wheels}")
    return done.stdout


PRIOR: Mapping[str, tuple[float, float]] = {
    "start": (1.0, 0.3),
    "amd_start_us": (10.0, 10.0),
    "cta_us": (0.5, 0.5),
    "round_us": (0.6, 0.1),
    "reduce_us": (0.3, 0.3),
    "warm start_us": (0.8, 0.2),
    "warm cta_us": (0.4, 0.3),
    "warm round_us": (0.5, 0.3),
    "warm reduce_us": (0.2, 0.2),
    "dram": (0.0, 0.1),
    "gddr": (0.05, 0.05),
    "dram 8.0": (-0.09, 0.1),
    "dram 9.0": (0.01, 0.1),
    "dram 10.0": (-0.17, 0.1),
    "dram gfx942": (-0.21, 0.1),
}
"""What a constant is without measurements, and its standard deviation: assumed, but for how long a load waits for DRAM
(`schedule.DRAM_LATENCY_US`; few launches tell it from the rest of what they take) and what DRAM sustains. That is what published copies
and reads have, relative to the 0.94 of `pipelines.dram`: BabelStream Dot 1.75 TB/s on an A100, 3.18 on an H100 (Azure, AI-benchmarking-
guide), bandwidthTest 6.0 on a B200 (newmind.ai, journal 18), over 1 less the turns of reads and writes. On an MI300X Triton's RMS norms
reach 3.0 and 3.6 TB/s (ROCm/triton issue 422, ROCm/aiter pull request 335) where BabelStream copies 4.1."""
OWN = {"dram": (0.0, 0.1), "start": (0.0, 0.1)}
"""The same of a compute capability's own part."""
SHARPNESS = 0.05
"""Log error beyond which a row counts less than its square: some rows hold the filling of a tensor, or wait for the host."""
FOLDS = 5
"""Of kernels left out, for the errors on GPUs that are known."""
LEAST = 8
"""Errors below which a regime has too few for quantiles of its own, and takes those of another; three times those of another vendor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Launches of one GPU with one cache state, stacked: demand, measured latency and bound in microseconds [n]."""

    gpu: GpuSpec
    cache: str
    kernels: tuple[str, ...]
    chains: tuple[Any, ...]
    demand: Demand
    us: Array
    bound_us: Array

    def take(self, chosen: Sequence[int]) -> Rows:
        """Some of the rows."""
        return replace(
            self,
            kernels=tuple(self.kernels[i] for i in chosen),
            chains=tuple(self.chains[i] for i in chosen),
            demand=_columns([self.demand], chosen),
            us=self.us[list(chosen)],
            bound_us=self.bound_us[list(chosen)],
        )

    def predicted_us(self, constants: Constants) -> Array:
        """Predicted latencies [n] in microseconds."""
        phases = [constants.phases(chain, self.gpu, self.cache) for chain in self.chains]
        start = None if phases[0].start_us is None else np.concatenate([item.start_us for item in phases if item.start_us is not None])
        serial, share = (np.concatenate([getattr(item, name) for item in phases]) for name in ("serial_us", "dram_share"))
        return latency_us(replace(self.demand, phases=Phases(start_us=start, serial_us=serial, dram_share=share)), self.gpu)


def _columns(parts: Sequence[Any], chosen: Sequence[int] | slice = slice(None)) -> Any:
    """Dataclasses of columns, one behind the other; what is no column is that of the first."""
    first = parts[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)[chosen]
    if isinstance(first, Mapping):
        return {name: _columns([part[name] for part in parts], chosen) for name in first}
    if isinstance(first, (Demand, Resources)):
        return replace(
            first, **{f.name: _columns([getattr(part, f.name) for part in parts], chosen) for f in fields(first) if f.name != "phases"}
        )
    return first


def stacked(measured: Iterable[Measured]) -> list[Rows]:
    """Launches without matrix products, by GPU and cache state."""
    groups = grouped(((entry.gpu.name, entry.analysis.cache), entry) for entry in measured if entry.analysis.demand.phases is not None)
    return [
        Rows(
            gpu=group[0].gpu,
            cache=cache,
            kernels=tuple(item.kernel for item in group),
            chains=tuple(item.analysis.chain for item in group),
            demand=_columns([item.analysis.demand for item in group]),
            us=np.array([item.us for item in group]),
            bound_us=np.array([item.analysis.bound.us for item in group]),
        )
        for (_, cache), group in groups.items()
    ]


def fit(rows: Sequence[Rows]) -> Constants:
    """The constants, without errors.

    Raises:
        MissingDependencyError: scipy is not installed.
    """
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise MissingDependencyError("training needs scipy", remedy="pip install 'triton-advisor[train]'") from None
    generation = {f"{kind} {row}": OWN[kind] for row in sorted({part.gpu.compute_capability for part in rows}) for kind in OWN}
    prior = {**generation, **PRIOR}
    middle, spread = (np.array(column) for column in zip(*prior.values(), strict=True))

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        constants = Constants(values=dict(zip(prior, x.tolist(), strict=True)), errors={})
        missed = [np.log(part.predicted_us(constants) / part.us) / SHARPNESS for part in rows if len(part.us)]
        return np.concatenate([*missed, (x - middle) / spread])

    solved = least_squares(residuals, middle, loss="cauchy", x_scale=spread)
    return Constants(values=dict(zip(prior, solved.x.tolist(), strict=True)), errors={})


def _errors(constants: Constants, part: Rows) -> Iterable[tuple[str, float]]:
    """Regime and log(measured / predicted) of rows."""
    for us, error in zip(predicted := part.predicted_us(constants), np.log(part.us / predicted), strict=True):
        yield constants.regime(float(us), part.gpu), float(error)


def calibrated(rows: Sequence[Rows]) -> Constants:
    """The constants with their errors: on kernels left out for compute capabilities that are known, on GPUs left out for others."""
    errors: dict[str, list[float]] = {}

    def judge(kept: Sequence[Rows], gone: Sequence[Rows]) -> None:
        constants = fit(kept)
        for part in gone:
            for name, error in _errors(constants, part):
                errors.setdefault(name, []).append(error)

    names = sorted({kernel for part in rows for kernel in part.kernels})
    for fold in range(FOLDS):
        gone = frozenset(names[fold::FOLDS])
        split = [[[i for i, name in enumerate(part.kernels) if (name in gone) == out] for out in (False, True)] for part in rows]
        judge(
            [part.take(kept) for part, (kept, _) in zip(rows, split, strict=True) if kept],
            [part.take(left) for part, (_, left) in zip(rows, split, strict=True) if left],
        )
    for generations in sorted({part.gpu.compute_capability for part in rows}):
        kept = [part for part in rows if part.gpu.compute_capability != generations]
        if kept:
            judge(kept, [part for part in rows if part.gpu.compute_capability == generations])
    regimes = {", ".join(item): item for item in itertools.product(("nvidia", "amd"), ("long", "short"), ("known", "new"))}
    fitted = {}
    for name, (vendor, length, known) in regimes.items():
        wider = (name, f"{vendor}, long, {known}", f"{vendor}, {length}, new", f"nvidia, {length}, new", f"nvidia, long, {known}")
        key = next((key for key in wider if len(errors.get(key, ())) >= LEAST), None)
        low, high = np.quantile(errors[key] if key else [*itertools.chain(*errors.values())], (0.1, 0.9)).tolist()
        foreign = 1.0 if key and key.startswith(vendor) else 3.0  # of a vendor of which too little was measured
        fitted[name] = (foreign * min(low, -0.03), foreign * max(high, 0.03))
    return replace(fit(rows), errors=fitted)


def train(paths: Iterable[Path | str], exclude_gpus: Sequence[str], progress: Callable[[str], None]) -> dict[str, Any]:
    """`ceilings/kernels.json`."""
    folders = [Path(path) for path in paths]
    rows = stacked(read(folders, exclude_gpus, progress))
    published = "fitted to launches published by Liger-Kernel (linkedin/Liger-Kernel, benchmark/data; BSD-2-Clause, (c) LinkedIn)"
    progress(f"fitting {sum(len(part.us) for part in rows)} launches")
    constants = calibrated(rows)
    return {
        "source": published + ("" if all((path / FILE).is_file() for path in folders) else " and to this project's own"),
        "gpus": sorted({part.gpu.name for part in rows}),
        "values": {name: round(value, 4) for name, value in constants.values.items()},
        "errors": {name: [round(end, 4) for end in ends] for name, ends in constants.errors.items()},
    }


def judge(
    paths: Iterable[Path | str],
    leave_out: Sequence[str] | None,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Figures by GPU and length of the launch.

    Args:
        paths: Folders of measured launches.
        leave_out: GPUs to leave out one by one, all that were measured where it is empty; None: the constants shipped are judged.
        progress: Told what is being done.

    Raises:
        NothingMatchedError: Nothing was measured on these GPUs.
    """
    rows = stacked(read(paths, (), progress))
    judged: list[tuple[Rows, np.ndarray, np.ndarray]] = []
    for part in rows:
        if leave_out and part.gpu.name not in leave_out:
            continue
        constants = shipped()
        if leave_out is not None:
            progress(f"{part.gpu.name} left out")
            constants = calibrated([other for other in rows if other.gpu.name != part.gpu.name])
        us = part.predicted_us(constants)
        ends = [constants.interval(float(item), part.gpu) for item in us]
        inside = np.array([low <= taken <= high for (low, high), taken in zip(ends, part.us, strict=True)])
        judged.append((part, np.log(us / part.us), inside))
    if not judged:
        raise NothingMatchedError(
            "nothing was measured on these GPUs", ", ".join(leave_out or ()), ", ".join(part.gpu.name for part in rows)
        )
    groups = {part.gpu.name: {part.gpu.name} for part in rows}
    groups |= {"NVIDIA": {part.gpu.name for part in rows if part.gpu.vendor == "nvidia"}, "all": set(groups)}
    figures = {}
    for name, gpus in groups.items():
        for far in (True, False):
            columns = []
            for part, error, inside in judged:
                chosen = (part.us >= LONG_US) == far if part.gpu.name in gpus else np.zeros(len(part.us), bool)
                columns.append((error[chosen], inside[chosen], (part.us < part.bound_us)[chosen]))
            together = [np.concatenate(column) for column in zip(*columns, strict=True)]
            if together[0].size:
                figures[f"{name}, {'from' if far else 'below'} {LONG_US:g} us"] = summed(*together)
    return figures
