"""The predictor: right in a world with known laws, honest outside it, and fast."""

from __future__ import annotations

import csv
import dataclasses

import numpy as np
import pytest

from advisor.cli import main
from advisor.gpus.hardware import load_gpu
from advisor.learned import weights as store
from advisor.learned.base import Prediction
from advisor.learned.estimator import LearnedPredictor
from advisor.learned.intervals import p_of_intervals
from advisor.learned.moe.launch import as_configuration
from advisor.learned.moe.ranker import Ranker
from advisor.pipelines import ProblemBatch, column
from advisor.pipelines.space import family_space
from advisor.training import data, evaluate, judging, quality
from tests.learned import samples


def test_learns_the_world(world, predictor):
    figures = judging.figures(judging.collect(data.read([world]), predictor))
    assert figures["tasks"]["served"]["mape_percent"] < 1.5
    assert figures["tasks"]["exact"]["mape_percent"] < 1.5
    assert figures["tasks"]["best"]["mape_percent"] < 3
    assert figures["ranking"]["hit_at_8_percent"] > 80


@pytest.mark.slow
def test_a_model_left_out(world):
    figures = evaluate.cross([world], "model")
    assert figures["tasks"]["served"]["mape_percent"] < 20  # two models to learn from
    assert figures["tasks"]["served"]["coverage_percent"] > 40


def test_ends_enclose_the_prediction(predictor):
    gpu = load_gpu("H800")
    for configuration in (None, as_configuration(samples.CONFIGURATIONS[:1])):
        p = predictor.predict(samples.problems(), configuration, gpu)
        assert (p.low_us <= p.us).all()
        assert (p.us <= p.high_us).all()
        assert p.learned.all()


def test_unseen_gpus_get_wider_intervals(predictor):
    seen, unseen = (predictor.predict(samples.problems(), None, load_gpu(n)) for n in ("H800", "H100"))
    assert (unseen.high_us / unseen.low_us).mean() >= 0.99 * (seen.high_us / seen.low_us).mean()


def test_gpus_known_from_served_launches_alone_have_errors_of_their_own(weights):
    moe = weights.moe
    known = {task for task, seen in moe.calibration.quantiles if not seen}
    assert {"best/served", "exact/served", "best", "exact", "served"} <= known
    alone = dataclasses.replace(moe, gpus={**moe.gpus, "best": (), "exact": ()})
    assert [alone.errors_of(task, "H800") for task in ("served", "exact", "best")] == ["served", "exact/served", "best/served"]
    assert [moe.errors_of(task, "H800") for task in ("served", "exact", "best")] == ["served", "exact", "best"]
    assert [alone.errors_of(task, "B200") for task in ("served", "exact", "best")] == ["served", "exact", "best"]


@pytest.mark.parametrize("change", [{"cache": "cold"}, {"dtype": "fp8"}, {"op": "combine"}])
def test_falls_back_where_nothing_was_learned(predictor, change):
    problem = samples.problems()
    other = ProblemBatch(**{"family": "fused_moe", "op": "w13", "sizes": problem.sizes} | change)
    assert not predictor.predict(other, None, load_gpu("H800")).learned.any()


@pytest.mark.parametrize("name", ["T4", "MI300X", "B200"])
def test_falls_back_on_gpus_of_another_kind(predictor, name):
    p = predictor.predict(samples.problems(), None, load_gpu(name))
    assert not p.learned.any()


def test_huge_problems_fall_back(predictor):
    p = predictor.predict(samples.problems(tokens=(64, 10_000_000)), None, load_gpu("H800"))
    assert p.learned.tolist() == [True, False]


def test_p_speedup_grows_with_latency(predictor):
    gpu, problem = load_gpu("H800"), samples.problems()
    ceiling = predictor.ceiling(problem, gpu)
    p = [predictor.p_speedup(problem, gpu, ceiling.us * f, ceiling, ceiling) for f in (0.9, 1.05, 1.2, 2.0)]
    assert (np.diff(np.stack(p), axis=0) >= 0).all()
    assert (p[0] < 0.2).all()
    assert (p[-1] > 0.9).all()


