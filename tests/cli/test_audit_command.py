"""`advisor audit`: options that contradict each other, and what its predictions rest on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.cli import main

EXAMPLE = Path(__file__).resolve().parents[2] / "reports" / "examples" / "E=128,N=768,device_name=NVIDIA_H20.json"


@pytest.mark.parametrize("gates", ["predicted-regret", "error,predicted-regret"])
def test_a_gate_on_what_is_left_out_is_refused(capsys, gates):
    """It would pass whatever the tables hold."""
    assert main(["audit", str(EXAMPLE), "--no-regret", "--fail-on", gates]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert "--no-regret" in printed.err and "--fail-on predicted-regret" in printed.err


def test_other_gates_need_no_predictions():
    assert main(["audit", str(EXAMPLE), "--no-regret", "--fail-on", "error"]) == 0


def test_regret_by_the_analytical_model_is_marked(tmp_path, capsys):
    """No 8-bit GEMM of this kernel was measured on that GPU; of the others the learned model speaks."""
    slow = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 2}
    known = "E=128,N=768,device_name=NVIDIA_H20.json"
    beyond = "E=256,N=256,device_name=NVIDIA_H20,dtype=fp8_w8a8,block_shape=[128,128].json"
    for name in (known, beyond):
        (tmp_path / name).write_text(json.dumps({"1": slow, "4096": slow}), encoding="utf-8")
    assert main(["audit", str(tmp_path), "--all"]) == 0
    printed = capsys.readouterr().out
    listed = printed.partition("largest predicted regret:")[2].splitlines()
    assert all("(by the analytical model)" in line for line in listed if beyond in line)
    assert any(beyond in line for line in listed) and any(line.endswith(known) for line in listed)
    assert any(f"{beyond} entry 1" in line and ", by the analytical model)" in line for line in printed.splitlines())
