"""Kernels and GPUs of which few rows or none are known: figures on the project's own measurements."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from advisor.cli import main
from advisor.gpus.hardware import load_gpu
from advisor.learned import own_rows, weights
from advisor.learned.estimator import LearnedPredictor
from advisor.learned.own_predictor import OPERATORS, predictor_of
from advisor.pipelines import problem_batch
from advisor.pipelines.space import problem_space
from advisor.result.schema import Problem
from advisor.rows.rows import read_rows
from advisor.training import configured_training, data, judging
from advisor.training.configured_training import own_measurements
from advisor.training.own_gpu import calibrate

H100 = load_gpu("H100")


def bare() -> weights.Weights:
    path = weights.shipped()
    assert path is not None
    return replace(weights.load(path), configured=None)


def test_some_rows_of_a_gpu_without_any_halve_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(own_measurements()), "--given", "300", "--format", "json"]) == 0
    judged = {name.split()[0]: tuple(splits.values()) for name, splits in json.loads(capsys.readouterr().out).items()}
    assert judged.keys() == {"H100", "H200"}
    for gpu, (before, after) in judged.items():
        assert before["rows"] == after["rows"] > 1500 and before["problems"] == after["problems"] > 100
        assert after["mape_percent"] < 0.72 * before["mape_percent"] and after["mape_percent"] < {"H100": 13, "H200": 14.5}[gpu]
        assert after["first_over_best"] < 1.06 < before["first_over_best"]
        assert 72 < after["interval_holds_percent"] < 90


def test_a_kernel_left_out_is_judged(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of both GPUs, and by the H100's launches alone, which are warm."""
    read = configured_training.read_launches
    monkeypatch.setattr(configured_training, "KERNELS", {"softmax": ["softmax"]})
    for gpus, rows in (([], 340 + 691), (["H200"], 340)):
        monkeypatch.setattr(configured_training, "read_launches", lambda *_, without=gpus: read((), without, ()))
        assert main(["evaluate", str(own_measurements()), "--leave-out", "kernel", "--format", "json"]) == 0
        served, analytical = (splits["softmax"] for splits in json.loads(capsys.readouterr().out).values())
        assert analytical["rows"] == served["rows"] == rows
        assert served["mape_percent"] < 12 < analytical["mape_percent"] and served["first_over_best"] < 1.04
    assert analytical["mape_percent"] < 18


def test_kernels_are_left_out_of_own_measurements_alone(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    (tmp_path / "rows.csv").write_text("gpu,M,N,K,latency_us\nA100,64,64,64,10\n")
    assert main(["evaluate", str(tmp_path / "rows.csv"), "--leave-out", "kernel"]) == 2
    assert "own measurements" in capsys.readouterr().err


def test_the_first_of_a_space_is_the_one_corrected_to_be_fastest() -> None:
    rows = read_rows(data.files([own_measurements()])[0])
    fitted = calibrate(judging.some_of(rows, np.arange(0, len(rows), 12)), bare()).weights
    assert {kind for _, kind in fitted.corrections} == {"configured products", "configured attention", "configured row by row"}
    problem = problem_batch([Problem(family="gemm", op="gemm", sizes={"M": 1024, "N": 4096, "K": 4096}, dtype="bf16")])
    space, predictor = problem_space(problem, "nvidia", splits=True), predictor_of(LearnedPredictor(fitted))
    order = predictor.scores(problem, space, H100)
    first = np.argsort(order, kind="stable")[:20]
    us = predictor.predict(problem, space.take(first), H100).us
    assert (np.diff(us) >= -1e-4 * us[1:]).all()
    before = LearnedPredictor(bare()).scores(problem, space, H100)
    assert (np.isfinite(order) == np.isfinite(before)).all() and (order != before).any()
    assert predictor.ceiling(problem, H100).us[0] == pytest.approx(us[0], rel=0.25)


def test_a_pool_of_too_many_rows_is_told_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """And rows that come later are heard beside those of their kind."""
    rows = read_rows(data.files([own_measurements()])[0])
    monkeypatch.setattr(own_rows, "MOST", 150)
    some, more = (judging.some_of(rows, np.arange(start, len(rows), 20)) for start in (0, 1))
    once = calibrate(some, bare())
    twice = calibrate(more, once.weights)
    attention = [kind for _, kind in twice.weights.corrections if kind.startswith("configured attention")]
    products = [kind for _, kind in twice.weights.corrections if kind.startswith("configured products")]
    assert attention == ["configured attention"] and len(products) > 3
    assert {kind.partition(": ")[2].split()[0] for kind in products} == set(OPERATORS[:3])
    kept, total = (sum(len(own) for own in each.weights.corrections.values()) for each in (once, twice))
    assert total > 1.8 * kept
