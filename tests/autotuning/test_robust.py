"""What may happen around a tuner: forks, clocks that differ, file systems without locks, folders that go."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import threading
import time

import pytest

from advisor.autotuning import measuring
from advisor.autotuning.decisions import cache, cache_file, leases

from .kernels import call, tuned


def test_a_child_decides_though_a_thread_of_its_parent_was_deciding(fresh_cache):
    inside, go_on = threading.Event(), threading.Event()

    def slow(launch):
        inside.set()
        go_on.wait(20)
        return 1.0

    kernel, _ = tuned(slow, space={"BLOCK": [16, 32]}, time_limit_s=None)
    thread = threading.Thread(target=call, args=(kernel,))
    thread.start()
    assert inside.wait(20)
    child = os.fork()
    if child == 0:
        go_on.set()
        os._exit(0 if call(kernel, n=2048) in (16, 32) else 1)
    for _ in range(400):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        status = -1
    go_on.set()
    thread.join(20)
    assert status == 0


def test_a_lease_in_the_future_lapses_and_the_wait_is_told(fresh_cache, monkeypatch, caplog):
    monkeypatch.setattr(measuring, "SAY_AFTER_S", 0.05)
    monkeypatch.setattr(leases, "LEASE_S", 0.6)
    kernel, _ = tuned({16: 1.0, 32: 2.0})
    call(kernel, n=1)
    with sqlite3.connect(fresh_cache / "autotune.sqlite3", isolation_level=None) as file:
        file.execute("DELETE FROM decisions")
        file.execute("UPDATE timings SET state = 'claimed', owner = 'elsewhere|1|1', lease = ?", (time.time() + 3600,))
    file.close()
    again, _ = tuned({16: 1.0, 32: 2.0})
    began = time.monotonic()
    assert call(again, n=1) == 16
    assert time.monotonic() - began < 20
    assert len([r for r in caplog.records if "waits for another process that measures 2 configurations" in r.message]) == 1


def test_a_file_system_without_locks_is_noticed_at_once(fresh_cache, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(cache_file.fcntl, "lockf", refuse)
    monkeypatch.setattr(cache_file, "_file", lambda path: pytest.fail("SQLite would wait there"))
    assert call(tuned({16: 1.0, 32: 2.0})[0]) == 16
    (said,) = [r.message for r in caplog.records if "cannot be used" in r.message]
    assert "no locks" in said and "ADVISOR_CACHE_DIR" in said


@pytest.mark.parametrize(
    ("error", "prunes"),
    [
        (sqlite3.DatabaseError("file is not a database"), True),
        (sqlite3.DatabaseError("database disk image is malformed"), True),
        (sqlite3.OperationalError("database or disk is full"), False),
        (sqlite3.OperationalError("database is locked"), False),
        (sqlite3.DatabaseError("written by a later version: 9, this one knows 2"), False),
        (PermissionError(errno.EACCES, "Permission denied"), False),
    ],
)
def test_pruning_is_advised_where_it_helps(error, prunes, fresh_cache, monkeypatch, caplog):
    def fail(path):
        raise error

    monkeypatch.setattr(cache, "patiently", fail)
    assert call(tuned({16: 1.0, 32: 2.0})[0]) == 16
    (said,) = [r.message for r in caplog.records if "cannot be used" in r.message]
    assert ("prune --damaged" in said) == prunes


def test_a_folder_that_is_deleted_is_made_anew(fresh_cache, caplog):
    kernel, _ = tuned({16: 1.0, 32: 2.0})
    call(kernel, n=1)
    shutil.rmtree(fresh_cache)
    call(kernel, n=2)
    assert len([r for r in caplog.records if "was deleted or replaced" in r.message]) == 1
    with sqlite3.connect(fresh_cache / "autotune.sqlite3") as file:
        assert file.execute("SELECT COUNT(*) FROM decisions").fetchone() == (1,)
    file.close()
