"""Studies: resumed, shared, killed; every trial accounted for, and the same winner."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from optuna.trial import TrialState
from sqlalchemy.exc import IntegrityError

from advisor.search import study as claims
from advisor.search.sampler import LOST, StoppingRule
from advisor.search.search_report import best_of, decide, search_reports, state_of
from advisor.search.storage import Measurement, lock_file, open_storage
from advisor.search.study import STOPPED, Budget, Tuner, counts
from advisor.system.errors import AdvisorError, UsageError
from tests.search.searches import EXHAUSTIVE, RANGES, TableBackend, make_tuner, slow_worker, table_of, truth

FORKED = multiprocessing.get_context("forkserver")
"""Workers are forked from a process that has imported what each of them needs."""
FORKED.set_forkserver_preload(
    ["tests.search.searches", "advisor.search.storage", "optuna.storages._rdb.storage", "alembic.command", "psycopg2"]
)


def backend_of(tuner: Tuner, tasks: dict[str, float] | None = None) -> TableBackend:
    return TableBackend(table_of(tuner.space, tasks or {"M16": 0.0}))


def tried(tuner: Tuner, task: str = "M16") -> list[int]:
    sampler = tuner.sampler(task)
    return [sampler.index_of(t) for t in tuner.study(task).get_trials(deepcopy=False) if counts(t)]


def test_stops_within_its_budget_and_finds_the_best(tmp_path):
    tuner = make_tuner(str(tmp_path / "j"), trials=8)
    tuner.run(backend_of(tuner))
    assert len(tried(tuner)) == 8 == len(set(tried(tuner)))
    _, us, _ = best_of(tuner, tuner.decisions[0], 0.0)
    assert us <= 1.01 * truth(tuner.space).min()
    assert search_reports(tuner, tuner.decisions[0], "x")[0].stopped_because.startswith("the limit of 8 trials")


def test_a_finished_study_is_not_searched_again_but_a_larger_budget_goes_on(tmp_path):
    for trials, expected in ((4, 4), (4, 4), (9, 9)):
        tuner = make_tuner(str(tmp_path / "j"), trials=trials)
        tuner.run(backend_of(tuner))
        assert len(tried(tuner)) == expected == len(set(tried(tuner)))


def test_the_reason_to_stop_is_this_run_s(tmp_path, monkeypatch):
    def stopped(tuner: Tuner) -> str:
        return search_reports(tuner, tuner.decisions[0], "x")[0].stopped_because.partition(";")[0]

    storage = str(tmp_path / "s.journal")
    for trials in (4, 2):  # the second has more than it asks for
        tuner = make_tuner(storage, trials=trials)
        tuner.run(backend_of(tuner))
        assert stopped(tuner) == f"the limit of {trials} trials" and len(tuner.study("M16").trials) == 4
    tuner = make_tuner(storage, trials=8)
    backend = backend_of(tuner)
    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as interrupted:
        interrupted.setattr(backend, "measure", Mock(side_effect=KeyboardInterrupt))
        tuner.run(backend)
    assert stopped(tuner) == "interrupted"
    tuner.run(backend_of(tuner))
    assert stopped(tuner) == "the limit of 8 trials"


def test_a_smaller_margin_goes_on_with_a_study_that_stopped_at_the_ceiling(tmp_path):
    storage = str(tmp_path / "s.journal")
    near = replace(EXHAUSTIVE, margin=0.5)
    tuner = make_tuner(storage, stopping=near)
    tuner.run(backend_of(tuner))
    stopped = tuner.study("M16").user_attrs[STOPPED]
    assert stopped.startswith("within 50 % of the ceiling")
    done = len(tuner.study("M16").trials)
    again = make_tuner(storage, stopping=near)
    again.run(backend_of(again))
    assert len(again.study("M16").trials) == done
    closer = make_tuner(storage, stopping=EXHAUSTIVE)
    closer.run(backend_of(closer))
    assert len(closer.study("M16").trials) > done and closer.study("M16").user_attrs[STOPPED] != stopped


def test_a_kernel_that_never_runs_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("advisor.search.study.GIVE_UP", 7)
    tuner = make_tuner(str(tmp_path / "s.journal"))
    tuner.run(TableBackend({}))
    assert len(tuner.study("M16").trials) == 7
    assert tuner.study("M16").user_attrs[STOPPED] == "none of 7 trials gave a latency; another --study starts anew"


def test_a_trial_that_this_process_left_with_an_error_is_lost_and_tried_again(tmp_path):
    tuner = make_tuner(str(tmp_path / "s.journal"), trials=5)
    backend = backend_of(tuner)

    class FailsOnce(TableBackend):
        def measure(self, task, configuration, watch):
            if len(tuner.study("M16").trials) == 3:
                raise OSError("the disk is full")
            return backend.measure(task, configuration, watch)

    with pytest.raises(OSError, match="disk is full"):
        tuner.run(FailsOnce(backend.latencies))
    left = tuner.study("M16").trials[2]
    assert left.state == TrialState.FAIL and LOST in left.user_attrs
    tuner.run(backend)
    trials = tuner.study("M16").trials
    assert trials[2].state == TrialState.FAIL and LOST in trials[2].user_attrs
    assert trials[3].params == left.params and len(tried(tuner)) == 5


class Killed(BaseException):
    """Leaves a trial as a kill does: nothing is said of it."""


class Deadly(TableBackend):
    """Kills its worker at one configuration, in trials and in comparisons."""

    def __init__(self, latencies, label, error=Killed) -> None:
        super().__init__(latencies)
        self.label, self.error = label, error

    def measure(self, task, configuration, watch):
        if configuration.label() == self.label:
            raise self.error
        return super().measure(task, configuration, watch)

    def compare(self, task, base, head):
        if base.label() == self.label:
            raise self.error
        return super().compare(task, base, head)


def test_a_configuration_that_kills_its_workers_is_left_out_and_said_to_be(tmp_path):
    tuner = make_tuner(str(tmp_path / "s.journal"), trials=5, incumbent=0)  # the incumbent is the first to be tried
    backend = Deadly(table_of(tuner.space, {"M16": 0.0}), tuner.space.configurations[0].label())
    for _ in range(3):
        with pytest.raises(Killed):
            tuner.run(backend)
    tuner.run(backend)
    assert len(tried(tuner)) == 5 and 0 not in tried(tuner)
    report = search_reports(tuner, tuner.decisions[0], "x")[0]
    assert report.failures == {"worker-lost": 3}
    assert report.stopped_because.endswith("; 1 of them not tried again: the worker that tried it died 3 times")
    kept = decide(tuner, tuner.decisions[0], backend)
    assert not kept.changed and kept.configuration == tuner.space.configurations[0] and "died 3 times" in kept.note


def test_an_interrupted_trial_says_nothing_of_its_configuration(tmp_path):
    tuner = make_tuner(str(tmp_path / "s.journal"), trials=5, incumbent=0)
    latencies = table_of(tuner.space, {"M16": 0.0})
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            tuner.run(Deadly(latencies, tuner.space.configurations[0].label(), KeyboardInterrupt))
    tuner.run(TableBackend(latencies))
    assert tried(tuner)[0] == 0
    assert search_reports(tuner, tuner.decisions[0], "x")[0].failures == {"interrupted": 3}


def test_a_trial_of_nobody_is_waited_for_and_then_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "DEAD_AFTER_S", 0.3)
    tuner = make_tuner(str(tmp_path / "s.journal"), trials=1)
    tuner.study("M16").ask()  # its worker died before it could say who it was
    tuner.run(backend_of(tuner))
    first, second = tuner.study("M16").trials
    assert LOST in first.user_attrs and second.state == TrialState.COMPLETE


def test_the_stopping_rule_ends_it_early_with_a_reason(tmp_path):
    tuner = make_tuner(str(tmp_path / "j"), stopping=StoppingRule())
    tuner.run(backend_of(tuner))
    assert len(tried(tuner)) < 15
    report = search_reports(tuner, tuner.decisions[0], "x")[0]
    assert "ceiling" in report.stopped_because or "what is worth one" in report.stopped_because
    assert report.study_name == "test/M16"


def test_the_report_counts_what_makes_the_launch_of_another_that_can_be_tried(tmp_path):
    plain = make_tuner(str(tmp_path / "j"), trials=2, cannot=(0,))
    alike = np.arange(len(plain.space))
    alike[[1, 3, 5]] = alike[[0, 2, 4]]  # 0 cannot launch: 1 is no repeat of anything that can
    decisions = [replace(one, prior=replace(one.prior, launch=alike)) for one in plain.decisions]
    tuner = replace(plain, decisions=decisions, name="alike", _samplers={}, _studies={})
    tuner.run(backend_of(tuner))
    assert ", 2 make the launch of another and " in search_reports(tuner, tuner.decisions[0], "x")[0].stopped_because


def test_the_report_counts_a_configuration_once(tmp_path):
    tuner = make_tuner(str(tmp_path / "j"), cannot=(0,))
    size, (one,) = len(tuner.space), tuner.decisions
    alike = np.arange(size) // 2  # each second makes the launch of the one before; but 1, for 0 cannot launch
    latency = truth(tuner.space)
    for refuted in (False, True):
        bound = np.full(size, 0.99 * latency.min())
        bound[10:] = 99.0
        if refuted:
            bound[int(np.argmin(latency))] = 1.01 * latency.min()  # it was measured to be faster than that
        decision = replace(one, prior=replace(one.prior, launch=alike, bound_us=bound))
        each = replace(tuner, decisions=[decision], name=f"refuted {refuted}", _samplers={}, _studies={})
        each.run(backend_of(each))
        said = search_reports(each, decision, "x")[0].stopped_because
        repeats, hopeless = size // 2 - 1, 0 if refuted else (size - 10) // 2
        assert f"of {size} configurations 1 cannot be tried, {repeats} make the launch of another and {hopeless} cannot be" in said


def test_the_time_limit_is_shared_out(tmp_path):
    tuner = make_tuner(str(tmp_path / "j"), tasks=(0.0, 1.0))
    now = [0.0]

    class Ticking(TableBackend):
        def measure(self, task, configuration, watch):
            now[0] += 1.0
            return super().measure(task, configuration, watch)

    tuner.clock, tuner.budget = lambda: now[0], Budget(time_limit_s=10)
    tuner.run(Ticking(table_of(tuner.space, {"M16": 0.0, "M32": 1.0})))
    assert len(tried(tuner, "M16")) == 5 == len(tried(tuner, "M32"))


def test_whoever_comes_later_gets_what_is_left_of_a_time_limit(tmp_path):
    """The caller of the workers goes through the decisions after them, and has no time of its own."""
    now = [0.0]

    class Ticking(TableBackend):
        def measure(self, task, configuration, watch):
            now[0] += 1.0
            return super().measure(task, configuration, watch)

    for trials in (6, 6):
        tuner = make_tuner(str(tmp_path / "j"), tasks=(0.0, 1.0))
        tuner.clock, tuner.budget = lambda: now[0], Budget(time_limit_s=6)
        tuner.run(Ticking(table_of(tuner.space, {"M16": 0.0, "M32": 1.0})), end=6.0)
        assert len(tried(tuner, "M16")) + len(tried(tuner, "M32")) == trials and now[0] == 6.0


def test_failures_are_classes_and_the_search_goes_on(tmp_path):
    tuner = make_tuner(str(tmp_path / "j"), trials=10)

    class Failing(TableBackend):
        def measure(self, task, configuration, watch):
            if configuration.num_stages == 3:
                return Measurement(failure="out-of-resources", message="shared memory")
            return super().measure(task, configuration, watch)

    tuner.run(Failing(table_of(tuner.space, {"M16": 0.0})))
    report = search_reports(tuner, tuner.decisions[0], "x")[0]
    assert report.failures["out-of-resources"] >= 1
    assert any(t.latency_us is not None for t in report.trials)


def test_a_losing_measurement_is_cut_short(tmp_path):
    tuner = make_tuner(str(tmp_path / "j"), trials=20)
    stopped = []

    class Rounds(TableBackend):
        def measure(self, task, configuration, watch):
            us = self.latencies[task.id][configuration.label()]
            if watch(3, us):
                stopped.append(us)
                return Measurement(us=us, stopped=True)
            return Measurement(us=us)

    tuner.run(Rounds(table_of(tuner.space, {"M16": 0.0})))
    states = [state_of(t) for t in tuner.study("M16").trials]
    assert states.count("pruned") == len(stopped) > 0
    assert best_of(tuner, tuner.decisions[0], 0.0)[1] < min(stopped)


def test_another_space_or_problem_under_the_same_name_is_refused(tmp_path):
    make_tuner(str(tmp_path / "j"))
    tuner = make_tuner(str(tmp_path / "k"))
    from dataclasses import replace

    with pytest.raises(UsageError, match="another space, problem, GPU or source"):
        Tuner(space=tuner.space, decisions=[replace(tuner.decisions[0], identity="H100")], storage=str(tmp_path / "j"), name="test")


@pytest.mark.parametrize("url", ["nosuch://x", "postgresql://nobody:secret@127.0.0.1:1/none", "{folder}"])
def test_storages_that_cannot_be_opened_are_said(url, tmp_path):
    with pytest.raises(AdvisorError) as error:
        open_storage(url.format(folder=tmp_path))
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        (b'{"16": {"BLOCK_SIZE_M": 16}}', "another --storage"),
        (b"\x1f\x8b\x08\n\x00\x00", "another --storage"),
        (b"SQLite format 3\x00\n\x00", "--storage sqlite:///"),
    ],
)
def test_a_file_of_something_else_is_left_as_it_is(tmp_path, content, remedy):
    """A table, a packed CSV, a database named without sqlite:///: their ends look like a torn line."""
    path = tmp_path / "j"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=f"no journal.*{remedy}"):
        open_storage(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("torn", [b"", b'{"op', b'{"op_code":0,"wor'])
def test_a_journal_that_was_hardly_begun_is_one(tmp_path, torn):
    (tmp_path / "j").write_bytes(torn)
    tuner = make_tuner(str(tmp_path / "j"), trials=2)
    tuner.run(backend_of(tuner))
    assert len(tried(tuner)) == 2


def test_a_file_where_the_folder_would_be_is_said(tmp_path):
    (tmp_path / "out").touch()
    with pytest.raises(UsageError, match=r"study\.journal: cannot be written \(a file stands where its folder would be\)"):
        open_storage(tmp_path / "out" / "study.journal")


def test_a_torn_last_line_is_cut_off(tmp_path):
    path = tmp_path / "j"
    make_tuner(str(path), trials=3).run(backend_of(make_tuner(str(path), trials=3)))
    before = path.read_bytes()
    path.write_bytes(before + b'{"op_code":5,"wor')
    tuner = make_tuner(str(path), trials=5)
    tuner.run(backend_of(tuner))
    assert len(tried(tuner)) == 5
    assert b'"wor\n' not in path.read_bytes() and path.read_bytes().startswith(before)


@pytest.mark.parametrize("left", ["ours", "a link that leads nowhere"])
def test_a_lock_that_a_killed_writer_left_does_not_stop_the_next_run(tmp_path, monkeypatch, left):
    monkeypatch.chdir(tmp_path)
    make_tuner("out/j")
    if left == "ours":
        open_storage("out/j")._backend._lock.acquire()
    else:
        Path("out/j.lock").symlink_to("out/j")
    seconds = iter(range(0, 1000, 10))  # of waiting; used up where it is waited for without end
    for module in ("optuna.storages.journal._file", "advisor.search.storage"):
        monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None))
    tuner = make_tuner("out/j", trials=1)
    tuner.run(backend_of(tuner))
    assert len(tried(tuner)) == 1 and list(Path("out").iterdir()) == [Path("out/j")]


