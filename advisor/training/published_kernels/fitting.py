"""The constants of `compiled.phases`, by robust least squares of the log error, and what is left of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.phases import LONG_US, Constants, shipped
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import Array
from advisor.pipelines.demand import Demand, Phases
from advisor.pipelines.occupancy import Resources
from advisor.pipelines.schedule import latency_us
from advisor.system import grouped
from advisor.system.errors import MissingDependencyError, NothingMatchedError
from advisor.training.library_kernels.judging import summed
from advisor.training.published_kernels.launches import Measured, read

PRIOR: Mapping[str, tuple[float, float]] = {
    "start": (1.0, 0.3),
    "amd_start_us": (10.0, 10.0),
    "cta_us": (0.5, 0.5),
    "round_us": (0.6, 0.5),
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
"""What a constant is without measurements, and its standard deviation: assumed, but for what DRAM sustains. That is what published copies
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
    rows = stacked(read(paths, exclude_gpus, progress))
    progress(f"fitting {sum(len(part.us) for part in rows)} launches")
    constants = calibrated(rows)
    return {
        "source": "fitted to launches published by Liger-Kernel (linkedin/Liger-Kernel, benchmark/data; BSD-2-Clause, (c) LinkedIn)",
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
