"""`Prediction` and `Predictor`: the form of every answer, learned or analytical, where the two meet, and the caveats that every command
words the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch
from advisor.pipelines.batch import by_kind
from advisor.pipelines.tile import compute_pipeline
from advisor.result.schema import Latency, LaunchReport, Problem
from advisor.system.errors import part

ANALYTICAL, EXTRAPOLATED = "analytical model", "extrapolated"
"""What results call values of the analytical model, and add to the name of a learned one outside what it has learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted latencies, columns [n], microseconds; inf where a configuration cannot launch.

    `low_us`..`high_us` should hold `coverage` of measurements. `learned` says which rows a learned model vouches for; the rest lie
    outside what was learned: `share` says how much of them is the learned model all the same, extrapolating, and the remainder is the
    analytical model's. None: nothing.
    """

    us: Array
    low_us: Array
    high_us: Array
    learned: NDArray[np.bool_]
    coverage: float = 0.8
    share: Array | None = None

    @property
    def extrapolates(self) -> NDArray[np.bool_]:
        """For which rows a learned model answers that it does not vouch for, [n]."""
        return np.isfinite(self.us) & ~self.learned & (self.share is not None and self.share > 0)

    @property
    def extrapolated(self) -> int:
        """The number of those rows."""
        return int(self.extrapolates.sum())

    @property
    def analytical(self) -> int:
        """The number of rows that can launch for which no learned model answers."""
        silent = True if self.share is None else self.share <= 0
        return int((np.isfinite(self.us) & ~self.learned & silent).sum())

    def take(self, index: slice | NDArray[np.intp]) -> Prediction:
        """The rows `index` of every column."""
        share = None if self.share is None else self.share[index]
        us, low, high = (column[index] for column in (self.us, self.low_us, self.high_us))
        return replace(self, us=us, low_us=low, high_us=high, learned=self.learned[index], share=share)

    def sigma(self, i: int) -> float:
        """Standard deviation of the log of measured over predicted latency, as the interval of row i has it; 0 where there is none."""
        low, high = (float(bound.reshape(-1)[min(i, bound.size - 1)]) for bound in (self.low_us, self.high_us))
        if not 0 < low < high < math.inf:
            return 0.0
        return math.log(high / low) / (2 * NormalDist().inv_cdf(0.5 + min(max(self.coverage, 0.01), 0.999) / 2))

    def source(self, i: int, name: str) -> str:
        """The origin of row i as results name it, where the predictor is called `name`."""
        if self.learned[i]:
            return name
        return f"{name}, {EXTRAPOLATED}" if self.share is not None and self.share[i] > 0 else ANALYTICAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The order of configurations for problems that share one: their scores, [c], and the first configuration of each problem alone."""

    scores: Array
    first: tuple[int, ...]


def ranking_of(scores: Callable[[Sequence[ProblemBatch]], Array], problems: Sequence[ProblemBatch]) -> Ranking:
    """The ranking of a group by scores that are asked for the group, and for each of its problems."""
    together = scores(problems)
    alone = [together] if len(problems) == 1 else [scores([problem]) for problem in problems]
    return Ranking(scores=together, first=tuple(int(np.argmin(scored)) for scored in alone))


