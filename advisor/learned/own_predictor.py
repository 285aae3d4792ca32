"""The learned predictor, corrected on GPUs of which the weights hold rows of their own (`advisor calibrate`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec
from advisor.learned.analytical import within_bound
from advisor.learned.base import Prediction, Predictor
from advisor.learned.estimator import LearnedPredictor, at_least_us, p_of_intervals
from advisor.learned.library.kernels import IMPLEMENTATIONS
from advisor.learned.own_rows import OwnRows
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch
from advisor.result.schema import Latency

SIZES = ("M", "N", "K", "E", "topk", "H", "B", "D", "H_kv", "window")
PARAMETERS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "BLOCK_M", "BLOCK_N")
USUAL_TILE = 128
"""Side of the tiles of a kernel whose configuration is not known."""

MANY_WAVES = 30


def kind_of(problem: ProblemBatch, configured: bool) -> str:
    """Launches whose errors are told from each other's."""
    blocks = " in blocks" if problem.block_shape else ""
    return f"{problem.family} {problem.op} {problem.dtype}{blocks}{' configured' if configured else ''}"


def features(problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec, us: Array) -> Array:
    """What launches predicted to take `us` [n] have in common or not, [n, f]; NaN where it is not known."""
    s = problem.sizes
    parameters = {} if configuration is None else {**configuration.parameters, "w": configuration.num_warps, "s": configuration.num_stages}
    bound = pipelines.bound(pipelines.work(problem, gpu), gpu, problem.cache).us
    rows, columns = (parameters.get(f"BLOCK_SIZE_{axis}", np.full(1, float(USUAL_TILE))) for axis in "MN")
    tiles = np.ones(1)
    if problem.family == "gemm":
        tiles = np.ceil(s["M"] / rows) * np.ceil(s["N"] / columns)
    elif problem.family == "fused_moe":
        own, count = problem.routing
        tiles = (np.ceil(own / np.reshape(rows, (-1, 1))) * count).sum(axis=1) * np.ceil(s["N"] / columns)
    elif problem.family == "attention":
        tiles = np.ceil(s["M"] / USUAL_TILE) * s["B"] * np.maximum(s["H_kv"], 1)
    waves = tiles / gpu.num_sms
    whose = [
        np.nan if problem.stack is None else float(problem.stack.lower() == "vllm"),
        float(IMPLEMENTATIONS.index(problem.implementation)) if problem.implementation in IMPLEMENTATIONS else np.nan,
        problem.weight_bytes,
        float(problem.cache == "cold"),
    ]
    found: list[Array | float] = [np.log(np.maximum(s[name], 1)) if name in s else 0.0 for name in SIZES]
    found += [np.log(parameters[name]) if name in parameters else np.nan for name in (*PARAMETERS, "w", "s")]
    found += [np.log(waves), np.where(waves < MANY_WAVES, waves / np.ceil(waves), 1.0), *whose, np.log(us), np.log(us / bound)]
    return np.stack([np.broadcast_to(np.asarray(each, dtype=np.float64), us.shape) for each in found], axis=1)


class OwnPredictor:
    """`base` with corrections by GPU and `kind_of`; see `base.Predictor`."""

    def __init__(self, base: LearnedPredictor, own: Mapping[tuple[str, str], OwnRows]) -> None:
        self.base, self.own = base, own
        self.weights, self.name = base.weights, base.name

    def predict(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction:
        """Latencies; `configuration` None: as the serving stack would launch it."""
        found, own = self.base.predict(problem, configuration, gpu), self._own(problem, configuration is not None, gpu)
        return found if own is None else _corrected(found, own, problem, configuration, gpu)

    def ceiling(self, problem: ProblemBatch, gpu: GpuSpec) -> Prediction:
        """The best latency within the kernel's configuration space: off by as much as launches that were measured."""
        found, own = self.base.ceiling(problem, gpu), self._own(problem, True, gpu) or self._own(problem, False, gpu)
        return found if own is None else _corrected(found, own, problem, None, gpu)

    def library_reference(self, problem: ProblemBatch, gpu: GpuSpec) -> Latency | None:
        """The latency of the best library kernel for one problem, where such kernels were measured."""
        found, own = self.base.library_reference(problem, gpu), self._own(problem, False, gpu)
        if found is None or own is None:
            return found
        us, low, high = (np.array([each]) for each in (found.us, found.low_us or found.us, found.high_us or found.us))
        prediction = Prediction(us=us, low_us=low, high_us=high, learned=np.ones(1, dtype=bool))
        moved = [float(each[0]) for each in _columns(_corrected(prediction, own, problem, None, gpu))]
        return replace(found, us=moved[0], low_us=moved[1], high_us=moved[2], source=f"{found.source}, as {len(own)} own rows correct it")

    def scores(self, problems: ProblemBatch | Sequence[ProblemBatch], configuration: ConfigurationBatch, gpu: GpuSpec) -> Array:
        """The order of configurations, which no correction changes."""
        return self.base.scores(problems, configuration, gpu)

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
        return self.own.get((gpu.name, kind_of(problem, configured)))


def predictor_of(base: LearnedPredictor) -> Predictor:
    """`base`, or where its weights hold rows of some GPU one that they correct."""
    return OwnPredictor(base, base.weights.own) if base.weights.own else base


def _columns(found: Prediction) -> tuple[Array, Array, Array]:
    return found.us, found.low_us, found.high_us


def _corrected(
    found: Prediction, own: OwnRows, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec
) -> Prediction:
    """A prediction of launches of the kind of `own`; those that cannot launch stay infinite, and none is below the bound."""
    launches = np.isfinite(found.us)
    us, low, high = (np.where(launches, each, 1.0) for each in _columns(found))
    moved = own.corrected(features(problem, configuration, gpu, us), us, low, high)
    work = pipelines.work(problem, gpu)
    if configuration is None:
        least = pipelines.bound(work, gpu, problem.cache).us
    else:
        least = pipelines.config_bound(work, pipelines.demand(problem, configuration, gpu), gpu, problem.cache).us
    us, low, high = (np.where(launches, each, np.inf) for each in at_least_us(moved, least))
    return replace(found, us=us, low_us=low, high_us=high, learned=launches, share=np.ones(us.shape))
