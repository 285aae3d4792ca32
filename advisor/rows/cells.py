"""Cells of a CSV file as numbers, fast where they are plain and exact about the first that is wrong, and the status of a measured row."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from advisor.system.errors import InputError
from advisor.tables.names import SIZE_LIMIT

REMEDY = "correct the cell; the columns are described in `advisor predict --help`"

LATENCY_RANGE_US = (1e-3, 1e12)
"""What a latency may be: outside of it (a nanosecond, eleven days) it is damage; no chart can show it, and sums need not be finite."""
NOTHING = ("", "nan")
"""Cells that hold no number: a missing value is written as nan by whoever writes the rows of a data frame one by one."""

LATENCY_LIMIT = "a latency of {:g} to {:g} microseconds".format(*LATENCY_RANGE_US)


def integers(label: str, name: str, cells: Sequence[str], high: int, *, power: bool = False, allow_zero: bool = False) -> np.ndarray:
    """A column of integers from 1 (or 0) to `high`; 0 where the cell is empty.

    Raises:
        InputError: Names file, row, column, value, limit and remedy.
    """
    # The fast path takes what almost every file holds; the slow one is run to find and name the bad cell.
    low = 0 if allow_zero else 1
    if all(map(str.isdecimal, cells)) and max(map(len, cells), default=0) <= 18:
        values = np.array(list(map(int, cells)), dtype=np.int64)
    else:
        values = np.array([_integer(label, name, row, cell) for row, cell in enumerate(cells, start=1)], dtype=np.int64)
    empty = values == -1
    bad = (values < low) | (values > high)
    if power:
        bad |= (values & (values - 1)) != 0
    bad &= ~empty
    if bad.any():
        row = int(np.argmax(bad))
        kind = "a power of two" if power else "an integer"
        raise InputError(f"{label}: row {row + 1}: {name}", cells[row], f"{kind} from {low} to {high}", REMEDY)
    values[empty] = 0
    return values


def _integer(label: str, name: str, row: int, cell: str) -> int:
    """One cell as an integer ("64.0" is one); -1 where it holds `NOTHING`."""
    text = cell.strip()
    if is_nothing(text):
        return -1
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    limit = "a positive integer"
    try:
        value = float(text) if "_" not in text else float("nan")
    except ValueError:
        value = float("nan")
    if value != value or abs(value) == float("inf") or value != int(value):
        raise InputError(f"{label}: row {row}: {name}", cell, limit, REMEDY)
    if value < 0 or value >= 2**62:  # -1 is the mark of an empty cell
        raise InputError(f"{label}: row {row}: {name}", cell, f"an integer from 1 to {SIZE_LIMIT - 1}", REMEDY)
    return int(value)


def is_nothing(cell: str) -> bool:
    """Whether a cell holds no number (`NOTHING`)."""
    return cell.strip().lower() in NOTHING


def is_latency(us: float) -> bool:
    """Whether a number of microseconds can be a latency (`LATENCY_RANGE_US`); NaN cannot."""
    least, most = LATENCY_RANGE_US
    return least <= us <= most


def latencies(label: str, name: str, cells: Sequence[str], lost: np.ndarray | None = None) -> np.ndarray:
    """A column of latencies in microseconds, `LATENCY_RANGE_US`; NaN where the cell holds `NOTHING`, and of the `lost` [n].

    Those are rows whose launch failed: tuners write 0, -1 or inf there, which says nothing.

    Raises:
        InputError: Names file, row, column, value and remedy.
    """
    filled = cells if lost is None else ["" if gone else cell for cell, gone in zip(cells, lost.tolist(), strict=True)]
    try:
        values = np.array([float(cell) if cell else np.nan for cell in filled], dtype=np.float64)
    except ValueError:  # to find the cell, and because one of blanks is empty too
        values = np.array([_latency(label, name, row, cell) for row, cell in enumerate(filled, start=1)], dtype=np.float64)
    least, most = LATENCY_RANGE_US
    bad = (values < least) | (values > most)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{label}: row {row + 1}: {name}", filled[row], f"{LATENCY_LIMIT}, or nothing", REMEDY)
    return values


def _latency(label: str, name: str, row: int, cell: str) -> float:
    """One cell as a number; NaN where it holds `NOTHING`."""
    try:
        return float(cell.strip() or "nan")
    except ValueError:
        raise InputError(f"{label}: row {row}: {name}", cell, f"{LATENCY_LIMIT}, or nothing", REMEDY) from None


_FAILURE_STEMS = (
    "illegal",
    "outofmemory",
    "insufficientmemory",
    "oom",
    "outofresource",
    "notrecorded",
    "wrong",
    "incorrect",
    "invalid",
    "mismatch",
    "crash",
    "segfault",
    "error",
    "fail",
    "exception",
    "timeout",
    "timedout",
    "abort",
    "kill",
    "cancel",
    "skip",
    "reject",
    "unsupported",
    "notsupported",
    "infeasible",
    "pruned",
)
"""What stands somewhere in the `status` of a row that has no latency, its letters alone: in what `advisor measure` writes, in the names of
CUDA's, Triton's and Python's errors, and in what other tuners write."""

_FAILURE_WORDS = ("hang", "hung", "false", "no", "bad")
_SUCCESSES = (
    "ok",
    "okay",
    "success",
    "successful",
    "succeeded",
    "pass",
    "passed",
    "correct",
    "valid",
    "verified",
    "done",
    "completed",
    "true",
)
"""First words of a status that says what else there is to say after them: `ok (max error 0.01)`."""

_NONE_OF = re.compile(r"\b(?:no|0|zero|without)[\s:=-]+\w+", re.IGNORECASE)
"""`passed, 0 errors`: what did not happen."""


def failed(status: str) -> bool:
    """Whether a row's status says that nothing of it was measured, whatever its latency cells hold."""
    first = re.match(r"[^a-z]*([a-z]+)", status.lower())
    if first is not None and first.group(1) in _SUCCESSES:
        return False
    letters = "".join(filter(str.isalpha, _NONE_OF.sub("", status))).lower()
    return letters in _FAILURE_WORDS or any(stem in letters for stem in _FAILURE_STEMS)
