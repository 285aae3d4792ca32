"""Rows with `op` = layer that library kernels launch: CUTLASS, FlashInfer, DeepGEMM, TRT-LLM, Marlin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.learned.library import moe_layers
from advisor.learned.library.moe_kernels import LibraryLayers
from advisor.learned.library.moe_layers import NAMES, SPELLED, STACKS, MoeLayers
from advisor.learned.library.series_model import number
from advisor.pipelines import token_draws
from advisor.pipelines.from_rows import LAYER
from advisor.rows import cells_by_gpu
from advisor.rows.cells_by_gpu import by_gpu
from advisor.rows.rows import Rows
from advisor.system.errors import InputError

TRITON = ("triton", "fused_moe")
"""Parts of the names of the stacks' Triton kernels, which `layer_rows` knows."""

LIBRARIES_ALONE = frozenset({"nvfp4", "w4a8_mxfp4_mxfp8", "w4afp8", "int4_wo"})
"""Formats of which no layer of Triton kernels was measured."""

_FALSE = ("0", "false", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryBatch:
    """Layers of one GPU by their numbers in the file, the series that answers for each, and whether their weights are cold, [n] each."""

    rows: NDArray[np.int64]
    gpu: GpuSpec
    layers: MoeLayers
    which: NDArray[np.int64]
    cold: NDArray[np.bool_]


def library_layers(rows: Rows) -> NDArray[np.bool_]:
    """Which rows are layers of a library's kernels, [n]: named so, of TRT-LLM, or of a format that no Triton layer was measured of."""
    blank = ("",) * len(rows)
    cells = zip(*(rows.text.get(name, blank) for name in ("implementation", "stack", "dtype")), strict=True)
    found = [_is_library(*(cell.strip().lower() for cell in each)) for each in cells]
    return np.array(found, dtype=bool) & (rows.op == LAYER) & ~rows.has_configuration


def _is_library(kernel: str, stack: str, form: str) -> bool:
    if kernel:
        return not any(part in kernel for part in TRITON)
    return stack == "trtllm" or SPELLED.get(form, form) in LIBRARIES_ALONE


def library_batches(rows: Rows, model: LibraryLayers, find_gpu: Callable[[str], GpuSpec], gpu: str | None = None) -> Iterator[LibraryBatch]:
    """The layers of a file that `library_layers` names, by GPU.

    Args:
        rows: What was read.
        model: Knows which series there are.
        find_gpu: A name of the column gpu to its description.
        gpu: GPU of every row, in place of the column.

    Raises:
        InputError: A cell says nothing that can be.
    """
    members = np.flatnonzero(library_layers(rows))
    for chosen, spec in by_gpu(rows, members, find_gpu, gpu):
        if not model.answers_for(spec):
            where, known = f"{rows.path}: row {chosen[0] + 1}: op", ", ".join(sorted(model.measured))
            limit = f"library layers on NVIDIA GPUs of the kinds measured: {known}"
            raise InputError(where, f"layer on {spec.name}", limit, "leave the row out, or give its kernels: op = w13 and w2")
        yield _batch(rows, chosen, model, spec)


def _batch(rows: Rows, chosen: NDArray[np.int64], model: LibraryLayers, gpu: GpuSpec) -> LibraryBatch:
    def cells(name: str) -> list[str]:
        return [cell.lower() for cell in cells_by_gpu.cells(rows, chosen, name)]

    def refuse(name: str, i: int, limit: str, remedy: str = "correct the cell") -> InputError:
        return InputError(f"{rows.path}: row {chosen[i] + 1}: {name}", rows.text[name][chosen[i]], limit, remedy)

    sizes = {name: rows.columns[name][chosen].astype(float) for name in ("M", "E", "topk", "H", "N")}
    forms = [SPELLED.get(each, each) for each in (cell.removeprefix("torch.") for cell in cells("dtype"))]
    scaled = cells("block_shape")
    forms = ["fp8_block" if form == "fp8" and block else form for form, block in zip(forms, scaled, strict=True)]
    for i, form in enumerate(forms):
        if form not in NAMES:
            raise refuse("dtype", i, f"one of {', '.join(NAMES)}", "of other formats no library layer was measured")
        if not model.says_of(form):
            said = ", ".join(name for name in NAMES if model.says_of(name))
            raise refuse("dtype", i, f"one of {said}", "leave the row out: models of this format are not known well enough from others")
    for i, stack in enumerate(stacks := cells("stack")):
        if stack not in ("", *STACKS):
            raise refuse("stack", i, f"one of {', '.join(STACKS)}, or nothing")
    for i, ranks in enumerate(cells("ep")):
        if ranks not in ("", "1"):
            raise refuse("ep", i, "1", "library layers were measured on one rank: give the experts and tokens of one")
    asked = list(zip(cells("implementation"), stacks, cells("stack_version"), forms, strict=True))
    answers = {each: model.answering(*each, gpu) for each in dict.fromkeys(asked)}
    which = np.array([answers[each] for each in asked])
    series = [model.series[i] for i in which.tolist()]
    gated = cells("gated")
    by_model = moe_layers.ungated(
        sizes["H"],
        sizes["topk"],
        np.array([kernel or each.kernel for (kernel, *_), each in zip(asked, series, strict=True)]),
        np.array([stack or each.stack for (_, stack, *_), each in zip(asked, series, strict=True)]),
        np.array([number(version or each.version) for (*_, version, _), each in zip(asked, series, strict=True)]),
    )
    ungated = np.array([plain if not cell else cell in _FALSE for cell, plain in zip(gated, by_model.tolist(), strict=True)])
    routing = cells("routing")
    where = f"{rows.path}: row {chosen[0] + 1}: routing"
    alpha = np.array([token_draws.exponent(cell, where) for cell in routing])
    loads = token_draws.loads(sizes["M"], sizes["E"], sizes["topk"], np.ones(chosen.size), alpha)
    layers = MoeLayers(
        tokens=sizes["M"],
        experts=sizes["E"],
        topk=sizes["topk"],
        hidden=sizes["H"],
        inner=sizes["N"],
        ungated=ungated,
        form=np.array([NAMES.index(form) for form in forms]),
        loads=loads,
        alpha=np.maximum(alpha, 0.0),
    )
    return LibraryBatch(rows=chosen, gpu=gpu, layers=layers, which=which, cold=np.array([cell == "cold" for cell in cells("cache")]))
