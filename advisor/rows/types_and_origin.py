"""What rows say beside sizes and latencies: types of matrices, stored or implied, and whether anything was run for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.gpus.hardware import match_device_name
from advisor.rows.cells import REMEDY
from advisor.rows.columns import CONFIG_COLUMNS
from advisor.rows.rows import DTYPES, FAMILY_PARAMETERS, PUBLISHED, Rows
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
    match = _BLOCK.fullmatch(cell.strip().lower())
    sizes = (int(match[1]), int(match[2])) if match else (0, 0)
    if not all(0 < size <= BLOCK_LIMIT for size in sizes):
        raise InputError(what, cell, f"two integers from 1 to {BLOCK_LIMIT}, such as 128 128, or nothing", REMEDY)
    return sizes


LIBRARY_COLUMNS = frozenset({"gpu", "op", "B", "M", "N", "K", "H"})
"""Columns of the published measurements of library operators that say what ran; `family` and `dtype` are ours, and not among them."""

LIBRARY_OPERATORS = frozenset(
    {"add", "addu", "bmm", "div", "divu", "gelu", "linear", "ln", "mul", "mulu", "pow", "powu", "relu", "softmax", "tanh"}
)
"""Operators that were published under those columns."""


CONFIGURATION_COLUMNS = frozenset({*CONFIG_COLUMNS, "parameters"}.union(*FAMILY_PARAMETERS.values()))
"""Columns that only launches of kernels with a space of their own have."""


def implied_dtype(header: Sequence[str], name: str, operators: Iterable[str] = ()) -> str | None:
    """The operands' type of rows that name none, as in the published files; None where nothing but the default is known.

    fp8 where the file's name says so, fp32 for library operators: rows of none but published operators, with the kernel that ran or the
    published columns, and no configuration (a library chooses its own).
    """
    if "dtype" in header:
        return None
    if "fp8" in name.lower():
        return "fp8"
    if "op" not in header:
        return None
    named = {operator.strip().lower() for operator in operators}
    if not named <= LIBRARY_OPERATORS or not CONFIGURATION_COLUMNS.isdisjoint(header):
        return None
    published_too = set(header) >= LIBRARY_COLUMNS and "family" not in header and bool(named)
    return "fp32" if "kernel" in header or published_too else None


def settle_dtypes(rows: Rows, name: str, gpu: str | None = None) -> str | None:
    """Fill in the operands' type of rows that name none, and say so.

    Args:
        rows: What was read; the types of its rows are changed in place.
        name: The file's name.
        gpu: GPU of every row, in place of the column.

    Returns:
        What was taken for granted, as a sentence; None where every row says its type, or is a fused MoE (bf16 unless told otherwise).
    """
    if dtype := implied_dtype(rows.header, name, rows.text.get("op", ())):
        rows.dtype[:] = dtype
        says = "the file's name says" if dtype == "fp8" else "in the published measurements of library operators"
        return f"no column dtype: {dtype} operands, as {says}"
    specified = (
        np.array([bool(cell.strip()) for cell in rows.text["dtype"]], dtype=bool) if "dtype" in rows.text else np.zeros(len(rows), bool)
    )
    assumed = np.flatnonzero(~specified & (rows.family != "fused_moe") & (rows.family != PUBLISHED))
    if not assumed.size:
        return None
    column = rows.text.get("gpu", ())
    names = {gpu} if gpu is not None else {column[i] for i in assumed.tolist()} if column else set()
    gpus = [match_device_name(item) for item in names]
    without = sorted({item.name for item in gpus if item is not None and not item.supports("bf16")})
    lacking = f", which {', '.join(without)} {'have' if len(without) > 1 else 'has'} no matrix units for" if without else ""
    return (
        f"bf16 operands are assumed for {assumed.size} row{'s' if assumed.size > 1 else ''} that name{'' if assumed.size > 1 else 's'} "
        f"no type{lacking}; say otherwise in a column dtype"
    )


SIMULATED = "simulated"
_FAKE = re.compile(r'"gpu_uuid":\s*"fake"')


def simulated(cells: Mapping[str, str]) -> bool:
    """Whether the cells of a row say that nothing was run for its latency: by `origin`, the timer, or whose fingerprint it has."""
    if SIMULATED in (cells.get(name, "").strip().lower() for name in ("origin", "timer")):
        return True
    mark = cells.get("fingerprint", "")
    return "fake" in mark and _FAKE.search(mark) is not None


def simulated_rows(rows: Rows) -> np.ndarray:
    """Which rows of a file say so, [rows]."""
    names = [name for name in ("origin", "timer", "fingerprint") if name in rows.text]
    if not names:
        return np.zeros(len(rows), dtype=bool)
    by_origin: dict[tuple[str, ...], bool] = {}
    cells = list(zip(*(rows.text[name] for name in names), strict=True))
    for cell in cells:
        if cell not in by_origin:
            by_origin[cell] = simulated(dict(zip(names, cell, strict=True)))
    return np.array([by_origin[item] for item in cells], dtype=bool)
