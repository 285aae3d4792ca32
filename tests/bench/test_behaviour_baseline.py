"""The comparison of two baselines sees every planted difference, and nothing else."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from behaviour_baseline import Kernels, compare

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1.0, mask=offsets < n)

def run(x):
    fill[(triton.cdiv(x.numel(), 64),)](x, x.numel(), BLOCK=64, num_warps=4)
"""


@pytest.fixture
def read(tmp_path: Path) -> dict[str, Any]:
    """What is read of a file with one kernel."""
    (tmp_path / "k.py").write_text(KERNEL, encoding="utf-8")
    return {"kernels": Kernels().answers(tmp_path / "k.py")}


def test_what_is_read_of_a_kernel_is_written_down(read: dict[str, Any]) -> None:
    found = read["kernels"]["fill"]
    assert found["launch"]["given"]["constexprs"] == {"BLOCK": 64} and found["sized"]["grid"] == [65]
    assert "def fill" in found["rebuilt"] and found["guess"]["signature"]["x_ptr"] == "*bf16"


def test_a_planted_difference_is_seen(read: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(read, copy.deepcopy(read), show=3) == 0
    changed = copy.deepcopy(read)
    changed["kernels"]["fill"]["launch"]["given"]["options"]["num_warps"] = 8
    assert compare(read, changed, show=3) == 1
    assert "fill launch.given.options.num_warps" in capsys.readouterr().out
