"""Reading and writing ROWS and SHAPES: CSV files, plain or gzipped, with one launch or problem per line.

Columns have the names of the published measurements: sizes `M, N, K, E, topk, H, B, D, H_kv`; `gpu, family, op, gemm, dtype,
cache` (and those of `stored_types`, which reads them); configuration `BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M,
num_warps, num_stages` (for other families than products, `FAMILY_PARAMETERS` in place of the blocks, as `advisor rank` writes
them); latencies `latency_us` (and `best_us, default_us, median_us, mean_us` of a sweep).
Any other column passes through untouched. A line without configuration cells means "as the serving stack would launch it".
"""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from advisor.result.problem import SPELLINGS
from advisor.result.schema import FAMILIES
from advisor.rows.cells import REMEDY as _REMEDY
from advisor.rows.cells import failed, integers, latencies
from advisor.rows.columns import (
    CONFIG_COLUMNS,
    CONNECTIONS,
    OF_DEFAULTS,
    PUBLISHED_OPERATORS,
    check_block_names,
    check_letters,
    complete_configurations,
    configuration_columns,
    translated,
)
from advisor.system import grouped
from advisor.system.errors import InputError
from advisor.system.reading import check_lines, read_text
from advisor.system.writing import replacing
from advisor.tables.names import SIZE_LIMIT

TEXT_SIZE_LIMIT_BYTES = 1024 * 1024 * 1024
ROW_LIMIT = 5_000_000
LINES_AT_ONCE = 1000
"""Lines made into columns at a time, while they are in the processor's caches: for a whole file at once it takes twice as long."""

SIZE_COLUMNS = ("M", "N", "K", "E", "topk", "H", "B", "D", "H_kv", "causal", "window")
FAMILY_PARAMETERS: dict[str, dict[str, int | None]] = {
    "gemm": {"SPLIT_K": 1},
    "attention": {"BLOCK_M": 64, "BLOCK_N": 64, "NUM_KV_SPLITS": 1},
    "normalization": {"ROWS_PER_CTA": 1, "BLOCK_SIZE": None},
    "elementwise": {"BLOCK_SIZE": 1024, "ROWS_PER_CTA": None},
}
"""Further parameters that the model of a family reads, and what an empty cell stands for. None: no value, but a kernel that has none of it
(that takes rows whole, or one row in several CTAs)."""

PARAMETER_LIMIT = 2**20
_FURTHER = frozenset(name for parameters in FAMILY_PARAMETERS.values() for name in parameters)

LATENCY_COLUMNS = ("latency_us", "best_us", "default_us", "median_us", "mean_us")
TEXT_COLUMNS = ("gpu", "family", "op", "gemm", "dtype", "cache", "routing")

# Operators by the names the published measurements and PyTorch use -> (family, operator).
OPERATORS: dict[str, tuple[str, str]] = {
    "bmm": ("gemm", "gemm"),
    "linear": ("gemm", "gemm"),
    "gemm": ("gemm", "gemm"),
    "matmul": ("gemm", "gemm"),
    "mm": ("gemm", "gemm"),
    "w13": ("fused_moe", "w13"),
    "w2": ("fused_moe", "w2"),
    "activation": ("fused_moe", "activation"),
    "combine": ("fused_moe", "combine"),
    "layer": ("fused_moe", "layer"),
    "prefill": ("attention", "prefill"),
    "decode": ("attention", "decode"),
    "softmax": ("normalization", "softmax"),
    "ln": ("normalization", "layer_norm"),
    "layernorm": ("normalization", "layer_norm"),
    "layer_norm": ("normalization", "layer_norm"),
    "rms_norm": ("normalization", "rms_norm"),
    "rmsnorm": ("normalization", "rms_norm"),
}
_OTHER_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars"}

CONTRACTED_OVER_N = ("bmm", "linear")
"""Operators of NeuSight's published rows: M x N times N x K, as the grids of their kernels show. Read as M x K times K x N."""

_TELLING = ("family", "op", "gemm", "E")
"""Columns each of which tells what a row is; M, N and K do together."""

