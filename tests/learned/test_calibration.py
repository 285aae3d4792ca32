"""Quantiles of scaled errors."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.learned import calibration


def held(table, errors):
    low, high = np.interp([0.1, 0.9], calibration.LEVELS, table)
    return float(np.mean((errors >= low) & (errors <= high)))


def test_without_groups_the_quantiles_are_those_of_the_errors():
    errors = np.random.default_rng(0).normal(size=5000)
    assert abs(held(calibration.table(errors, np.ones(5000)), errors) - 0.8) < 0.01
    np.testing.assert_allclose(calibration.table(errors, np.full(5000, 2.0)), calibration.table(errors, np.ones(5000)) / 2)


def test_one_group_far_from_the_others_does_not_widen_the_intervals_of_all():
    rng = np.random.default_rng(0)
    errors = np.concatenate([rng.normal(size=9 * 500), 20 * rng.normal(size=500)])
    group = np.repeat([f"model {i}" for i in range(10)], 500)
    pooled, grouped = (calibration.table(errors, np.ones(5000), group=g) for g in (None, group))
    assert held(pooled, errors[:4500]) > 0.85
    assert held(pooled, errors[:4500]) - 0.8 > 1.7 * (held(grouped, errors[:4500]) - 0.8) > 0
    assert (np.diff(grouped) >= 0).all()


def test_equal_groups_change_nothing_much():
    errors = np.random.default_rng(1).normal(size=6000)
    grouped = calibration.table(errors, np.ones(6000), group=np.repeat(np.arange(6), 1000).tolist())
    assert abs(held(grouped, errors) - 0.8) < 0.02


def test_weights_count():
    errors, weight = np.array([0.0, 1.0]).repeat(500), np.array([3.0, 1.0]).repeat(500)
    assert np.interp(0.7, calibration.LEVELS, calibration.table(errors, np.ones(1000), weight)) == 0.0


def test_a_gpu_that_was_seen_has_quantiles_of_its_own():
    of_all, of_a40 = np.linspace(-1, 1, 201), np.linspace(-3, 3, 201)
    fitted = calibration.Calibration(
        quantiles={("best/given exact", True): of_all, ("best/given exact", False): 2 * of_all},
        of_gpu={("best/given exact", "RTX PRO 6000 S"): of_a40},
    )
    again = calibration.from_arrays(fitted.arrays("moe/calibration"), "moe/calibration")
    for each in (fitted, again):
        assert each.quantile("best/given exact", True, 0.9, "RTX PRO 6000 S") == pytest.approx(2.4)
        assert each.quantile("best/given exact", True, 0.9, "L40") == each.quantile("best/given exact", True, 0.9) == pytest.approx(0.8)
        assert each.quantile("best/given exact", False, 0.9, "RTX PRO 6000 S") == pytest.approx(1.6), "an error on GPUs never seen"
        assert each.share_below("best/given exact", True, np.array([2.4]), "RTX PRO 6000 S") == pytest.approx(0.9)
    assert set(again.of_gpu) == set(fitted.of_gpu)
    assert set(again.quantiles) == set(fitted.quantiles)
