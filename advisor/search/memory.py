"""Winners of earlier searches that a storage keeps, with the problem of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from optuna.trial import FrozenTrial, TrialState

from advisor.search.precedents import Precedent
from advisor.search.space import SearchSpace

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study

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
    compared = [trial for trial in trials if trial.state in (TrialState.COMPLETE, TrialState.PRUNED) and RANK in trial.user_attrs]
    done = [(each.value, each) for each in compared if each.state == TrialState.COMPLETE and each.value is not None]
    if len(compared) < 2 or not done:
        return None
    best = min(value for value, _ in done)
    rank, winner = min(((int(each.user_attrs[RANK]), each) for value, each in done if value <= AS_GOOD * best), key=lambda each: each[0])
    index = space.find(winner.params)
    return None if index is None else Precedent(where=tuple(where), index=index, rank=rank)
