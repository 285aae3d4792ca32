"""Growing forests: scikit-learn and LightGBM fit the trees, and they are flattened for `forest.Forest`. Only training needs either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned.forest import Forest, average
from advisor.pipelines import Array
from advisor.system.errors import MissingDependencyError
from advisor.training.flatten import Split, Tree, flatten

DEFAULTS: dict[str, Any] = {
    "max_iter": 300,
    "learning_rate": 0.06,
    "max_leaf_nodes": 12,
    "min_samples_leaf": 15,
    "max_features": 0.5,
    "early_stopping": False,
}

LAMBDAMART: dict[str, Any] = {
    "objective": "lambdarank",
    "label_gain": [0, 1],
    "lambdarank_truncation_level": 30,
    "num_leaves": 16,
    "lambda_l2": 1.0,
    "feature_fraction_bynode": 0.4,
    "min_data_in_leaf": 20,
    "seed": 0,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}
"""On one thread sums come out the same to the bit."""


def _ensemble() -> Any:
    try:
        from sklearn import ensemble
    except ImportError:
        raise MissingDependencyError("training needs scikit-learn", remedy="pip install 'triton-advisor[train]'") from None
    return ensemble


def grow(
    features: Array,
    target: Array,
    weight: Array | None = None,
    *,
    names: Sequence[str] = (),
    seeds: int = 1,
    loss: str = "absolute_error",
    **options: Any,
) -> Forest:
    """A forest that minimises `loss` (of scikit-learn's HistGradientBoostingRegressor), averaged over seeds."""
    made = []
    for seed in range(seeds):
        model = _ensemble().HistGradientBoostingRegressor(loss=loss, random_state=seed, **(DEFAULTS | options))
        model.fit(features.astype(np.float32), target, sample_weight=weight)
        made.append(from_scikit_learn(model, features.shape[1], names))
    return average(made)


def grow_classifier(features: Array, target: Array, weight: Array | None = None, **options: Any) -> Forest:
    """A forest whose sum is the log-odds of `target` (0 or 1)."""
    model = _ensemble().HistGradientBoostingClassifier(random_state=0, **(DEFAULTS | options))
    model.fit(features.astype(np.float32), target, sample_weight=weight)
    return from_scikit_learn(model, features.shape[1])


def grow_ranker(features: Array, won: Array, problem: NDArray[np.int64], *, rounds: int, learning_rate: float, **options: Any) -> Forest:
    """A forest that puts what won first among the rows of its problem: LambdaMART (Burges, MSR-TR-2010-82) as LightGBM fits it.

    Args:
        features: [n, f]; the rows of one problem follow each other.
        won: 1 where a row is to come first, else 0, [n].
        problem: Number of each row's problem, ascending, [n].
        rounds: Number of trees.
        learning_rate: Share of each tree that is added.
        options: LightGBM's parameters besides `LAMBDAMART`.

    Raises:
        MissingDependencyError: LightGBM, or the OpenMP library that it needs, is not installed.
    """
    try:
        import lightgbm
    except (ImportError, OSError):  # its wheel leaves OpenMP to the system
        remedy = "pip install 'triton-advisor[train]', and on Linux the system's libgomp (apt-get install libgomp1)"
        raise MissingDependencyError("training needs LightGBM", remedy=remedy) from None
    groups = np.unique(problem, return_counts=True)[1]
    rows = lightgbm.Dataset(features.astype(np.float32), won, group=groups, params={"verbose": -1})
    model = lightgbm.train(LAMBDAMART | options | {"learning_rate": learning_rate}, rows, rounds)
    trees = [_of_lightgbm(tree["tree_structure"]) for tree in model.dump_model()["tree_info"]]
    return flatten(trees, features.shape[1])


def from_scikit_learn(model: Any, features: int, names: Sequence[str] = ()) -> Forest:
    """A fitted HistGradientBoosting model as a `Forest`. Reads the private `_predictors` (scikit-learn 1.4 to 1.9)."""
    trees = [_of_scikit_learn(iteration[0].nodes, 0) for iteration in model._predictors]
    return flatten(trees, features, float(np.ravel(model._baseline_prediction)[0]), names)


def _of_scikit_learn(nodes: Any, i: int) -> Tree:
    node = nodes[i]
    if node["is_leaf"]:
        return float(node["value"])
    left, right = (_of_scikit_learn(nodes, int(node[side])) for side in ("left", "right"))
    return Split(int(node["feature_idx"]), float(node["num_threshold"]), left, right)


def _of_lightgbm(node: Mapping[str, Any]) -> Tree:
    if "split_feature" not in node:
        return float(node["leaf_value"])
    return Split(int(node["split_feature"]), float(node["threshold"]), _of_lightgbm(node["left_child"]), _of_lightgbm(node["right_child"]))
