"""The learned predictor, corrected on GPUs of which the weights hold rows of their own (`advisor calibrate`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec
from advisor.learned.analytical import least_of, within_bound
from advisor.learned.base import Prediction, Predictor, Ranking, ranking_of
from advisor.learned.configured import features as configured
from advisor.learned.configured.model import BEHIND, DIGITS
from advisor.learned.estimator import LearnedPredictor
from advisor.learned.intervals import at_least_us, p_of_intervals
from advisor.learned.library.kernels import IMPLEMENTATIONS
from advisor.learned.own_rows import OwnRows
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch
from advisor.result.schema import Latency

SIZES = ("M", "N", "K", "E", "topk", "H", "B", "D", "H_kv", "window")
USUAL_TILE = 128
"""Side of the tiles of a kernel whose configuration is not known."""

MANY_WAVES = 30


POOLS = {
    "gemm": "products",
    "fused_moe": "products",
    "attention": "attention",
    "normalization": "row by row",
    "elementwise": "row by row",
}
OPERATORS = ("gemm", "w13", "w2", "prefill", "decode", "rms_norm", "layer_norm", "softmax")
"""Launches of a known configuration tell of each other's errors within a pool: 300 rows of thirteen kinds on an H100, on problems left
out, were 17.7 % off, their first picks 1.115 of the best, where each kind was told by itself and by its sizes and tiles; together, by what
they ask of the GPU, 14.3 % and 1.044 (`ATTEMPTS.md`). Operators besides these are told from them by what they ask alone."""

LOOKED_AT = 64
"""Configurations of a space that are put in the order in which the corrections have them."""


def kind_of(problem: ProblemBatch, configured: bool) -> str:
    """Launches whose errors are told from each other's; of those of a known configuration as long as all of their pool are few."""
    if configured:
        return f"configured {POOLS[problem.family]}"
    return f"{problem.family} {problem.op} {problem.dtype}{' in blocks' if problem.block_shape else ''}"


def parts_of(pool: str, matrix: Array) -> list[str]:
    """What of a pool launches of these `demands` [n, f] are, where all of it are too many."""
    operator, width = matrix[:, -len(OPERATORS) :], matrix[:, configured.NAMES.index("operand_bytes")]
    names = np.where(operator.any(axis=1), np.array(OPERATORS)[operator.argmax(axis=1)], "other")
    return [f"{pool}: {name} of {item:g} bytes" for name, item in zip(names, width, strict=True)]


