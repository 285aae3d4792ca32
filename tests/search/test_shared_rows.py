"""Tuning a layer whose w13 and w2 have a table each: what is launched, and what may be changed."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from advisor.advising.targets import Request
from advisor.cli import main
from advisor.search import search_report
from advisor.tables.tables import read_table
from advisor.tuning import Order, make_plan

UP = "E=256,N=512,device_name=NVIDIA_H200.json"
DOWN = "E=256,N=512,device_name=NVIDIA_H200_down.json"
ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
LAYER = ("--hidden-size", "2048", "--top-k", "8", "--tokens", "16", "--device", "fake,gpu=H200")
REQUEST = Request(hidden_size=2048, top_k=8, tokens=(16,))


@pytest.fixture
def folder(tmp_path):
    """w13 runs with 128 rows, and so does w2, whatever its entry says."""
    found = tmp_path / "triton_3_5_1"
    found.mkdir()
    (found / UP).write_text(json.dumps({"16": {**ENTRY, "BLOCK_SIZE_M": 128}}))
    (found / DOWN).write_text(json.dumps({"16": ENTRY}))
    return found


def planned(path, **order):
    return make_plan(Order(target=str(path), request=REQUEST, storage="x", device="fake,gpu=H200", **order))


def test_w2_is_tuned_by_its_own_table(folder, capsys):
    assert main(["tune", str(folder / UP), *LAYER, "--op", "w2", "--trials", "1", "--output", str(folder / "out")]) == 5
    error = capsys.readouterr().err
    assert "internal failure" not in error and f"advisor tune {DOWN}" in error


def test_what_is_left_out_is_said(folder):
    plan = planned(folder / UP)
    assert [launch.id for launch in plan.target.launches] == ["w13-M16"]
    (said,) = (said for said in plan.warnings if "w2 runs with" in said)
    assert DOWN in said and "keeps its BLOCK_SIZE_M" in said and "a copy of this one is tuned for both" in said
    assert planned(folder / UP, op="w13").warnings == plan.target.warnings[:-1]
    (folder / DOWN).unlink()
    assert [launch.id for launch in planned(folder / UP, op="w2").target.launches] == ["w2-M16"]
    assert [launch.id for launch in planned(folder / UP).target.launches] == ["w13-M16", "w2-M16"]


@pytest.mark.parametrize("name", [UP, DOWN])
def test_the_rows_of_a_shared_sort_stay(folder, name):
    plan = planned(folder / name)
    (decision,) = plan.decisions
    assert decision.incumbent.parameters["BLOCK_SIZE_M"] == 128
    usable = np.isfinite(decision.prior.mean)
    assert set(np.array(plan.space.columns["BLOCK_SIZE_M"])[usable]) == {128}
    assert any("BLOCK_SIZE_M" in why for why in decision.prior.stopped_by)
    other = {UP: DOWN, DOWN: UP}[name]
    (folder / other).unlink()
    (free,) = planned(folder / name).decisions
    assert len(set(np.array(plan.space.columns["BLOCK_SIZE_M"])[np.isfinite(free.prior.mean)])) > 1


def test_the_table_that_is_written_says_what_runs(folder, tmp_path):
    export = tmp_path / "tables"
    (folder / DOWN).write_text(json.dumps({"16": {**ENTRY, "BLOCK_SIZE_N": 32, "num_warps": 8}}))  # slow enough to be improved
    for _ in range(2):  # the second time the table that was written is what runs
        assert main(["tune", str(folder / DOWN), *LAYER, "--trials", "6", "--output", str(tmp_path / "out"), "--export", str(export)]) == 0
        (row,) = [each for each in (tmp_path / "tables" / "before-after.md").read_text().splitlines() if each.startswith("| M16")]
        assert "BLOCK_SIZE_M=16 " not in row and "BLOCK_SIZE_M=128 " in row
        assert dict(read_table(export / DOWN).entries)[16].parameters["BLOCK_SIZE_M"] == 128


def test_an_entry_that_could_not_be_launched_with_its_own_rows_is_not_what_fails(folder):
    """256 rows and 256 columns with 5 stages need more shared memory than there is; with w13's 16 rows it runs."""
    (folder / UP).write_text(json.dumps({"16": ENTRY}))
    (folder / DOWN).write_text(json.dumps({"16": {**ENTRY, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "num_stages": 5}}))
    (decision,) = planned(folder / DOWN).decisions
    assert decision.incumbent.parameters["BLOCK_SIZE_M"] == 16 and decision.incumbent_fails is None


def test_what_an_earlier_run_measured_with_other_rows_does_not_win(folder, monkeypatch):
    plan = planned(folder / DOWN)
    (decision,) = plan.decisions
    usable = np.isfinite(decision.prior.mean)
    trials = [(int(np.flatnonzero(~usable)[0]), 1.0, {}), (int(np.flatnonzero(usable)[0]), 2.0, {})]
    tuner = SimpleNamespace(space=plan.space, study=lambda _: None, sampler=lambda _: SimpleNamespace(index_of=lambda trial: trial))
    monkeypatch.setattr(search_report, "measured_latencies", lambda _: trials)
    found = search_report.best_of(tuner, replace(decision, incumbent=None), 0.01)
    assert found is not None and found[0] == plan.space.configurations[trials[1][0]]


def test_who_runs_with_an_entry_and_has_no_say_in_it(folder):
    assert planned(folder / UP, op="w13").unjudged == {}  # w2 has its own table
    (folder / DOWN).unlink()
    assert planned(folder / UP).unjudged == {}
    assert planned(folder / UP, op="w13").unjudged == {"M16": ("w2",)}


def test_an_entry_that_was_judged_by_one_of_two_says_so(folder, tmp_path, capsys):
    (folder / DOWN).unlink()
    search = ["tune", str(folder / UP), *LAYER, "--trials", "4", "--format", "json"]
    for op, warned in ((["--op", "w13"], True), ([], False)):
        export = tmp_path / f"tables{warned}"
        assert main([*search, *op, "--output", str(tmp_path / f"out{warned}"), "--export", str(export)]) == 0
        told = capsys.readouterr()
        assert dict(read_table(export / UP).entries)[16].parameters["BLOCK_SIZE_M"] != 128  # something won
        for text in (told.err, "".join(json.loads(told.out)["warnings"]), (export / "before-after.md").read_text()):
            assert ("w2 will run with what won for M = 16 as well" in text) == warned
