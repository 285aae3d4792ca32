"""Which configurations make one and the same launch: trying a second one says nothing that the first did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.pipelines.columns import Array
from advisor.result.schema import Problem

GROUPED = ("gemm", "fused_moe")
"""Families whose kernels walk GROUP_SIZE_M blocks of rows before the next block of columns."""


def most_row_blocks(columns: Mapping[str, Sequence[object]], problem: Problem) -> Array:
    """The most blocks along M that each configuration can have, [c]; inf where that is not known.

    Args:
        columns: Values of the configurations by parameter, each of length c; at least one parameter.
        problem: Its sizes.
    """
    block = next((name for name in columns if name.upper() in ("BLOCK_SIZE_M", "BLOCK_M")), None)
    rows = problem.sizes.get("M", 0) * problem.sizes.get("topk", 1)
    if block is None or not rows:
        return np.full(len(next(iter(columns.values()))), np.inf)
    # Every active expert has a block of its own, and however the rows are routed its last one holds at least one row.
    active = min(problem.sizes.get("E", 1), rows) if problem.family == "fused_moe" else 1
    return active + (rows - active) // np.array(columns[block], dtype=np.float64)


def launch_numbers(columns: Mapping[str, Sequence[object]], problems: Sequence[Problem]) -> NDArray[np.int64]:
    """Numbers of the launches that the configurations make, [c]; equal where no problem tells two of them apart.

    GROUP_SIZE_M orders CTAs: at or above the number of blocks along M all its values order them alike.

    Args:
        columns: Values of the configurations by parameter, launch options among them, each of length c; at least one.
        problems: What they are launched for.
    """
    count = len(next(iter(columns.values())))
    group = next((name for name in columns if name in ("GROUP_SIZE_M", "GROUP_M")), None)
    if group is None or any(problem.family not in GROUPED for problem in problems):
        return np.arange(count)
    sizes = np.array(columns[group], dtype=np.float64)
    groups = [np.minimum(sizes, most_row_blocks(columns, problem)).tolist() for problem in problems]
    others = [values for name, values in columns.items() if name != group]
    first: dict[tuple[object, ...], int] = {}
    return np.array([first.setdefault(key, i) for i, key in enumerate(zip(*groups, *others, strict=True))])


def repeats(launches: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of the launches [c], or [c, d], equal one before them, [c]."""
    _, first = np.unique(launches, axis=0, return_index=True)
    out = np.ones(len(launches), dtype=bool)
    out[first] = False
    return out