def test_sqlite_is_a_storage_too(tmp_path):
    tuner = make_tuner(f"sqlite:///{tmp_path / 'studies.db'}", trials=4)
    tuner.run(backend_of(tuner))
    assert len(tried(tuner)) == 4


@pytest.mark.parametrize("first", [True, False])
def test_a_database_whose_tables_another_process_creates_meanwhile(tmp_path, monkeypatch, first):
    """Whether it came first to the tables, or to the row that says which revision they are of."""
    from optuna.storages._rdb import models, storage

    url = f"sqlite:///{tmp_path / 'studies.db'}"
    create_all, stamp = models.BaseModel.metadata.create_all, storage._VersionManager._set_alembic_revision
    times = []

    def late_tables(engine):
        times.append("looked")
        if first and len(times) == 1:
            create_all(engine)
        create_all(engine, checkfirst=len(times) > 1)

    def late_stamp(manager, revision):
        if not first and len(times) == 1:
            stamp(manager, revision)
            raise IntegrityError("INSERT", {}, Exception("UNIQUE constraint failed: alembic_version.version_num"))
        stamp(manager, revision)

    monkeypatch.setattr(models.BaseModel.metadata, "create_all", late_tables)
    monkeypatch.setattr(storage._VersionManager, "_set_alembic_revision", late_stamp)
    assert open_storage(url).get_all_studies() == []
    assert len(times) == 2


