"""Boosted trees as flat arrays, evaluated in numpy: a `Forest` of many trees of few leaves, a `BushyForest` of trees of any number.

Every tree of a `Forest` has at most 16 leaves, and is evaluated without a Python loop over trees or levels. A node that a row fails (its
feature exceeds the threshold) rules out the leaves to its left; the first leaf that is left is the row's (Lucchese et al., QuickScorer,
SIGIR 2015). A `BushyForest` is walked level by level. In both, features are first replaced by the number of thresholds below them, so that
the comparisons run over bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.pipelines import Array

MAX_LEAVES = 16
MAX_THRESHOLDS = 255
"""Of one feature: how many of them a row exceeds is stored in a byte."""

_ROWS_PER_BLOCK = 512
_TREES_PER_BLOCK = 180
_COMPARED = 32
"""Thresholds with which values are compared one by one, which takes less than a search does."""

# Index of the lowest bit that is 0: the first leaf not ruled out. Of an odd number it is one more than of its half.
_FIRST_FREE = np.zeros(1, dtype=np.uint16)
for _ in range(MAX_LEAVES):
    _FIRST_FREE = np.stack([np.zeros_like(_FIRST_FREE), _FIRST_FREE + 1], axis=1, dtype=np.uint16).ravel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """Sum of trees over features [n, f].

    Attributes:
        feature: Feature of each node, [t, m] with m <= 15; unused nodes repeat feature 0 with code 255.
        code: A row fails where it exceeds more than `code` of its feature's thresholds, [t, m].
        ruled_out: Bits of the leaves a failed node rules out, [t, m]; 0 for unused nodes.
        leaf: Value of each leaf, [t, m + 1].
        edges: The thresholds of every feature, ascending, one array per feature.
        base: What is added to the sum.
    """

    feature: NDArray[np.uint8]
    code: NDArray[np.uint8]
    ruled_out: NDArray[np.uint16]
    leaf: NDArray[np.float32]
    edges: tuple[NDArray[np.float32], ...]
    base: float
    names: tuple[str, ...] = field(default=())

    def __call__(self, features: Array) -> Array:
        """Sums, [n]."""
        rows = features.shape[0]
        if rows == 1:
            return self._of_one(features[0].astype(np.float32))
        codes = np.empty((len(self.edges), rows), dtype=np.uint8)
        columns = features.T.astype(np.float32, order="C")
        for i, edges in enumerate(self.edges):
            if edges.size > _COMPARED:
                codes[i] = edges.searchsorted(columns[i])
            else:
                np.add.reduce(~(columns[i] <= edges[:, None]), axis=0, dtype=np.uint8, out=codes[i])
        out = np.full(rows, self.base)
        width = self.leaf.shape[1]
        for begin in range(0, rows, _ROWS_PER_BLOCK):
            block = codes[:, begin : begin + _ROWS_PER_BLOCK]
            for first in range(0, self.leaf.shape[0], _TREES_PER_BLOCK):
                trees = slice(first, first + _TREES_PER_BLOCK)
                feature, code, ruled_out = self.feature[trees], self.code[trees], self.ruled_out[trees]
                gone = np.zeros((feature.shape[0], block.shape[1]), dtype=np.uint16)
                mask, fails, exceeded = np.empty_like(gone), np.empty(gone.shape, dtype=bool), np.empty(gone.shape, dtype=np.uint8)
                for node in range(feature.shape[1]):
                    np.take(block, feature[:, node], axis=0, out=exceeded, mode="clip")  # any other mode makes a copy
                    np.greater(exceeded, code[:, node, None], out=fails)
                    np.multiply(fails, ruled_out[:, node, None], out=mask)
                    np.bitwise_or(gone, mask, out=gone)
                place = np.take(_FIRST_FREE, gone)
                place += (np.arange(feature.shape[0], dtype=np.uint16) * np.uint16(width))[:, None]
                out[begin : begin + _ROWS_PER_BLOCK] += np.take(self.leaf[trees].ravel(), place).sum(axis=0)
        return out

    def _of_one(self, row: NDArray[np.float32]) -> Array:
        """The sum for one row [f], [1]: of all nodes at once, for which no loop over them is worth its while."""
        codes = np.array([edges.searchsorted(value) for edges, value in zip(self.edges, row, strict=True)])
        gone = np.bitwise_or.reduce(np.where(codes[self.feature] > self.code, self.ruled_out, np.uint16(0)), axis=1)
        return self.base + self.leaf[np.arange(gone.size), _FIRST_FREE[gone]].sum(keepdims=True)

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The forest as named arrays, to be stored."""
        counts = np.array([e.size for e in self.edges], dtype=np.int32)
        return {
            f"{prefix}/feature": self.feature,
            f"{prefix}/code": self.code,
            f"{prefix}/ruled_out": self.ruled_out,
            f"{prefix}/leaf": self.leaf,
            f"{prefix}/edges": np.concatenate([*self.edges, np.zeros(0, np.float32)]),
            f"{prefix}/edge_counts": counts,
            f"{prefix}/base": np.array(self.base),
            f"{prefix}/names": np.array(self.names, dtype="U32"),
        }


