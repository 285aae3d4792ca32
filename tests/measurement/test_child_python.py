"""The processes that measure and look for a GPU import no module of the working folder that this process would not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from advisor.cli import main
from advisor.measurement.devices import probe
from advisor.system.processes import python_command


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with modules named like those of the standard library; as for the command, it is not on this one's path."""
    for name in ("json", "signal", "tempfile", "subprocess"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the user')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return tmp_path


def test_a_launch_is_measured(folder, capsys):
    out = folder / "rows.csv"
    assert main(["measure", "softmax", "--sizes", "B=64,H=512", "--device", "fake", "-o", str(out)]) == 0
    assert "1 measured, 0 failed" in capsys.readouterr().out


def test_a_gpu_is_looked_for(folder, monkeypatch):
    monkeypatch.setattr(probe, "DEVICE_FILES", ("null",))
    found = probe.probe_gpu()
    assert found.error is None or "the look" not in found.error


def test_the_path_and_the_arguments_are_those_given(folder, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    code = "print(sys.argv[1:]); print(sys.path[-1])"
    done = subprocess.run(python_command(code, "7", "x y"), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['7', 'x y']", str(folder)]
