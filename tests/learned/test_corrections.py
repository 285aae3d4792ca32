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
from advisor.learned.machine import machine
from advisor.learned.moe import corrections, moe_physics
from advisor.learned.moe.launch import as_configuration, concatenate, moe_launch
from advisor.training import data
from advisor.training.moe_tables import tables
from tests.learned import samples
from tests.learned.samples import CONFIGURATIONS, problems

NEAR = np.log2(np.array([[64.0, 64.0, 64.0]]))
FAR = NEAR + np.array([1.5, 0.0, 0.0])


def signal(ratio, launched=NEAR):
    return corrections.signal(np.array([100.0 * ratio]), np.array([100.0]), launched, NEAR)[0]


def test_the_nearer_the_blocks_the_more_a_launch_says():
    assert signal(1.1) == pytest.approx(np.log(1.1))
    assert signal(1.1, FAR) == pytest.approx(np.log(1.1) / np.e)
    assert signal(5.0) == corrections.LARGEST
    assert signal(0.2) == -corrections.LARGEST


@pytest.mark.parametrize("ratio", [np.nan, np.inf, 0.0])
def test_what_is_no_measurement_says_nothing(ratio):
    assert signal(ratio) == 0


def test_the_share_is_found_and_bounded():
    rng = np.random.default_rng(0)
    signals, ones = rng.standard_normal(400), np.ones(400)
    errors = 0.4 * signals + 0.1 * rng.standard_normal(400)
    assert corrections.share(errors, signals, ones, ones) == pytest.approx(0.4, abs=0.03)
    assert corrections.share(-errors, signals, ones, ones) == 0
    assert corrections.share(9 * errors, signals, ones, ones) == corrections.MOST_SHARED
    assert corrections.share(errors, 0 * signals, ones, ones) == 0


def test_unseen_gpus_share_less_than_those_left_out_did():
    assert corrections.share_unseen([0.9, 0.0, 0.9], 0.2) == pytest.approx((1.8 / 4 + 0.2) / 2)
    assert corrections.share_unseen([], 0.2) == pytest.approx(0.1)


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


TOKENS = (1, 2, 4, 8, 16, 32, 64, 100, 128, 200, 256, 400)


def launches(name):
    gpu = machine(load_gpu(name), "bf16")
    parts = [moe_launch(problems((64, 6, 3072, 2048), (t,)), as_configuration(CONFIGURATIONS), gpu) for t in TOKENS * 8]
    return concatenate([p.take(np.arange(1)) for p in parts])


def fitted(planted):
    """Habits from launches whose DRAM-bound ones are off by exp(factor)."""
    parts = {name: launches(name) for name in planted}
    launch = concatenate(list(parts.values()))
    residual = np.concatenate([np.full(len(part), planted[name]) for name, part in parts.items()])
    stack = moe_physics.terms(launch, moe_physics.start())[1]
    return corrections.fit(launch, residual, stack, np.ones(len(launch)), np.zeros((0, 2)))


def test_what_single_gpus_differ_by_is_found_and_centred():
    found = fitted({"A100": 0.1, "L20": 0.0, "H200": -0.1})
    for name, expected in (("A100", 0.1), ("L20", 0.0), ("H200", -0.1)):
        launch = launches(name)
        stack = moe_physics.terms(launch, moe_physics.start())[1]
        np.testing.assert_allclose(np.median(found.log_factor(launch, stack)), expected, atol=0.02)
    np.testing.assert_allclose(found.factors.mean(axis=0), 0, atol=1e-12)


def test_a_gpu_that_is_unknown_is_taken_to_be_like_those_with_sweeps():
    parts = [launches(name) for name in ("A100", "L20", "H20")]
    launch, residual = concatenate(parts), np.repeat([0.04, 0.02, -0.3], len(parts[0]))
    found = corrections.fit(
        launch,
        residual,
        moe_physics.terms(launch, moe_physics.start())[1],
        np.ones(len(launch)),
        corrections.machines_of(concatenate(parts[:2])),
    )
    shown = [float(np.median(found.log_factor(p, moe_physics.terms(p, moe_physics.start())[1]))) for p in parts]
    np.testing.assert_allclose(shown[:2], [0.01, -0.01], atol=0.01)
    assert shown[2] < -0.05


def test_wild_rows_do_not_sway_it():
    launch = concatenate([launches("A100"), launches("L20")])
    residual = np.where(np.arange(len(launch)) % 4 == 0, 1.5, 0.0)  # a GPU that throttles in a quarter of its rows
    found = corrections.fit(launch, residual, moe_physics.terms(launch, moe_physics.start())[1], np.ones(len(launch)), np.zeros((0, 2)))
    assert np.abs(found.factors).max() < 0.05


def test_a_gpu_that_nothing_is_known_of_is_like_all_others():
    launch = launches("B200")
    stack = moe_physics.terms(launch, moe_physics.start())[1]
    assert not fitted({"A100": 0.1, "L20": 0.0}).log_factor(launch, stack).any()
    assert not corrections.NONE.log_factor(launch, stack).any()


def test_round_trip():
    found = fitted({"A100": 0.1, "L20": 0.0})
    again = corrections.from_arrays(found.arrays("h"), "h")
    np.testing.assert_array_equal(again.factors, found.factors)
    np.testing.assert_array_equal(again.machines, found.machines)