_DEFAULT_OPS = {"gemm": "gemm", "fused_moe": "w13", "attention": "prefill", "normalization": "rms_norm", "elementwise": "add"}
RECORDED_OPERATOR = "recorded_"
"""What the operator of a recorded launch begins with that no KERNELS literal describes: no model knows what it computes."""

PUBLISHED = "published"
"""The family of rows with a published operator's own columns alone (`columns.PUBLISHED_OPERATORS`); `steps.batches_of_rows` reads them."""

TILED_FAMILIES = ("gemm", "fused_moe")
"""Families whose configurations are tiles BLOCK_SIZE_M x BLOCK_SIZE_N x BLOCK_SIZE_K."""

UNTILED_OPERATORS = ("activation", "combine")
"""Operators of a tiled family that multiply nothing: their kernels have no tiles, and BLOCK_SIZE in the column `parameters`."""

REQUIRED_SIZES: dict[str, tuple[str, ...]] = {
    "gemm": ("M", "N", "K"),
    "fused_moe": ("M", "E", "topk", "H", "N"),
    "attention": ("B", "H", "H_kv", "M", "N", "D"),
    "normalization": ("B", "H"),
    "elementwise": ("B", "H"),
    PUBLISHED: (),
}

DTYPES = {name: dtype for name, dtype in SPELLINGS.items() if dtype != "fp64"} | {"fp8_block": "fp8", "w4a16_mxfp4": "bf16"}
"""Types of operands that rows may have, by how they are written; with what the publisher of whole layers calls theirs."""

LAYER_FORMATS = {
    "fp8_block": "give --dtype fp8 --block-shape 128,128, or rows of op layer to `advisor predict`",
    "w4a16_mxfp4": "weights of four bits are predicted in rows of op layer (`advisor predict`)",
}
"""What of `DTYPES` says more than the type of the operands, and where it can be given."""

FOUR_BIT_DTYPES = ("nvfp4", "w4a16_nvfp4", "int4_wo", "w4a8_mxfp4_mxfp8", "w4afp8", "w4a4_mxfp4", "mxfp4", "int4", "awq", "gptq")
UNMODELLED_DTYPES = (*FOUR_BIT_DTYPES, "int8_wo", "mxfp8")
"""Types that no model of single products knows; such rows are left out (`pipelines.from_rows`), but for whole layers."""