def from_arrays(stored: Mapping[str, NDArray[Any]], prefix: str) -> Forest:
    """The reverse of `Forest.arrays`.

    Raises:
        ValueError: A node asks for a feature or a leaf that there is not.
    """
    counts = stored[f"{prefix}/edge_counts"]
    feature, code, ruled_out, leaf = (stored[f"{prefix}/{name}"] for name in ("feature", "code", "ruled_out", "leaf"))
    kinds = (feature.dtype, code.dtype, ruled_out.dtype, leaf.dtype) == (np.uint8, np.uint8, np.uint16, np.float32)
    shapes = feature.ndim == 2 and feature.shape == code.shape == ruled_out.shape and leaf.shape == (feature.shape[0], feature.shape[1] + 1)
    if not (kinds and shapes and 0 < leaf.shape[1] <= MAX_LEAVES and counts.ndim == 1 and counts.min(initial=0) >= 0):
        raise ValueError(f"{prefix}: no trees")
    if counts.max(initial=0) > MAX_THRESHOLDS or counts.sum() != stored[f"{prefix}/edges"].size or feature.max(initial=0) >= counts.size:
        raise ValueError(f"{prefix}: a tree asks for what there is not")
    if (ruled_out >> leaf.shape[1]).any() or (np.bitwise_or.reduce(ruled_out, axis=1) == (1 << leaf.shape[1]) - 1).any():
        raise ValueError(f"{prefix}: a tree may come to no leaf")
    edges = np.split(stored[f"{prefix}/edges"], np.cumsum(counts)[:-1])
    return Forest(
        feature=stored[f"{prefix}/feature"],
        code=stored[f"{prefix}/code"],
        ruled_out=stored[f"{prefix}/ruled_out"],
        leaf=stored[f"{prefix}/leaf"],
        edges=tuple(edges),
        base=float(stored[f"{prefix}/base"]),
        names=tuple(str(n) for n in stored[f"{prefix}/names"]),
    )


def average(forests: list[Forest]) -> Forest:
    """The mean of forests over the same features, as one forest."""
    if len(forests) == 1:
        return forests[0]
    merged = tuple(np.unique(np.concatenate([f.edges[i] for f in forests])) for i in range(len(forests[0].edges)))
    codes = []
    for forest in forests:
        tables = [np.searchsorted(merged[i], edges).astype(np.int64) for i, edges in enumerate(forest.edges)]
        code = forest.code.astype(np.int64)
        for i, table in enumerate(tables):
            here = (forest.feature == i) & (forest.ruled_out > 0)
            code[here] = table[code[here]]
        codes.append(code)
    if max(edges.size for edges in merged) > MAX_THRESHOLDS:
        raise ValueError(f"more than {MAX_THRESHOLDS} thresholds of one feature: fit the forests with the same bins")
    nodes = max(f.feature.shape[1] for f in forests)

    def wide(array: NDArray[Any], width: int, fill: int = 0) -> NDArray[Any]:
        return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=fill)

    return Forest(
        feature=np.concatenate([wide(f.feature, nodes) for f in forests]),
        code=np.concatenate([wide(c, nodes, 255) for c in codes]).astype(np.uint8),
        ruled_out=np.concatenate([wide(f.ruled_out, nodes) for f in forests]),
        leaf=(np.concatenate([wide(f.leaf, nodes + 1) for f in forests]) / len(forests)).astype(np.float32),
        edges=merged,
        base=float(np.mean([f.base for f in forests])),
        names=forests[0].names,
    )


