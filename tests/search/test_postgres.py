"""Many workers on one study, on a real PostgreSQL server."""

from __future__ import annotations

from advisor.search.search_report import best_of
from tests.search.searches import FEW, TableBackend, make_tuner, table_of
from tests.search.test_study import check_accounts, run_workers


def test_four_workers_one_of_them_killed_in_mid_trial(postgres, tmp_path):
    tuner, killed = run_workers(postgres, workers=4, kill=1, ranges=FEW)
    check_accounts(tuner, killed)
    alone = make_tuner(str(tmp_path / "journal"), ranges=FEW)
    alone.run(TableBackend(table_of(alone.space, {"M16": 0.0})))
    assert best_of(tuner, tuner.decisions[0], 0.005)[0] == best_of(alone, alone.decisions[0], 0.005)[0]


def test_resumed_by_name(postgres):
    for trials in (3, 6):
        tuner = make_tuner(postgres, trials=trials, name="resumed")
        tuner.run(TableBackend(table_of(tuner.space, {"M16": 0.0})))
        assert len(tuner.study("M16").get_trials(deepcopy=False)) == trials
