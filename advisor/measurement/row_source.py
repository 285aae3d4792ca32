"""One row of a file from outside, as its cells, and what is said of a cell that is off."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.rows.cells import is_nothing
from advisor.system.errors import InputError


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

    def integers(self, name: str, separator: str | None = None) -> tuple[int, ...] | None:
        try:
            return tuple(int(part) for part in re.split(r"[\s,;\[\]x]+", self.get(name)) if part) or None
        except ValueError:
            raise self.error(name, "integers separated by blanks") from None

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