def is_tiled(family: str, op: str) -> bool:
    """Whether configurations of an operator are tiles BLOCK_SIZE_M x BLOCK_SIZE_N x BLOCK_SIZE_K."""
    return family in TILED_FAMILIES and op not in UNTILED_OPERATORS


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A CSV file as columns.

    `text` holds every column as it was read, in the file's order, so that it can be passed through. `columns` holds the
    known ones: int64 sizes and configuration fields (0 where the cell is empty), float64 latencies (NaN where empty).
    `family`, `op` and `dtype` are filled in per row; `has_configuration` is False where the serving stack chooses.
    """

    path: str
    header: tuple[str, ...]
    text: dict[str, Sequence[str]]
    columns: dict[str, np.ndarray]
    family: np.ndarray
    op: np.ndarray
    dtype: np.ndarray
    has_configuration: np.ndarray

    def __len__(self) -> int:
        return len(self.family)

    def gpus(self) -> tuple[str, ...]:
        """The GPU names that occur, in order of appearance; empty where there is no such column."""
        return tuple(dict.fromkeys(self.text.get("gpu", ())))

    def groups(self, *extra: str) -> dict[tuple[str, ...], np.ndarray]:
        """Row numbers by (family, op, dtype, *text columns named): what one vectorised call of the model can take."""
        keys = zip(self.family, self.op, self.dtype, *(self.text[name] for name in extra), strict=True)
        members = grouped((key, row) for row, key in enumerate(keys))
        return {key: np.asarray(rows, dtype=np.int64) for key, rows in members.items()}


def read_rows(path: str | os.PathLike[str], *, problems_only: bool = False, defaults: bool = False) -> Rows:
    """Read a ROWS or SHAPES file.

    Args:
        path: A CSV file with a header; a name that ends in `.gz`, or gzip's first bytes, means it is compressed.
        problems_only: SHAPES: configuration columns pass through unread.
        defaults: In a sweep's summary, which has no launch of its own, the default is the launch: columns `default_BLOCK_SIZE_M`, …
            are read as its configuration, and `default_us` as its `latency_us`.

    Raises:
        InputError: Names file, row, column, value, limit and remedy.
    """
    label = Path(path).name
    text = read_text(path, label, "a CSV file", TEXT_SIZE_LIMIT_BYTES, unpack=True)
    return parse_rows(text, label, os.fspath(path), problems_only=problems_only, defaults=defaults)


def parse_rows(
    text: str, label: str, path: str = "", *, problems_only: bool = False, required: Iterable[str] = (), defaults: bool = False
) -> Rows:
    """As `read_rows`, from text; `required`: columns that have to be there besides the sizes (`("gpu",)`, say)."""
    header, raw, count = _split(text, label)
    raw |= translated(raw, count)
    for column in required:
        if column not in raw:
            raise InputError(f"{label}: column {column} is missing", ", ".join(header), f"a column {column}", "add it")
    prefix = OF_DEFAULTS if defaults and not {"latency_us", *CONFIG_COLUMNS} & set(header) else ""
    columns: dict[str, np.ndarray] = {} if problems_only else configuration_columns(label, raw, prefix)
    lost = np.array([failed(cell) for cell in raw["status"]], dtype=bool) if "status" in header else None
    if prefix and "default_us" in header:
        columns["latency_us"] = latencies(label, "default_us", raw["default_us"], lost)
    for name in raw:
        if name in SIZE_COLUMNS:
            zero = name in ("causal", "window")  # 0 means no
            columns[name] = integers(label, name, raw[name], SIZE_LIMIT - 1, allow_zero=zero)
        elif name in _FURTHER and not problems_only:
            columns[name] = integers(label, name, raw[name], PARAMETER_LIMIT)
        elif name in LATENCY_COLUMNS:
            columns[name] = latencies(label, name, raw[name], lost)
    family, op, dtype = _kinds(label, raw, columns, count)
    tiled = np.array([is_tiled(*kind) for kind in zip(family, op, strict=True)], dtype=bool)
    families = set(family)
    read = {"gpu", "dtype", *(size for item in families for size in REQUIRED_SIZES[item])}
    if not problems_only:
        check_block_names(label, raw, tiled)
        read |= {"status", *CONFIG_COLUMNS, *(name for item in families for name in FAMILY_PARAMETERS.get(item, ()))}
        read |= set() if set(LATENCY_COLUMNS) & set(header) else set(LATENCY_COLUMNS)
    check_letters(label, tuple(raw), read)
    _check_sizes(label, columns, family)
    _exchange_depth_and_width(raw.get("op", ()), columns)
    return Rows(
        path=path,
        header=tuple(header),
        text=raw,
        columns=columns,
        family=family,
        op=op,
        dtype=dtype,
        has_configuration=complete_configurations(label, columns, tiled, prefix),
    )


def write_rows(
    rows: Rows,
    target: str | os.PathLike[str] | TextIO,
    appended: Mapping[str, Sequence[Any] | np.ndarray],
    *,
    index: np.ndarray | None = None,
) -> None:
    """Write the rows as they were read, with columns appended (one of the same name is replaced where it stands).

    Args:
        rows: What was read.
        target: A path, or an open text stream.
        appended: Column name -> one value per output row; floats are written with six significant digits, NaN as empty.
        index: Row of `rows` that each output row belongs to (`rank` writes several per problem); None: each once.

    Raises:
        UsageError: The path cannot be written to.
    """
    count = len(rows) if index is None else len(index)
    columns: dict[str, Iterable[str]] = {}  # made into text line by line: all of a ranking's is many times its numbers
    for name in rows.header:
        columns[name] = rows.text[name] if index is None else map(rows.text[name].__getitem__, index)
    for name, values in appended.items():
        if len(values) != count:
            raise ValueError(f"column {name}: {len(values)} values for {count} rows")
        columns[name] = map(_cell, values)
    if not isinstance(target, (str, os.PathLike)):
        _write(target, columns)
        return
    path = Path(target)
    opener: Callable[..., Any] = gzip.open if path.name.endswith(".gz") else open
    with replacing(path, "choose another place with -o") as place, opener(place, "wt", encoding="utf-8", newline="") as stream:
        _write(stream, columns)


def _write(stream: TextIO, columns: Mapping[str, Iterable[str]]) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))


def _cell(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return "" if value != value else f"{value:.6g}"
    return "" if value is None else str(value)


def _split(text: str, label: str) -> tuple[list[str], dict[str, Sequence[str]], int]:
    """The header, the cells by column, and the number of rows."""
    check_lines(text, label, "a CSV file")
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        first = next((line for line in reader if line), [])
        cells, count, odd = _columns(reader, len(first))
    except csv.Error as error:
        raise InputError(f"{label}: not CSV ({error})", None, "comma-separated text", "write it as CSV again") from None
    if not first:
        raise InputError(f"{label}: the file is empty", None, "a header and rows", "is this the file you mean?")
    header = [name.strip() for name in first]
    if first[0].lstrip().startswith(("{", "[")):
        raise InputError(f"{label}: JSON, not CSV", text.strip()[:40], "a header and rows", "is this the file you mean?")
    if len(header) == 1 and (other := next((mark for mark in _OTHER_DELIMITERS if mark in header[0]), None)) is not None:
        raise InputError(
            f"{label}: the columns are separated by {_OTHER_DELIMITERS[other]}, not by commas",
            header[0],
            "comma-separated text",
            "write it as CSV with commas (and decimal points)",
        )
    places = {name: place for place, name in reversed(list(enumerate(header)))}
    twice = next((name for place, name in enumerate(header) if places[name] != place), None)
    if twice is not None:
        raise InputError(f"{label}: column {twice!r} occurs twice", twice, "each column once", "rename one of them")
    if count > ROW_LIMIT:
        raise InputError(f"{label}: too many rows", count, f"at most {ROW_LIMIT:,}", "split the file")
    if odd is not None:
        row, line = odd
        raise InputError(
            f"{label}: row {row}: {len(line)} cells under {len(header)} columns",
            ",".join(line),
            f"{len(header)} cells",
            "quote cells that hold commas",
        )
    return header, dict(zip(header, cells, strict=True)), count


def _columns(lines: Iterator[list[str]], width: int) -> tuple[list[tuple[str, ...]], int, tuple[int, list[str]] | None]:
    """Lines as columns, up to the first of another width; how many lines there are, and that line with its number, from 1."""
    columns: list[list[str]] = [[] for _ in range(width)]
    count, odd = 0, None
    while piece := list(islice(lines, LINES_AT_ONCE)):
        piece = [line for line in piece if line]
        if odd is None and set(map(len, piece)) - {width}:
            odd = next((row, line) for row, line in enumerate(piece, start=count + 1) if len(line) != width)
        if odd is None:
            for column, cells in zip(columns, zip(*piece, strict=True), strict=bool(piece)):
                column.extend(cells)
        count += len(piece)
    return [tuple(column) for column in columns], count, odd


def _exchange_depth_and_width(op: Sequence[str], columns: dict[str, np.ndarray]) -> None:
    """Rows of `CONTRACTED_OVER_N` get N and K under the names that all other products have them."""
    theirs = np.array([name.strip().lower() in CONTRACTED_OVER_N for name in op], dtype=bool)
    if theirs.any() and "N" in columns and "K" in columns:
        n, k = columns["N"], columns["K"]
        columns["N"], columns["K"] = np.where(theirs, k, n), np.where(theirs, n, k)


def _kinds(
    label: str, raw: Mapping[str, Sequence[str]], columns: Mapping[str, np.ndarray], count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Family, operator and data type of every row; each distinct combination of cells is looked at once."""
    blank = ("",) * count
    experts = columns.get("E")
    has_experts: Sequence[bool] = (experts > 0).tolist() if experts is not None else (False,) * count
    gemm_sizes = all(size in columns for size in ("M", "N", "K"))
    if not gemm_sizes and raw.keys().isdisjoint(_TELLING):  # the columns that would tell what rows are may be there in other letters
        check_letters(label, tuple(raw), {*_TELLING, "M", "N", "K"})
    one_query = (columns["M"] == 1).tolist() if "M" in columns else (False,) * count
    cells = zip(*(raw.get(name, blank) for name in ("family", "op", "gemm", "dtype")), has_experts, one_query, strict=True)
    numbers: dict[tuple[Any, ...], int] = {}
    which = [numbers.setdefault(key, len(numbers)) for key in cells]
    kinds = [_kind(label, which.index(number) + 1, key, gemm_sizes) for key, number in numbers.items()]
    family, op, dtype = (np.array([kind[i] for kind in kinds], dtype=object)[which] for i in range(3))
    return family, op, dtype


