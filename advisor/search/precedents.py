"""Precedents: winners of earlier searches, kept by a storage, move what won elsewhere forward in the order of the next one.

Every GPU has habits that no other tells: on the published sweeps of a GPU left out, the predictor's first choice is within 1 % of the best
for 53 % of the problems, and for 66 % after the winners of the problems tuned before have had their say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from advisor.result.schema import Problem
from advisor.search.space import SearchSpace

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
    apart = ((np.array([each.where for each in heard]) - np.array(where)) ** 2).sum(axis=1)
    nearest = np.argsort(apart, kind="stable")[:MOST]
    weight = np.exp(-0.5 * apart[nearest])
    winners = np.array([each.index for each in heard])[nearest]
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
    found = []
    for study in storage.get_all_studies():
        if study.user_attrs.get(KIND) == kind and study.study_name not in besides:
            trials = storage.get_all_trials(study._study_id, deepcopy=False)
            found.append(precedent(trials, study.user_attrs[WHERE], space))
    return [each for each in found if each is not None]


def precedent(trials: Iterable[FrozenTrial], where: Sequence[float], space: SearchSpace) -> Precedent | None:
    """The precedent that a decision's trials make; None where the winner was compared with nothing, or lies outside the space."""
    from optuna.trial import TrialState

    compared = [trial for trial in trials if trial.state in (TrialState.COMPLETE, TrialState.PRUNED) and RANK in trial.user_attrs]
    done = [(each.value, each) for each in compared if each.state == TrialState.COMPLETE and each.value is not None]
    if len(compared) < 2 or not done:
        return None
    best = min(value for value, _ in done)
    rank, winner = min(((int(each.user_attrs[RANK]), each) for value, each in done if value <= AS_GOOD * best), key=lambda each: each[0])
    index = space.find(winner.params)
    return None if index is None else Precedent(where=tuple(where), index=index, rank=rank)
