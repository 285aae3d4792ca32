"""Processes are told apart by number and start."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from advisor.system import processes


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
