"""Columns of numbers, in which the analytical model computes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def column(values: Iterable[float] | float) -> Array:
    """A float64 column from a number or numbers."""
    return np.atleast_1d(np.asarray(values, dtype=np.float64))