def _kind(label: str, row: int, key: tuple[Any, ...], gemm_sizes: bool) -> tuple[str, str, str]:
    family_cell, op_cell, gemm_cell, dtype_cell, has_experts, one_query = key
    family, op = family_cell.strip().lower(), op_cell.strip().lower() or gemm_cell.strip().lower()
    if not family and op in PUBLISHED_OPERATORS | set(CONNECTIONS.values()):
        return PUBLISHED, op, "bf16"
    if family and family not in FAMILIES:
        raise InputError(f"{label}: row {row}: family", family_cell, f"one of {', '.join(FAMILIES)}", _REMEDY)
    if not family:
        if has_experts:
            family = "fused_moe"
        elif op:
            family = OPERATORS.get(op, ("elementwise", op))[0]
        elif gemm_sizes:
            family = "gemm"
        else:
            raise InputError(
                f"{label}: row {row}: nothing says what this row is",
                None,
                "columns M, E, topk, H, N (fused_moe) or M, N, K (gemm), or a column op or family",
                "add them",
            )
    mapped_family, mapped = OPERATORS.get(op, (family, op))
    if op and (mapped_family != family or (op not in OPERATORS and family != "elementwise")):
        operators = ", ".join(name for name, (of, _) in OPERATORS.items() if of == family)
        raise InputError(
            f"{label}: row {row}: operator {op!r} is none of family {family}", op, f"one of {operators}" if operators else None, _REMEDY
        )
    default_op = "decode" if family == "attention" and one_query else _DEFAULT_OPS[family]
    dtype_text = dtype_cell.strip().lower().removeprefix("torch.")
    if dtype_text in UNMODELLED_DTYPES:
        return family, mapped or default_op, dtype_text
    if dtype_text and dtype_text not in DTYPES:
        known = ", ".join(dict.fromkeys(DTYPES.values()))
        raise InputError(f"{label}: row {row}: dtype", dtype_cell, f"one of {known}", _REMEDY)
    return family, mapped or default_op, DTYPES.get(dtype_text, "bf16")


