"""Rows with `op` = layer: whole mixture-of-experts layers of the stacks' Triton kernels, as batches of one GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.learned.layers import tuned_tables
from advisor.learned.layers.layer_model import LayerModel
from advisor.learned.layers.moe_layer import BF16, FP8, FP8_BLOCK, MXFP4, Launched, Layers, version_number, without_gate
from advisor.pipelines import token_draws
from advisor.pipelines.columns import Array
from advisor.pipelines.from_rows import LAYER
from advisor.pipelines.token_draws import Loads
from advisor.rows.cells_by_gpu import by_gpu, cells
from advisor.rows.rows import Rows
from advisor.steps.library_rows import library_layers
from advisor.system.errors import InputError
from advisor.tables.entries import FIELDS
from advisor.tables.routing import Routing

STACKS = ("vllm", "sglang")
_FALSE = ("0", "false", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBatch:
    """Layers of one GPU, by their numbers in the file; `cold`: where the column `cache` says so."""

    rows: NDArray[np.int64]
    launch: Launched
    cold: NDArray[np.bool_]


def has_layers(rows: Rows) -> bool:
    """Whether any row is a layer of the stacks' Triton kernels."""
    return bool(((rows.op == LAYER) & ~library_layers(rows)).any())


def layer_batches(rows: Rows, model: LayerModel, find_gpu: Callable[[str], GpuSpec], gpu: str | None = None) -> Iterator[LayerBatch]:
    """The layers of a file, with the configuration given or else what their stack and version launch.

    Args:
        rows: What was read.
        model: Knows what stacks launch, and which version of them is the newest measured on a GPU.
        find_gpu: A name of the column gpu to its description.
        gpu: GPU of every row, in place of the column.

    Raises:
        InputError: A cell says nothing that can be.
    """
    members = np.flatnonzero((rows.op == LAYER) & ~library_layers(rows))
    for of_gpu, spec in by_gpu(rows, members, find_gpu, gpu):
        if spec.vendor != "nvidia":
            where = f"{rows.path}: row {of_gpu[0] + 1}: op"
            limit = "layers on NVIDIA GPUs, as those measured"
            raise InputError(where, f"layer on {spec.name}", limit, "give its kernels: op = w13 and w2")
        for configured in (False, True):
            chosen = of_gpu[rows.has_configuration[of_gpu] == configured]
            if chosen.size:
                yield _batch(rows, chosen, model, spec, configured)


def _batch(rows: Rows, chosen: NDArray[np.int64], model: LayerModel, gpu: GpuSpec, configured: bool) -> LayerBatch:
    def mapped(name: str, read: Callable[[str, str], float]) -> Array:
        seen: dict[str, float] = {}
        for row, cell in zip(chosen.tolist(), values := cells(rows, chosen, name), strict=True):
            if cell not in seen:
                seen[cell] = read(cell, f"{rows.path}: row {row + 1}: {name}")
        return np.array([seen[cell] for cell in values])

    sizes = {name: rows.columns[name][chosen].astype(float) for name in ("M", "E", "topk", "H", "N")}
    stack = mapped("stack", _stack)
    newest = {place: model.newest(gpu.name, bool(place)) for place in (0, 1)}
    if (stack < 0).any():  # absent: the stack whose newest version was measured there, vLLM where both were
        stack = np.where(stack < 0, 0, stack)
    given = mapped("stack_version", lambda cell, _: float(version_number(cell)))
    version = np.where(given > 0, given, np.where(stack == 1, newest[1], newest[0]))
    ranks = mapped("ep", _ranks)
    scaled = [bool(block) for block in cells(rows, chosen, "block_shape")]
    kind = mapped("dtype", _kind).astype(np.int64)
    kind = np.where((kind == FP8) & np.array(scaled), FP8_BLOCK, kind)
    histogram = np.array([cell[:1] in "[0123456789" and bool(cell) for cell in cells(rows, chosen, "routing")])
    routing = mapped("routing", token_draws.exponent)
    uneven = sizes["E"] % ranks != 0
    if uneven.any():
        row = int(chosen[np.argmax(uneven)])
        raise InputError(f"{rows.path}: row {row + 1}: ep", rows.text["ep"][row], "a divisor of E", "correct the cell")
    sglang = stack == 1
    gated = mapped("gated", lambda cell, _: -1.0 if not cell else float(cell.lower() not in _FALSE))
    layers = Layers(
        tokens=sizes["M"],
        experts=sizes["E"],
        topk=sizes["topk"],
        hidden=sizes["H"],
        inner=sizes["N"],
        ranks=ranks,
        kind=kind,
        sglang=sglang,
        version=version,
        ungated=np.where(gated < 0, without_gate(sizes["H"], sizes["topk"], sglang, version), gated == 0),
        routing=routing,
    )
    loads = token_draws.loads(layers.tokens, layers.experts, layers.topk, layers.ranks, layers.routing)
    if histogram.any():
        loads = _with_histograms(rows, chosen, histogram, layers, loads)
    configuration = {name: rows.columns[name][chosen].astype(float) for name in FIELDS} if configured else None
    cold = np.array([cell == "cold" for cell in cells(rows, chosen, "cache")])
    return LayerBatch(rows=chosen, launch=model.launched(layers, gpu, configuration, loads, tuned_tables.here()), cold=cold)


def _with_histograms(rows: Rows, chosen: NDArray[np.int64], given: NDArray[np.bool_], layers: Layers, loads: Loads) -> Loads:
    """Loads with those that cells of the column `routing` give, blank-separated token slots per expert."""
    names = [field.name for field in fields(loads)]
    columns = {name: getattr(loads, name).copy() for name in names}
    for i in np.flatnonzero(given):
        where, cell = f"{rows.path}: row {chosen[i] + 1}: routing", rows.text["routing"][chosen[i]]
        slots = Routing.read(cell, where, int(layers.experts[i])).slots
        assert slots is not None  # a name is no histogram
        found = token_draws.of_histogram(slots[: int(layers.experts[i] / layers.ranks[i])], layers.tokens[i] * layers.topk[i])
        for name, value in zip(names, (*found[:4], found[4:]), strict=True):
            columns[name][i] = value
    return Loads(**columns)


def _stack(cell: str, where: str) -> float:
    name = cell.lower()
    if name and name not in STACKS:
        raise InputError(where, cell, f"one of {', '.join(STACKS)}, or nothing", "correct the cell")
    return float(STACKS.index(name)) if name else -1.0


def _ranks(cell: str, where: str) -> float:
    if cell and not (cell.isdigit() and 0 < int(cell) <= 4096):
        raise InputError(where, cell, "expert-parallel ranks: an integer from 1", "correct the cell")
    return float(cell or 1)


def _kind(cell: str, where: str) -> float:
    name = cell.lower().removeprefix("torch.")
    kinds = {"fp8_block": FP8_BLOCK, "w4a16_mxfp4": MXFP4, "mxfp4": MXFP4}
    if name in kinds:
        return kinds[name]
    if name in ("", "bf16", "bfloat16", "fp16", "float16", "half"):
        return BF16
    if name.startswith(("fp8", "e4m3", "float8")):
        return FP8
    raise InputError(where, cell, "bf16, fp16, fp8, fp8_block or w4a16_mxfp4", "of other types no layer was measured")