LEAF = 255
"""In place of a feature: the node is a leaf."""

_PAIRS_PER_BLOCK = 32_768
_TREES_PER_SUM = 64
"""Rows and pairs of a row and a tree that are walked at once, for speed; trees whose values are added in single precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nodes:
    """Over nodes: feature and code, both children (of a leaf: itself), its value; and the trees' roots."""

    feature: NDArray[np.intp]
    code: NDArray[np.uint8]
    children: NDArray[np.intp]
    values: NDArray[np.float32]
    roots: NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class BushyForest:
    """Sum of trees over features [n, f], f < 255. Nodes stand in preorder, so that a left child follows its parent.

    Attributes:
        feature: Of each node; `LEAF` for leaves, [nodes].
        code: Of each inner node: a row goes right where it exceeds more than `code` of its feature's thresholds, [inner].
        jump: Of each inner node: how many nodes further its right child stands, [inner].
        leaf: Values of the leaves, in steps of their tree, [leaves].
        middle: What a leaf of 0 stands for, [t].
        step: Of the values of a tree: a 254th of their range, [t].
        sizes: Nodes of each tree, [t].
        edges: The thresholds of every feature, ascending, at most 255, one array per feature.
        depth: Of the deepest tree.
    """

    feature: NDArray[np.uint8]
    code: NDArray[np.uint8]
    jump: NDArray[np.uint16]
    leaf: NDArray[np.int8]
    middle: NDArray[np.float32]
    step: NDArray[np.float32]
    sizes: NDArray[np.int32]
    edges: tuple[NDArray[np.float32], ...]
    depth: int

    def __call__(self, features: Array) -> Array:
        """Sums, [n].

        Raises:
            ValueError: These are not the features that the trees were grown on.
        """
        if features.shape[1] != len(self.edges):
            raise ValueError(f"{features.shape[1]} features for trees of {len(self.edges)}: train the weights anew")
        nodes = self._nodes
        rows = features.shape[0]
        codes = np.empty((len(self.edges), rows), dtype=np.uint8)
        for i, edges in enumerate(self.edges):
            codes[i] = np.searchsorted(edges, features[:, i].astype(np.float32), side="left") if edges.size else 0
        out = np.zeros(rows)
        for begin in range(0, rows, _ROWS_PER_BLOCK):
            some = codes[:, begin : begin + _ROWS_PER_BLOCK]
            count = some.shape[1]
            block = np.ascontiguousarray(some if count > 1 else np.repeat(some, 2, axis=1))  # numpy adds a single column in another order
            width = block.shape[1]
            flat, column, first_of = block.ravel(), np.arange(width), nodes.feature * width
            at_once = _TREES_PER_SUM * max(_PAIRS_PER_BLOCK // (_TREES_PER_SUM * width), 1)
            for first in range(0, nodes.roots.size, at_once):
                node = np.repeat(nodes.roots[first : first + at_once, None], width, axis=1)
                place, code, limit = np.empty_like(node), np.empty(node.shape, np.uint8), np.empty(node.shape, np.uint8)
                for _ in range(self.depth):  # `clip`: without it numpy looks at every index first, and none is out of range
                    first_of.take(node, out=place, mode="clip")
                    place += column
                    flat.take(place, out=code, mode="clip")
                    nodes.code.take(node, out=limit, mode="clip")
                    node *= 2
                    node += code > limit
                    nodes.children.take(node, out=place, mode="clip")
                    node, place = place, node
                for tree in range(0, len(node), _TREES_PER_SUM):
                    out[begin : begin + count] += nodes.values.take(node[tree : tree + _TREES_PER_SUM]).sum(axis=0)[:count]
        return out

    @cached_property
    def _nodes(self) -> _Nodes:
        inner = self.feature != LEAF
        place = np.arange(self.feature.size)
        code = np.full(place.size, LEAF, dtype=np.uint8)  # a leaf: nothing exceeds 255 thresholds of feature 0
        code[inner] = self.code
        children = np.stack([place, place], axis=1)
        children[inner, 0] += 1
        children[inner, 1] += self.jump
        values = np.zeros(place.size, dtype=np.float32)
        tree = np.repeat(np.arange(self.sizes.size), self.sizes)[~inner]
        values[~inner] = self.middle[tree] + self.step[tree] * self.leaf
        return _Nodes(
            feature=np.where(inner, self.feature, 0).astype(np.intp),
            code=code,
            children=children.ravel(),
            values=values,
            roots=np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.intp),
        )

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The forest as named arrays, to be stored."""
        return {
            f"{prefix}/feature": self.feature,
            f"{prefix}/code": self.code,
            f"{prefix}/jump": self.jump,
            f"{prefix}/leaf": self.leaf,
            f"{prefix}/middle": self.middle,
            f"{prefix}/step": self.step,
            f"{prefix}/sizes": self.sizes,
            f"{prefix}/edges": np.concatenate([*self.edges, np.zeros(0, np.float32)]),
            f"{prefix}/edge_counts": np.array([e.size for e in self.edges], dtype=np.int32),
            f"{prefix}/depth": np.array(self.depth),
        }


def bushy_from_arrays(stored: Mapping[str, NDArray[Any]], prefix: str) -> BushyForest:
    """The reverse of `BushyForest.arrays`."""
    counts = stored[f"{prefix}/edge_counts"]
    fields = {name: stored[f"{prefix}/{name}"] for name in ("feature", "code", "jump", "leaf", "middle", "step", "sizes")}
    edges = tuple(np.split(stored[f"{prefix}/edges"], np.cumsum(counts)[:-1]))
    return BushyForest(**fields, edges=edges, depth=int(stored[f"{prefix}/depth"]))


def flatten(trees: Sequence[Mapping[str, Any]], features: int) -> BushyForest:
    """Trees as LightGBM's `dump_model` gives them ("tree_info"), over rows of `features` columns in single precision.

    Raises:
        ValueError: A feature has more thresholds than a byte counts.
    """
    nodes = [list(_preorder(tree["tree_structure"])) for tree in trees]
    every = [item for of_tree in nodes for item in of_tree]
    inner = [(node["split_feature"], node["threshold"], to_right) for node, to_right in every if "split_feature" in node]
    split = np.array([feature for feature, _, _ in inner], dtype=np.int64)
    threshold = _rounded_down(np.array([value for _, value, _ in inner]))
    edges = tuple(np.unique(threshold[split == i]) for i in range(features))
    if any(values.size > LEAF for values in edges):
        raise ValueError(f"more than {LEAF} thresholds of one feature: fit with fewer bins")
    code = np.zeros(split.size, dtype=np.uint8)
    for i, values in enumerate(edges):
        code[split == i] = np.searchsorted(values, threshold[split == i])
    leaves = [np.array([node["leaf_value"] for node, _ in of_tree if "split_feature" not in node]) for of_tree in nodes]
    middle = np.array([(leave.max() + leave.min()) / 2 for leave in leaves])
    step = np.array([max(leave.max() - leave.min(), 1e-30) / 254 for leave in leaves])
    leaf = [np.rint((leave - mid) / unit) for leave, mid, unit in zip(leaves, middle, step, strict=True)]
    return BushyForest(
        feature=np.array([node.get("split_feature", LEAF) for node, _ in every], dtype=np.uint8),
        code=code,
        jump=np.array([to_right for _, _, to_right in inner], dtype=np.uint16),
        leaf=np.concatenate(leaf).astype(np.int8),
        middle=middle.astype(np.float32),
        step=step.astype(np.float32),
        sizes=np.array([len(of_tree) for of_tree in nodes], dtype=np.int32),
        edges=edges,
        depth=max(_depth(tree["tree_structure"]) for tree in trees),
    )


def _preorder(node: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], int]]:
    """The nodes of a tree, each with how many nodes further its right child stands."""
    if "split_feature" not in node:
        return [(node, 0)]
    left, right = _preorder(node["left_child"]), _preorder(node["right_child"])
    return [(node, 1 + len(left)), *left, *right]


def _depth(node: Mapping[str, Any]) -> int:
    return 1 + max(_depth(node["left_child"]), _depth(node["right_child"])) if "split_feature" in node else 0


def _rounded_down(thresholds: Array) -> NDArray[np.float32]:
    """The largest single-precision numbers that are not above: they part single-precision rows as the thresholds do."""
    near = thresholds.astype(np.float32)
    return np.where(near.astype(np.float64) <= thresholds, near, np.nextafter(near, np.float32(-np.inf)))
