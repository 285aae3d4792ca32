"""The prior of a search: predicted latencies, their uncertainty, the likeness of configurations, and precedents.

Precedents are winners of earlier searches, kept by a storage: they move what won elsewhere forward in the order of the next one.
Every GPU has habits that no other tells: on the published sweeps of a GPU left out, the predictor's first choice is within 1 % of the best
for 53 % of the problems, and for 66 % after the winners of the problems tuned before have had their say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Predictor, tunable_ceiling
from advisor.learned.configured.model import LOOKED_AT, TIE
from advisor.pipelines import ProblemBatch, problem_batch
from advisor.pipelines.batch import launch_numbers, most_row_blocks
from advisor.result.schema import Problem
from advisor.search.space import SearchSpace, feasibility
from advisor.system.errors import NothingMatchedError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial


Array = NDArray[np.float64]

TRUST, TRUST_AFTER = 2.0, 2.0
"""Where nothing won yet, the winner is expected at place r of the order with a probability like r^-2; so many precedents weigh as much.
On published sweeps the places of winners say 1.6 to 2.3 for a GPU left out, and up to 2.6 for models left out."""

UNHEARD = 2.0
"""Weight of no precedent, beside which those there are must tell. This and the constants below were chosen on sweeps of GPUs left out,
tables one after the other; twice or half of each gives the same within 2 points of the first eight."""

LEAST_SHARE = 0.002
"""Of the precedents, what a configuration is taken to have that none speaks for."""

ALIKE = 0.25
"""Distance in features over which configurations win together: hardly farther than the configuration itself."""

SPENT = 0.7
"""How much less a precedent counts once the configuration that won there was tried."""

MOST = 128
"""Precedents that are heard, the nearest."""

_MOE_SCALES = np.array([1.0, 1.0, 1.5, 1.5])


@dataclass(frozen=True, slots=True, kw_only=True)
class Precedent:
    """The winner of another problem, and its rank in the order expected there.

    Attributes:
        where: Where that problem lies (`place_among_problems`).
        index: Of the winner, in the space.
        rank: The winner's place in the order that was expected there, from 1.
    """

    where: tuple[float, ...]
    index: int
    rank: int


def place_among_problems(problem: Problem) -> tuple[float, ...]:
    """Coordinates of a problem among others of its family; those at distance 1 win alike by exp(-1/2).

    Doublings of rows per expert, width, experts and depth for fused MoE; of every size elsewhere.
    """
    sizes = problem.sizes
    if problem.family == "fused_moe":
        rows = sizes["M"] * sizes["topk"] / sizes["E"]
        return tuple((np.log2([rows, sizes["N"], sizes["E"], sizes["H"]]) / _MOE_SCALES).tolist())
    return tuple(np.log2([max(sizes[name], 1) for name in sorted(sizes)]).tolist())


def after_precedents(
    mean: Array, features: Array, where: Sequence[float], precedents: Iterable[Precedent], tried: Iterable[int] = ()
) -> Array:
    """The same expectations, dealt out anew in the order that the precedents leave, [c].

    Args:
        mean: Expected log latencies, [c]; inf where a configuration cannot be tried.
        features: Coordinates of the configurations, [c, d].
        where: Place of the problem asked about.
        precedents: What won elsewhere.
        tried: What was tried for this problem: precedents for it, and for its like, have been heard.
    """
    heard = [precedent for precedent in precedents if len(precedent.where) == len(where)]
    if not heard:
        return mean
    apart = ((np.array([precedent.where for precedent in heard]) - np.array(where)) ** 2).sum(axis=1)
    nearest = np.argsort(apart, kind="stable")[:MOST]
    weight = np.exp(-0.5 * apart[nearest])
    winners = np.array([precedent.index for precedent in heard])[nearest]
    speaks = np.exp(-0.5 * ((features[:, None] - features[winners]) ** 2).sum(axis=2) / ALIKE**2)  # [c, precedents]
    for index in tried:
        weight = weight * (1 - SPENT * speaks[index])
    share = speaks @ weight / (weight.sum() + UNHEARD)
    before = np.argsort(mean, kind="stable")
    before = before[np.isfinite(mean[before])]
    trust = trust_in_order([heard[i].rank for i in nearest], before.size)
    score = np.log(share[before] + LEAST_SHARE) - trust * np.log(np.arange(1, before.size + 1))
    out = mean.copy()
    out[before[np.argsort(-score, kind="stable")]] = mean[before]
    return out


def trust_in_order(ranks: Sequence[int], count: int) -> float:
    """The exponent a for which winners come at place r of `count` with a probability like r^-a, given the places of earlier winners.

    The likeliest one, `TRUST` counting as much as `TRUST_AFTER` winners.
    """
    exponents, expected, log_total = _zeta(count)
    prior = TRUST_AFTER * float(np.interp(TRUST, exponents, expected))
    logs = float(np.log(np.minimum(ranks, count)).sum()) + prior
    return float(exponents[np.argmax(-exponents * logs - (len(ranks) + TRUST_AFTER) * log_total)])


@lru_cache(maxsize=64)
def _zeta(count: int) -> tuple[Array, Array, Array]:
    """Exponents; for each, the expected log of the place, and the log of the sum of r^-a over `count` places."""
    exponents, logs = np.linspace(0.5, 4.0, 36), np.log(np.arange(1, count + 1))
    weights = np.exp(-exponents[:, None] * logs)
    total = weights.sum(axis=1)
    return exponents, weights @ logs / total, np.log(total)


RANK = "advisor:rank"  # trial attribute: place in the order of its decision
HEARD = "advisor:precedents"  # trial attribute: how many precedents there were when it was chosen
KIND = "advisor:kind"  # study attributes
WHERE = "advisor:where"

AS_GOOD = 1.01
"""Latencies within this of the best are as good: of those, the first in the order is what won."""


def describe(study: Study, kind: str, where: Sequence[float]) -> None:
    """Writes down what a study is about, once."""
    if KIND not in study.user_attrs:
        study.set_user_attr(WHERE, list(where))
        study.set_user_attr(KIND, kind)


def remembered(storage: BaseStorage, kind: str, space: SearchSpace, besides: Collection[str]) -> list[Precedent]:
    """Precedents from a storage's studies of that kind; `besides` are the names of studies left out."""
    precedents = []
    for study in storage.get_all_studies():
        if study.user_attrs.get(KIND) == kind and study.study_name not in besides:
            trials = storage.get_all_trials(study._study_id, deepcopy=False)
            precedents.append(precedent(trials, study.user_attrs[WHERE], space))
    return [entry for entry in precedents if entry is not None]