def test_winner_within_the_noise_is_the_same_whatever_the_order(tmp_path):
    winners = set()
    for seed in range(3):
        tuner = make_tuner(str(tmp_path / str(seed)))
        noisy = table_of(tuner.space, {"M16": 0.0})
        best = sorted(noisy["M16"], key=lambda label: noisy["M16"][label])[:3]
        rng = np.random.default_rng(seed)
        for label in best:
            noisy["M16"][label] = min(noisy["M16"].values()) * (1 + 0.002 * rng.random())
        tuner.run(TableBackend(noisy))
        winners.add(best_of(tuner, tuner.decisions[0], 0.005)[0].label())
    assert len(winners) == 1


def test_what_may_win_comes_before_what_is_ranked_first(tmp_path):
    """Of two within the noise of each other, the one that is ahead of what runs today by more than that."""
    tuner = make_tuner(str(tmp_path / "j"), incumbent=0)
    order = [int(i) for i in np.argsort(tuner.decisions[0].prior.mean) if i != 0]
    latencies = dict.fromkeys((c.label() for c in tuner.space.configurations), 300.0)
    for index, us in ((0, 200.0), (order[0], 199.8), (order[1], 198.9)):
        latencies[tuner.space.configurations[index].label()] = us
    backend = TableBackend({"M16": latencies})
    tuner.run(backend)
    assert best_of(tuner, tuner.decisions[0], 0.005)[1] == 198.9
    assert best_of(tuner, tuner.decisions[0], 0.006)[1] == 200.0  # nothing is ahead by more than the noise
    assert best_of(tuner, replace(tuner.decisions[0], incumbent=None), 0.005)[1] == 199.8


