"""Recorded launches of autotuned kernels: the list of the autotuner is their configuration space, as it is of `advise FILE::KERNEL`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from advisor.advising.of_compiled import advise_compiled
from advisor.compiled.launch_report import targets_from
from advisor.compiled.launches import configured
from advisor.compiled.launches.launch_options import LaunchOptions
from advisor.gpus.hardware import load_gpu
from advisor.result.schema import Result
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


def advised(target: Path | str, **asked: object) -> Result:
    return advise_compiled(str(target), GPU, cache="warm", command="", asked=LaunchOptions(**asked) if asked else None)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["measure", "predict"])
def test_the_list_is_the_space_of_a_recorded_launch(mode: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL + LAUNCH.replace("GRID", OWN_GRID) + RUN)
    record, said = recorded(tmp_path, program, mode)
    assert ("trials of an autotuner" in said) == (mode == "measure"), said
    result = advised(record)
    (launch,), (search,) = result.launches, result.searches
    assert launch.configuration_source.startswith("recorded, @triton.autotune configuration ")
    alone = advised(f"{program}::copy", arguments={"n": 64 * 101}, grid="cdiv(n, B)", signature="x=*fp32,y=*fp32,n=i32")
    assert launch.ceiling is not None and alone.launches[0].ceiling is not None and launch.headroom is not None
    assert launch.ceiling.us == pytest.approx(alone.launches[0].ceiling.us)
    assert launch.ceiling_configuration == alone.launches[0].ceiling_configuration

    def rated(trials: object) -> dict[str, float]:
        return {each.configuration.label(): each.predicted_us for each in trials}  # type: ignore[attr-defined]

    # Where it was tried, and where grid and heuristics follow from the file: the same work as the file's own report counts.
    assert rated(search.trials) == pytest.approx(rated(alone.searches[0].trials))
    assert len(search.trials) == 3
    assert "This launch runs at " in (said := result.verdict.sentence) and "% of the tunable ceiling (predicted)" in said
    assert "no other configuration" not in said.replace("no other configuration promises much more", "")


def elsewhere(folder: Path, grid: str) -> Path:
    """A program that launches the kernel of another file."""
    (folder / "kernels.py").write_text(KERNEL)
    program = folder / "program.py"
    program.write_text("import torch, triton\nfrom kernels import copy\n" + LAUNCH.replace("GRID", grid) + RUN)
    return program


@pytest.mark.parametrize(("mode", "grid", "compared"), [("measure", OWN_GRID, 3), ("predict", OWN_GRID, 0), ("predict", "(31,)", 3)])
def test_grids_that_are_not_known_are_said_and_not_made_up(mode: str, grid: str, compared: int, tmp_path: Path) -> None:
    """A trial has its grid, and one of numbers is the same for all; a function of another file is not in the record."""
    record, _ = recorded(tmp_path, elsewhere(tmp_path, grid), mode)
    result = advised(record)
    assert len(result.launches) == 1 and [len(each.trials) for each in result.searches] == ([compared] if compared else [])
    assert any("2 of 3 listed configurations are left out" in each for each in result.verdict.unknowns) == (not compared)
    if grid == "(31,)":
        assert {each.launch.grid for each in targets_from(str(record), None, GPU)} == {(31,)}


def test_a_grid_of_the_file_that_is_not_the_recorded_one_is_not_used(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL + LAUNCH.replace("GRID", OWN_GRID) + RUN)
    record, _ = recorded(tmp_path, program, "predict")
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    for line in lines:
        line.update({"grid": [7]} if "grid" in line else {})  # as of a launch by another file
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [each.launch.grid for each in targets_from(str(record), None, GPU)] == [(7,)]


def test_a_record_of_trials_alone_says_so(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL + LAUNCH.replace("GRID", OWN_GRID) + RUN)
    record, _ = recorded(tmp_path, program, "measure")
    kept = [line for line in record.read_text().splitlines() if '"tuning": false' not in line]
    record.write_text("\n".join(kept) + "\n")
    with pytest.raises(Exception, match="trials of autotuners"):
        targets_from(str(record), None, GPU)


def test_only_the_costliest_launches_are_compared_where_there_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL + LAUNCH.replace("GRID", OWN_GRID) + "\nlaunch()\nlaunch()\nlaunch(4096)\n")
    record, _ = recorded(tmp_path, program, "predict")
    monkeypatch.setattr(configured, "MOST_LISTED", 5)
    targets = targets_from(str(record), None, GPU)
    assert [each.launch.given.scalars["n"] for each in targets] == [64 * 101] * 3 + [4096]
    assert any("are not compared" in note for note in targets[-1].launch.notes)