class Predictor(Protocol):
    """Predicts the latency of launches. Pure: no I/O, no clock; vectorised over configurations and problems."""

    @property
    def name(self) -> str:
        """The name of the predictor in results: "analytical model", "learned model (weights 1a2b3c4d)"."""
        ...

    def predict(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction:
        """Latencies; `configuration` None: as the serving stack would launch it, whatever that is."""
        ...

    def ceiling(self, problem: ProblemBatch, gpu: GpuSpec) -> Prediction:
        """The best latency within the kernel's configuration space."""
        ...

    def library_reference(self, problem: ProblemBatch, gpu: GpuSpec) -> Latency | None:
        """The latency of the best library kernel for one problem, where such kernels were measured."""
        ...

    def scores(self, problems: ProblemBatch | Sequence[ProblemBatch], configuration: ConfigurationBatch, gpu: GpuSpec) -> Array:
        """For ranking configurations of one problem, or of several (a batch of one each) that share whichever is chosen and weigh as
        much as the time they take: smaller is better; inf where it cannot launch. Only their order means something: what resembles the
        first ones may come later than it would alone, for whoever tries several."""
        ...

    def rankings(self, groups: Sequence[Sequence[ProblemBatch]], configuration: ConfigurationBatch, gpu: GpuSpec) -> list[Ranking]:
        """The `scores` of several groups of problems at once, what they share computed once."""
        ...

    def p_gain(self, problem: ProblemBatch, gpu: GpuSpec, now: Prediction, then: Prediction) -> float:
        """Probability that a configuration predicted to take `then` is 2 % faster than one predicted to take `now`, of one problem: by what
        such choices won on launches left out where they were measured, else by both intervals."""
        ...

    def record(self, problem: ProblemBatch, gpu: GpuSpec) -> str:
        """What choices of such a kind won on launches left out, in words; empty where none were measured."""
        ...

    def p_speedup(
        self,
        problem: ProblemBatch,
        gpu: GpuSpec,
        latency_us: Array | None,
        prediction: Prediction,
        ceiling: Prediction,
        configuration: ConfigurationBatch | None = None,
        at_least: float = 1.1,
    ) -> Array:
        """Probability that the best configuration is `at_least` times faster than the launch.

        `latency_us` is measured, or None; `prediction` is of the same launch, with the same `configuration` (None: as served)."""
        ...


def predict_each(predictor: Predictor, launches: Sequence[tuple[Problem, ConfigurationBatch]], gpu: GpuSpec) -> list[Prediction]:
    """What each problem takes with each of its configurations, columns [c]: all launches of a kind are predicted in one call."""
    predictions: dict[int, Prediction] = {}
    for kind in by_kind(launches):
        prediction = predictor.predict(kind.problem, kind.configuration, gpu)
        predictions |= {place: prediction.take(rows) for place, rows in zip(kind.places, kind.rows, strict=True)}
    return [predictions[place] for place in range(len(launches))]


def tunable_ceiling(calibrated: Prediction, bound_us: Array, *members_us: Array) -> Prediction:
    """The predicted tunable ceiling of problems, columns [n], microseconds.

    The model's ceiling is calibrated to be right on average; a configuration of the space that is predicted faster is reached all the same,
    so that no command shows a configuration below the ceiling. Commands know different ones: `predict` and `audit` that of each launch;
    `advise`, `tune` and the comparison have ranked the space and know the first-ranked one too, so that theirs may be lower: on 96
    launches of three models on four GPUs with sweeps by 0.2 % on average and at most 4 %, where the analytical model answers by more.

    Args:
        calibrated: `Predictor.ceiling` of the problems.
        bound_us: Their bounds, [n]: no ceiling is lower.
        members_us: What is predicted of configurations of the space, [n] each; inf where one cannot launch.
    """
    us = np.maximum(np.minimum.reduce([calibrated.us, *members_us]), bound_us)
    return replace(calibrated, us=us, low_us=np.minimum(calibrated.low_us, us), high_us=np.maximum(calibrated.high_us, us))


PRODUCTS = ("gemm", "attention", "w13", "w2")
"""Families and operators that multiply matrices."""


def unmeasured_vendor(gpus: Iterable[GpuSpec]) -> tuple[str, ...]:
    """A sentence where a GPU is of a vendor of which next to nothing was measured; nothing for the others."""
    names = list(dict.fromkeys(gpu.name for gpu in gpus if gpu.vendor == "amd"))
    if not names:
        return ()
    specified = f"the figures of {', '.join(names)} are specified ones"
    return (f"Of AMD's Triton products only fp16 GEMMs of an MI250X were measured: intervals are as wide as those, and {specified}.",)


def exact_products(problems: Iterable[Problem], gpu: GpuSpec) -> tuple[str, ...]:
    """Where the bound of a product is shown that the GPU's matrix units take faster less exactly, a sentence that says so; else nothing."""
    types = {p.dtype for p in problems if p.op in PRODUCTS or p.family in PRODUCTS}
    caveats: list[str] = []
    if "fp32" in types and compute_pipeline(gpu, "tf32") is not None:
        caveats.append(
            "fp32 means exact products here: their bound is that of the vector units, and input_precision tf32 or tf32x3 "
            "(--dtype tf32) can go below it."
        )
    if "fp16" in types and "fp16" in (gpu.fp16_accumulator_flop_per_clock_per_sm or {}):
        caveats.append(f"fp16 means products summed up in fp32 here: on {gpu.name}, out_dtype=tl.float16 can go below their bound.")
    return tuple(caveats)


HELD_SHARE = 0.1
"""From which share of the latency on the power limit is worth a sentence."""


def held_by_power(launches: Sequence[LaunchReport], gpu: GpuSpec) -> tuple[str, ...]:
    """A sentence where the board's power limit, which no configuration gets around, takes much of the latency; else nothing."""
    held = sum(
        piece.us > HELD_SHARE * report.predicted.us
        for report in launches
        for piece in report.gap
        if piece.cause == "power" and report.predicted is not None
    )
    if not held:
        return ()
    where = part(held, len(launches), "launch")
    return (
        f"The board's {gpu.board_power_w:g} W hold the clock down in {where}, whatever the configuration: bounds are those of the "
        "highest clock.",
    )
