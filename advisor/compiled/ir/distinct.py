"""The values of an array, each once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def distinct_values(array: NDArray[Any]) -> NDArray[Any]:
    """Ascending, each once, whatever the array's shape: `np.unique`, by sorting.

    From NumPy 2.3 on that goes by a hash table, which takes a hundred times as long for addresses: 4.8 s in place of 0.04 s for four
    million with a step of 1,024 (NumPy 2.4.6, one core).
    """
    values = np.sort(array, axis=None)
    return values[np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])]
