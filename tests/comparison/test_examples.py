"""The examples in `reports/` come from commands: what those commands need is there, and fits."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from advisor.comparison.settings import read_settings

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "reports" / "examples"


def test_the_edit_of_the_kernels_example_applies(tmp_path):
    if shutil.which("patch") is None:
        pytest.skip("needs patch")
    shutil.copy(ROOT / "triton_kernels" / "gemm.py", tmp_path)
    patch = (EXAMPLES / "kernel-pull-request" / "change.patch").read_bytes()
    done = subprocess.run(["patch", "-p1", "--fuzz=0"], input=patch, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()
    assert (tmp_path / "gemm.py").read_text() != (ROOT / "triton_kernels" / "gemm.py").read_text()


def test_the_examples_are_what_their_commands_print():
    script = (EXAMPLES / "render").read_text()
    kernel, table = ((EXAMPLES / f"{name}-pull-request" / "comment.md").read_text() for name in ("kernel", "table"))
    assert "advisor compare bundled edited-copy\n" in kernel and "compare bundled edited-copy" in script
    assert "`bundled` → `edited-copy`" in kernel and "edited copy" in script
    (name,) = set(re.findall(r"triton_3_3_1/(E=\d[^`']*?\.json)", table))
    assert name in script
    settings = read_settings((EXAMPLES / "kernel-pull-request" / "advisor.toml").read_bytes())
    assert settings.gpus == ("A100", "H200", "MI300X") and all(f"| {gpu} |" in kernel for gpu in settings.gpus)
