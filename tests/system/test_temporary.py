"""Temporary folders of killed processes do not pile up."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from advisor.system.writing import temporary_folder

HOLD = """
from advisor.system.writing import temporary_folder
with temporary_folder("test") as folder:
    print(folder, flush=True)
    input()
"""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def holder() -> tuple[subprocess.Popen, Path]:
    """A process with a folder of its own."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    folder = Path(process.stdout.readline().strip())
    (folder / "inside").touch()
    return process, folder


def test_what_a_killed_process_left_is_removed_by_the_next(place):
    (place / "advisor-test-of-somebody").mkdir()
    (dead, left), (alive, kept) = holder(), holder()
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    assert left.exists()
    with temporary_folder("other") as own:
        assert own.is_dir() and not left.exists() and (kept / "inside").exists()
    assert not own.exists() and (place / "advisor-test-of-somebody").exists()
    alive.communicate("\n")
    assert alive.returncode == 0 and not kept.exists()