def precedent(trials: Iterable[FrozenTrial], where: Sequence[float], space: SearchSpace) -> Precedent | None:
    """The precedent that a decision's trials make; None where the winner was compared with nothing, or lies outside the space."""
    from optuna.trial import TrialState

    compared = [trial for trial in trials if trial.state in (TrialState.COMPLETE, TrialState.PRUNED) and RANK in trial.user_attrs]
    done = [(trial.value, trial) for trial in compared if trial.state == TrialState.COMPLETE and trial.value is not None]
    if len(compared) < 2 or not done:
        return None
    best = min(value for value, _ in done)
    rank, winner = min(
        ((int(trial.user_attrs[RANK]), trial) for value, trial in done if value <= AS_GOOD * best), key=lambda trial: trial[0]
    )
    index = space.find(winner.params)
    return None if index is None else Precedent(where=tuple(where), index=index, rank=rank)


LENGTH_SCALE = 2.0
"""Doublings of a parameter over which configurations resemble each other, where nothing says that it matters more or less."""

SPREAD_SHARE, SPREAD = 0.02, 0.15
"""Scores order, on whatever scale; the prior has the configuration at this share of the order this much slower (log) than the first.
In the published sweeps the fastest 2 % of what can launch lie within 1 to 15 % of the best."""

LEAST_SIGMA = 0.12
"""Standard deviation of the predictor's error, at least. On simulated sweeps of GPUs left out (`tests/bench/search.py --simulated`) a
search with 0.1 stops after a quarter fewer trials, and keeps 0.2 to 0.7 % less of the speedup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Shares of the parts of a predictor's error (log of measured over predicted latency) in its variance.

    Attributes:
        common: What all configurations of a problem share.
        similar: What similar configurations share.
        individual: Each configuration's own.
        noise: Standard deviation of a measurement's log.
    """

    common: float
    similar: float
    individual: float
    noise: float = 0.004


LEARNED = Shares(common=0.8, similar=0.0, individual=0.2)
"""Of the learned model: what it gets wrong on a GPU that it does not know, it gets wrong for all of a problem's configurations. That some
are alike in what is left says less than their order does, and than what won at neighbouring sizes (`precedents`): with (0.6, 0.2, 0.2)
and a third of the own part shared by neighbouring sizes, sweeps of GPUs left out took, a table at a time, 3.36 instead of 3.23 trials in
the mean (published) and 3.33 instead of 3.15 (simulated, where the search stopped after 7.3 instead of 6.2, as near to the best)."""

