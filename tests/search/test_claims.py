"""Who measures what: what becomes of the trials of those who leave or die."""

from __future__ import annotations

import os
import signal

import pytest
from optuna.trial import TrialState

from advisor.search import study as claims
from advisor.search.sampler import DIED, INTERRUPTED, LOST
from advisor.system.processes import sigterm_as_interrupt
from tests.search.searches import make_tuner


@pytest.mark.parametrize("again", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_disturb_the_last_words_of_the_first(tmp_path, monkeypatch, again):
    study = make_tuner(str(tmp_path / "j")).study("M16")
    write = study._storage.set_trial_user_attr

    def disturbed(trial_id, key, value):
        write(trial_id, key, value)
        if key == LOST:
            os.kill(os.getpid(), again)

    monkeypatch.setattr(study._storage, "set_trial_user_attr", disturbed)
    with sigterm_as_interrupt(), pytest.raises(KeyboardInterrupt), claims.held(study):
        os.kill(os.getpid(), signal.SIGINT)
    (trial,) = study.trials
    assert trial.state == TrialState.FAIL and trial.user_attrs[LOST] == INTERRUPTED
    with pytest.raises(KeyboardInterrupt):  # and afterwards it is heard again
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("said", [None, INTERRUPTED])
def test_a_worker_that_said_why_it_leaves_did_not_die_of_its_trial(tmp_path, said):
    study = make_tuner(str(tmp_path / "j")).study("M16")
    trial = study.ask()
    study._storage.set_trial_user_attr(
        trial._trial_id, claims.OWNER, {**claims.owner(), "name": f"{claims.owner_name()} another process of this number"}
    )
    if said is not None:
        study._storage.set_trial_user_attr(trial._trial_id, LOST, said)
    assert claims.reap(study) == 1
    assert study.trials[0].state == TrialState.FAIL and study.trials[0].user_attrs[LOST] == (said or DIED)
