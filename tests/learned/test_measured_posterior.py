"""What a measured launch says of the best of its space."""

from __future__ import annotations

import csv
import dataclasses

import numpy as np
import pytest

from advisor.cli import main
from advisor.gpus.hardware import load_gpu
from advisor.learned import weights as store
from advisor.learned.estimator import LearnedPredictor
from advisor.learned.moe import measured_posterior
from advisor.learned.moe.launch import as_configuration
from advisor.training import data
from advisor.training.moe_tables import tables
from tests.learned import samples

NEAR = np.log2(np.array([[64.0, 64.0, 64.0]]))
FAR = NEAR + np.array([1.5, 0.0, 0.0])


def signal(ratio, launched=NEAR):
    return measured_posterior.signal(np.array([100.0 * ratio]), np.array([100.0]), launched, NEAR)[0]


def test_the_nearer_the_blocks_the_more_a_launch_says():
    assert signal(1.1) == pytest.approx(np.log(1.1))
    assert signal(1.1, FAR) == pytest.approx(np.log(1.1) / np.e)
    assert signal(5.0) == measured_posterior.LARGEST
    assert signal(0.2) == -measured_posterior.LARGEST


@pytest.mark.parametrize("ratio", [np.nan, np.inf, 0.0])
def test_what_is_no_measurement_says_nothing(ratio):
    assert signal(ratio) == 0


def test_the_share_is_found_and_bounded():
    rng = np.random.default_rng(0)
    signals, ones = rng.standard_normal(400), np.ones(400)
    errors = 0.4 * signals + 0.1 * rng.standard_normal(400)
    assert measured_posterior.share(errors, signals, ones, ones) == pytest.approx(0.4, abs=0.03)
    assert measured_posterior.share(-errors, signals, ones, ones) == 0
    assert measured_posterior.share(9 * errors, signals, ones, ones) == measured_posterior.MOST_SHARED
    assert measured_posterior.share(errors, 0 * signals, ones, ones) == 0


def test_unseen_gpus_share_less_than_those_left_out_did():
    assert measured_posterior.share_unseen([0.9, 0.0, 0.9], 0.2) == pytest.approx((1.8 / 4 + 0.2) / 2)
    assert measured_posterior.share_unseen([], 0.2) == pytest.approx(0.1)


def test_training_finds_shares_for_both_kinds_of_launches(weights):
    names = {name for name, _ in weights.moe.shares}
    assert {"best/given exact", "best/given served", "best/served/given exact"} <= names
    assert set(weights.moe.shares) <= set(weights.moe.calibration.quantiles)


def test_defaults_are_found_among_the_exact_launches(world):
    found = tables(data.read([world]))
    best, exact, served = found["best"], found["exact"], found["served"]
    place = best.paired_with(exact)
    assert (place >= 0).all()
    np.testing.assert_array_equal(exact.latency_us[place], best.paired_us)
    np.testing.assert_array_equal(exact.configuration[place], best.paired_configuration)
    assert all(served.key[row] == key for row, key in zip(best.paired_with(served), best.key, strict=True))
    unknown = dataclasses.replace(best, paired_configuration=0 * best.paired_configuration)
    assert (unknown.paired_with(exact) == -1).all()
    assert (dataclasses.replace(best, paired_us=np.full(len(best.key), np.nan)).paired_with(served) == -1).all()


def believing(weights, share):
    """The predictor, with all its shares set."""
    moe = dataclasses.replace(weights.moe, shares=dict.fromkeys(weights.moe.shares, share))
    return LearnedPredictor(dataclasses.replace(weights, moe=moe))


@pytest.mark.parametrize("configured", [True, False])
def test_a_launch_slower_than_predicted_promises_less(weights, configured):
    gpu, problem = load_gpu("H800"), samples.problems()
    configuration = as_configuration(samples.CONFIGURATIONS[:1]) if configured else None

    def probability(share, factor):
        predictor = believing(weights, share)
        prediction, ceiling = predictor.predict(problem, configuration, gpu), predictor.ceiling(problem, gpu)
        return predictor.p_speedup(problem, gpu, prediction.us * factor, prediction, ceiling, configuration)

    np.testing.assert_array_equal(probability(0.0, 1.0), probability(0.9, 1.0))
    for factor, sign in ((1.2, 1), (0.85, -1)):
        assert (sign * (probability(0.0, factor) - probability(0.9, factor)) >= 0).all()
    assert (probability(0.0, 1.2) != probability(0.9, 1.2)).any()
    grows = np.stack([probability(0.9, factor) for factor in (0.5, 0.9, 1.0, 1.3, 3.0)])
    assert (np.diff(grows, axis=0) >= 0).all()


def test_predict_reads_the_default_of_a_summary_as_the_launch(world, weights, tmp_path):
    store.save(weights, tmp_path / "w.npz")
    with (world / "summary.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    plain = [
        {n: v for n, v in row.items() if n not in ("best_us", "default_us") and not n.startswith("default_")}
        | {n.removeprefix("default_"): v for n, v in row.items() if n.startswith("default_") and n != "default_us"}
        | {"latency_us": row["default_us"]}
        for row in rows
    ]
    with (tmp_path / "plain.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(plain[0]))
        writer.writeheader()
        writer.writerows(plain)
    out = {}
    for name, path in (("summary", world / "summary.csv"), ("plain", tmp_path / "plain.csv")):
        target = tmp_path / f"{name}.out.csv"
        assert main(["predict", str(path), "-o", str(target), "--weights", str(tmp_path / "w.npz")]) == 0
        with target.open(newline="") as stream:
            out[name] = [[row[n] for n in ("predicted_us", "ceiling_us", "p_speedup_10pct")] for row in csv.DictReader(stream)]
    assert out["summary"] == out["plain"]
    assert all(all(cells) for cells in out["plain"])
