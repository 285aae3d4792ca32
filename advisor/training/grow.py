"""Growing forests: scikit-learn and LightGBM fit the trees, and they are flattened for `forest.Forest`. Only training needs either.

Fitted trees of any library as a `forest.Forest`.

Fitting on one thread: with more of them sums come out otherwise, and weights not alike to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.learned.forest import MAX_LEAVES, MAX_THRESHOLDS, Forest, average
from advisor.pipelines import Array
from advisor.system.errors import MissingDependencyError


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it, BLAS and OpenMP use one thread.

    Raises:
        MissingDependencyError: Packages of the extra `train` are not installed.
    """
    try:
        import threadpoolctl  # scikit-learn brings it
        from scipy import linalg  # noqa: F401  its BLAS has to be there to be limited
    except ImportError:
        raise MissingDependencyError("training needs scikit-learn", remedy="pip install 'triton-advisor[train]'") from None
    with threadpoolctl.threadpool_limits(1):
        yield


@dataclass(frozen=True, slots=True)
class Split:
    """An inner node: rows whose feature is at most the threshold go left."""

    feature: int
    threshold: float
    left: Tree
    right: Tree


Tree: TypeAlias = "Split | float"
"""A node and what hangs on it; a leaf is its value."""


def flatten(trees: Sequence[Tree], features: int, base: float = 0.0, names: Sequence[str] = ()) -> Forest:
    """The sum of trees and `base`, over rows of `features` columns in single precision.

    Raises:
        ValueError: A tree has more than `forest.MAX_LEAVES` leaves, or a feature more thresholds than a byte counts.
    """
    nodes = [_nodes(tree) for tree in trees]
    thresholds: list[set[np.float32]] = [set() for _ in range(features)]
    for split, _, _ in (node for of_tree in nodes for node in of_tree):
        thresholds[split.feature].add(_rounded_down(split.threshold))
    edges = tuple(np.array(sorted(values), dtype=np.float32) for values in thresholds)
    widest = max(max((len(of_tree) for of_tree in nodes), default=1), 1)
    if widest >= MAX_LEAVES:
        raise ValueError(f"a tree with {widest + 1} leaves: at most {MAX_LEAVES} can be stored")
    if any(values.size > MAX_THRESHOLDS for values in edges):
        raise ValueError(f"more than {MAX_THRESHOLDS} thresholds of one feature: fit with fewer bins")
    shape = (len(trees), widest)
    feature, code = np.zeros(shape, dtype=np.uint8), np.full(shape, 255, dtype=np.uint8)
    ruled_out, leaf = np.zeros(shape, dtype=np.uint16), np.zeros((len(trees), widest + 1), dtype=np.float32)
    for t, (tree, of_tree) in enumerate(zip(trees, nodes, strict=True)):
        for place, (split, begin, end) in enumerate(of_tree):
            feature[t, place], ruled_out[t, place] = split.feature, (1 << end) - (1 << begin)
            code[t, place] = np.searchsorted(edges[split.feature], _rounded_down(split.threshold))
        values = _leaves(tree)
        leaf[t, : len(values)] = values
    return Forest(feature=feature, code=code, ruled_out=ruled_out, leaf=leaf, edges=edges, base=base, names=tuple(names))


def _nodes(tree: Tree, begin: int = 0) -> list[tuple[Split, int, int]]:
    """Inner nodes, each with the places of its left side's leaves: the first, and the one behind the last."""
    if not isinstance(tree, Split):
        return []
    end = begin + len(_leaves(tree.left))
    return [(tree, begin, end), *_nodes(tree.left, begin), *_nodes(tree.right, end)]


def _leaves(tree: Tree) -> list[float]:
    """Values of the leaves, from left to right."""
    return [*_leaves(tree.left), *_leaves(tree.right)] if isinstance(tree, Split) else [tree]


def _rounded_down(threshold: float) -> np.float32:
    """The largest single-precision number that is not above: it parts single-precision rows as the threshold does."""
    near = np.float32(threshold)
    return near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf))


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