CONFIGURED, CONFIGURED_SIGMA, CONFIGURED_REACH = Shares(common=0.49, similar=0.49, individual=0.02), 0.29, 1.0
"""Of the model of configured launches, where it orders by the latencies that it predicts; the standard deviation of the log of measured
over predicted, and the doublings over which configurations resemble each other. Of 200 products of an A100 and an H100 that the model had
not seen (`dejavu`, 20 to 400 configurations), eight trials then find one within 2 % of the best in 97 %, 93 % with (0.38, 0.6, 0.02) and
2 doublings, and 88 % as `LEARNED`, which ends after four."""

ANALYTICAL = Shares(common=0.1, similar=0.6, individual=0.3)
"""Of the analytical model: what it leaves out depends on the configuration, and is much alike for similar ones. On simulated sweeps it
matters little: the order that the analytical model gives is too far off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Beliefs about one decision (a configuration for one problem, or for several that share it), columns [c].

    Attributes:
        mean: Expected log latency in microseconds; inf where it cannot launch.
        sigma: Standard deviation of the log of measured over predicted.
        features: [c, d] coordinates in which configurations at distance 1 resemble each other by exp(-1/2).
        where: Where the problem lies among others (`place_among_problems`): what won for others near it is tried sooner.
        bound_us: Least latency of each configuration.
        ceiling_us: Predicted best of the space, and its interval.
        stopped_by: How many configurations cannot be tried, by what stops them.
        predicted_us: What results show as predicted, and measurements are compared with, [c].
        shares: How the predictor's error splits.
        ceiling_learned: Whether the ceiling comes of a model that learned from such launches; only then it stops a search.
        launch: Number of the launch that each makes, [c]: those of one number differ in nothing that the GPU does.
    """

    mean: Array
    sigma: float
    features: Array
    where: tuple[float, ...]
    bound_us: Array
    ceiling_us: tuple[float, float, float]
    stopped_by: Mapping[str, int]
    predicted_us: Array
    shares: Shares
    launch: NDArray[np.int64]
    ceiling_learned: bool = True

    def repeats(self, tried: Iterable[int]) -> NDArray[np.bool_]:
        """Which configurations make a launch that one of the `tried` ones makes, [c]: measuring them says nothing new."""
        return np.isin(self.launch, self.launch[list(tried)])

    def rank(self, index: int) -> int:
        """A configuration's place in the order, from 1."""
        return int((self.mean < self.mean[index]).sum()) + 1

    def after(self, precedents: Iterable[Precedent], tried: Iterable[int]) -> Array:
        """`mean`, once what won for other problems has had its say; `tried` was tried for this one (`after_precedents`)."""
        return after_precedents(self.mean, self.features, self.where, precedents, tried)


def coordinates(values_by_name: Mapping[str, Sequence[Any]], most_groups: Callable[[], Array] | None = None) -> Array:
    """Coordinates of configurations, [c, d]: doublings of numbers, a corner each for other values, over their length scale.

    Args:
        values_by_name: Of each parameter, [c].
        most_groups: Gives the most tiles of rows that a group can hold, [c].
    """
    columns: list[Array] = []
    for name, values in values_by_name.items():
        if len(set(values)) == 1:
            continue
        if all(isinstance(value, int) and not isinstance(value, bool) and value > 0 for value in values):
            doublings = np.log2(np.array(values, dtype=np.float64))
            if "STAGES" in name.upper():
                doublings = np.array(values, dtype=np.float64)  # one stage more is one buffer more, whatever their number
            if "GROUP" in name.upper() and most_groups is not None:
                doublings = np.minimum(doublings, np.log2(most_groups()))
            columns.append(doublings / LENGTH_SCALE)
        else:
            columns += [np.array([value == corner for value in values], dtype=np.float64) * 0.7 for corner in sorted(set(values), key=str)]
    return np.stack(columns, axis=1) if columns else np.zeros((len(next(iter(values_by_name.values()), ())), 0))