def test_what_says_nothing_of_a_configuration_leaves_it_free(tmp_path):
    class Unfit(TableBackend):
        """Measures nothing the first time."""

        unfit = True

        def measure(self, task, configuration, watch):
            if self.unfit:
                self.unfit = False
                return Measurement(failure="no-round-counts", again=True)
            return super().measure(task, configuration, watch)

    tuner = make_tuner(str(tmp_path / "j"), trials=3)
    tuner.run(Unfit(backend_of(tuner).latencies))
    trials, sampler = tuner.study("M16").get_trials(), tuner.sampler("M16")
    assert trials[0].user_attrs[LOST] == "no-round-counts"  # and not that its worker died
    assert sampler.index_of(trials[0]) == sampler.index_of(trials[1]) and trials[1].value is not None
    assert [state_of(trial) for trial in trials] == ["failed: no-round-counts", *["complete"] * 3]  # and the budget is of those


def test_winner_is_kept_only_if_it_wins(tmp_path):
    tuner = make_tuner(str(tmp_path / "j"), incumbent=0)
    backend = backend_of(tuner)
    tuner.run(backend)
    won = decide(tuner, tuner.decisions[0], backend)
    assert won.changed and won.us == truth(tuner.space).min() and won.versus.base_us == truth(tuner.space)[0]

    class Refuted(TableBackend):
        def compare(self, task, base, head, deadline=None):
            return replace(super().compare(task, base, head), verdict="inconclusive", reason="noise")

    lost = decide(tuner, tuner.decisions[0], Refuted(backend.latencies))
    assert not lost.changed and lost.configuration == tuner.space.configurations[0] and lost.versus.verdict == "inconclusive"
    at_best = make_tuner(str(tmp_path / "k"), incumbent=int(np.argmin(truth(tuner.space))))
    at_best.run(backend)
    assert not decide(at_best, at_best.decisions[0], backend).changed


