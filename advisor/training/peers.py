"""What else would have been said of rows that were left out, and errors of it beside those of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.pipelines import Array

NEAREST = 4


def nearest(known: Array, reached: Array, asked: Array) -> Array:
    """What is expected of the sizes asked [m, d] by the nearest of those known [n, d] and what they reached [n]: its mean by inverse
    distance, [m]. So the publisher of the silicon tables predicts."""
    from scipy.spatial import KDTree

    distance, near = KDTree(known).query(asked, NEAREST)
    weight = 1 / np.maximum(distance, 1e-6)
    return (weight * reached[near]).sum(axis=1) / weight.sum(axis=1)


def side_by_side(gpu: NDArray[Any], errors: Mapping[str, Array]) -> dict[str, dict[str, float]]:
    """By GPU: mean absolute errors in percent of each column of log(predicted / measured) over the rows [n] in which it is known, and how
    many rows these are of the first column."""
    found: dict[str, dict[str, float]] = {}
    for name in np.unique(gpu).tolist():
        known = {key: error[(gpu == name) & np.isfinite(error)] for key, error in errors.items()}
        percent = {key: 100 * float(np.abs(np.expm1(error)).mean()) for key, error in known.items() if error.size}
        found[name] = {"rows": next(iter(known.values())).size, **percent}
    return found
