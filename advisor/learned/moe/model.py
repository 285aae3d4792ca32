"""The learned model of fused-MoE launches: physics, forests that correct it, their errors, and the order of configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned import calibration, forest
from advisor.learned.analytical import MOE_PRODUCTS, served_configuration
from advisor.learned.calibration import WIDEST, Calibration
from advisor.learned.forest import Forest
from advisor.learned.machine import TENSOR_MEMORY, Machine
from advisor.learned.moe import corrections, moe_physics, ranker
from advisor.learned.moe.corrections import GpuCorrections
from advisor.learned.moe.launch import Launch, as_configuration, fits, moe_launch
from advisor.learned.moe.ranker import Ranker
from advisor.learned.moe.ranking_features import BEST, EXACT, SERVED, latency_features, matrix
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch

MOE_DTYPES = ("bf16", "fp16")
DOMAIN_MARGIN = 2.0
"""A size up to this factor outside what was learned still counts as learned: the intervals hold there."""

DOMAIN_FADES, DOMAIN_END = 8.0, 64.0
"""Factors outside between which the analytical model takes over, without a step. Trained on few tokens, on narrow or on wide experts alone,
the model errs as served by 4 to 9 % up to eight times outside and by 10 % up to 64 times, the analytical model by 9 to 18 %
(`tests/bench/extrapolation.py`)."""

DOMAIN_SIZES = ("slots", "depth", "width", "all_experts", "dram_rate", "peak_flop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Log latency [n], and the matrix that the error's expected size is read from."""

    log_us: Array
    features: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The part that predicts latencies: fitted once per fold of the cross-validation, and once on everything.

    Attributes:
        physics: Parameters of `moe_physics.terms`.
        common: Forest over all launches, whatever their source; corrects launches as served.
        exact: Forest over launches with a known configuration.
        sweeps: Forest over all launches of sweeps, and
        best: over the best of each; their mean corrects the best of a sweep.
        winners: Configurations [w, 6] that together win most sweeps; the ceiling starts from the fastest of them.
        corrections: Of single GPUs, from their launches as served.
    """

    physics: Array
    common: Forest
    exact: Forest | None
    sweeps: Forest | None
    best: Forest | None
    winners: Array
    corrections: GpuCorrections = corrections.NONE

    def estimate(self, launch: Launch, source: float) -> Estimate:
        """Latency of launches as served, with an exact configuration, or the best of a sweep."""
        predicted, stack = moe_physics.terms(launch, self.physics)
        predicted = predicted * np.exp(self.corrections.log_factor(launch, stack))
        features = matrix(latency_features(launch, predicted, stack, source))
        # Served launches are of a campaign of their own: what they say of one GPU misleads about its sweeps.
        by_source = {EXACT: (self.exact,), BEST: (self.sweeps, self.best)}.get(source, ())
        forests = [forest for forest in by_source if forest is not None] or [self.common]
        correction = sum(forest(features) for forest in forests) / len(forests)
        return Estimate(log_us=np.log(predicted) + correction, features=features)

    def best_launch(self, problem: ProblemBatch, gpu: Machine) -> Launch:
        """For each problem the winner that the physics finds fastest."""
        count = np.broadcast_shapes(*(c.shape for c in problem.sizes.values()))[0]
        usable = self.winners[fits(gpu, as_configuration(self.winners))]
        if count == 1:  # one problem: all winners in one call
            predicted = moe_physics.terms(moe_launch(problem, as_configuration(usable), gpu), self.physics)[0]
            best = int(np.argmin(predicted))
            return moe_launch(problem, as_configuration(usable[best : best + 1]), gpu)
        fastest, chosen = np.full(count, np.inf), np.zeros(count, dtype=np.int64)
        for i in range(usable.shape[0]):
            predicted = moe_physics.terms(moe_launch(problem, as_configuration(usable[i : i + 1]), gpu), self.physics)[0]
            better = predicted < fastest
            fastest, chosen = np.where(better, predicted, fastest), np.where(better, i, chosen)
        return moe_launch(problem, as_configuration(usable[chosen]), gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Ranges of what was learned: name -> (least, most)."""

    ranges: Mapping[str, tuple[float, float]]
    capabilities: tuple[float, ...]

    def far(self, launch: Launch, gpu: Machine) -> Array:
        """The largest factor by which a size lies outside of its range, [n]; 1 inside of all.

        Infinite where accumulators do not fit into registers, and on GPUs of another kind.
        """
        known = gpu.compute_capability in self.capabilities
        alike = launch.holds_accumulators & (known or (gpu.compute_capability >= 8.0 and gpu.compute_capability not in TENSOR_MEMORY))
        far = np.where(alike, 1.0, np.inf)
        for name, (least, most) in self.ranges.items():
            value = getattr(launch, name)
            far = np.maximum(far, np.maximum(least / value, value / most))
        return far


def domain_of(launch: Launch) -> Domain:
    """The ranges that the launches span."""
    ranges = {n: (float(getattr(launch, n).min()), float(getattr(launch, n).max())) for n in DOMAIN_SIZES}
    return Domain(ranges=ranges, capabilities=tuple(float(c) for c in np.unique(launch.capability)))


