"""Trees of many leaves give what LightGBM gives."""

import numpy as np
import pytest

from advisor.learned.forest import bushy_from_arrays, flatten

lightgbm = pytest.importorskip("lightgbm")


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3001, 7)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2])
    options = {"num_leaves": 63, "max_depth": 9, "max_bin": 63, "num_threads": 1, "verbose": -1}
    model = lightgbm.train(options, lightgbm.Dataset(x, y, params={"verbose": -1, "max_bin": 63}), 40)
    return model, flatten(model.dump_model()["tree_info"], 7), x


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


def test_too_many_thresholds_are_refused() -> None:
    leaf = {"leaf_value": 0.0}
    trees = [{"tree_structure": {"split_feature": 0, "threshold": float(i), "left_child": leaf, "right_child": leaf}} for i in range(256)]
    with pytest.raises(ValueError, match="fewer bins"):
        flatten(trees, 1)
