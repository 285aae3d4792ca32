"""What a user's own rows say of a model's errors on their GPU."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.learned import own_rows


def _world(n: int, seed: int = 0):
    """Features, and errors that are a constant, a slope, and noise; some rows ran on a busy GPU."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 8, (n, 3))
    e = 0.3 + 0.1 * np.sin(x[:, 0]) + 0.04 * x[:, 1] + rng.normal(0, 0.03, n)
    e[::29] += 1.0
    return x, e


@pytest.mark.parametrize(("rows", "most"), [(30, 0.09), (120, 0.06)])
def test_more_rows_leave_smaller_errors_and_intervals_that_hold(rows, most):
    x, e = _world(rows + 1000)
    own = own_rows.of_rows(x[:rows], e[:rows])
    us, low, high = own.corrected(x[rows:], np.full(1000, 10.0), np.full(1000, 5.0), np.full(1000, 20.0))
    truth = 10 * np.exp(e[rows:])
    assert np.median(np.abs(np.log(us / truth))) < most
    assert 0.7 < ((low <= truth) & (truth <= high)).mean() < 0.95
    assert (low <= us).all()
    assert (us <= high).all()


def test_far_from_all_rows_the_interval_is_what_it_was():
    x, e = _world(100)
    own = own_rows.of_rows(x, e)
    near, far = (own.corrected(at, *np.array([[10.0], [4.0], [25.0]])) for at in (x[:1], x[:1] + 1000))
    assert near[2] / near[0] < 1.5
    assert far[2] / far[0] == pytest.approx(2.5, rel=0.25)


def test_a_feature_that_is_not_known_is_taken_as_usual():
    x, e = _world(200)
    told = np.concatenate([x, np.full((200, 1), np.nan)], axis=1)
    ends = np.array([[10.0], [4.0], [25.0]])
    assert own_rows.of_rows(told, e).corrected(told[:1], *ends)[0] == pytest.approx(own_rows.of_rows(x, e).corrected(x[:1], *ends)[0])
