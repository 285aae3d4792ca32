"""Columns of ROWS under names that are nearly those that are read: any other column passes through, so that these would be passed over."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from advisor.system.errors import InputError
from advisor.tables.entries import BLOCK_COLUMNS

_SHORT_BLOCKS = {name.replace("_SIZE", ""): name for name in BLOCK_COLUMNS}
"""Names that kernels have for the blocks of products: BLOCK_M for BLOCK_SIZE_M."""


def check_letters(label: str, header: Sequence[str], read: Collection[str]) -> None:
    """Check that no column is one of those that are `read` but for capitals and small letters, where that one is not there.

    Raises:
        InputError: Names file, column and its name.
    """
    missing = {name.lower(): name for name in sorted(read) if name not in header}
    for name in header:
        if (meant := missing.get(name.lower())) is not None:
            raise InputError(
                f"{label}: column {name}",
                name,
                f"{meant}, in capitals and small letters as here",
                "rename it: under another name it would pass through unread",
            )


def check_block_names(label: str, cells: Mapping[str, Sequence[str]], tiled: np.ndarray) -> None:
    """Check that rows of `tiled` [n] operators do not name their blocks as kernels do, BLOCK_M, in columns that only attention has.

    Raises:
        InputError: Names file, row, column and its name.
    """
    for name, column in cells.items():
        meant = _SHORT_BLOCKS.get(name.upper())
        if meant is None or meant in cells:
            continue
        for row in np.flatnonzero(tiled).tolist():
            if column[row].strip():
                raise InputError(
                    f"{label}: row {row + 1}: column {name}",
                    name,
                    f"{meant} for gemm and fused_moe",
                    "rename it: under another name it would pass through unread",
                )


__all__ = ["check_block_names", "check_letters"]