_SERVED_ALONE = "/served"


def of_served_gpu(task: str) -> str:
    """Name of a task's errors on GPUs of which launches as served are known, but no sweeps."""
    return task + _SERVED_ALONE


def of_any_gpu(task: str) -> str:
    """The task whose errors they are."""
    return task.removesuffix(_SERVED_ALONE)


def covers(problem: ProblemBatch) -> bool:
    """Whether the model is of such problems: plain 16-bit products, the cache warm. Others are neither learned nor answered."""
    plain = problem.weight_dtype in (None, problem.dtype) and problem.cache == "warm"
    return problem.family == "fused_moe" and problem.op in MOE_PRODUCTS and problem.dtype in MOE_DTYPES and plain


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeModel:
    """Everything learned about fused-MoE launches."""

    core: Core
    ranker: Ranker | None
    scale: Forest
    calibration: Calibration
    domain: Domain
    gpus: Mapping[str, tuple[str, ...]]  # by kind of row ("served", "exact", "best")
    shares: Mapping[tuple[str, bool], float] = field(default_factory=dict)  # of a measured launch's error, as `calibration`
    held_out: Mapping[str, Any] = field(default_factory=dict)  # figures on models and GPUs left out while training

    def task(self, configuration: ConfigurationBatch | None) -> tuple[str, float]:
        """Name and source of the prediction asked for."""
        return ("served", SERVED) if configuration is None else ("exact", EXACT)

    def launch(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: Machine) -> Launch:
        """Quantities of the launches; of what the stack would launch where no configuration is given."""
        return moe_launch(problem, configuration or served_configuration(problem, gpu), gpu)

    def errors_of(self, task: str, gpu: str) -> str:
        """The name under which the errors are kept that `task` has on a GPU: of GPUs known from served launches alone they are smaller."""
        apart = of_served_gpu(task)
        served_alone = gpu in self.gpus.get("served", ()) and gpu not in self.gpus.get(task, ())
        return apart if served_alone and (apart, False) in self.calibration.quantiles else task

    def interval(self, task: str, seen: bool, estimate: Estimate, gpu: str, coverage: float = 0.8) -> tuple[Array, Array, Array]:
        """Prediction, lower and upper end, microseconds."""
        size = calibration.scale(self.scale, estimate.features)
        low, high = (self.calibration.quantile(task, seen, 0.5 + side * coverage / 2, gpu) for side in (-1, 1))
        if not seen:  # never narrower than on GPUs that were seen
            low = min(low, self.calibration.quantile(of_any_gpu(task), True, 0.5 - coverage / 2))
            high = max(high, self.calibration.quantile(of_any_gpu(task), True, 0.5 + coverage / 2))
        us = np.exp(estimate.log_us)
        return us, us * np.exp(np.clip(low * size, -WIDEST, 0.0)), us * np.exp(np.clip(high * size, 0.0, WIDEST))

    def arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """The model as named arrays, and the rest of its facts as JSON values."""
        out = {"moe/physics": self.core.physics, "moe/winners": self.core.winners} | self.core.corrections.arrays("moe/habits")
        forests = {
            "common": self.core.common,
            "exact": self.core.exact,
            "sweeps": self.core.sweeps,
            "best": self.core.best,
            "scale": self.scale,
        }
        if self.ranker:
            out |= self.ranker.arrays("moe")
        for name, grown in forests.items():
            if grown is not None:
                out |= grown.arrays(f"moe/{name}")
        out |= self.calibration.arrays("moe/calibration")
        meta = {
            "gpus": {k: list(names) for k, names in self.gpus.items()},
            "ranges": {n: list(r) for n, r in self.domain.ranges.items()},
            "capabilities": list(self.domain.capabilities),
            "physics": list(moe_physics.PARAMETERS),
            "held_out": dict(self.held_out),
            "shares": [[task, seen, share] for (task, seen), share in sorted(self.shares.items())],
        }
        return out, meta


def load(stored: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> MoeModel:
    """The reverse of `MoeModel.arrays`."""

    def grown(name: str) -> Forest | None:
        return forest.from_arrays(stored, f"moe/{name}") if f"moe/{name}/leaf" in stored else None

    common, scales = grown("common"), grown("scale")
    assert common is not None and scales is not None
    return MoeModel(
        core=Core(
            physics=stored["moe/physics"],
            common=common,
            exact=grown("exact"),
            sweeps=grown("sweeps"),
            best=grown("best"),
            winners=stored["moe/winners"],
            corrections=corrections.from_arrays(stored, "moe/habits"),
        ),
        ranker=ranker.from_arrays(stored, "moe"),
        scale=scales,
        calibration=calibration.from_arrays(stored, "moe/calibration"),
        domain=Domain(ranges={n: (r[0], r[1]) for n, r in meta["ranges"].items()}, capabilities=tuple(meta["capabilities"])),
        gpus={k: tuple(names) for k, names in meta["gpus"].items()},
        held_out=meta.get("held_out", {}),
        shares={(task, seen): share for task, seen, share in meta["shares"]},
    )