@pytest.mark.parametrize("floor", [None, 0.0, 0.1])
def test_the_noise_that_the_search_measured_decides_in_a_later_run_too(tmp_path, floor):
    """Whose backend measured nothing yet, or other noise."""
    space = make_tuner("sqlite://").space
    near = next(int(i) for i in np.argsort(truth(space)) if truth(space)[i] > 1.02 * truth(space).min())
    winners = []
    for each in (0.05, floor):
        tuner = make_tuner(str(tmp_path / "j"), incumbent=near)
        backend = backend_of(tuner)
        backend.noise_floor = each
        tuner.run(backend)
        winners.append(decide(tuner, tuner.decisions[0], backend))
    assert truth(space)[near] < 1.05 * truth(space).min()
    assert winners[0] == winners[1] and not winners[0].changed


def run_workers(storage: str, workers: int, kill: int, seconds: float = 0.05, ranges=RANGES) -> tuple[Tuner, int]:
    """Workers on one storage, the first `kill` of them killed in mid-trial; the search that is left, and how many died."""
    make_tuner(storage, ranges=ranges)  # the study is there before anybody
    # Those to be killed take so long that they surely die in the middle of a trial.
    processes = [FORKED.Process(target=slow_worker, args=(storage, 3600.0 if i < kill else seconds, ranges)) for i in range(workers)]
    try:
        for process in processes[:kill]:
            process.start()
        watcher = make_tuner(storage, ranges=ranges)
        for process in processes[:kill]:
            wait_for(
                lambda p=process: any(
                    t.user_attrs.get(claims.OWNER, {"name": ""})["name"].split("|")[1:2] == [str(p.pid)] and claims.settled(t)
                    for t in watcher.study("M16").get_trials(deepcopy=False)
                )
            )
        for process in processes[kill:]:
            process.start()
        wait_for(lambda: sum(counts(t) for t in watcher.study("M16").get_trials(deepcopy=False)) >= 3)
        for process in processes[:kill]:
            os.kill(process.pid, signal.SIGKILL)
        for process in processes:
            process.join(timeout=PATIENCE_S)
        assert not any(process.is_alive() for process in processes)
    finally:  # of a test that failed: whoever still measures would hold up the end of this process
        for process in processes:
            if process.pid is not None:
                process.kill()
    return make_tuner(storage, ranges=ranges), kill


