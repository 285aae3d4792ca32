"""Rows of a CSV file as batches the model can take: one per GPU, family, operator, types and cache state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from advisor.configs.rows import CONFIG_COLUMNS, SIZE_COLUMNS, Rows
from advisor.errors import InputError
from advisor.hardware import GpuSpec
from advisor.pipelines.batch import SIZES, ConfigurationBatch, ProblemBatch

LAUNCH_COLUMNS = ("num_warps", "num_stages")
CACHES = ("cold", "warm")


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
    optional = {"gemm": ("B",), "attention": ("causal",)}.get(family, ())
    return (*needed, *(name for name in optional if name in columns))


def batches(rows: Rows, find_gpu: Callable[[str], GpuSpec], gpu: str | None = None) -> Iterator[RowBatch]:
    """Split rows into batches.

    Args:
        rows: What was read.
        find_gpu: A name of the gpu column to its description (raises where there is none).
        gpu: GPU of every row, where the file has no such column.

    Raises:
        InputError: No GPU is named, or a cache state is unknown.
    """
    if "gpu" not in rows.header and gpu is None:
        raise InputError(f"{rows.path}: no column gpu", None, "a GPU for every row", "add the column, or give --gpu NAME")
    extra = [name for name in ("gpu", "cache") if name in rows.header]
    found: dict[str, GpuSpec] = {}
    for key, members in rows.groups(*extra).items():
        family, op, dtype = key[:3]
        named = dict(zip(extra, key[3:], strict=True))
        name = gpu or named.get("gpu", "")
        cache = named.get("cache", "") or "warm"
        if not name:
            raise InputError(f"{rows.path}: row {members[0] + 1}: gpu is empty", None, "a GPU's name", "fill it in")
        if cache not in CACHES:
            raise InputError(f"{rows.path}: row {members[0] + 1}: cache", cache, "cold or warm", "correct the cell")
        if name not in found:
            found[name] = find_gpu(name)
        known = [n for n in sizes_of(family, op, rows.columns) if n in SIZE_COLUMNS]
        configured = rows.has_configuration[members]
        for chosen in (members[configured], members[~configured]):
            if not chosen.size:
                continue
            sizes = {n: rows.columns[n][chosen].astype(np.float64) for n in known}
            if "B" in sizes:
                sizes["B"] = np.maximum(sizes["B"], 1)
            problem = ProblemBatch(family=family, op=op, dtype=dtype, sizes=sizes, cache=cache)
            configuration = None
            if rows.has_configuration[chosen[0]]:
                parameters = {
                    n: rows.columns[n][chosen].astype(np.float64)
                    for n in CONFIG_COLUMNS
                    if n in rows.columns and n not in LAUNCH_COLUMNS
                }
                configuration = ConfigurationBatch(
                    parameters=parameters,
                    num_warps=rows.columns["num_warps"][chosen].astype(np.float64),
                    num_stages=rows.columns["num_stages"][chosen].astype(np.float64),
                )
            yield RowBatch(rows=chosen, gpu=found[name], problem=problem, configuration=configuration)


def one_problem(batch: ProblemBatch, i: int) -> ProblemBatch:
    """Row i of a batch, as a batch of one."""
    return replace(batch, sizes={n: c[i : i + 1] if c.size > 1 else c for n, c in batch.sizes.items()})
