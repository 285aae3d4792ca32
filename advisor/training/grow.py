"""Growing forests, and fitting the networks that stand beside some of them (`learned.network`). Only training needs the packages.

scikit-learn and LightGBM fit the trees, which are flattened for `forest.Forest`: fitted trees of any library become one. Fitting runs on
one thread: with more of them sums come out otherwise, and weights not alike to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.learned.forest import MAX_LEAVES, MAX_THRESHOLDS, Forest, average
from advisor.learned.network import Network
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


WIDTH, DEPTH, BATCH = 128, 3, 2048
RATE, WARM_UP, DECAY = 3e-3, 200, 1e-4
AVERAGED = 0.995
"""Share of what a step keeps of the weights' running mean, which is what serves."""

WIDE = 20.0
"""Features that reach beyond this and are never negative are read as logarithms."""

SMALL_ERROR = 0.05
"""Of the target's spread: errors beyond count by their size, no longer by their square."""


def fit_correction(
    features: Array,
    target: Array,
    labels: int,
    steps: int,
    rate: float = RATE,
    *,
    batch: int = BATCH,
    odds: Array | None = None,
    nothing: float | None = None,
    seed: int = 0,
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Network:
    """A network of `width` units in each of `depth` layers, to the bit the same on one machine.

    Args:
        features: [n, f].
        target: [n].
        labels: How many features, the last, are no quantities: their combinations are told apart.
        steps: Of `batch` rows.
        rate: Of learning, at most: it falls to nothing along a cosine.
        batch: How many rows a step sees.
        odds: How often each row is drawn, relative to the others, [n]; None: all of them in turn.
        nothing: What stands for a feature that a row does not have: it counts for neither its mean nor its spread.
        seed: Of the first weights and of what is drawn.
        width: Units of a layer.
        depth: Layers before the last, which has one value.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    features = features.astype(np.float32)
    wide = (features.min(axis=0) >= 0) & (features.max(axis=0) > WIDE)
    read = np.where(wide, np.log1p(np.maximum(features, 0)), features)
    there: NDArray[np.bool_] | bool = True
    if nothing is not None:
        there = (features != nothing) | (features == nothing).all(axis=0)
    network = Network(
        wide=wide,
        middle=read.mean(axis=0, dtype=np.float64, where=there).astype(np.float32),
        scale=np.maximum(read.std(axis=0, dtype=np.float64, where=there), 1e-6).astype(np.float32),
        known=np.zeros((1, labels), dtype=np.float32),
        layers=(),
    )
    scaled = network.inputs(features)[:, features.shape[1] - labels : features.shape[1]]
    network = replace(network, known=np.unique(scaled, axis=0))
    middle = np.median(target)
    scale = np.abs(target - middle).mean()
    with torch_on_one_thread("a network beside a forest") as torch:
        torch.manual_seed(seed)
        draws = _draws(len(target), min(batch, len(target)), steps, odds, torch.Generator().manual_seed(seed), torch)
        inputs = network.inputs(features)
        widths = (inputs.shape[1], *[width] * depth, 1)
        layers = _layers(inputs, (target - middle) / scale, widths, draws, steps, rate, torch)
    weights, offsets = layers.pop()
    layers.append((weights * scale, offsets * scale + middle))
    return replace(network, layers=tuple((_as_stored(weights), _as_stored(offsets)) for weights, offsets in layers))


def _as_stored(values: Array) -> NDArray[np.float32]:
    return values.astype(np.float16).astype(np.float32)


def _draws(rows: int, batch: int, steps: int, odds: Array | None, draw: Any, torch: Any) -> Iterator[Any]:
    """The numbers of each step's rows."""
    if odds is not None:
        upto = torch.from_numpy(np.cumsum(odds) / odds.sum())
        for _ in range(steps):
            yield torch.searchsorted(upto, torch.rand(batch, generator=draw, dtype=torch.float64)).clamp(max=rows - 1)
        return
    left = torch.zeros(0, dtype=torch.int64)
    for _ in range(steps):
        if left.numel() < batch:
            left = torch.randperm(rows, generator=draw)
        yield left[:batch]
        left = left[batch:]


def _layers(
    inputs: NDArray[np.float32], target: Array, widths: tuple[int, ...], draws: Iterator[Any], steps: int, rate: float, torch: Any
) -> list[tuple[Array, Array]]:
    linear = [torch.nn.Linear(a, b) for a, b in pairwise(widths)]
    between = [item for layer in linear[:-1] for item in (layer, torch.nn.SiLU())]
    network = torch.nn.Sequential(*between, linear[-1])
    parameters = [item for layer in linear for item in (layer.weight, layer.bias)]
    means = [item.detach().clone() for item in parameters]
    x, y = torch.from_numpy(inputs), torch.from_numpy(target.astype(np.float32))
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=DECAY)
    for step, batch in enumerate(draws):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / WARM_UP) * (1 + np.cos(np.pi * step / steps)) / 2
        loss = torch.nn.functional.huber_loss(network(x[batch])[:, 0], y[batch], delta=SMALL_ERROR) / SMALL_ERROR
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, max_norm=1.0)
        optimizer.step()
        kept = min(AVERAGED, (step + 1) / (step + 10))
        with torch.no_grad():
            for mean, item in zip(means, parameters, strict=True):
                mean.lerp_(item, 1 - kept)
    arrays = [item.numpy().astype(np.float64) for item in means]
    return [(weights.T.copy(), offsets) for weights, offsets in zip(arrays[::2], arrays[1::2], strict=True)]


@contextmanager
def torch_on_one_thread(what: str) -> Iterator[Any]:
    """The module torch, held to one thread: sums come out the same to the bit, and on small arrays more threads only wait for each other.

    Args:
        what: What needs torch, for the error.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(f"{what} needs torch", remedy="pip install 'triton-advisor[train]'") from None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield torch
    finally:
        torch.set_num_threads(threads)