def prior_of(problems: Sequence[Problem], space: SearchSpace, gpu: GpuSpec, predictor: Predictor) -> Prior:
    """The prior of a decision that `problems` share; latencies are those of all of them together.

    Raises:
        NothingMatchedError: No configuration can launch.
    """
    total = np.zeros(len(space))
    bound = np.zeros(len(space))
    sigmas: list[float] = []
    stopped: dict[str, int] = {}
    ceilings = np.zeros(3)
    launches = np.ones(len(space), dtype=bool)
    learned = True
    batches = [problem_batch([problem]) for problem in problems]
    for problem, batch in zip(problems, batches, strict=True):
        feasible, prediction = feasibility(space, problem, gpu), predictor.predict(batch, space.batch, gpu)
        launches &= feasible.launches
        if not launches.any():
            raise NothingMatchedError(
                f"no configuration of the space can launch {problem.family} {problem.op} on {gpu.name}",
                None,
                None,
                "describe a smaller space",
            )
        scores = _scores(predictor, batch, space, gpu)
        best = int(np.argmin(np.where(launches, scores, np.inf)))
        us = np.broadcast_to(prediction.us, (len(space),))
        ceiling = tunable_ceiling(predictor.ceiling(batch, gpu), np.array([feasible.problem_bound_us]), us[[best]])
        ceilings += [float(ceiling.us[0]), float(ceiling.low_us[0]), float(ceiling.high_us[0])]
        learned &= bool(np.broadcast_to(prediction.learned, (len(space),))[best])
        total += np.where(np.isfinite(us), us, np.inf)
        bound += feasible.bound_us
        stopped = stopped or dict(feasible.stopped_by)
        sigmas.append(prediction.sigma(best))
    if len(batches) > 1:
        scores = _scores(predictor, batches, space, gpu)
    mean, sigma, shares, reach = beliefs(scores, total, launches, learned=learned, spread=float(np.mean(sigmas)))
    return Prior(
        mean=mean,
        sigma=sigma,
        features=coordinates(space.columns, lambda: most_row_blocks(space.columns, problems[0])) * (LENGTH_SCALE / reach),
        where=place_among_problems(problems[0]),
        bound_us=bound,
        ceiling_us=(float(ceilings[0]), float(ceilings[1]), float(ceilings[2])),
        stopped_by=stopped,
        predicted_us=total,
        shares=shares,
        launch=launch_numbers(space.columns, problems),
        ceiling_learned=learned,
    )


def _scores(predictor: Predictor, problems: ProblemBatch | Sequence[ProblemBatch], space: SearchSpace, gpu: GpuSpec) -> Array:
    """Scores [c] of the configurations, least first; one that the ranker takes for too large may launch all the same, and comes last."""
    scores = np.broadcast_to(predictor.scores(problems, space.batch, gpu), (len(space),))
    return np.where(np.isfinite(scores), scores, np.max(scores, initial=0.0, where=np.isfinite(scores)))


ORDERED = min(LOOKED_AT.values())
"""Configurations at the head of an order whose predicted latencies say whether it is theirs; of what follows, rankers look at a part."""


def beliefs(
    scores: Array, predicted_us: Array, usable: NDArray[np.bool_], *, learned: bool, spread: float
) -> tuple[Array, float, Shares, float]:
    """Expected log latency [c], the standard deviation of measured over predicted, how it splits, and over how many doublings it is alike.

    Args:
        scores: Of each configuration, least for what is tried first, [c].
        predicted_us: Predicted latency of each, [c].
        usable: Which of them can launch, [c]; at least one.
        learned: Whether the model learned from such launches.
        spread: The standard deviation that the prediction's interval says.
    """
    order = np.argsort(np.where(usable, scores, np.inf), kind="stable")[: min(ORDERED, int(usable.sum()))]
    head = predicted_us[order]
    if np.isfinite(head).all() and (head[1:] >= head[:-1] * (1 - 1e-6)).all():
        # What the model of configured launches orders by is a latency, and is learned from as one. Where it knows no such launches, it errs
        # for each in its own way.
        mean = np.log(np.where(usable, predicted_us, np.inf))
        mean[order] += TIE * np.arange(order.size)  # what is predicted alike stays in order
        return mean, max(spread, CONFIGURED_SIGMA), CONFIGURED if learned else ANALYTICAL, CONFIGURED_REACH
    # Scores rank; the prediction of the best one says where they lie.
    mean = math.log(float(head[0])) + behind(scores - scores[order[0]], usable)
    return np.where(usable, mean, np.inf), max(spread, LEAST_SIGMA), LEARNED if learned else ANALYTICAL, LENGTH_SCALE


def behind(gaps: Array, usable: NDArray[np.bool_]) -> Array:
    """Log slowdown [c] that the prior expects of configurations whose score is `gaps` behind the best one's."""
    ordered = np.sort(gaps[usable])
    unit = ordered[min(len(ordered) - 1, max(1, round(SPREAD_SHARE * len(ordered))))] if len(ordered) > 1 else 1.0
    scaled = np.where(np.isfinite(gaps), np.maximum(gaps, 0.0), 0.0) * (SPREAD / unit if unit > 0 else 1.0)
    return np.where(scaled < 0.5, scaled, 0.5 + 0.1 * np.log(np.maximum(scaled, 0.5) / 0.5))  # far behind is far behind
