"""Forests: the flat evaluation is scikit-learn's and LightGBM's, whatever the data, of few leaves a tree and of many."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from advisor.learned import forest
from advisor.learned.forest import bushy_from_arrays
from advisor.system.errors import MissingDependencyError
from advisor.training.grow import DEFAULTS, LAMBDAMART, Split, flatten, from_scikit_learn, grow, grow_classifier, grow_ranker

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
    made = from_scikit_learn(model, 5)
    np.testing.assert_allclose(made(other), model.predict(other), atol=1e-5)
    np.testing.assert_allclose(np.concatenate([made(other[n : n + 1]) for n in range(20)]), made(other)[:20], atol=1e-5)


def test_average_is_the_mean():
    x, y = data()
    options = DEFAULTS | {"max_iter": 20}
    single = [from_scikit_learn(ensemble.HistGradientBoostingRegressor(**options, random_state=k).fit(x, y), 5) for k in range(3)]
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
        from_scikit_learn(model, 5)


def test_no_rows():
    x, y = data()
    assert grow(x, y, max_iter=3)(np.zeros((0, 5))).shape == (0,)


def problems(count=40, size=30):
    """Rows of problems one after another, of which each has a few that won: those where the sum of two features is largest."""
    x, _ = data(count * size)
    problem = np.repeat(np.arange(count), size)
    worth = (x[:, 0] + 0.5 * x[:, 1]).reshape(count, size)
    return x, (worth >= np.sort(worth, axis=1)[:, [-3]]).astype(float).ravel(), problem


def test_ranker_equals_lightgbm():
    lightgbm = pytest.importorskip("lightgbm")
    x, won, problem = problems()
    options = {"num_leaves": 9, "min_data_in_leaf": 5}
    rows = lightgbm.Dataset(x.astype(np.float32), won, group=np.bincount(problem), params={"verbose": -1})
    model = lightgbm.train(LAMBDAMART | options | {"learning_rate": 0.1}, rows, 25)
    made = grow_ranker(x, won, problem, rounds=25, learning_rate=0.1, **options)
    for rows in (x, data(513, seed=1)[0]):
        np.testing.assert_allclose(made(rows), model.predict(rows.astype(np.float32)), atol=1e-5)


def test_ranker_puts_what_won_first():
    pytest.importorskip("lightgbm")
    x, won, problem = problems()
    made = grow_ranker(x, won, problem, rounds=60, learning_rate=0.1, min_data_in_leaf=5)
    other, label, _ = (part.reshape(40, 30, -1) for part in problems())
    first = np.array([made(one).argmax() for one in other])
    assert label[np.arange(40), first, 0].mean() > 0.9


def test_a_missing_ranker_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(MissingDependencyError, match=r"training needs LightGBM; pip install .*libgomp1"):
        grow_ranker(*problems(), rounds=1, learning_rate=0.1)


@pytest.mark.parametrize("threshold", [0.1, 1 / 3, 16777217.0, -0.7])
def test_thresholds_part_single_precision_rows_as_they_part_them_in_double(threshold):
    near = np.float32(threshold)
    rows = np.array([np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))])[:, None]
    made = flatten([Split(0, threshold, -1.0, 1.0)], 1)
    np.testing.assert_array_equal(made(rows), np.where(rows[:, 0].astype(np.float64) <= threshold, -1.0, 1.0))


def test_trees_of_all_shapes():
    deep = Split(0, 0.0, Split(1, -1.0, 1.0, Split(0, -2.0, 2.0, 3.0)), Split(1, 1.0, 4.0, 5.0))
    rows = np.array([[-3, -2], [-3, 0], [-1, 0], [1, 0], [1, 2]], dtype=float)
    made = flatten([deep, 0.5, Split(1, 0.0, 10.0, 20.0)], 2, base=100.0)
    np.testing.assert_array_equal(made(rows) - 100.5, [11, 12, 13, 14, 25])


def test_too_many_thresholds_are_refused():
    with pytest.raises(ValueError, match="more than 255 thresholds"):
        flatten([Split(0, float(i), 0.0, 1.0) for i in range(256)], 1)


lightgbm = pytest.importorskip("lightgbm")


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3001, 7)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2])
    options = {"num_leaves": 63, "max_depth": 9, "max_bin": 63, "num_threads": 1, "verbose": -1}
    model = lightgbm.train(options, lightgbm.Dataset(x, y, params={"verbose": -1, "max_bin": 63}), 40)
    return model, forest.flatten(model.dump_model()["tree_info"], 7), x


def test_sums_are_those_of_the_library(fitted) -> None:
    model, forest, x = fitted
    assert forest.depth <= 9
    assert np.abs(forest(x.astype(np.float64)) - model.predict(x)).max() < 2e-2  # leaves are kept in bytes


def test_a_row_on_a_threshold_goes_left(fitted) -> None:
    model, forest, x = fitted
    edge = np.tile(x[:1], (forest.edges[0].size, 1))
    edge[:, 0] = forest.edges[0]
    assert np.abs(forest(edge.astype(np.float64)) - model.predict(edge)).max() < 2e-2


def test_stored_and_read_back_it_is_the_same(fitted) -> None:
    _, forest, x = fitted
    again = bushy_from_arrays(forest.arrays("a"), "a")
    assert np.array_equal(again(x[:99].astype(np.float64)), forest(x[:99].astype(np.float64)))


def test_too_many_thresholds_of_a_bushy_forest_are_refused() -> None:
    leaf = {"leaf_value": 0.0}
    trees = [{"tree_structure": {"split_feature": 0, "threshold": float(i), "left_child": leaf, "right_child": leaf}} for i in range(256)]
    with pytest.raises(ValueError, match="fewer bins"):
        forest.flatten(trees, 1)
