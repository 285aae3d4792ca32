"""The learned predictor: what `advise`, `audit`, `predict` and `rank` ask. Outside what was learned it extrapolates, with wider intervals,
far outside the analytical model answers; `Prediction.learned` and `Prediction.share` say so."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec
from advisor.learned import calibration
from advisor.learned.analytical import NOTICED, SPREAD, AnalyticalPredictor, least_of, normal_cdf, stack_configuration, within_bound
from advisor.learned.base import Prediction, Predictor, Ranking, ranking_of
from advisor.learned.calibration import WIDEST
from advisor.learned.configured.features import features
from advisor.learned.configured.model import DIGITS, HOPPER, TIE, ConfiguredModel
from advisor.learned.intervals import (
    above_bound,
    at_least_us,
    joined,
    launchable,
    learned_share,
    middle,
    p_of_intervals,
    sigma,
    slowed,
    widened,
)
from advisor.learned.layers.layer_model import LayerProducts
from advisor.learned.layers.moe_layer import as_expert, scales_blocks, with_steps
from advisor.learned.library import direct, kernels
from advisor.learned.machine import TENSOR_MEMORY, Machine, machine
from advisor.learned.moe import corrections
from advisor.learned.moe.launch import Launch
from advisor.learned.moe.model import DOMAIN_MARGIN, Estimate, MoeModel, covers
from advisor.learned.moe.ranking_features import BEST
from advisor.learned.weights import Weights
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch
from advisor.pipelines.batch import one_row_ungrouped
from advisor.pipelines.bound import throughput_per_us
from advisor.pipelines.schedule import least_sustained_us
from advisor.result.schema import Latency

OLDEST_MEASURED = 8.0
"""Compute capability of the oldest GPU on which library kernels were measured; older ones have no bf16."""

ALIKE = 0.8
"""Correlation of the errors of two configurations of one problem (fused-MoE sweeps; see `AnalyticalPredictor.p_speedup`)."""

UNSWEPT = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}
"""The tile that vLLM and SGLang launch where a model has no table and more tokens than experts. The published sweeps keep what is within
1 % of their best, which it never is: what was learned of them makes it too fast, what was learned of whole layers does not (0.77 and 1.03
of what 21 such launches take on an H100, 0.72 and 0.93 of 422 with K steps of 32: `python tests/bench/layer_gains.py`)."""

MOST_RANKED = 256
"""Orders of spaces, and the least of them, that are remembered: more than a table asks for."""


class LearnedPredictor:
    """Predicts from weights; see `base.Predictor`."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.name = f"learned model (weights {weights.digest()})"
        self._analytical = AnalyticalPredictor()
        self._ranked: dict[bytes, Any] = {}

    def predict(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction:
        """Latencies; `configuration` None: as the serving stack would launch it."""
        answers = (predictor.answer(self, problem, configuration, gpu) for predictor in PREDICTORS)
        return next(prediction for prediction in answers if prediction is not None)

    def _served(self, problem: ProblemBatch, gpu: GpuSpec, served: Prediction) -> Prediction:
        """A product as the stack launches it, and no faster than the best."""
        least = self.ceiling(problem, gpu)
        slower = np.isfinite(served.us) & (served.us >= least.us)
        columns = ((served.us, least.us), (served.low_us, least.low_us), (served.high_us, least.high_us))
        us, low, high = (np.where(slower, mine, best) for mine, best in columns)
        return Prediction(us=us, low_us=low, high_us=high, learned=least.learned, share=np.ones(us.shape))

    def ceiling(self, problem: ProblemBatch, gpu: GpuSpec) -> Prediction:
        """The best latency within the kernel's configuration space."""
        if self._configured(as_expert(problem), gpu) is not None:
            return self._remembered((problem, gpu), self._least_of_space)
        if problem.cache != "warm":
            return self._with_cache(problem, gpu, lambda model, item: model.ceiling(item, gpu))
        if self._products(as_expert(problem), gpu) is not None:
            return self._remembered((problem, gpu), self._least_of_space)
        moe = self._moe(problem, gpu)
        if moe is None or not moe.core.winners.size:
            return self._analytical.ceiling(problem, gpu)
        known = machine(gpu, problem.dtype)
        launch, estimate = self._remembered((problem, known), self._best_launch)
        interval = moe.interval(*self._errors(moe, "best", problem, gpu), estimate, gpu.name)
        far = moe.domain.far(launch, known)
        learned = above_bound(slowed(widened(interval, far), least_sustained_us(pipelines.work(problem, gpu), gpu)), problem, gpu)
        if (far <= DOMAIN_MARGIN).all():
            us, low, high = learned
            return Prediction(us=us, low_us=low, high_us=high, learned=np.ones(us.shape, dtype=bool))
        return joined(self._analytical.ceiling(problem, gpu), learned, far <= DOMAIN_MARGIN, learned_share(far))

    def _cold(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction | None:
        if problem.cache == "warm" or (configuration is not None and self._configured(problem, gpu) is not None):
            return None
        return self._with_cache(problem, gpu, lambda model, warm: model.predict(warm, configuration, gpu))

    def _as_scaled(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction | None:
        if configuration is None or not scales_blocks(problem):
            return None
        return with_steps(self.predict(as_expert(problem), configuration, gpu), problem, configuration, gpu)

    def _as_configured(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction | None:
        model = self._configured(problem, gpu)
        if model is None:
            return None
        if configuration is not None:
            return _of_configured(model, problem, configuration, gpu)
        if problem.family != "fused_moe" or self._moe(problem, gpu) is not None:
            return None
        return self._served(problem, gpu, _of_configured(model, problem, stack_configuration(problem, gpu), gpu))

    def _as_in_layers(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction | None:
        products = self._products(problem, gpu)
        if products is None:
            return None
        if configuration is not None:
            return products.predict(problem, configuration, gpu)
        return self._served(problem, gpu, products.predict(problem, stack_configuration(problem, gpu), gpu))

    def _as_swept(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction | None:
        moe = self._moe(problem, gpu)
        if moe is None:
            return None
        known = machine(gpu, problem.dtype)
        task, source = moe.task(configuration)
        launch = moe.launch(problem, configuration, known)
        interval = moe.interval(*self._errors(moe, task, problem, gpu), moe.core.estimate(launch, source), gpu.name)
        far = moe.domain.far(launch, known)
        learned = launchable(widened(interval, far), problem, configuration, gpu)
        swept = learned if (far <= DOMAIN_MARGIN).all() else self._outside(learned, far, problem, configuration, gpu)
        if configuration is None or (layers := self.weights.layer_products) is None or not layers.covers(problem, gpu):
            return swept
        unswept = np.logical_and.reduce([configuration.get(name, 0) == size for name, size in UNSWEPT.items()]) & np.ones(far.shape, bool)
        if not unswept.any():
            return swept
        default = layers.predict(problem, configuration, gpu)
        vouched, share = np.where(unswept, default.learned, swept.learned), 1.0 if swept.share is None else swept.share
        both = joined(swept, (default.us, default.low_us, default.high_us), vouched, unswept.astype(float))
        return replace(both, share=np.where(unswept, 1.0, share))

    def _as_other_kernel(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction | None:
        others = self.weights.configured and self.weights.configured.others
        if configuration is None or not others or gpu.compute_capability != HOPPER:
            return None
        analytical = self._analytical.predict(problem, configuration, gpu)
        launches = np.isfinite(analytical.us)
        with np.errstate(divide="ignore", invalid="ignore"):  # no warps at all
            base, matrix = features(problem, configuration, gpu)
        log_us = others.log_us(np.log(analytical.us), base, matrix, bool(pipelines.work(problem, gpu).tensor_flop.any()))
        demand = pipelines.demand(problem, configuration, gpu)
        least = pipelines.config_bound(pipelines.work(problem, gpu), demand, gpu, problem.cache).us
        interval = at_least_us((np.exp(log_us), *(np.exp(log_us + error) for error in others.errors)), least)
        us, low, high = (np.where(launches, item, np.inf) for item in interval)
        return Prediction(us=us, low_us=low, high_us=high, learned=np.zeros(us.shape, dtype=bool), share=np.ones(us.shape))

    def _as_analysed(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction:
        """The analytical model's; attention without a configuration takes what the first that `rank` names does, where such launches were
        learned."""
        if configuration is None and problem.family == "attention" and self._configured(problem, gpu) is not None:
            return self.ceiling(problem, gpu)
        return self._analytical.predict(problem, configuration, gpu)

    def _with_cache(self, problem: ProblemBatch, gpu: GpuSpec, ask: Callable[[Predictor, ProblemBatch], Prediction]) -> Prediction:
        """A cold cache adds to the latency of a warm one, where only that was measured, what it adds in the analytical model."""
        cold, warm = ask(self._analytical, problem), replace(problem, cache="warm")
        learned = ask(self, warm)
        with np.errstate(invalid="ignore"):  # inf - inf: what cannot launch
            added = np.maximum(np.nan_to_num(cold.us - ask(self._analytical, warm).us, nan=0.0), 0)
        low, high = learned.low_us + added * np.exp(-SPREAD), learned.high_us + added * np.exp(SPREAD)
        interval = above_bound((learned.us + added, low, high), problem, gpu)
        if problem.family == "fused_moe":  # the bound is that of lucky draws; what was added to may have come from DRAM in part already
            mean = pipelines.demand(problem, stack_configuration(problem, gpu), gpu)
            interval = at_least_us(interval, mean.compulsory_bytes / throughput_per_us(gpu, mean.tensor_dtype)["dram"])
        us, low, high = (np.where(np.isfinite(cold.us), item, np.inf) for item in interval)
        # Not vouched for: the held-out errors are those of warm launches.
        share = np.where(np.isfinite(us), learned.learned if learned.share is None else learned.share, 0.0)
        return Prediction(us=us, low_us=low, high_us=high, learned=np.zeros(us.shape, dtype=bool), share=share)

    def _outside(
        self, learned: Prediction, far: Array, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec
    ) -> Prediction:
        """Learned values as they are within what was learned, and as far as they count elsewhere (`Domain.far` [n])."""
        rows = np.flatnonzero(far > DOMAIN_MARGIN)
        some = None if configuration is None else configuration.take(rows)
        fallback = self._analytical.predict(problem.take(rows), some, gpu)
        us, low, high, share = (a.copy() for a in (learned.us, learned.low_us, learned.high_us, np.ones(far.shape)))
        both = joined(fallback, (us[rows], low[rows], high[rows]), np.zeros(rows.size, dtype=bool), learned_share(far[rows]))
        us[rows], low[rows], high[rows], share[rows] = both.us, both.low_us, both.high_us, both.share
        return Prediction(us=us, low_us=low, high_us=high, learned=learned.learned & (far <= DOMAIN_MARGIN), share=share)

    def _best_launch(self, problem: ProblemBatch, known: Machine) -> tuple[Launch, Estimate]:
        """The winners' launch and its latency."""
        assert self.weights.moe is not None
        launch = self.weights.moe.core.best_launch(problem, known)
        return launch, self.weights.moe.core.estimate(launch, BEST)

    def _least_of_space(self, problem: ProblemBatch, gpu: GpuSpec) -> Prediction:
        return least_of(problem, gpu, lambda some, members: self.predict(some, members, gpu))

    def scores(self, problems: ProblemBatch | Sequence[ProblemBatch], configuration: ConfigurationBatch, gpu: GpuSpec) -> Array:
        """The order of configurations; a cold cache is ranked as a warm one where launches were not measured one by one."""
        return self.rankings([[problems] if isinstance(problems, ProblemBatch) else problems], configuration, gpu)[0].scores

    def rankings(self, groups: Sequence[Sequence[ProblemBatch]], configuration: ConfigurationBatch, gpu: GpuSpec) -> list[Ranking]:
        """The `scores` of several groups.

        Also where the analytical model gives the latencies: of 361 entries of vLLM's bf16 tables for AMD the learned order has 18 %
        among its first eight, the analytical one 4 %.
        """
        if not groups:
            return []
        experts = {id(problem): as_expert(problem) for group in groups for problem in group}
        groups = [[experts[id(problem)] for problem in group] for group in groups]
        moe = self.weights.moe
        if moe is not None and moe.ranker is not None and all(self._ranked_as_swept(group, gpu) for group in groups):
            core, ranker = moe.core, moe.ranker
            return self._remembered((groups, configuration, machine(gpu, groups[0][0].dtype)), lambda *query: ranker.rankings(core, *query))
        return [ranking_of(lambda some: self._scores_by_latency(some, configuration, gpu), group) for group in groups]

    def _ranked_as_swept(self, problems: Sequence[ProblemBatch], gpu: GpuSpec) -> bool:
        """Whether the order that was learned from sweeps is that of such problems."""
        warm = [replace(problem, cache="warm") for problem in problems]
        return all(covers(problem) for problem in warm) and any(self._configured(problem, gpu) is None for problem in problems)

    def _scores_by_latency(self, problems: Sequence[ProblemBatch], configuration: ConfigurationBatch, gpu: GpuSpec) -> Array:
        if all(self._configured(problem, gpu) is not None for problem in problems):
            return self._order(problems, configuration, gpu)
        warm = [replace(problem, cache="warm") for problem in problems]
        others = self.weights.configured and self.weights.configured.others
        if all(self._products(problem, gpu) is not None for problem in warm) or (others and gpu.compute_capability == HOPPER):
            return np.asarray(
                np.log(sum(self._remembered((problem, configuration, gpu), self.predict).us for problem in warm)), dtype=np.float64
            )
        return self._analytical.scores(problems, configuration, gpu)

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

        With a measured latency: the share of held-out errors of the ceiling that leave the best below latency / at_least, after what
        the launch says of them (`corrections`: it took longer than `prediction`, so will the best). Without: the launch's own
        uncertainty is added to the ceiling's (as if independent). NaN for a launch of a library kernel that this model predicted: the
        library chooses its configuration, no space was searched, and nobody knows what could be won.
        """
        query = (problem, gpu, latency_us, prediction, ceiling, configuration, at_least)
        silent = ~(prediction.learned | ceiling.learned) & (latency_us is None)
        # Where one model predicts both, its errors are alike, whatever they are on the GPU.
        alone = self._analytical.p_speedup(*query) if silent.any() else np.zeros(1)
        p = alone if silent.all() else np.where(silent, alone, self._p_speedup(*query))
        return within_bound(p, problem, gpu, latency_us, at_least)

    def _p_speedup(
        self,
        problem: ProblemBatch,
        gpu: GpuSpec,
        latency_us: Array | None,
        prediction: Prediction,
        ceiling: Prediction,
        configuration: ConfigurationBatch | None,
        at_least: float,
    ) -> Array:
        plain = p_of_intervals(latency_us, prediction, ceiling, at_least)
        if configuration is not None:
            problem = as_expert(problem)
        moe = self._moe(problem, gpu)
        if configuration is not None and self._configured(problem, gpu) is not None:
            return plain
        if moe is None or not moe.core.winners.size:
            return np.where(prediction.learned & (problem.family != "fused_moe") & (configuration is None), np.nan, plain)
        known = machine(gpu, problem.dtype)
        launch, estimate = self._remembered((problem, known), self._best_launch)
        size = calibration.scale(moe.scale, estimate.features)
        task, seen = self._errors(moe, "best", problem, gpu)
        now, shift = middle(prediction) if latency_us is None else latency_us, np.zeros(1)
        name = corrections.given(task, "served" if configuration is None else "exact")
        if latency_us is not None and (name, seen) in moe.shares:
            launched = corrections.blocks(moe.launch(problem, configuration, known))
            shift = moe.shares[(name, seen)] * corrections.signal(latency_us, prediction.us, launched, corrections.blocks(launch))
            task = name
        with np.errstate(invalid="ignore", divide="ignore"):
            best = np.maximum(estimate.log_us, np.log(least_sustained_us(pipelines.work(problem, gpu), gpu)))
            room = np.log(now) - np.log(at_least) - best - shift
            if latency_us is None:
                spread = (np.log(prediction.high_us) - np.log(prediction.low_us)) / 2
                mine = (np.log(ceiling.high_us) - np.log(ceiling.low_us)) / 2
                size = size * np.sqrt(1 + (spread / np.maximum(mine, 1e-6)) ** 2)
        scaled = np.nan_to_num(room, nan=0.0, posinf=1e3, neginf=-1e3) / size
        share = moe.calibration.share_below(task, seen, scaled, gpu.name)
        return np.where(moe.domain.far(launch, known) <= DOMAIN_MARGIN, share, plain)

    def _moe(self, problem: ProblemBatch, gpu: GpuSpec) -> MoeModel | None:
        """The fused-MoE model, where it is meant for such problems: no sweep had tcgen05, which measured layers had."""
        layers = self.weights.layer_products
        beyond = gpu.vendor == "nvidia" and float(gpu.compute_capability) in TENSOR_MEMORY
        if not covers(problem) or (beyond and layers is not None and layers.covers(problem, gpu)):
            return None
        return self.weights.moe

    def _configured(self, problem: ProblemBatch, gpu: GpuSpec) -> ConfiguredModel | None:
        """The model of configured launches, where it answers: fused MoE of 16 bits was swept on other GPUs, and is known better there, and
        on all that are no relatives of those whose launches were measured one by one."""
        model, moe = self.weights.configured, self.weights.moe
        if model is None or not model.covers(problem, gpu):
            return None
        if moe is not None and covers(replace(problem, cache="warm")) and not model.seen(problem, gpu):
            swept = any(gpu.name in names for names in moe.gpus.values())
            return None if swept or model.nearest(problem, gpu) is None else model
        return model

    def _products(self, problem: ProblemBatch, gpu: GpuSpec) -> LayerProducts | None:
        """The products of measured layers, where they answer: of what neither sweeps nor single launches were measured."""
        model = self.weights.layer_products
        if model is None or not model.covers(problem, gpu) or self._moe(problem, gpu) is not None:
            return None
        return model if self._configured(problem, gpu) is None else None

    def _order(self, problems: Sequence[ProblemBatch], configuration: ConfigurationBatch, gpu: GpuSpec) -> Array:
        """The order of configurations by what they are predicted to take together."""
        total = np.zeros(len(configuration))
        for problem in problems:
            total = total + self._remembered((problem, configuration, gpu), self._ordered_us)
        ungrouped = np.logical_or.reduce([one_row_ungrouped(problem, configuration) for problem in problems])
        return np.asarray(np.round(np.log(total), DIGITS) + np.where(ungrouped, TIE, 0.0), dtype=np.float64)

    def _ordered_us(self, problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Array:
        """Microseconds by which configurations of one problem stand in order, [n]; infinite where they cannot launch."""
        model = self.weights.configured
        assert model is not None
        demand = pipelines.demand(problem, configuration, gpu)
        launches = np.broadcast_to(pipelines.schedule(demand, gpu).resident > 0, (len(configuration),))
        if not launches.any():
            return np.full(launches.shape, np.inf)
        least = pipelines.config_bound(pipelines.work(problem, gpu), demand, gpu, problem.cache).us
        return np.maximum(np.exp(model.order(problem, configuration, gpu, demand, launches)), least)

    def _remembered(self, query: tuple[Any, ...], order: Callable[..., Any]) -> Any:
        """What `order` says of a `query`, known by its content: both sides of a comparison ask the same, each with arrays of its own, and
        `p_speedup` asks what `ceiling` did."""
        key = blake2b(pickle.dumps((query, getattr(order, "__name__", "")))).digest()
        if key not in self._ranked:
            if len(self._ranked) >= MOST_RANKED:
                self._ranked.clear()
            self._ranked[key] = order(*query)
        return deepcopy(self._ranked[key])

    def p_gain(self, problem: ProblemBatch, gpu: GpuSpec, now: Prediction, then: Prediction) -> float:
        """By what such choices won on launches left out where these were measured, else by both intervals; one launch each."""
        problem = as_expert(problem)
        model = self._configured(problem, gpu)
        if model is not None:
            high = model.interval(problem, gpu)[1]
            doubt = float(np.hypot(_doubt(now, high), _doubt(then, high)))
            return model.p_gain(problem, gpu, float(now.us[0] / then.us[0]), doubt)
        spread = [sigma(item)[0] for item in (now, then)]
        shared = 2 * ALIKE * spread[0] * spread[1] if now.learned[0] and then.learned[0] else 0.0
        deviation = np.sqrt(max(spread[0] ** 2 + spread[1] ** 2 - shared, 1e-6))
        margin = (np.log(now.us[0] / then.us[0]) - np.log(NOTICED)) / deviation
        return float(normal_cdf(np.clip(np.array([margin]), -30, 30))[0])

    def record(self, problem: ProblemBatch, gpu: GpuSpec) -> str:
        """What first picks won on problems left out on this GPU, or on GPUs left out, in words; empty where none were measured."""
        problem = as_expert(problem)
        model = self._configured(problem, gpu)
        return "" if model is None else model.record_of(problem, gpu)

    @staticmethod
    def _errors(moe: MoeModel, task: str, problem: ProblemBatch, gpu: GpuSpec) -> tuple[str, bool]:
        """Which held-out errors apply: their name, and whether of GPUs with rows of this kind; w2 was never measured, so never."""
        if problem.op != "w13":
            return task, False
        return moe.errors_of(task, gpu.name), gpu.name in moe.gpus.get(task, ())

    def _library(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction | None:
        """A measured library's kernel; None where it is another's, or the problem does not ask for one that `_as_published` knows as well.

        Its launches are predicted as they were measured, whatever the problem says of the cache.
        """
        kind = kernels.kind_of(problem, gpu.vendor) if configuration is None else None
        model = self.weights.library.get(kind) if kind else None
        if model is None or (gpu.vendor == "nvidia" and float(gpu.compute_capability) < OLDEST_MEASURED):
            return None
        if problem.stack is None and problem.implementation is None and self._speaks_directly(problem, gpu):
            return None
        if problem.dtype == "fp16" and problem.family == "gemm" and gpu.name not in model.gpus:
            return None  # owners of such boards published 6 % from the analytical model, 10 % from what bf16 takes on others
        (interval, seen), far = model.predict(problem, gpu), model.beyond(problem)
        if (far <= DOMAIN_MARGIN).all():
            us, low, high = above_bound(interval, replace(problem, cache="warm"), gpu)
            return Prediction(us=us, low_us=low, high_us=high, learned=np.full(us.shape, seen), share=np.ones(us.shape))
        return self._of_library(replace(problem, cache="warm"), gpu, interval, far, seen)

    def _of_library(
        self, problem: ProblemBatch, gpu: GpuSpec, interval: tuple[Array, Array, Array], far: Array, seen: bool = True
    ) -> Prediction:
        """What was learned of a library's kernels, wider outside of it (`Domain.far` [n]) and there as far as it counts."""
        share, fallback = learned_share(far), self._analytical.predict_first(problem, gpu)
        if (share < 1).any() or not np.isfinite(fallback.us).all():  # else nothing of the fallback's latency counts
            fallback = self._as_analysed(problem, None, gpu)
        return joined(fallback, above_bound(widened(interval, far), problem, gpu), (far <= DOMAIN_MARGIN) & seen, share)

    def library_reference(self, problem: ProblemBatch, gpu: GpuSpec) -> Latency | None:
        """The latency of the best library kernel for one problem, with its interval and source; None where none was measured."""
        kind = kernels.kind_of(problem, gpu.vendor)
        model = self.weights.library.get(kind) if kind else None
        return model.best(problem, gpu) if model is not None else None

    def _speaks_directly(self, problem: ProblemBatch, gpu: GpuSpec) -> bool:
        """Whether a model of another publisher's rows answers: of warm products without scales per block, on GPUs like its own."""
        kind = direct.kind_of(problem)
        known = problem.cache == "warm" and problem.block_shape is None and kind in self.weights.direct
        return known and direct.alike(kind, machine(gpu, problem.dtype))

    def _as_published(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction | None:
        model = self.weights.direct.get(direct.kind_of(problem)) if direct.covers(problem, configuration) else None
        if model is None:
            return None
        interval, far = model.predict(problem, machine(gpu, problem.dtype), gpu.name in model.gpus)
        return self._of_library(problem, gpu, interval, far)


class Source(NamedTuple):
    """Who predicts some launches: `answer` gives None for those that it does not cover, which the next one is asked for."""

    covers: str
    answer: Callable[[LearnedPredictor, ProblemBatch, ConfigurationBatch | None, GpuSpec], Prediction | None]


PREDICTORS = (
    Source("products and attention of libraries, as serving stacks were measured to run them (`library/`)", LearnedPredictor._library),
    Source(
        "products that scale blocks, with a configuration: as an expert's, and its scale steps (`layers/moe_layer.py`)",
        LearnedPredictor._as_scaled,
    ),
    Source("a cold cache, where the next has no answer: the warm prediction, and what it adds analytically", LearnedPredictor._cold),
    Source(
        "Triton launches with a configuration, of families and GPUs like those measured (`configured/`)",
        LearnedPredictor._as_configured,
    ),
    Source("products of layers, where no launch of them was measured alone (`layers/layer_model.py`)", LearnedPredictor._as_in_layers),
    Source(
        "fused MoE of 16 bits, with a configuration, or as a stack serves it (`moe/`; the tile that no sweep holds as in layers)",
        LearnedPredictor._as_swept,
    ),
    Source("products and operators over rows of PyTorch, whose kernel nobody names (`library/direct.py`)", LearnedPredictor._as_published),
    Source("other Triton launches with a configuration, on Hopper (`configured/model.py`)", LearnedPredictor._as_other_kernel),
    Source("every other launch in closed form: the analytical model alone (`analytical.py`)", LearnedPredictor._as_analysed),
)
"""Who is asked for a launch, in this order; the first that answers is believed. A kernel of a user's own is asked of the fourth where its
code is a product or attention (`compiled_launch.py`), else `compiled/phases.py` predicts it; whole layers and published operators are of
`layers/layer_model.py`, `library/moe_kernels.py` and `operators/model.py`."""


def _of_configured(model: ConfiguredModel, problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Prediction:
    """What the model of configured launches says, none of it below the bound; infinite where the configuration cannot launch."""
    demand = pipelines.demand(problem, configuration, gpu)
    log_us, doubt = model.log_us(problem, configuration, gpu, demand)
    us, (low, high) = np.exp(log_us), model.interval(problem, gpu)
    least = pipelines.config_bound(pipelines.work(problem, gpu), demand, gpu, problem.cache).us
    launches = np.broadcast_to(pipelines.schedule(demand, gpu).resident > 0, us.shape)
    interval = (us, us * np.exp(np.maximum(min(low, 0.0) * doubt, -WIDEST)), us * np.exp(np.minimum(max(high, 0.0) * doubt, WIDEST)))
    us, low_us, high_us = (np.where(launches, item, np.inf) for item in at_least_us(interval, least))
    known = model.nearest(problem, gpu) is not None
    return Prediction(us=us, low_us=low_us, high_us=high_us, learned=launches & known, share=np.ones(us.shape))


def _doubt(prediction: Prediction, high: float) -> float:
    """How unsure the first of a configured model's predictions is, from its interval; `high` as `ConfiguredModel.interval` gives it."""
    with np.errstate(invalid="ignore"):  # inf / inf
        return float(np.maximum(np.nan_to_num(np.log(prediction.high_us[0] / prediction.us[0]), nan=WIDEST) / max(high, 1e-6), 1e-6))
