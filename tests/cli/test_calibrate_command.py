"""`advisor calibrate`: rows of one's own GPU correct what every command predicts there."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from advisor.cli import main
from advisor.learned import weights
from advisor.rows.rows import read_rows
from advisor.training.own_gpu import calibrate

ROWS = [f"layer,{m},,128,8,2048,{n},vllm" for n in (384, 768) for m in range(1, 2000, 130)]
ROWS += [f"w13,{m},,128,8,2048,{n}," for n in (384, 768) for m in range(1, 2000, 130)]
ROWS += [f"gemm,{m},4096,,,,{n},vllm" for n in (1024, 6144) for m in range(1, 2000, 130)]
HEAD = "op,M,K,E,topk,H,N,stack"
SLOWER = 1.3


def _predicted(rows: Path) -> dict[str, np.ndarray]:
    out = rows.with_suffix(".out.csv")
    assert main(["predict", str(rows), "-o", str(out), "--gpu", "A100"]) == 0
    with out.open() as file:
        lines = list(csv.DictReader(file))
    return {name: np.array([float(line[name]) for line in lines]) for name in ("predicted_us", "predicted_low_us", "predicted_high_us")}


def test_rows_that_are_all_slower_make_predictions_slower(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    rows, some = tmp_path / "rows.csv", tmp_path / "measured.csv"
    rows.write_text("\n".join([HEAD, *ROWS]) + "\n")
    before = _predicted(rows)
    measured = before["predicted_us"] * SLOWER
    told = [f"{line},{us}" for line, us in zip(ROWS, measured, strict=True)]
    some.write_text("\n".join([f"{HEAD},latency_us", *told[::2]]) + "\n")
    mine = tmp_path / "triton-advisor" / "weights.npz"
    assert main(["calibrate", str(some), "-o", str(mine), "--gpu", "A100"]) == 0
    assert capsys.readouterr().out.count("16 rows, error 23.1 % before") == 3
    after = _predicted(rows)  # the folder's weights are in use
    assert after["predicted_us"] == pytest.approx(measured, rel=0.03)
    width, was = (np.log(each["predicted_high_us"] / each["predicted_low_us"]) for each in (after, before))
    assert np.median(width) < np.median(was)
    again = calibrate(read_rows(some), weights.load(mine), "A100")  # heard beside the earlier ones
    assert {count for count, _, _ in again.errors.values()} == {32}


def test_too_few_rows_and_impossible_ones_are_refused(tmp_path, capsys):
    rows = tmp_path / "rows.csv"
    rows.write_text("gpu,M,N,K,latency_us\n" + "A100,64,4096,4096,0.1\n" * 9 + "A100,64,4096,4096,\n")
    assert main(["calibrate", str(rows), "-o", str(tmp_path / "mine.npz")]) == 5
    assert "1 without a latency, 9 below the bound" in capsys.readouterr().err
