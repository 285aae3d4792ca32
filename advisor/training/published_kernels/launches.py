"""Measured launches of kernels of published packages and of files beside them, each compiled as it was launched.

A folder of them holds `launches.jsonl`, or files `*launches.jsonl.gz` such as those of `ceilings/measurements/`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.demand import Counted
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.records import kernel_launch
from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.python_source.source import SourceFile, read_source
from advisor.rows.launches import recorded_launch
from advisor.system.errors import AdvisorError, InputError, MissingDependencyError
from advisor.system.reading import read_bytes
from advisor.system.settings import read_settings

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
                packages[package] = [Release(built=date.max, folder=Path(path))] if beside else releases(package, progress)
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
        if path.is_file() and row["kernel"] in (source := read_source(path)).definitions:
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
    tables = ("signature", "constexprs", "arguments", "tensors", "contents")
    renamed = {key: {arguments[name]: value for name, value in row[key].items() if name in arguments} for key in tables}
    return {**row, **renamed}, replace(source)


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


def releases(package: str, progress: Callable[[str], None]) -> list[Release]:
    """All releases of a package, the oldest first; those that the cache folder lacks are fetched, unless it holds wheels of another name
    (put there by hand).

    Raises:
        MissingDependencyError: There are none in the cache folder, and pip cannot fetch them.
    """
    wheels = read_settings().cache_dir / "releases" / package
    wheels.mkdir(parents=True, exist_ok=True)
    have = {(name, version) for name, version, *_ in (wheel.name.split("-") for wheel in wheels.glob("*.whl"))}
    try:
        versions = _versions(package, wheels) if not have or package in {name for name, _ in have} else []
    except MissingDependencyError:
        if not have:
            raise
        versions = []
    lacking = [version for version in versions if (package, version) not in have]
    if lacking:
        progress(f"fetching {len(lacking)} releases of {package} with pip, to be parsed")
    for version in lacking:
        _pip(["download", "--no-deps", "--only-binary", ":all:", "-d", str(wheels), f"{package}=={version}"], wheels)
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
