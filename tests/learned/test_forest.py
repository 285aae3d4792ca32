"""Forests: the flat evaluation is scikit-learn's, whatever the data."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.learned import forest
from advisor.learned.grow import DEFAULTS, flatten, grow, grow_classifier

ensemble = pytest.importorskip("sklearn.ensemble")


def data(rows=700, columns=5, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns)).astype(np.float32).astype(np.float64)
    return x, np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.normal(size=rows)


@pytest.mark.parametrize("leaves", [2, 7, 16])
@pytest.mark.parametrize("rows", [40, 700])
def test_equals_sklearn(leaves, rows):
    x, y = data(rows)
    model = ensemble.HistGradientBoostingRegressor(**(DEFAULTS | {"max_iter": 70, "max_leaf_nodes": leaves})).fit(x, y)
    other = data(513, seed=1)[0]
    np.testing.assert_allclose(flatten(model, 5)(other), model.predict(other), atol=1e-5)


def test_average_is_the_mean():
    x, y = data()
    options = DEFAULTS | {"max_iter": 20}
    single = [flatten(ensemble.HistGradientBoostingRegressor(**options, random_state=k).fit(x, y), 5) for k in range(3)]
    np.testing.assert_allclose(forest.average(single)(x), np.mean([f(x) for f in single], axis=0), atol=1e-5)


def test_arrays_round_trip():
    x, y = data()
    made = grow(x, y, names=list("abcde"), max_iter=15)
    again = forest.from_arrays(made.arrays("a/b"), "a/b")
    np.testing.assert_array_equal(made(x), again(x))
    assert again.names == tuple("abcde")


def test_classifier_gives_log_odds():
    x, y = data()
    made = grow_classifier(x, (y > 0).astype(float), max_iter=40)
    assert ((made(x) > 0) == (y > 0)).mean() > 0.9


def test_too_many_leaves_are_refused():
    x, y = data()
    model = ensemble.HistGradientBoostingRegressor(max_leaf_nodes=31, max_iter=3, early_stopping=False).fit(x, y)
    with pytest.raises(ValueError, match="at most 16"):
        flatten(model, 5)


def test_no_rows():
    x, y = data()
    assert grow(x, y, max_iter=3)(np.zeros((0, 5))).shape == (0,)
