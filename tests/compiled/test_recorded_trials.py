"""Recorded launches of autotuned kernels: what was chosen is shown, and the trials that chose it are not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from advisor.compiled.launch_report import targets_from
from advisor.gpus.hardware import load_gpu
from tests import loaded

pytest.importorskip("torch")
pytest.importorskip("triton")

KERNEL = """
import sys
import torch, triton, advisor
import triton.language as tl

tune = advisor.autotune if sys.argv[1:] == ["predict"] else triton.autotune
more = {"mode": "predict"} if sys.argv[1:] == ["predict"] else {}

@tune(configs=[triton.Config({"B": b}, num_warps=2) for b in (64, 256, 2048)], key=["n"],
      do_bench=lambda run, quantiles: [1.0 / len(str(run()))] * 3, **more)
@triton.heuristics({"EVEN": lambda a: a["n"] % a["B"] == 0})
@triton.jit
def copy(x, y, n, B: tl.constexpr, EVEN: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    if EVEN:
        tl.store(y + o, tl.load(x + o))
    else:
        tl.store(y + o, tl.load(x + o, mask=o < n), mask=o < n)
"""
LAUNCH = """
def launch(n=64 * 101):
    x = torch.ones(n)
    for _ in range(2):
        copy[GRID](x, torch.empty(n), n)
"""
OWN_GRID = 'lambda meta: (triton.cdiv(n, meta["B"]),)'
RUN = "\nlaunch()\n"
GPU = load_gpu("H200")


def recorded(folder: Path, program: Path, *arguments: str) -> tuple[Path, str]:
    """The record of a program, and what was said of it."""
    output = folder / "launches.jsonl"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parents[2]), "ADVISOR_CACHE_DIR": str(folder)}
    command = [*loaded.python(), "-m", "advisor", "record", "-o", str(output), "--", *loaded.python(), str(program), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    return output, done.stderr


@pytest.mark.parametrize("mode", ["measure", "predict"])
def test_trials_are_told_from_what_was_chosen(mode: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL + LAUNCH.replace("GRID", OWN_GRID) + RUN)
    record, said = recorded(tmp_path, program, mode)
    assert ("trials of an autotuner" in said) == (mode == "measure"), said
    (target,) = targets_from(str(record), None, GPU)
    assert target.source == "recorded" and target.count >= 1 and target.launch.given.constexprs["B"] in (64, 256, 2048)


def test_a_record_of_trials_alone_says_so(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL + LAUNCH.replace("GRID", OWN_GRID) + RUN)
    record, _ = recorded(tmp_path, program, "measure")
    kept = [line for line in record.read_text().splitlines() if '"tuning": false' not in line]
    record.write_text("\n".join(kept) + "\n")
    with pytest.raises(Exception, match="trials of autotuners"):
        targets_from(str(record), None, GPU)
