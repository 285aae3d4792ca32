"""Boosted trees of any number of leaves as flat arrays, evaluated in numpy level by level; `forest.py` is for many trees of few leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.pipelines import Array

LEAF = 255
"""In place of a feature: the node is a leaf."""

_ROWS_PER_BLOCK = 512
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


def from_arrays(stored: Mapping[str, NDArray[Any]], prefix: str) -> BushyForest:
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
