"""Who measures what: workers on one study choose one after the other, in the order of their trials' numbers.

A trial is numbered atomically by every Optuna storage. It may settle on a configuration only when every running trial with a lower
number has, so each choice sees all earlier ones and no two are the same (a ticket lock; choosing takes milliseconds). A worker
that died is recognised by its process where that can be seen from here, else by a beat that stopped; its trial fails, marked as
lost, and its configuration is free again; so does one that this process left with an error. A worker that was only slow finds its trial
ended and lets go of it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from advisor.search.sampler import CHOICE, DIED, INTERRUPTED, LOST
from advisor.system import processes
from advisor.system.processes import owner_name, undisturbed

if TYPE_CHECKING:
    from optuna.study import Study


OWNER = "advisor:owner"  # trial attribute: who runs it
BEAT = "advisor:beat"  # study attribute per worker: when it last said that it lives, seconds since the epoch
BEAT_S = 10.0
DEAD_AFTER_S = 90.0  # without a beat: a worker that cannot be seen from here is taken for dead (clocks of machines agree to a minute)
POLL_S = 0.02


def owner() -> dict[str, Any]:
    """This process, so that others can tell whether it lives."""
    return {"name": owner_name(), "since": time.time()}


def _beat_of(who: Mapping[str, Any]) -> str:
    """The study attribute that a process beats in."""
    return f"{BEAT}:{who['name']}"


def is_alive(who: Mapping[str, Any], beat: float | None) -> bool:
    """Whether the owner of a trial still runs: as can be seen from here, else by its beat."""
    seen = processes.is_alive(who["name"])
    return time.time() - max(beat or 0.0, float(who["since"])) < DEAD_AFTER_S if seen is None else seen


def beat(study: Study) -> None:
    """Says that this process lives; a storage that does not answer now will next time."""
    with contextlib.suppress(Exception):
        study.set_user_attr(_beat_of(owner()), time.time())


@contextlib.contextmanager
def beating(study: Study) -> Iterator[None]:
    """Says every few seconds that this process lives, as long as the block runs."""
    beat(study)
    with processes.repeating(lambda: beat(study), BEAT_S):
        yield


@contextlib.contextmanager
def held(study: Study) -> Iterator[optuna.Trial]:
    """A new trial of this worker, when it is its turn to choose; left without having ended it, it is lost."""
    trial = study.ask()
    try:
        _wait_for_turn(study, trial)
        yield trial
    except BaseException as error:  # an interrupt is somebody's wish, and not the configuration's doing
        with undisturbed():  # a terminal interrupts the whole group, and the caller then tells its workers once more
            _end_as_lost(study, trial._trial_id, INTERRUPTED if isinstance(error, KeyboardInterrupt) else DIED)
        raise


def _wait_for_turn(study: Study, trial: optuna.Trial) -> None:
    study._storage.set_trial_user_attr(trial._trial_id, OWNER, owner())
    waited_since = time.monotonic()
    while True:
        ahead = [t for t in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)) if t.number < trial.number and not settled(t)]
        if not ahead:
            return
        beat(study)
        anonymous = time.monotonic() - waited_since > DEAD_AFTER_S  # died before it could say who it was
        for each in ahead:
            if OWNER in each.user_attrs or anonymous:
                end_if_lost(study, each, anonymous=anonymous)
        time.sleep(POLL_S)


def settled(trial: FrozenTrial) -> bool:
    """Whether the trial's worker has chosen a configuration."""
    return CHOICE in trial.system_attrs


def end_if_lost(study: Study, trial: FrozenTrial, *, anonymous: bool = False) -> bool:
    """Fails a running trial whose worker is dead; whether it was."""
    who = trial.user_attrs.get(OWNER)
    if "name" not in (who or {}):  # nobody said that it is theirs, or an older version did
        who = None
    if who is None and not anonymous:
        return False
    if who is not None and is_alive(who, study.user_attrs.get(_beat_of(who))):
        return False
    _end_as_lost(study, trial._trial_id, study._storage.get_trial(trial._trial_id).user_attrs.get(LOST, DIED))  # or as it said itself
    return True


def _end_as_lost(study: Study, trial_id: int, why: bool | str) -> None:
    with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):  # it ended by itself, or another worker did this
        study._storage.set_trial_user_attr(trial_id, LOST, why)
        study._storage.set_trial_state_values(trial_id, TrialState.FAIL)


def reap(study: Study, *, anonymous: bool = False) -> int:
    """Fails every running trial whose worker is dead, and on demand those of which nobody said that they are theirs; how many."""
    return sum(end_if_lost(study, trial, anonymous=anonymous) for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))
