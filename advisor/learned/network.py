"""A small fully connected network over features, evaluated in numpy, and its mean with a forest over some of them: trees make steps between
the sizes that were measured, a network goes from one to the next smoothly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned.forest import BushyForest, bushy_from_arrays
from advisor.pipelines import Array

PARTS = ("wide", "middle", "scale", "known")
MOST_MULTIPLICATIONS, AT_ONCE = 4 * 256 * 256, 8
"""Of one product of matrices, and its rows: beyond so many multiplications OpenBLAS wakes threads, which cost more than they bring: with 8
rows of 256 ten times as much on a busy machine. With more than 8 rows of fewer, last digits change, and little is won."""

FARTHEST = 6.0
"""Standard deviations from the middle beyond which a feature counts as at that distance."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """Layers with SiLU between them, over features [n, f].

    Attributes:
        wide: Whether a feature is read as log(1 + x), [f].
        middle: The mean of each as it is read, [f].
        scale: Its standard deviation, [f].
        known: The combinations of the last features, as they are scaled, that were learned: each is told apart besides, and one that is
            none of them counts as the nearest, [c, l].
        layers: Weights [in, out] and offsets [out], from the first to the last.
    """

    wide: NDArray[np.bool_]
    middle: NDArray[np.float32]
    scale: NDArray[np.float32]
    known: NDArray[np.float32]
    layers: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]

    def __call__(self, features: Array, precise: bool = False) -> Array:
        """The last layer's one value, [n]; `precise`: in double precision, so that it hardly depends on how many rows are asked of at
        once."""
        rows = self.inputs(features)
        at_once = min(AT_ONCE, MOST_MULTIPLICATIONS // max(weights.size for weights, _ in self.layers))
        padded = np.zeros((-(-len(rows) // at_once) * at_once, rows.shape[1]), dtype=np.float64 if precise else np.float32)
        padded[: len(rows)] = rows
        x: NDArray[np.floating] = padded.reshape(-1, at_once, rows.shape[1])
        for weights, offsets in self.layers[:-1]:
            x = x @ weights + offsets
            x /= 1 + np.exp(np.minimum(-x, 80))
        weights, offsets = self.layers[-1]
        return (x @ weights + offsets).reshape(-1)[: len(rows)].astype(np.float64)

    def inputs(self, features: Array) -> NDArray[np.float32]:
        """What the first layer reads: the features as they are scaled, then one column for each combination known."""
        x = features.astype(np.float32)
        x = np.where(self.wide, np.log1p(np.maximum(x, 0)), x)
        x = np.clip((x - self.middle) / self.scale, -FARTHEST, FARTHEST)
        first = x.shape[1] - self.known.shape[1]
        distance = np.zeros((len(x), len(self.known)), dtype=np.float32)
        for label in range(self.known.shape[1]):
            distance += np.abs(x[:, first + label, None] - self.known[:, label])
        return np.concatenate([x, np.eye(len(self.known), dtype=np.float32)[distance.argmin(axis=1)]], axis=1)

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The network as named arrays, to be stored; layers in half precision."""
        out: dict[str, NDArray[Any]] = {f"{prefix}/{name}": getattr(self, name) for name in PARTS}
        for i, layer in enumerate(self.layers):
            out |= {f"{prefix}/{name} {i}": values.astype(np.float16) for name, values in zip(("weights", "offsets"), layer, strict=True)}
        return out


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """The mean of a network over features [n, f] and a forest over those after the first `apart`.

    On sizes that enter a kernel as their product alone, as sequences and heads do, trees learn which were measured.
    """

    forest: BushyForest
    network: Network
    apart: int

    def __call__(self, features: Array) -> Array:
        """Predictions, [n]."""
        return (self.by_trees(features) + self.network(features)) / 2

    def by_trees(self, features: Array) -> Array:
        """Predictions of the forest alone, [n]."""
        return self.forest(features[:, self.apart :])

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Both as named arrays, to be stored."""
        return self.forest.arrays(prefix) | self.network.arrays(f"{prefix}/network") | {f"{prefix}/apart": np.array(self.apart)}


def from_arrays(stored: Mapping[str, NDArray[Any]], prefix: str) -> BushyForest | Mixed:
    """The reverse of `Mixed.arrays`, or of `BushyForest.arrays` where no network is stored."""
    forest = bushy_from_arrays(stored, prefix)
    if f"{prefix}/apart" not in stored:
        return forest
    return Mixed(forest=forest, network=load(stored, f"{prefix}/network"), apart=int(stored[f"{prefix}/apart"]))


def load(stored: Mapping[str, NDArray[Any]], prefix: str) -> Network:
    """The reverse of `Network.arrays`."""
    layers: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
    while f"{prefix}/weights {len(layers)}" in stored:
        weights, offsets = (stored[f"{prefix}/{name} {len(layers)}"].astype(np.float32) for name in ("weights", "offsets"))
        layers.append((weights, offsets))
    return Network(**{name: stored[f"{prefix}/{name}"] for name in PARTS}, layers=tuple(layers))
