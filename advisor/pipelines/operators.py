"""Library operators (bmm, linear, softmax, ln, add, relu, ...) as problems: the rows of `library_ops` and of GEMM measurements."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advisor.errors import UsageError
from advisor.pipelines.batch import ProblemBatch, column
from advisor.pipelines.elementwise import OPERATORS

PRODUCTS: dict[str, tuple[str, ...]] = {"gemm": ("M", "N", "K"), "linear": ("M", "N", "K"), "bmm": ("B", "M", "N", "K")}
"""Products of matrices: [M, K] by [K, N], `bmm` B times. A bias is not counted (N elements, and it may be missing)."""

ROW_OPERATORS: dict[str, tuple[str, str]] = {
    "softmax": ("normalization", "softmax"),
    "ln": ("normalization", "layer_norm"),
    "layer_norm": ("normalization", "layer_norm"),
    "rms_norm": ("normalization", "rms_norm"),
} | {name: ("elementwise", name) for name in OPERATORS}
"""Operators over B rows of H elements: their family and operator."""


def operator_batch(op: str, columns: Mapping[str, ArrayLike], dtype: str = "fp32", cache: str = "warm") -> ProblemBatch:
    """The problems of a library operator's measurements.

    Args:
        op: `gemm`, `bmm`, `linear`, or one of `ROW_OPERATORS`.
        columns: At least the sizes of `op`, as in `library_ops`: M, N, K (and B), or B rows of length H.
        dtype: Operand type. `fp32` is exact (no tensor pipeline), as cuBLAS without TF32.
        cache: What the L2 holds at the start: `warm` or `cold`.

    Raises:
        UsageError: The operator is not known, or a size is missing or not a positive number.
    """
    if op in PRODUCTS:
        family, name, needed = "gemm", "gemm", PRODUCTS[op]
    elif op in ROW_OPERATORS:
        (family, name), needed = ROW_OPERATORS[op], ("B", "H")
    else:
        raise UsageError("unknown operator", op, "one of " + ", ".join((*PRODUCTS, *ROW_OPERATORS)))
    sizes = {size: _positive(op, size, columns) for size in needed}
    return ProblemBatch(family=family, op=name, sizes=sizes, dtype=dtype, cache=cache)


def _positive(op: str, size: str, columns: Mapping[str, ArrayLike]) -> NDArray[np.float64]:
    if size not in columns:
        raise UsageError(f"{op} needs the size {size}", "columns " + ", ".join(columns))
    values = column(np.asarray(columns[size], dtype=np.float64))
    wrong = ~(np.isfinite(values) & (values > 0))
    if wrong.any():
        raise UsageError(f"{op} needs positive {size}", str(values[wrong][0]), "a positive number")
    return values