def _check_sizes(label: str, columns: dict[str, np.ndarray], family: np.ndarray) -> None:
    for name in dict.fromkeys(family.tolist()):
        rows = family == name
        for size in REQUIRED_SIZES[name]:
            if size == "H_kv" and size not in columns:
                columns[size] = np.where(rows, columns["H"], 0)  # as many key heads as query heads
            if size not in columns:
                raise InputError(
                    f"{label}: column {size} is missing",
                    None,
                    f"columns {', '.join(REQUIRED_SIZES[name])} for {name}",
                    "add it",
                )
            empty = rows & (columns[size] == 0)
            if empty.any():
                row = int(np.argmax(empty))
                raise InputError(f"{label}: row {row + 1}: {size} is missing", "an empty cell", f"a positive integer for {name}", _REMEDY)
        if name == "attention":
            split = rows & (columns["H"] % np.maximum(columns["H_kv"], 1) != 0)
            if split.any():
                row = int(np.argmax(split))
                raise InputError(
                    f"{label}: row {row + 1}: H_kv does not divide H",
                    int(columns["H_kv"][row]),
                    f"a divisor of H = {columns['H'][row]}",
                    _REMEDY,
                )
        if name == "fused_moe":
            over = rows & (columns["topk"] > columns["E"])
            if over.any():
                row = int(np.argmax(over))
                raise InputError(
                    f"{label}: row {row + 1}: topk exceeds E", int(columns["topk"][row]), f"at most {columns['E'][row]}", _REMEDY
                )
