"""Processes are told apart by number and start, and workers end with the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advisor.system import processes
from advisor.system.processes import end_with_parent


def test_this_process_runs_and_no_other_of_its_number():
    me = os.getpid()
    assert processes.is_running(me, str(processes.started(me)))
    assert not processes.is_running(me, "1")


def test_a_process_that_ended_does_not_run_whether_or_not_its_parent_asked_for_it():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    since = str(processes.started(child.pid))
    assert processes.is_running(child.pid, since)
    child.stdin.close()
    end = time.monotonic() + 30
    while processes.is_running(child.pid, since):  # a zombie, until it is waited for
        assert time.monotonic() < end
        time.sleep(0.01)
    assert processes.started(child.pid) == since
    child.wait()
    assert processes.started(child.pid) is None and not processes.is_running(child.pid, since)


@pytest.mark.parametrize(("since", "runs"), [("7", True), ("1", False)])
def test_another_users_process_runs_where_proc_hides_it(monkeypatch, since, runs):
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    fields = ["S", *"0" * 18, "7"]
    monkeypatch.setattr(processes, "_stat", lambda pid: fields)
    assert processes.is_running(1, since) is runs
    monkeypatch.setattr(processes, "_stat", lambda pid: None)
    assert processes.is_running(1, since)


MUCH_TO_DO_S = 30.0

PARENT = """
import multiprocessing
from tests.system.test_processes import wait_long
if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=wait_long)
    worker.start()
    worker.join()
"""


def wait_long() -> None:
    """A worker with much to do; says when it would end with its parent."""
    end_with_parent()
    print("started", flush=True)
    time.sleep(MUCH_TO_DO_S)
    print("not ended", flush=True)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_ends_with_a_killed_parent(tmp_path, how):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    here = {"PYTHONPATH": str(Path(__file__).parents[2])}
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=os.environ | here)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "started\n"
    parent.send_signal(how)
    parent.wait(10)
    assert parent.stdout.read() == ""  # until the last process that holds the pipe has ended: the worker
    parent.stdout.close()


def test_a_process_without_a_parent_of_multiprocessing_goes_on():
    assert multiprocessing.parent_process() is None
    end_with_parent()
