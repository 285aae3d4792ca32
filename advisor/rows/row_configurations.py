"""The configuration columns of ROWS: tiles, GROUP_SIZE_M, warps and stages, of launches and of the defaults in a sweep's summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from advisor.rows.cells import integers
from advisor.system.errors import InputError
from advisor.tables.entries import BLOCK_COLUMNS, BLOCK_SIZE_LIMIT, GROUP_SIZE_LIMIT, NUM_STAGES_LIMIT, NUM_WARPS_LIMIT

CONFIG_COLUMNS = (*BLOCK_COLUMNS, "GROUP_SIZE_M", "num_warps", "num_stages")
CONFIG_DEFAULTS = {"GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
"""What a row gets for a configuration field it leaves out although it names its blocks: Triton's defaults, no grouping."""

OF_DEFAULTS = "default_"
"""How the columns of a summary's default configurations begin."""

_LIMITS = {
    **dict.fromkeys(BLOCK_COLUMNS, BLOCK_SIZE_LIMIT),
    "GROUP_SIZE_M": GROUP_SIZE_LIMIT,
    "num_warps": NUM_WARPS_LIMIT,
    "num_stages": NUM_STAGES_LIMIT,
}
_POWERS_OF_TWO = (*BLOCK_COLUMNS, "num_warps")


def configuration_columns(label: str, cells: Mapping[str, Sequence[str]], prefix: str = "") -> dict[str, np.ndarray]:
    """The columns that are there, by their names without `prefix`: int64, 0 where the cell is empty.

    Raises:
        InputError: Names file, row, column, value, limit and remedy.
    """
    return {
        name: integers(label, prefix + name, cells[prefix + name], _LIMITS[name], power=name in _POWERS_OF_TWO)
        for name in CONFIG_COLUMNS
        if prefix + name in cells
    }


def complete_configurations(label: str, columns: dict[str, np.ndarray], tiled: np.ndarray, prefix: str = "") -> np.ndarray:
    """Which rows [n] name a configuration; what they leave out is filled in place with the defaults.

    Rows of `tiled` [n] operators must name all three block sizes; other kernels have parameters of their own (column `parameters`).

    Raises:
        InputError: A block size is missing.
    """
    present = [name for name in CONFIG_COLUMNS if name in columns]
    if not present:
        return np.zeros(tiled.size, dtype=bool)
    given = np.any([columns[name] > 0 for name in present], axis=0)
    for name in BLOCK_COLUMNS:
        missing = tiled & (given if name not in columns else given & (columns[name] == 0))
        if missing.any():
            row = int(np.argmax(missing))
            raise InputError(
                f"{label}: row {row + 1}: {prefix}{name} is missing",
                "an empty cell",
                f"{', '.join(prefix + block for block in BLOCK_COLUMNS)}, or no configuration at all",
                "fill it, or empty all configuration cells to mean what the serving stack would launch",
            )
    for name, default in CONFIG_DEFAULTS.items():
        column = columns.get(name, np.zeros(tiled.size, dtype=np.int64))
        columns[name] = np.where(given & (column == 0), default, column)
    return given
