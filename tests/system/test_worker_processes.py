"""Workers end with the process that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advisor.system.processes import end_with_parent

MUCH_TO_DO_S = 30.0

PARENT = """
import multiprocessing
from tests.system.test_worker_processes import wait_long
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