def test_scores_put_what_cannot_launch_last(predictor):
    space = family_space("fused_moe")
    scores = predictor.scores(samples.problems(tokens=(64,)), space, load_gpu("L40"))
    assert np.isinf(scores).any()
    assert np.isfinite(scores).any()


def test_a_space_is_ranked_once_for_a_problem_whoever_asks(weights, monkeypatch):
    """Both sides of a comparison ask, each with arrays of its own."""
    predictor, ranked = LearnedPredictor(weights), []
    rankings = Ranker.rankings
    monkeypatch.setattr(Ranker, "rankings", lambda self, *asked: ranked.append(asked) or rankings(self, *asked))
    found = [predictor.scores(samples.problems(tokens=(64,)), family_space("fused_moe"), load_gpu(gpu)) for gpu in ("H800", "H800", "L40")]
    assert len(ranked) == 2 and np.array_equal(found[0], found[1]) and not np.array_equal(found[0], found[2])
    found[0][:] = 0
    assert np.array_equal(predictor.scores(samples.problems(tokens=(64,)), family_space("fused_moe"), load_gpu("H800")), found[1])


def test_sizes_of_one(predictor):
    problem = ProblemBatch(family="fused_moe", op="w13", sizes={n: column(1) for n in ("M", "E", "topk", "H", "N")})
    assert np.isfinite(predictor.predict(problem, None, load_gpu("A100")).us).all()


def test_quality_figures():
    label = np.array([True, False, True, False])
    assert quality.area_under_curve(np.array([0.9, 0.1, 0.8, 0.2]), label) == 1.0
    assert quality.area_under_curve(np.full(4, 0.5), label) == 0.5
    assert quality.hits([0, 2, None])["hit_at_3_percent"] == pytest.approx(200 / 3)
    assert quality.errors(np.array([1.0, 2.0]), np.array([1.1, 2.0]))["mape_percent"] == pytest.approx(5)
    assert quality.coverage(np.array([1.0, 3.0]), np.array([0.9, 0.9]), np.array([1.1, 1.1])) == 50


def test_library_kernels_have_nothing_to_tune(weights, tmp_path, capsys):
    store.save(weights, tmp_path / "w.npz")
    cells = {}
    for name, text in (
        ("x_fp8.csv", "gpu,M,N,K,latency_us\nH20,64,512,1024,12.5\n"),
        ("ops.csv", "gpu,op,B,H,latency_us,kernel\nTesla T4,softmax,64,1024,20.5,k\n"),
        ("tiled.csv", "gpu,M,N,K,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K\nH20,64,512,1024,64,64,64\n"),
    ):
        (tmp_path / name).write_text(text)
        assert main(["predict", str(tmp_path / name), "-o", str(tmp_path / "out.csv"), "--weights", str(tmp_path / "w.npz")]) == 0
        (cells[name],) = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    told = capsys.readouterr().err
    assert "fp8 operands" in told and "fp32 operands" in told and "nothing to tune" in told
    for name in ("x_fp8.csv", "ops.csv"):
        assert cells[name]["p_speedup_10pct"] == "" and cells[name]["ceiling_us"] == cells[name]["predicted_us"]
    assert 0 <= float(cells["tiled.csv"]["p_speedup_10pct"]) <= 1


def test_p_speedup_counts_the_width_of_both_intervals():
    def prediction(us, spread):
        us = np.array([us])
        return Prediction(us=us, low_us=us * np.exp(-spread), high_us=us * np.exp(spread), learned=np.array([spread < 0.2]))

    p = [
        p_of_intervals(None, prediction(120.0, mine), prediction(100.0, wide), 1.1)[0]
        for mine, wide in ((0.02, 0.02), (0.02, 0.3), (0.3, 0.3))
    ]
    assert p[0] > 0.99 > p[1] > p[2] > 0.5