PATIENCE_S = 400.0
"""How long is waited for what other processes do: on a machine that is busy with other work their imports alone take a minute."""


def wait_for(condition) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.1)  # each look costs the database more than a trial does


def check_accounts(tuner: Tuner, killed: int) -> None:
    """Every trial ended, none twice, all configurations that could win tried, the winner the true one."""
    trials = tuner.study("M16").get_trials(deepcopy=False)
    assert all(t.state.is_finished() for t in trials)
    lost = [t for t in trials if LOST in t.user_attrs]
    assert len(lost) == killed and all(t.state == TrialState.FAIL for t in lost)
    done = tried(tuner)
    assert len(done) == len(set(done))
    # What a dead worker was at was measured by another, unless its bound had ruled it out by then.
    best = truth(tuner.space).min()
    for trial in lost:
        index = tuner.sampler("M16").index_of(trial)
        assert index in done or tuner.decisions[0].prior.bound_us[index] >= best
    alone = truth(tuner.space)
    assert best_of(tuner, tuner.decisions[0], 0.0)[1] == alone.min()


def test_two_workers_never_measure_the_same_and_survive_a_kill(tmp_path):
    tuner, killed = run_workers(str(tmp_path / "j"), workers=2, kill=1)
    check_accounts(tuner, killed)


