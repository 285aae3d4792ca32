"""One row of a file from outside, as its cells, what is said of a cell that is off, and the configuration in them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.result.schema import LAUNCH_OPTIONS, Configuration
from advisor.rows.cells import is_nothing
from advisor.rows.rows import FAMILY_PARAMETERS
from advisor.system.errors import InputError
from advisor.tables.names import SIZE_LIMIT


@dataclass(frozen=True, slots=True)
class RowSource:
    """The cells of a row by column, and where they are from: the file's name and the row's number, from 1."""

    label: str
    row: int
    cells: Mapping[str, str]

    def get(self, name: str) -> str:
        return self.cells.get(name, "").strip()

    def error(self, column: str, limit: str) -> InputError:
        return InputError(f"{self.label}: row {self.row}: {column}", self.get(column), limit, "correct the cell, or leave the row out")

    def number(self, name: str) -> float | None:
        cell = self.get(name)
        if not cell or is_nothing(cell):
            return None
        try:
            value = float(cell)
        except ValueError:
            raise self.error(name, "a number") from None
        if not math.isfinite(value):
            raise self.error(name, "a finite number")
        return value

    def integer(self, name: str) -> int | None:
        value = self.number(name)
        if value is not None and (value != int(value) or not 0 < value < 2**31):
            raise self.error(name, "a positive integer")
        return None if value is None else int(value)

    def document(self, name: str) -> dict[str, Any]:
        if not self.get(name):
            return {}
        try:
            value = json.loads(self.get(name))
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise self.error(name, "a JSON object")
        return value


PARAMETER_COLUMNS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
OPTION_COLUMNS = ("num_warps", "num_stages")
_FURTHER_COLUMNS = tuple(dict.fromkeys(name for parameters in FAMILY_PARAMETERS.values() for name in parameters))
"""Parameters that other files (what `advisor rank` writes, say) have as columns, and `advisor measure` in `parameters`."""

CONFIGURATION_COLUMNS = (*PARAMETER_COLUMNS, *_FURTHER_COLUMNS, *LAUNCH_OPTIONS)
"""All columns that say what a row was launched with; what has none of its own is in `parameters`."""

_POSITIVE = (*PARAMETER_COLUMNS, *LAUNCH_OPTIONS)
"""What is a positive number wherever a row has it. A kernel may take the further ones as it likes: SPLIT_K = 0 for no split, say."""

_INTEGER_LIMIT = 2**63
"""Triton specialises kernels on 64-bit integers at most, and a size or a stride can be one."""


def read_configuration(source: RowSource, prefix: str = "") -> Configuration | None:
    """The configuration in the cells of a row, None where they have none.

    Args:
        source: The row.
        prefix: What the names of its columns begin with ("default_" in a sweep's summary).

    Raises:
        InputError: A cell is off, or a column and `parameters` contradict each other.
    """
    values: dict[str, int | bool | str] = {}
    for name in CONFIGURATION_COLUMNS:
        if (value := source.integer(prefix + name)) is not None:
            values[name] = value
    for name, value in source.document("parameters").items():
        _check(source, name, value)
        if values.setdefault(name, value) != value:
            raise source.error("parameters", f"the {name} of its own column, {values[name]}")
    if not values:
        return None
    options = {name: int(values.pop(name)) for name in LAUNCH_OPTIONS if name in values}
    return Configuration(parameters=values, **options)


def _check(source: RowSource, name: str, value: Any) -> None:
    """Refuse what no parameter of this name can be.

    Raises:
        InputError: It is none.
    """
    least = 1 if name in _POSITIVE else 0 if name in _FURTHER_COLUMNS else None
    if least is not None:
        if type(value) is not int or not least <= value < SIZE_LIMIT:
            raise source.error("parameters", f"{name} as an integer from {least} to {SIZE_LIMIT - 1}")
    elif not isinstance(value, (int, str)) or (isinstance(value, int) and abs(value) >= _INTEGER_LIMIT):
        raise source.error("parameters", "numbers and texts")
