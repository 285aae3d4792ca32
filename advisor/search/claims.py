"""Who measures what: workers on one study choose one after the other, in the order of their trials' numbers.

A trial is numbered atomically by every Optuna storage. It may settle on a configuration only when every running trial with a lower
number has, so each choice sees all earlier ones and no two are the same (a ticket lock; choosing takes milliseconds). A worker
that died is recognised by its process where that can be seen from here, else by a beat that stopped; its trial fails, marked as
lost, and its configuration is free again; so does one that this process left with an error. A worker that was only slow finds its trial
ended and lets go of it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from advisor.search.sampler import CHOICE, DIED, INTERRUPTED, LOST
from advisor.system import processes
from advisor.system.processes import undisturbed

if TYPE_CHECKING:
    from optuna.study import Study


OWNER = "advisor:owner"  # trial attribute: who runs it
BEAT = "advisor:beat"  # study attribute per worker: when it last said that it lives, seconds since the epoch
BEAT_S = 10.0
DEAD_AFTER_S = 90.0  # without a beat: a worker that cannot be seen from here is taken for dead (clocks of machines agree to a minute)
POLL_S = 0.02


def owner() -> dict[str, Any]:
    """This process, so that others can tell whether it lives."""
    pid = os.getpid()
    among, started = processes.namespace(), processes.started(pid)
    return {"host": socket.gethostname(), "among": among, "pid": pid, "started": started, "since": time.time()}


def _beat_of(who: dict[str, Any]) -> str:
    """The study attribute that a process beats in."""
    return f"{BEAT}:{who['host']}:{who.get('among')}:{who['pid']}"


def is_alive(who: dict[str, Any] | None, beat: float | None) -> bool:
    """Whether the owner of a trial still runs."""
    if who is None:
        return beat is None or time.time() - beat < DEAD_AFTER_S
    seen_from_here = who.get("among") is not None and who["among"] == processes.namespace() and who["host"] == socket.gethostname()
    if who["started"] is not None and seen_from_here:
        return processes.is_running(int(who["pid"]), who["started"])
    return time.time() - max(beat or 0.0, float(who["since"])) < DEAD_AFTER_S


@contextlib.contextmanager
def held(study: Study, beat: Callable[[], None] | None = None) -> Iterator[optuna.Trial]:
    """A new trial of this worker, when it is its turn to choose; left without having ended it, it is lost."""
    trial = study.ask()
    try:
        _wait_for_turn(study, trial, beat)
        yield trial
    except BaseException as error:  # an interrupt is somebody's wish, and not the configuration's doing
        with undisturbed():  # a terminal interrupts the whole group, and the caller then tells its workers once more
            _end_as_lost(study, trial._trial_id, INTERRUPTED if isinstance(error, KeyboardInterrupt) else DIED)
        raise


def _wait_for_turn(study: Study, trial: optuna.Trial, beat: Callable[[], None] | None) -> None:
    study._storage.set_trial_user_attr(trial._trial_id, OWNER, owner())
    waited_since = time.monotonic()
    while True:
        ahead = [t for t in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)) if t.number < trial.number and not settled(t)]
        if not ahead:
            return
        if beat is not None:
            beat()
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


class Heart:
    """Says every few seconds, from a thread of its own, that this worker lives. A context manager."""

    def __init__(self, study: Study) -> None:
        self.study, self._stop = study, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Heart:
        self.beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def beat(self) -> None:
        """One beat; a storage that does not answer now will next time."""
        with contextlib.suppress(Exception):
            self.study.set_user_attr(_beat_of(owner()), time.time())

    def _run(self) -> None:
        while not self._stop.wait(BEAT_S):
            self.beat()
