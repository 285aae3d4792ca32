"""Fitted trees of any library as a `forest.Forest`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from advisor.learned.forest import MAX_LEAVES, MAX_THRESHOLDS, Forest


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
