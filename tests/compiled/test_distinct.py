"""The values of an array, each once."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.compiled.ir.arithmetic import distinct_values


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(0, np.int64),
        np.array([7]),
        np.array([3, -1, 3, 2, -1]),
        np.arange(6).reshape(2, 3) % 4,
        np.random.default_rng(1).integers(-5, 5, (17, 3)),
        np.array([2.0, 1.0, 2.0]),
        np.array([2**63, 1, 2**63], np.uint64),
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
def test_as_numpy_has_them(array: np.ndarray) -> None:
    found = distinct_values(array)
    assert np.array_equal(found, np.unique(array)) and found.dtype == array.dtype
