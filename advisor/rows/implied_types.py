"""The operands' type of rows that name none: what a file's name or its published columns say, else the default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from advisor.gpus.hardware import match_device_name
from advisor.rows.row_configurations import CONFIG_COLUMNS
from advisor.rows.rows import FAMILY_PARAMETERS, Rows

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
    told = np.array([bool(cell.strip()) for cell in rows.text["dtype"]], dtype=bool) if "dtype" in rows.text else np.zeros(len(rows), bool)
    assumed = np.flatnonzero(~told & (rows.family != "fused_moe"))
    if not assumed.size:
        return None
    column = rows.text.get("gpu", ())
    names = {gpu} if gpu is not None else {column[i] for i in assumed.tolist()} if column else set()
    found = [match_device_name(each) for each in names]
    without = sorted({each.name for each in found if each is not None and not each.supports("bf16")})
    lacking = f", which {', '.join(without)} {'have' if len(without) > 1 else 'has'} no matrix units for" if without else ""
    return (
        f"bf16 operands are assumed for {assumed.size} row{'s' if assumed.size > 1 else ''} that name{'' if assumed.size > 1 else 's'} "
        f"no type{lacking}; say otherwise in a column dtype"
    )
