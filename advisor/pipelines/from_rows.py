"""Rows of a CSV file as batches the model can take: one per GPU, family, operator, types and cache state."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import batch, token_draws
from advisor.pipelines.batch import SIZES, ConfigurationBatch, ProblemBatch
from advisor.pipelines.columns import Array
from advisor.pipelines.elementwise import OPERATORS
from advisor.rows.columns import BLOCK_COLUMNS, CONFIG_COLUMNS
from advisor.rows.rows import FAMILY_PARAMETERS, PUBLISHED, RECORDED_OPERATOR, SIZE_COLUMNS, UNMODELLED_DTYPES, Rows, is_tiled
from advisor.rows.silicon import GPUS as FOLDERS_OF_GPUS
from advisor.rows.types_and_origin import STORED_TYPE_COLUMNS, read_stored_types
from advisor.system.errors import InputError, NothingMatchedError, UnknownGpuError, several
from advisor.tables.launchability import refused_dtype
from advisor.tables.routing import Routing

LAUNCH_COLUMNS = ("num_warps", "num_stages")
WHOSE_COLUMNS = ("stack", "stack_version", "implementation")
"""Whose kernel a row without a configuration is; fields of `ProblemBatch`."""
CACHES = ("cold", "warm")
LAYER = "layer"
"""The operator of rows that are whole layers: `steps.batches_of_rows` reads those."""

PRODUCTS = ("gemm", "fused_moe", "attention")
"""Families that need the operand type in a matrix instruction; other kernels convert what they load."""

ROUTINGS_PER_BATCH = 4096
"""Rows with routings of their own in one batch: a column per distinct load, of hundreds of experts, has to fit the memory."""

log = logging.getLogger("advisor.rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """Rows that one call of the model takes. `configuration` is None where the serving stack chose, or nothing is known."""

    rows: NDArray[np.int64]  # their numbers in the file
    gpu: GpuSpec
    problem: ProblemBatch
    configuration: ConfigurationBatch | None


def sizes_of(family: str, op: str, columns: dict[str, NDArray]) -> tuple[str, ...]:
    """The size columns a family reads, those that are optional only where they are there."""
    needed = ("B", "H") if family == "elementwise" else SIZES[(family, op)]
    optional = {"gemm": ("B",), "attention": ("causal", "window")}.get(family, ())
    return (*needed, *(name for name in optional if name in columns))


def batches(rows: Rows, find_gpu: Callable[[str], GpuSpec], gpu: str | None = None) -> Iterator[RowBatch]:
    """Split rows into batches. Rows that can launch nothing (fp8 before compute capability 8.9), and recorded launches
    of unknown work, are left out, with a word.

    Args:
        rows: What was read.
        find_gpu: A name of the gpu column to its description (raises where there is none).
        gpu: GPU of every row, where the file has no such column.

    Raises:
        InputError: No GPU is named, or a cache state is unknown.
        NothingMatchedError: There is no row, or none that can launch.
    """
    if not len(rows):
        raise NothingMatchedError(f"{rows.path}: no rows", "a header alone", "a launch or problem per line", "add some")
    if "gpu" not in rows.text and gpu is None:
        raise InputError(f"{rows.path}: no column gpu", None, "a GPU for every row", "add the column, or give --gpu NAME")
    extra = [name for name in ("gpu", "cache", "parameters", *STORED_TYPE_COLUMNS, *WHOSE_COLUMNS) if name in rows.text]
    routed = _routed(rows)
    gpus: dict[str, GpuSpec] = {}
    left_out = 0
    for key, members in rows.groups(*extra).items():
        family, op, dtype = key[:3]
        if op == LAYER or family == PUBLISHED:
            continue
        named = dict(zip(extra, key[3:], strict=True))
        name = gpu or named.get("gpu", "")
        cache = named.get("cache", "") or "warm"
        if not name:
            raise InputError(f"{rows.path}: row {members[0] + 1}: gpu is empty", None, "a GPU's name", "fill it in")
        if cache not in CACHES:
            raise InputError(f"{rows.path}: row {members[0] + 1}: cache", cache, "cold or warm", "correct the cell")
        recorded = family == "elementwise" and op.startswith(RECORDED_OPERATOR)
        if family == "elementwise" and op not in OPERATORS and not recorded:
            raise InputError(f"{rows.path}: row {members[0] + 1}: op", op, "one of " + ", ".join(OPERATORS), "correct the cell")
        stored = read_stored_types(named, f"{rows.path}: row {members[0] + 1}")
        if name not in gpus:
            gpus[name] = _find(rows, int(members[0]), name, find_gpu)
        refused = refused_dtype(dtype, gpus[name].name, gpus[name].compute_capability) if family in PRODUCTS else None
        refused = "no model knows what a recorded launch computes" if recorded else refused
        refused = f"no model knows operands of type {dtype}" if dtype in UNMODELLED_DTYPES else refused
        if refused is not None:
            log.warning("advisor: left out %s (first: row %d): %s", several(members.size, "row"), members[0] + 1, refused)
            left_out += members.size
            if left_out == len(rows):
                got, expected, remedy = dtype, "rows that can launch", "name another GPU or dtype"
                if recorded:
                    got, expected, remedy = op, "rows of known operators", "`advisor advise LAUNCHES.jsonl` reports on a record"
                raise NothingMatchedError(f"{rows.path}: {refused}", got, expected, remedy)
            continue
        known = [n for n in sizes_of(family, op, rows.columns) if n in SIZE_COLUMNS]
        configured = np.where(rows.has_configuration[members], 1 + _filled(family, rows, members), 0)
        for chosen in _alike(members, configured, routed[members]):
            sizes = {n: rows.columns[n][chosen].astype(np.float64) for n in known}
            if "B" in sizes:
                sizes["B"] = np.maximum(sizes["B"], 1)
            where = f"{rows.path}: row {chosen[0] + 1}"
            expert_rows, expert_count, least = _routings(rows, chosen, sizes) if routed[chosen[0]] else (None, None, None)
            problem = ProblemBatch(
                family=family,
                op=op,
                dtype=dtype,
                weight_dtype=stored.weight_dtype,
                output_dtype=stored.output_dtype,
                block_shape=stored.block_shape,
                sizes=sizes,
                cache=cache,
                expert_rows=expert_rows,
                expert_count=expert_count,
                least_used=least,
                **{name: named.get(name, "").strip() or None for name in WHOSE_COLUMNS},
            )
            configuration = None
            if rows.has_configuration[chosen[0]]:
                parameters = {
                    n: rows.columns[n][chosen].astype(np.float64)
                    for n in CONFIG_COLUMNS
                    if n in rows.columns and n not in LAUNCH_COLUMNS and (is_tiled(family, op) or n not in BLOCK_COLUMNS)
                }
                parameters |= _further(family, rows, chosen)
                for parameter, value in _parameters(named.get("parameters", ""), where).items():
                    parameters[parameter] = np.full(chosen.size, value)
                configuration = ConfigurationBatch(
                    parameters=parameters,
                    num_warps=rows.columns["num_warps"][chosen].astype(np.float64),
                    num_stages=rows.columns["num_stages"][chosen].astype(np.float64),
                )
            yield RowBatch(rows=chosen, gpu=gpus[name], problem=problem, configuration=configuration)


def _routed(rows: Rows) -> NDArray[np.bool_]:
    """Rows [n] with a routing of their own."""
    cells = rows.text.get("routing")
    if cells is None:
        return np.zeros(len(rows), dtype=bool)
    return (rows.family == "fused_moe") & np.array([cell.strip().lower() not in ("", "balanced", "uniform") for cell in cells], dtype=bool)


def _alike(members: NDArray[np.int64], configured: NDArray[np.int64], routed: NDArray[np.bool_]) -> Iterator[NDArray[np.int64]]:
    """Rows of one group that one batch can hold: `configured` with the same parameters.

    Uniform routings stay apart: they need two groups of experts, others one per load.
    """
    for same in np.unique(configured)[::-1]:
        mine = configured == same
        if (uniform := members[mine & ~routed]).size:
            yield uniform
        routed_members = members[mine & routed]
        for start in range(0, routed_members.size, ROUTINGS_PER_BATCH):
            yield routed_members[start : start + ROUTINGS_PER_BATCH]


def _routings(rows: Rows, chosen: NDArray[np.int64], sizes: dict[str, Array]) -> tuple[Array, Array, Array]:
    """The column `routing`, a name or loads scaled to the token slots of every row: rows and count of shape [n, g], and the experts that
    99 % of draws use at least, [n]."""
    slots = sizes["M"] * sizes["topk"]
    out, named = [], np.full(chosen.size, np.nan)
    columns = (chosen.tolist(), sizes["E"].tolist(), sizes["topk"].tolist(), slots.tolist())
    for i, (row, experts, topk, total) in enumerate(zip(*columns, strict=True)):
        given = Routing.read(rows.text["routing"][row], f"{rows.path}: row {row + 1}: routing", int(experts))
        if given.slots is not None:
            out.append(batch.histogram(given.slots, int(total)))
            continue
        named[i] = given.exponent
        out.append(token_draws.groups(total / topk, experts, topk, named[i]))
    stacked, count = batch.stack(out)
    least, drawn = count.sum(axis=1), np.isfinite(named)
    if drawn.any():
        tokens, experts, topk = (sizes[name][drawn] for name in ("M", "E", "topk"))
        least[drawn] = token_draws.loads(tokens, experts, topk, np.ones(tokens.size), named[drawn]).least_used
    return stacked, count, least


def _parameters(text: str, where: str) -> dict[str, float]:
    """The cell `parameters`: a JSON object of the kernel parameters that have no column; those that are numbers."""
    if not text.strip():
        return {}
    try:
        values = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InputError(f"{where}: parameters", text, "a JSON object", "correct the cell")
    return {name: float(value) for name, value in values.items() if isinstance(value, (int, float))}


def _find(rows: Rows, row: int, name: str, find_gpu: Callable[[str], GpuSpec]) -> GpuSpec:
    """The GPU of a row; an error names the row, where the name is the row's."""
    try:
        return find_gpu(FOLDERS_OF_GPUS.get(name, name))
    except UnknownGpuError as error:
        if name not in rows.text.get("gpu", ()):
            raise
        raise UnknownGpuError(f"{rows.path}: row {row + 1}: {error.what}", error.got, error.limit, error.remedy) from None


def _further(family: str, rows: Rows, chosen: NDArray[np.int64]) -> dict[str, Array]:
    """The parameters of a family that have columns of their own, as far as the rows, alike in this, fill them."""
    names = [name for name in FAMILY_PARAMETERS.get(family, {}) if name in rows.columns]
    return {name: values.astype(np.float64) for name in names if (values := rows.columns[name][chosen]).any()}


def _filled(family: str, rows: Rows, members: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which of those parameters each row fills, as a number, [n]: a kernel without ROWS_PER_CTA is another than one with a single row."""
    cells = [rows.columns[name][members] > 0 for name in FAMILY_PARAMETERS.get(family, {}) if name in rows.columns]
    return sum((filled.astype(np.int64) << i for i, filled in enumerate(cells)), np.zeros(members.size, dtype=np.int64))


def one_problem(batch: ProblemBatch, i: int) -> ProblemBatch:
    """Row i of a batch, as a batch of one."""
    return batch.take(np.array([i]))