def test_a_study_killed_as_a_whole_is_resumed(tmp_path):
    storage = str(tmp_path / "j")
    process = FORKED.Process(target=slow_worker, args=(storage, 0.3))
    make_tuner(storage)
    process.start()
    watcher = make_tuner(storage)
    wait_for(lambda: sum(claims.settled(t) for t in watcher.study("M16").get_trials(deepcopy=False)) >= 2)
    lock = lock_file(Path(storage))
    lock.acquire()  # so that the worker dies without it, as one that measures does
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    lock.release()
    tuner = make_tuner(storage)
    tuner.run(backend_of(tuner))
    trials = tuner.study("M16").get_trials(deepcopy=False)
    assert all(t.state.is_finished() for t in trials) and len(tried(tuner)) == len(set(tried(tuner)))
    assert best_of(tuner, tuner.decisions[0], 0.0)[1] == truth(tuner.space).min()


def test_a_slow_worker_that_was_given_up_drops_its_trial(tmp_path):
    tuner = make_tuner(str(tmp_path / "j"), trials=3)
    other = make_tuner(str(tmp_path / "j"), trials=3)

    class GivenUp(TableBackend):
        first = True

        def measure(self, task, configuration, watch):
            if self.first:
                self.first = False
                study = other.study("M16")
                running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))[0]
                study._storage.set_trial_user_attr(running._trial_id, LOST, True)
                study._storage.set_trial_state_values(running._trial_id, TrialState.FAIL)
            return super().measure(task, configuration, watch)

    tuner.run(GivenUp(table_of(tuner.space, {"M16": 0.0})))
    trials = tuner.study("M16").get_trials(deepcopy=False)
    assert sum(counts(t) for t in trials) == 3 and len(trials) == 4


def test_is_alive():
    me = claims.owner()
    assert claims.is_alive(me, None)
    assert not claims.is_alive({**me, "name": f"{me['name']}1"}, time.time())  # the number was given to another process since
    elsewhere = {"name": "elsewhere|1|1", "since": time.time() - 1000}
    assert not claims.is_alive(elsewhere, None)
    assert claims.is_alive(elsewhere, time.time())


def test_a_worker_in_another_container_of_the_same_hostname_lives_by_its_beat(tmp_path):
    """Its process number is another process's here, or nobody's."""
    tuner = make_tuner(str(tmp_path / "j"))
    study = tuner.study("M16")
    trial = study.ask()
    for pid in (2**22 + 1, os.getpid()):
        there = {"name": f"another boot pid:[1]|{pid}|1", "since": time.time()}
        study._storage.set_trial_user_attr(trial._trial_id, claims.OWNER, there)
        study.set_user_attr(claims._beat_of(there), time.time())
        assert claims.reap(study) == 0
        gone = {**there, "since": time.time() - 1000}
        study._storage.set_trial_user_attr(trial._trial_id, claims.OWNER, gone)
        assert claims.reap(study) == 0  # an old trial, and the beat of now
    study.set_user_attr(claims._beat_of(there), time.time() - 1000)
    with claims.beating(study):  # the beat of this process is not the other's
        assert claims.reap(study) == 1


def test_journal_path_may_be_new(tmp_path):
    assert open_storage(tmp_path / "a" / "b.journal") is not None
    assert Path(tmp_path / "a" / "b.journal").exists()
