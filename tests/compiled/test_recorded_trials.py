"""Recorded launches of autotuned kernels: what was chosen is shown, and compared with what was tried in its place."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from advisor.compiled.launch_report import targets_from
from advisor.gpus.hardware import load_gpu
from advisor.rows.launches import read_launches
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
    target, *others = targets_from(str(record), None, GPU)
    assert target.source == "recorded" and target.count >= 1
    assert len(others) == (2 if mode == "measure" else 0) and target.chosen == bool(others)
    blocks = {each.launch.given.constexprs["B"] for each in (target, *others)}
    assert blocks == {64, 256, 2048} if others else blocks < {64, 256, 2048}
    assert all(each.space == target.id and each.launch.grid != target.launch.grid for each in others)


def test_a_record_of_trials_alone_says_so(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL + LAUNCH.replace("GRID", OWN_GRID) + RUN)
    record, _ = recorded(tmp_path, program, "measure")
    kept = [line for line in record.read_text().splitlines() if '"tuning": false' not in line]
    record.write_text("\n".join(kept) + "\n")
    with pytest.raises(Exception, match="trials of autotuners"):
        targets_from(str(record), None, GPU)


def test_the_first_launches_of_each_kernel_can_be_kept_alone(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL + LAUNCH.replace("GRID", OWN_GRID) + "\nfor size in (64 * 101, 640, 1280, 1920):\n    launch(size)\n")
    output = tmp_path / "launches.jsonl"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parents[2]), "ADVISOR_CACHE_DIR": str(tmp_path)}
    command = [*loaded.python(), "-m", "advisor", "record", "--first", "2", "-o", str(output), "--", *loaded.python(), str(program)]
    subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    kept = [launch.arguments["n"] for launch in read_launches(output).launches if not launch.tuning]
    assert kept == [64 * 101, 640]


def test_a_trial_is_described_once_and_counted_as_often_as_it_ran(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    often = KERNEL.replace("len(str(run()))", "len(str([run() for _ in range(50)]))")
    program.write_text(often + LAUNCH.replace("GRID", OWN_GRID) + "\nlaunch(640)\n")
    record, _ = recorded(tmp_path, program)
    trials = [launch for launch in read_launches(record).launches if launch.tuning]
    assert len(trials) == 3 and all(launch.count >= 50 for launch in trials)
