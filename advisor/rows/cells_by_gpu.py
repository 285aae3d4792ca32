"""What is read alike of rows of whole layers and of published operators: their GPUs, and the cells of a column."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.rows.rows import Rows
from advisor.rows.silicon import GPUS as FOLDERS_OF_GPUS
from advisor.system.errors import InputError


def by_gpu(
    rows: Rows, members: NDArray[np.int64], find_gpu: Callable[[str], GpuSpec], gpu: str | None
) -> Iterator[tuple[NDArray[np.int64], GpuSpec]]:
    """Rows `members` [n] of a file by GPU, in the order in which these occur.

    Args:
        rows: What was read.
        members: Numbers of rows.
        find_gpu: A name of the column gpu to its description.
        gpu: GPU of every row, in place of the column.

    Raises:
        InputError: Neither says which GPU.
    """
    named = rows.text.get("gpu", ())
    if members.size and gpu is None and not named:
        raise InputError(f"{rows.path}: no column gpu", None, "a GPU for every row", "add the column gpu or device, or give --gpu NAME")
    names = [gpu or named[row] for row in members.tolist()]
    specs = {name: find_gpu(FOLDERS_OF_GPUS.get(name, name)) for name in dict.fromkeys(names)}
    of = np.array([specs[name].name for name in names])
    for spec in {each.name: each for each in specs.values()}.values():
        yield members[of == spec.name], spec


def cells(rows: Rows, chosen: NDArray[np.int64], name: str) -> list[str]:
    """The cells of a column in rows `chosen`, without blanks around them; empty where there is no such column."""
    column = rows.text.get(name)
    return [""] * chosen.size if column is None else [column[row].strip() for row in chosen.tolist()]
