"""What other threads, other machines' clocks, file systems and users do to a tuner and its cache."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import threading
import time

import pytest

from advisor.autotuning.decisions import cache as caches
from advisor.autotuning.decisions import decision
from advisor.autotuning.decisions.cache import Cache, ProblemKey, Row

from .kernels import call, configs, tuned

KEY = ProblemKey(kernel="k", source="s", triton="3.9.0", gpu="NVIDIA H200", key="(1,)")


def test_a_child_of_a_fork_decides_though_another_thread_was_deciding():
    inside, on = threading.Event(), threading.Event()

    def latency(launch):
        if launch["n"] == 1:
            inside.set()
            on.wait(20)
        return launch["BLOCK"]

    kernel, _ = tuned(latency, space=configs(16, 32))
    thread = threading.Thread(target=call, args=(kernel, 1))
    thread.start()
    assert inside.wait(10)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        os._exit(call(kernel, 2) != 16)
    on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_a_lease_in_the_future_lapses_by_the_clock_of_whoever_waits(fresh_cache, monkeypatch, caplog):
    from advisor.autotuning import measuring

    monkeypatch.setattr(caches, "LEASE_S", 0.1)
    monkeypatch.setattr(measuring, "SAY_AFTER_S", 0.02)
    kernel, bench = tuned({16: 1.0, 32: 2.0})
    real = Cache.claim_some
    skewed = []

    def claim_some(self, problem, names, most):
        if not skewed:  # another node, whose clock is an hour ahead, claimed both and died
            skewed.append(real(self, problem, names, 2))
            self._do(lambda connection: connection.execute("UPDATE timings SET owner = 'elsewhere|1|1', lease = ?", (time.time() + 3600,)))
        return real(self, problem, names, most)

    monkeypatch.setattr(Cache, "claim_some", claim_some)
    assert call(kernel) == 16 and len(bench.measured) == 2  # it would wait for an hour
    assert caplog.text.count("waiting for another process") == 1


def test_a_claim_that_is_extended_is_not_taken_over_however_far_ahead_its_clock(fresh_cache, monkeypatch):
    cache = Cache(fresh_cache)
    monkeypatch.setattr(caches, "LEASE_S", 0.1)
    bool(cache.claim_some("p", ["c"], 1))
    for second in range(4):
        ahead = time.time() + 3600 + second
        cache._do(lambda connection, ahead=ahead: connection.execute("UPDATE timings SET owner = 'elsewhere|1|1', lease = ?", (ahead,)))
        assert not bool(cache.claim_some("p", ["c"], 1))
        time.sleep(0.06)


def test_a_file_system_without_locks_is_noticed_soon(fresh_cache, monkeypatch, caplog):
    fcntl = pytest.importorskip("fcntl")

    def refused(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    def locked(path):  # as SQLite words it there
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(fcntl, "lockf", refused)
    monkeypatch.setattr(decision, "_file", locked)
    monkeypatch.setattr(decision, "PROBE_AFTER_S", 0.05)
    Cache(fresh_cache).add_problem(KEY)
    assert "has no locks" in caplog.text and "ADVISOR_CACHE_DIR" in caplog.text and "prune" not in caplog.text


def test_the_first_try_to_open_a_locked_file_is_short(fresh_cache, monkeypatch):
    """SQLite's own patience must not hide for half a minute that there are no locks."""
    Cache(fresh_cache).add_problem(KEY)
    connection = sqlite3.connect(fresh_cache / caches.FILE_NAME, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    opened = []
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: opened.append(more.get("timeout")) or real(*args, **more))
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        decision._file(fresh_cache / caches.FILE_NAME)
    assert opened and all(timeout is not None and timeout <= 5 for timeout in opened)
    connection.close()


@pytest.mark.parametrize(
    ("error", "removal"),
    [
        (sqlite3.OperationalError("database or disk is full"), False),
        (sqlite3.OperationalError("database is locked"), False),
        (sqlite3.DatabaseError("written by a later version: 9, this one knows 2"), False),
        (sqlite3.DatabaseError("database disk image is malformed"), True),
        (sqlite3.DatabaseError("file is not a database"), True),
    ],
)
def test_removing_the_file_is_advised_where_it_helps(error, removal, fresh_cache, caplog):
    cache = Cache(fresh_cache)
    cache.add_problem(KEY)

    def fails(connection):
        if not cache.in_memory:
            raise error

    cache._do(fails)
    assert ("remove it" in caplog.text) == removal
    assert ("ADVISOR_CACHE_DIR" in caplog.text) == (not removal)


def test_a_removed_folder_is_noticed_and_made_again(fresh_cache, caplog):
    cache = Cache(fresh_cache)
    cache.add_problem(KEY)
    shutil.rmtree(fresh_cache)
    cache.add_problem(KEY)
    cache.record_all(KEY.id, [Row(config="{}", state="measured", us=1.0)])
    assert caplog.text.count("was removed or replaced") == 1
    assert Cache(fresh_cache).rows(KEY.id)["{}"].us == 1.0


def test_many_quick_configurations_are_written_together(fresh_cache, monkeypatch):
    """Two hundred configurations that take no time share a few transactions; none is lost."""
    written = []
    real = Cache.record_all
    monkeypatch.setattr(
        Cache, "record_all", lambda self, problem, rows, **more: (written.append(len(rows)), real(self, problem, rows, **more))[1]
    )
    kernel, _ = tuned({block: float(block) for block in range(1, 201)}, compile_ahead=False)
    assert call(kernel) == 1
    assert sum(written) == 200 and len(written) < 20


def test_a_slow_configuration_is_written_down_at_once(fresh_cache, monkeypatch):
    from advisor.autotuning import measuring

    monkeypatch.setattr(measuring, "QUICK_S", 0.0)
    seen = []

    def latency(launch):
        problem = caches.default_cache().problems()[0]
        seen.append(len(caches.default_cache().rows(problem.id)))
        return float(launch["BLOCK"])

    call(tuned(latency, space=configs(16, 32, 64))[0])
    assert seen == [0, 1, 2]


def test_no_family_is_looked_for_without_a_hint():
    """The models are imported for a hint only: a tenth of a second of the first decision of a process."""
    import subprocess
    import sys

    code = (
        "import sys; from advisor.autotuning.ranking import recognise\n"
        "class F:\n    fn = staticmethod(lambda x: x)\n"
        "recognise(F, {}, None, None); sys.exit('advisor.pipelines.batch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_tool_that_patches_triton_s_class_sees_every_launch_of_a_decorated_kernel(monkeypatch):
    from triton.runtime.autotuner import Autotuner

    kernel, bench = tuned({16: 1.0, 32: 2.0})
    assert call(kernel, 1) == 16
    seen = []
    real = Autotuner.run

    def run(self, *args, **kwargs):
        seen.append(self)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Autotuner, "run", run)
    before = len(kernel.fn.launches)
    assert call(kernel, 1) == 16 and call(kernel, 2) == 16
    assert seen == [kernel, kernel] and kernel.decision.how == "measured"
    assert len(bench.measured) == 4 and len(kernel.fn.launches) == before + 4  # two are trials
    monkeypatch.undo()
    assert call(kernel, 2) == 16 and len(seen) == 2