def demands(problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Array:
    """What launches of a known configuration ask of the GPU, and their operator, [n, f]; NaN where there is no such thing."""
    with np.errstate(divide="ignore", invalid="ignore"):  # of no warps, which cannot launch
        matrix = configured.features(problem, configuration, gpu)[1].astype(np.float64)
    matrix[matrix == configured.NONE] = np.nan
    operator = [np.full(len(matrix), float(problem.op == name)) for name in OPERATORS]
    return np.column_stack([matrix, *operator])


def features(problem: ProblemBatch, gpu: GpuSpec, us: Array) -> Array:
    """What launches of a library's choice, predicted to take `us` [n], have in common or not, [n, f]; NaN where it is not known."""
    s = problem.sizes
    bound = pipelines.bound(pipelines.work(problem, gpu), gpu, problem.cache).us
    tiles = np.ones(1)
    if problem.family == "gemm":
        tiles = np.ceil(s["M"] / USUAL_TILE) * np.ceil(s["N"] / USUAL_TILE)
    elif problem.family == "fused_moe":
        rows, count = problem.routing
        tiles = (np.ceil(rows / USUAL_TILE) * count).sum(axis=1) * np.ceil(s["N"] / USUAL_TILE)
    elif problem.family == "attention":
        tiles = np.ceil(s["M"] / USUAL_TILE) * s["B"] * np.maximum(s["H_kv"], 1)
    waves = tiles / gpu.num_sms
    whose = [
        np.nan if problem.stack is None else float(problem.stack.lower() == "vllm"),
        float(IMPLEMENTATIONS.index(problem.implementation)) if problem.implementation in IMPLEMENTATIONS else np.nan,
        problem.weight_bytes,
        float(problem.cache == "cold"),
    ]
    columns: list[Array | float] = [np.log(np.maximum(s[name], 1)) if name in s else 0.0 for name in SIZES]
    columns += [np.log(waves), np.where(waves < MANY_WAVES, waves / np.ceil(waves), 1.0), *whose, np.log(us), np.log(us / bound)]
    return np.stack([np.broadcast_to(np.asarray(item, dtype=np.float64), us.shape) for item in columns], axis=1)


class OwnPredictor:
    """`base` with corrections by GPU and `kind_of`; see `base.Predictor`."""

    def __init__(self, base: LearnedPredictor, rows: Mapping[tuple[str, str], OwnRows]) -> None:
        self.base, self.corrections = base, rows
        self.weights, self.name = base.weights, base.name

    def predict(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction:
        """Latencies; `configuration` None: as the serving stack would launch it."""
        prediction, rows = self.base.predict(problem, configuration, gpu), self._own(problem, configuration is not None, gpu)
        return prediction if rows is None else _corrected(prediction, rows, problem, configuration, gpu)

    def ceiling(self, problem: ProblemBatch, gpu: GpuSpec) -> Prediction:
        """The best latency within the kernel's configuration space: off by as much as launches that were measured."""
        if problem.cache == "warm" and self._own(problem, True, gpu) is not None:
            return least_of(problem, gpu, lambda some, members: self.predict(some, members, gpu))
        prediction, rows = self.base.ceiling(problem, gpu), self._own(problem, False, gpu)
        return prediction if rows is None else _corrected(prediction, rows, problem, None, gpu)

    def library_reference(self, problem: ProblemBatch, gpu: GpuSpec) -> Latency | None:
        """The latency of the best library kernel for one problem, where such kernels were measured."""
        reference, rows = self.base.library_reference(problem, gpu), self._own(problem, False, gpu)
        if reference is None or rows is None:
            return reference
        us, low, high = (np.array([item]) for item in (reference.us, reference.low_us or reference.us, reference.high_us or reference.us))
        prediction = Prediction(us=us, low_us=low, high_us=high, learned=np.ones(1, dtype=bool))
        moved = [float(column[0]) for column in _columns(_corrected(prediction, rows, problem, None, gpu))]
        return replace(
            reference, us=moved[0], low_us=moved[1], high_us=moved[2], source=f"{reference.source}, as {len(rows)} own rows correct it"
        )

    def scores(self, problems: ProblemBatch | Sequence[ProblemBatch], configuration: ConfigurationBatch, gpu: GpuSpec) -> Array:
        """The order of configurations; the first of them as they are corrected, where launches of the kind were measured."""
        group = [problems] if isinstance(problems, ProblemBatch) else problems
        order = self.base.scores(group, configuration, gpu)
        if any(self._own(problem, True, gpu) is None for problem in group):
            return order
        first = np.argsort(order, kind="stable")[: min(LOOKED_AT, int(np.isfinite(order).sum()))]
        us = sum(self.predict(problem, configuration.take(first), gpu).us for problem in group)
        looked = np.round(np.log(us), DIGITS)
        behind = order[first].max(initial=0.0)
        order = order.copy()
        order[first] = behind + np.minimum(looked - looked.max(initial=-np.inf, where=np.isfinite(looked)) - BEHIND, 0.0)
        return order

    def rankings(self, groups: Sequence[Sequence[ProblemBatch]], configuration: ConfigurationBatch, gpu: GpuSpec) -> list[Ranking]:
        """The `scores` of several groups."""
        if all(self._own(problem, True, gpu) is None for group in groups for problem in group):
            return self.base.rankings(groups, configuration, gpu)
        return [ranking_of(lambda some: self.scores(some, configuration, gpu), group) for group in groups]

    def p_gain(self, problem: ProblemBatch, gpu: GpuSpec, now: Prediction, then: Prediction) -> float:
        """As the model that is corrected says of both: a correction that they share changes no order."""
        return self.base.p_gain(problem, gpu, now, then)

    def record(self, problem: ProblemBatch, gpu: GpuSpec) -> str:
        """That of the model that is corrected."""
        return self.base.record(problem, gpu)

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
        """Probability that the best configuration is `at_least` times faster, from the intervals where these were corrected."""
        if self._own(problem, configuration is not None, gpu) is None:
            return self.base.p_speedup(problem, gpu, latency_us, prediction, ceiling, configuration, at_least)
        return within_bound(p_of_intervals(latency_us, prediction, ceiling, at_least), problem, gpu, latency_us, at_least)

    def _own(self, problem: ProblemBatch, configured: bool, gpu: GpuSpec) -> OwnRows | None:
        kind = kind_of(problem, configured)
        rows = self.corrections.get((gpu.name, kind))
        if rows is None and configured:
            name = problem.op if problem.op in OPERATORS else "other"
            rows = self.corrections.get((gpu.name, f"{kind}: {name} of {problem.operand_bytes:g} bytes"))
        return rows


def predictor_of(base: LearnedPredictor) -> Predictor:
    """`base`, or where its weights hold rows of some GPU one that they correct."""
    return OwnPredictor(base, base.weights.corrections) if base.weights.corrections else base


def _columns(prediction: Prediction) -> tuple[Array, Array, Array]:
    return prediction.us, prediction.low_us, prediction.high_us


def _corrected(
    prediction: Prediction, rows: OwnRows, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec
) -> Prediction:
    """A prediction of launches of the kind of the user's `rows`; those that cannot launch stay infinite, and none is below the bound."""
    launches = np.isfinite(prediction.us)
    us, low, high = (np.where(launches, column, 1.0) for column in _columns(prediction))
    matrix = features(problem, gpu, us) if configuration is None else demands(problem, configuration, gpu)
    moved = rows.corrected(np.broadcast_to(matrix, (us.size, matrix.shape[1])), us, low, high)
    work = pipelines.work(problem, gpu)
    if configuration is None:
        least = pipelines.bound(work, gpu, problem.cache).us
    else:
        least = pipelines.config_bound(work, pipelines.demand(problem, configuration, gpu), gpu, problem.cache).us
    us, low, high = (np.where(launches, item, np.inf) for item in at_least_us(moved, least))
    return replace(prediction, us=us, low_us=low, high_us=high, learned=launches, share=np.ones(us.shape))
