"""Growing forests: scikit-learn fits the trees, and they are flattened for `forest.Forest`. Only training needs scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from advisor.errors import MissingDependencyError
from advisor.learned.forest import MAX_LEAVES, Forest, average
from advisor.pipelines import Array

DEFAULTS: dict[str, Any] = {
    "max_iter": 300, "learning_rate": 0.06, "max_leaf_nodes": 12, "min_samples_leaf": 15, "max_features": 0.5, "early_stopping": False,
}  # fmt: skip


def _ensemble() -> Any:
    try:
        from sklearn import ensemble
    except ImportError:
        raise MissingDependencyError("training needs scikit-learn", remedy="pip install 'triton-advisor[train]'") from None
    return ensemble


def grow(features: Array, target: Array, weight: Array | None = None, *, names: Sequence[str] = (), seeds: int = 1,
         loss: str = "absolute_error", **options: Any) -> Forest:  # fmt: skip
    """A forest that minimises `loss` (of scikit-learn's HistGradientBoostingRegressor), averaged over seeds."""
    made = []
    for seed in range(seeds):
        model = _ensemble().HistGradientBoostingRegressor(loss=loss, random_state=seed, **(DEFAULTS | options))
        model.fit(features.astype(np.float32), target, sample_weight=weight)
        made.append(flatten(model, features.shape[1], names))
    return average(made)


def grow_classifier(features: Array, target: Array, weight: Array | None = None, *, names: Sequence[str] = (), seeds: int = 1,
                    **options: Any) -> Forest:  # fmt: skip
    """A forest whose sum is the log-odds of `target` (0 or 1)."""
    made = []
    for seed in range(seeds):
        model = _ensemble().HistGradientBoostingClassifier(random_state=seed, **(DEFAULTS | options))
        model.fit(features.astype(np.float32), target, sample_weight=weight)
        made.append(flatten(model, features.shape[1], names))
    return average(made)


def flatten(model: Any, features: int, names: Sequence[str] = ()) -> Forest:
    """A fitted HistGradientBoosting model as a `Forest`. Reads the private `_predictors` (scikit-learn 1.4 to 1.9)."""
    trees = [iteration[0].nodes for iteration in model._predictors]
    inner = [[n for n in nodes if not n["is_leaf"]] for nodes in trees]
    used: list[set[float]] = [set() for _ in range(features)]
    for nodes in inner:
        for node in nodes:
            used[node["feature_idx"]].add(float(np.float32(node["num_threshold"])))
    edges = tuple(np.array(sorted(values), dtype=np.float32) for values in used)
    widest = max(max((len(nodes) for nodes in inner), default=1), 1)
    if widest >= MAX_LEAVES:
        raise ValueError(f"a tree with {widest + 1} leaves: at most {MAX_LEAVES} can be stored")
    shape = (len(trees), widest)
    feature, code = np.zeros(shape, dtype=np.uint8), np.full(shape, 255, dtype=np.uint8)
    ruled_out, leaf = np.zeros(shape, dtype=np.uint16), np.zeros((len(trees), widest + 1), dtype=np.float32)
    for t, nodes in enumerate(trees):
        slot = 0
        found: list[float] = []

        def visit(i: int, nodes: Any = nodes, t: int = t, found: list[float] = found) -> None:
            nonlocal slot
            node = nodes[i]
            if node["is_leaf"]:
                found.append(float(node["value"]))
                return
            here, before = slot, len(found)
            slot += 1
            visit(int(node["left"]))
            bits = (1 << len(found)) - (1 << before)
            index = int(node["feature_idx"])
            feature[t, here], ruled_out[t, here] = index, bits
            code[t, here] = np.searchsorted(edges[index], np.float32(node["num_threshold"]))
            visit(int(node["right"]))

        visit(0)
        leaf[t, : len(found)] = found
    base = float(np.ravel(model._baseline_prediction)[0])
    return Forest(feature=feature, code=code, ruled_out=ruled_out, leaf=leaf, edges=edges, base=base, names=tuple(names))
