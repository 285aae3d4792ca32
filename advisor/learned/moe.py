"""The learned model of fused-MoE launches: physics, forests that correct it, their errors, and the order of configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned import calibration, forest, habits, reach, variety
from advisor.learned.calibration import Calibration
from advisor.learned.features import BEST, EXACT, SERVED, latency_features, matrix, ranking_features
from advisor.learned.forest import Forest
from advisor.learned.habits import Habits
from advisor.learned.launch import Launch, fits, moe_launch
from advisor.learned.machine import Machine
from advisor.learned.served import as_columns, served_configuration
from advisor.learned.variety import Wins
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch

FIELDS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
DOMAIN_MARGIN = 2.0
"""A size up to this factor outside what was learned still counts as learned."""

DOMAIN_SIZES = ("slots", "depth", "width", "all_experts", "dram_rate", "peak_flop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Log latency [n], and the matrix that the error's expected size is read from."""

    log_us: Array
    features: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """What predicts latencies: fitted once per fold of the cross-validation, and once on everything.

    Attributes:
        physics: Parameters of `reach.terms`.
        common: Forest over all launches, whatever their source; corrects launches as served.
        exact: Forest over launches with a known configuration.
        sweeps: Forest over all launches of sweeps, and
        best: over the best of each; their mean corrects the best of a sweep.
        winners: Configurations [w, 6] that together win most sweeps; the ceiling starts from the fastest of them.
        habits: What launches as served say of single GPUs.
    """

    physics: Array
    common: Forest
    exact: Forest | None
    sweeps: Forest | None
    best: Forest | None
    winners: Array
    habits: Habits = habits.NONE

    def estimate(self, launch: Launch, source: float) -> Estimate:
        """Latency of launches as served, with an exact configuration, or the best of a sweep."""
        predicted, stack = reach.terms(launch, self.physics)
        predicted = predicted * np.exp(self.habits.log_factor(launch, stack))
        features = matrix(latency_features(launch, predicted, stack, source))
        # Served launches are of a campaign of their own: what they say of one GPU misleads about its sweeps.
        own = {EXACT: (self.exact,), BEST: (self.sweeps, self.best)}.get(source, ())
        forests = [forest for forest in own if forest is not None] or [self.common]
        correction = sum(forest(features) for forest in forests) / len(forests)
        return Estimate(log_us=np.log(predicted) + correction, features=features)

    def best_launch(self, problem: ProblemBatch, gpu: Machine) -> Launch:
        """For each problem the winner that the physics finds fastest."""
        count = np.broadcast_shapes(*(c.shape for c in problem.sizes.values()))[0]
        usable = self.winners[fits(gpu, as_configuration(self.winners))]
        if count == 1:  # one problem: all winners in one call
            predicted = reach.terms(moe_launch(problem, as_configuration(usable), gpu), self.physics)[0]
            best = int(np.argmin(predicted))
            return moe_launch(problem, as_configuration(usable[best : best + 1]), gpu)
        fastest, chosen = np.full(count, np.inf), np.zeros(count, dtype=np.int64)
        for i in range(usable.shape[0]):
            predicted = reach.terms(moe_launch(problem, as_configuration(usable[i : i + 1]), gpu), self.physics)[0]
            better = predicted < fastest
            fastest, chosen = np.where(better, predicted, fastest), np.where(better, i, chosen)
        return moe_launch(problem, as_configuration(usable[chosen]), gpu)


def as_configuration(rows: Array) -> ConfigurationBatch:
    """Configurations [n, 6] (`FIELDS`) as a batch."""
    return ConfigurationBatch(
        parameters={name: rows[:, i] for i, name in enumerate(FIELDS[:4])}, num_warps=rows[:, 4], num_stages=rows[:, 5]
    )


