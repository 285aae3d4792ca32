"""A lock says whose it is: nobody waits for the dead."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from optuna.storages.journal import JournalFileOpenLock, JournalFileSymlinkLock

from advisor.search import storage
from advisor.search.storage import OwnedFileLock

HOLD = """
import sys
from advisor.search.storage import OwnedFileLock
OwnedFileLock(sys.argv[1]).acquire()
print("held", flush=True)
input()
"""


def holder(path: Path) -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def waits(path: Path, seconds: float = 0.5) -> threading.Thread | None:
    """A thread that waits for the lock; None where it has it."""
    thread = threading.Thread(target=OwnedFileLock(str(path)).acquire, daemon=True)
    thread.start()
    thread.join(timeout=seconds)
    return thread if thread.is_alive() else None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="/proc tells whether a process runs")
def test_the_lock_of_a_killed_process_is_free_at_once_and_that_of_a_living_one_is_not(tmp_path):
    process = holder(tmp_path / "s.journal")
    waiting = waits(tmp_path / "s.journal")
    assert waiting is not None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    waiting.join(timeout=10)  # a third of what Optuna waits
    assert not waiting.is_alive() and (tmp_path / "s.journal.lock").exists()
    assert [each.name for each in tmp_path.iterdir()] == ["s.journal.lock"]


@pytest.mark.parametrize("kind", [JournalFileOpenLock, JournalFileSymlinkLock])
def test_optunas_own_locks_keep_it_out_and_are_kept_out(kind, tmp_path):
    path = tmp_path / "s.journal"
    path.touch()
    theirs, ours = kind(str(path)), OwnedFileLock(str(path))
    theirs.acquire()
    waiting = waits(path)
    assert waiting is not None
    theirs.release()
    waiting.join(timeout=10)
    assert not waiting.is_alive()
    there = threading.Thread(target=theirs.acquire, daemon=True)
    there.start()
    there.join(timeout=0.3)
    assert there.is_alive()
    ours.release()
    there.join(timeout=10)
    assert not there.is_alive()


@pytest.mark.parametrize("link", [False, True])
def test_a_lock_that_says_nothing_is_abandoned_in_the_end(link, tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "ABANDONED_S", 0.3)
    path, lock = tmp_path / "s.journal", tmp_path / "s.journal.lock"
    path.write_text("{}\n")
    lock.symlink_to(path) if link else lock.touch()
    began = time.monotonic()
    OwnedFileLock(str(tmp_path / "s.journal")).acquire()
    assert time.monotonic() - began > 0.3


def test_a_living_ones_lock_that_came_in_the_meantime_is_put_back(tmp_path):
    """Two that wait find one dead owner: the second must not take away what the first has taken since."""
    path = tmp_path / "s.journal"
    lock = OwnedFileLock(str(path))
    lock.acquire()
    mine = (tmp_path / "s.journal.lock").read_bytes()
    lock._take_away(b"of a dead one\n1\n1\n")
    assert (tmp_path / "s.journal.lock").read_bytes() == mine and waits(path, 0.3) is not None
    assert len(list(tmp_path.iterdir())) == 1


def test_who_holds_it_is_known_before_the_file_is_made(tmp_path, monkeypatch):
    """Whoever is killed between the two leaves a lock that says nothing, for which everybody waits: under contention that is many."""
    lock, owner = tmp_path / "s.journal.lock", storage._owner
    there = []
    monkeypatch.setattr(storage, "_owner", lambda: there.append(lock.exists()) or owner())
    OwnedFileLock(str(tmp_path / "s.journal")).acquire()
    assert there == [False] and lock.read_bytes() == owner()
