"""Rows of the pipeline model's dataclasses of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_T = TypeVar("_T")


def take_rows(value: _T, index: NDArray[np.intp]) -> _T:
    """The rows `index` of every column in a dataclass (or mapping) of columns; columns of one row hold for all and stay."""
    taken: Any = value
    if isinstance(value, np.ndarray):
        columns = np.atleast_1d(value)
        taken = columns[index] if columns.shape[0] > 1 else columns
    elif isinstance(value, Mapping):
        taken = {name: take_rows(entry, index) for name, entry in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        taken = replace(value, **{f.name: take_rows(getattr(value, f.name), index) for f in fields(value)})
    return taken


def take_row(value: _T, i: int) -> _T:
    """Row i, as a dataclass of columns of one row."""
    return take_rows(value, np.array([i]))


def first(column: NDArray[Any]) -> float:
    """The only value of a column of one row."""
    return float(np.ravel(column)[0])