def as_rows(configuration: ConfigurationBatch) -> Array:
    """The reverse of `as_configuration`, with defaults for parameters that are missing."""
    return np.stack(np.broadcast_arrays(*as_columns(configuration).values()), axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Ranges of what was learned: name -> (least, most)."""

    ranges: Mapping[str, tuple[float, float]]
    capabilities: tuple[float, ...]

    def covers(self, launch: Launch, gpu: Machine) -> NDArray[np.bool_]:
        """Whether launches lie within what was learned, give or take `DOMAIN_MARGIN`."""
        inside = np.full(len(launch), gpu.compute_capability >= 8.0 and gpu.compute_capability not in (10.0, 10.3))
        if gpu.compute_capability in self.capabilities:
            inside[:] = True
        for name, (least, most) in self.ranges.items():
            value = getattr(launch, name)
            inside &= (value >= least / DOMAIN_MARGIN) & (value <= most * DOMAIN_MARGIN)
        return inside


def domain_of(launch: Launch) -> Domain:
    """The ranges that the launches span."""
    ranges = {n: (float(getattr(launch, n).min()), float(getattr(launch, n).max())) for n in DOMAIN_SIZES}
    return Domain(ranges=ranges, capabilities=tuple(float(c) for c in np.unique(launch.capability)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranker:
    """Puts configurations in order: a quick look at all of them, a closer one at the most promising.

    `known` are configurations [k, 6] that won a sweep somewhere; others are ranked behind those of the same tile. `wins` says where they
    won, for the variety of the first picks.
    """

    quick: Forest
    close: Forest
    known: Array
    wins: Wins | None = None
    shortlist: int = 160

    def scores(self, core: Core, problem: ProblemBatch, configuration: ConfigurationBatch, gpu: Machine) -> Array:
        """Smaller is better, [c]; inf where the shared memory does not fit."""
        rows = as_rows(configuration)
        score = np.full(rows.shape[0], np.inf)
        usable = np.flatnonzero(fits(gpu, configuration))
        if not usable.size:
            return score
        tried = usable[_among(rows[usable], self.known)]
        candidates = tried if tried.size else usable
        launch = moe_launch(problem, as_configuration(rows[candidates]), gpu)
        predicted, stack = reach.terms(launch, core.physics)
        rank = self._log_odds(core, launch, predicted, stack)
        if self.wins is not None and tried.size > variety.PICKS:
            picks = self.wins.order(rank, _places(rows[tried], self.known), launch, self.known.shape[0])
            rank = _moved_first(rank, picks)
        score[candidates] = -rank
        if candidates.size < usable.size:
            rest = np.setdiff1d(usable, candidates, assume_unique=True)
            launch = moe_launch(problem, as_configuration(rows[rest]), gpu)
            slower = reach.terms(launch, core.physics)[0]
            score[rest] = -rank.min() + 1 + np.log(slower / predicted.min())
        return score

    def _log_odds(self, core: Core, launch: Launch, predicted: Array, stack: Array) -> Array:
        fastest = np.full(predicted.shape, predicted.min())
        odds = self.quick(matrix(ranking_features(launch, predicted, stack, fastest)))
        if len(launch) <= 8:
            return odds
        first = np.argsort(-odds, kind="stable")[: self.shortlist]
        features = matrix(ranking_features(launch.take(first), predicted[first], stack[:, first], fastest[first]))
        odds = odds - 1000.0
        odds[first] = self.close(features)
        return odds


def _moved_first(rank: Array, picks: NDArray[np.int64]) -> Array:
    """The same values, dealt out anew: the picks get the largest in their order, the others follow in theirs."""
    rest = rank.copy()
    rest[picks] = np.inf
    order = np.concatenate([picks, np.argsort(-rest, kind="stable")[picks.size :]])
    out = np.empty_like(rank)
    out[order] = np.sort(rank)[::-1]
    return out


_KEY = np.array([1, 1e3, 1e6, 1e9, 1e12, 1e14])
"""Makes one number of a configuration: every field is below 1,000, warps and stages below 100."""


def _among(rows: Array, known: Array) -> NDArray[np.bool_]:
    """Which rows occur in `known`."""
    return np.isin(rows @ _KEY, known @ _KEY)


def _places(rows: Array, known: Array) -> NDArray[np.int64]:
    """Where rows that do occur in `known` stand there."""
    keys = known @ _KEY
    order = np.argsort(keys, kind="stable")
    return order[np.searchsorted(keys[order], rows @ _KEY)]


def of_served_gpu(task: str) -> str:
    """Name of a task's errors on GPUs of which launches as served are known, but no sweeps."""
    return f"{task}/served"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeModel:
    """Everything learned about fused-MoE launches."""

    core: Core
    ranker: Ranker | None
    scale: Forest
    calibration: Calibration
    domain: Domain
    gpus: Mapping[str, tuple[str, ...]]  # by kind of row ("served", "exact", "best")
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

    def interval(self, task: str, seen: bool, estimate: Estimate, coverage: float = 0.8) -> tuple[Array, Array, Array]:
        """Prediction, lower and upper end, microseconds."""
        size = calibration.scale(self.scale, estimate.features)
        low, high = (self.calibration.quantile(task, seen, 0.5 + side * coverage / 2) for side in (-1, 1))
        if not seen:  # never narrower than on GPUs that were seen
            low = min(low, self.calibration.quantile(task.partition("/")[0], True, 0.5 - coverage / 2))
            high = max(high, self.calibration.quantile(task.partition("/")[0], True, 0.5 + coverage / 2))
        us = np.exp(estimate.log_us)
        return us, us * np.exp(np.minimum(low * size, 0.0)), us * np.exp(np.maximum(high * size, 0.0))

    def arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """As named arrays, and what else there is to know as JSON values."""
        out = {"moe/physics": self.core.physics, "moe/winners": self.core.winners} | self.core.habits.arrays("moe/habits")
        forests = {"common": self.core.common, "exact": self.core.exact, "sweeps": self.core.sweeps,
                   "best": self.core.best, "scale": self.scale}  # fmt: skip
        if self.ranker:
            forests |= {"quick": self.ranker.quick, "close": self.ranker.close}
            out["moe/known"] = self.ranker.known
            if self.ranker.wins is not None:
                out |= self.ranker.wins.arrays("moe/wins")
        for name, grown in forests.items():
            if grown is not None:
                out |= grown.arrays(f"moe/{name}")
        out |= self.calibration.arrays("moe/calibration")
        meta = {
            "gpus": {k: list(names) for k, names in self.gpus.items()}, "ranges": {n: list(r) for n, r in self.domain.ranges.items()},
            "capabilities": list(self.domain.capabilities), "physics": list(reach.PARAMETERS),
            "held_out": dict(self.held_out),
        }  # fmt: skip
        return out, meta


def load(stored: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> MoeModel:
    """The reverse of `MoeModel.arrays`."""

    def grown(name: str) -> Forest | None:
        return forest.from_arrays(stored, f"moe/{name}") if f"moe/{name}/leaf" in stored else None

    common, scales = grown("common"), grown("scale")
    quick, close = grown("quick"), grown("close")
    assert common is not None and scales is not None
    return MoeModel(
        core=Core(physics=stored["moe/physics"], common=common, exact=grown("exact"), sweeps=grown("sweeps"), best=grown("best"),
                  winners=stored["moe/winners"], habits=habits.from_arrays(stored, "moe/habits")),
        ranker=Ranker(
            quick=quick, close=close, known=stored["moe/known"], wins=variety.from_arrays(stored, "moe/wins")
        ) if quick and close else None,
        scale=scales,
        calibration=calibration.from_arrays(stored, "moe/calibration"),
        domain=Domain(ranges={n: (r[0], r[1]) for n, r in meta["ranges"].items()}, capabilities=tuple(meta["capabilities"])),
        gpus={k: tuple(names) for k, names in meta["gpus"].items()}, held_out=meta.get("held_out", {}),
    )
