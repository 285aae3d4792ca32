"""Intervals that hold for models never seen: of groups by their own errors, and wider the farther models are apart."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.training.silicon import series
from advisor.training.silicon.series import ALL, OF_FEW, Judged

ROWS = 300


def judged(models: int, apart: float, group: str = "a", scale: float = 1.0, seed: int = 0) -> Judged:
    """Errors of models, each with a bias of its own: `apart` times as large as what its rows differ by."""
    rng = np.random.default_rng(seed)
    model = np.repeat(np.arange(models) + 1000 * seed, ROWS)
    errors = scale * (rng.normal(size=models * ROWS) + np.repeat(apart * rng.normal(size=models), ROWS))
    return Judged(scaled=errors, model=model, group=np.full(model.size, group))


def joined(*parts: Judged) -> Judged:
    return Judged(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in ("scaled", "model", "group")})


def share_held(table: np.ndarray, errors: np.ndarray) -> float:
    low, high = np.interp(series.ENDS, series.calibration.LEVELS, table)
    return float(((low <= errors) & (errors <= high)).mean())


def test_models_far_apart_ask_for_wider_intervals_than_their_rows():
    few = [judged(4, 1.5, seed=seed) for seed in range(40)]
    others = [judged(30, 1.5, seed=100 + seed).scaled for seed in range(40)]
    plain = np.mean([share_held(np.quantile(known.scaled, series.calibration.LEVELS), new) for known, new in zip(few, others, strict=True)])
    stretched = np.mean([share_held(series.tables(known)[ALL], new) for known, new in zip(few, others, strict=True)])
    assert plain < 0.76 < stretched < 0.88


def test_a_group_has_its_own_errors_and_a_small_one_leans_on_all():
    large = joined(judged(20, 0.1, "a", seed=1), judged(20, 0.1, "b", scale=3, seed=2))
    tables = series.tables(large)
    assert share_held(tables["a"], judged(20, 0.1, seed=3).scaled) == pytest.approx(0.8, abs=0.03)
    assert share_held(tables["b"], judged(20, 0.1, scale=3, seed=4).scaled) == pytest.approx(0.8, abs=0.03)
    small = series.tables(joined(judged(20, 0.1, "a", seed=1), judged(1, 0.1, "b", scale=3, seed=2)))
    own = np.quantile(judged(1, 0.1, "b", scale=3, seed=2).scaled, 0.9)
    assert np.quantile(large.scaled[large.group == "a"], 0.9) < np.interp(0.9, series.calibration.LEVELS, small["b"]) / OF_FEW < own


def test_what_is_held_is_judged_by_the_other_splits():
    errors = joined(judged(12, 0.2, "a", seed=5), judged(12, 0.2, "b", scale=2, seed=6))
    split = errors.model % 3
    inside = series.held(errors, split)
    assert [inside[errors.group == name].mean() for name in "ab"] == pytest.approx([0.8, 0.8], abs=0.05)
    alone = series.held(errors, np.zeros(errors.scaled.size, dtype=np.int64))
    assert alone.mean() == pytest.approx(0.8, abs=0.06)


def test_errors_that_the_other_splits_do_not_know_are_not_held():
    errors = judged(30, 0.0, seed=7)
    split = errors.model % 3
    wide = Judged(scaled=np.where(split == 2, 10, 1) * errors.scaled, model=errors.model, group=errors.group)
    inside = series.held(wide, split)
    assert inside[split == 2].mean() < 0.6 < 0.95 < inside[split == 0].mean()
