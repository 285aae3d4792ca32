"""Columns of ROWS that say how a problem's matrices are stored, where `dtype`, the type of its operands, does not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from advisor.rows.cells import REMEDY
from advisor.rows.rows import DTYPES
from advisor.system.errors import InputError

STORED_TYPE_COLUMNS = ("weight_dtype", "output_dtype", "block_shape")
STORED_DTYPES = {**DTYPES, "int4": "int4", "fp64": "fp64"}
"""As `DTYPES`, with those that no tensor pipeline takes: weights are widened before they are multiplied, outputs after."""

BLOCK_LIMIT = 65_536
_BLOCK = re.compile(r"[\[(]?\s*([0-9]{1,5})\s*[\s,;x]\s*([0-9]{1,5})\s*[\])]?")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTypes:
    """The fields of these names of a `Problem`; None where a cell is empty or has no column."""

    weight_dtype: str | None = None
    output_dtype: str | None = None
    block_shape: tuple[int, int] | None = None


def read_stored_types(cells: Mapping[str, str], where: str) -> StoredTypes:
    """The types in the cells of a row; `where` (file and row) begins the message of an error.

    Raises:
        InputError: A cell is no type, or no block of two sizes.
    """
    weight, output = (_dtype(cells.get(name, ""), f"{where}: {name}") for name in STORED_TYPE_COLUMNS[:2])
    return StoredTypes(weight_dtype=weight, output_dtype=output, block_shape=_block(cells.get("block_shape", ""), f"{where}: block_shape"))


def _dtype(cell: str, what: str) -> str | None:
    name = cell.strip().lower().removeprefix("torch.")
    if name and name not in STORED_DTYPES:
        raise InputError(what, cell, f"one of {', '.join(dict.fromkeys(STORED_DTYPES.values()))}, or nothing", REMEDY)
    return STORED_DTYPES[name] if name else None


def _block(cell: str, what: str) -> tuple[int, int] | None:
    if not cell.strip():
        return None
    found = _BLOCK.fullmatch(cell.strip().lower())
    sizes = (int(found[1]), int(found[2])) if found else (0, 0)
    if not all(0 < size <= BLOCK_LIMIT for size in sizes):
        raise InputError(what, cell, f"two integers from 1 to {BLOCK_LIMIT}, such as 128 128, or nothing", REMEDY)
    return sizes
