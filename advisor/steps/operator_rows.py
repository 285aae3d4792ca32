"""Rows of published operators (`rows.columns.PUBLISHED_OPERATORS`): linear and sparse attention, encoders, MLA's products,
hyper-connections, by the publisher's own columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.learned.library.series_model import number
from advisor.learned.operators.model import OperatorModel
from advisor.learned.operators.work import KIND_OF, KINDS, MODULES, Operators, columns_of, further_words, timed_kernel
from advisor.rows.cells_by_gpu import by_gpu, cells
from advisor.rows.rows import PUBLISHED, Rows
from advisor.system.errors import InputError

NEEDED = {
    "linear attention": ("batch_size", "seq_len"),
    "encoder attention": ("batch_size", "isl", "num_heads", "head_dim"),
    "MLA products": ("num_tokens", "num_heads"),
    "hyper-connections": ("num_tokens", "hidden_size", "hc_mult"),
}
"""Columns of sizes without which a kind says nothing; sparse attention: batch, length and heads."""

OF_SPARSE = ("batch_size", "isl", "num_heads", "architecture")
PLAIN = {"gemm_type": "bfloat16", "kv_cache_dtype": "bfloat16", "bmm_dtype": "bfloat16"}
"""What empty cells of formats mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorBatch:
    """Operators of one kind on one GPU by their numbers in the file, and the place of the series that answers for each, [n]."""

    rows: NDArray[np.int64]
    gpu: GpuSpec
    model: OperatorModel
    operators: Operators
    which: NDArray[np.int64]


def has_operators(rows: Rows) -> bool:
    """Whether any row is a published operator."""
    return bool((rows.family == PUBLISHED).any())


def operator_batches(
    rows: Rows, models: Mapping[str, OperatorModel], find_gpu: Callable[[str], GpuSpec], gpu: str | None = None
) -> Iterator[OperatorBatch]:
    """The published operators of a file, by kind and GPU.

    Args:
        rows: What was read.
        models: Of each kind.
        find_gpu: A name of the column gpu to its description.
        gpu: GPU of every row, in place of the column.

    Raises:
        InputError: A cell says nothing that can be, or the kind or the GPU was not measured.
    """
    members = np.flatnonzero(rows.family == PUBLISHED)
    for of_gpu, spec in by_gpu(rows, members, find_gpu, gpu):
        kinds = np.array([KIND_OF[op] for op in rows.op[of_gpu].tolist()])
        for kind in dict.fromkeys(kinds.tolist()):
            yield _batch(rows, of_gpu[kinds == kind], kind, _model(rows, of_gpu[kinds == kind], kind, models, spec), spec)


def _model(rows: Rows, chosen: NDArray[np.int64], kind: str, models: Mapping[str, OperatorModel], gpu: GpuSpec) -> OperatorModel:
    where, model = f"{rows.path}: row {chosen[0] + 1}", models.get(kind)
    if model is None:
        raise InputError(f"{where}: {kind} is not predicted", rows.op[chosen[0]], f"one of {', '.join(models)}", "leave the row out")
    if not model.answers_for(gpu):
        limit = f"GPUs of the kinds measured: {', '.join(sorted(model.measured))}"
        raise InputError(f"{where}: {kind}", gpu.name, limit, "leave the row out, or name one of these")
    return model


def _batch(rows: Rows, chosen: NDArray[np.int64], kind: str, model: OperatorModel, gpu: GpuSpec) -> OperatorBatch:
    numbers = {name: _numbers(rows, chosen, name) for name in KINDS[kind].sizes if name in rows.text}
    needed = NEEDED.get(kind, OF_SPARSE)
    for name in needed:
        if name not in rows.text:
            raise InputError(f"{rows.path}: column {name} is missing", None, f"columns {', '.join(needed)} for {kind}", "add it")
    words = {name: [cell or PLAIN.get(name, "") for cell in cells(rows, chosen, name)] for name in KINDS[kind].labels}
    for i, architecture in enumerate(words.get("architecture", ())):
        if architecture not in MODULES:
            known = ", ".join(name for name in MODULES if name.endswith("CausalLM"))
            raise InputError(f"{rows.path}: row {chosen[i] + 1}: architecture", architecture, f"one of {known}", "correct the cell")
    if kind == "linear attention" and not {"num_v_heads", "nheads"} & rows.text.keys():
        wanted = "num_k_heads, head_k_dim, num_v_heads, head_v_dim, or nheads, head_dim, n_groups, d_state, chunk_size"
        raise InputError(f"{rows.path}: no heads", None, wanted, "add them")
    further = [words[name] for name in further_words(kind)]
    stacks, versions = [cell.lower() for cell in cells(rows, chosen, "stack")], cells(rows, chosen, "stack_version")
    named = zip(cells(rows, chosen, "implementation"), rows.op[chosen].tolist(), stacks, map(number, versions), strict=True)
    kernels = [timed_kernel(*each) for each in named]
    words_of = zip(*further, strict=True) if further else [()] * chosen.size
    keys = list(zip(rows.op[chosen].tolist(), stacks, versions, kernels, words_of, strict=True))
    places = {key: model.answering(*key, gpu) for key in dict.fromkeys(keys)}
    for i, key in enumerate(keys):
        if kind == "linear attention" and not key[3]:
            named_so = sorted({each.kernel for each in model.series if each.operator == key[0]})
            raise InputError(f"{rows.path}: row {chosen[i] + 1}: kernel_source", "", f"one of {', '.join(named_so)}", "fill the cell")
        if places[key] is None:
            raise InputError(f"{rows.path}: row {chosen[i] + 1}: op_name", key[0], "an operator measured on such GPUs", "leave the row out")
    which = np.array([places[key] for key in keys], dtype=np.int64)
    about = numbers | words | {"op_name": rows.op[chosen].tolist(), "kernel_source": [model.series[i].kernel for i in which.tolist()]}
    operators = columns_of(kind, {name: np.asarray(values) for name, values in about.items()}, chosen.size)
    return OperatorBatch(rows=chosen, gpu=gpu, model=model, operators=operators, which=which)


def _numbers(rows: Rows, chosen: NDArray[np.int64], name: str) -> NDArray[np.float64]:
    """A column of sizes; NaN where a cell is empty."""
    out = np.full(chosen.size, np.nan)
    for i, cell in enumerate(cells(rows, chosen, name)):
        if not cell:
            continue
        try:
            out[i] = float(cell)
        except ValueError:
            out[i] = -1
        if not 0 <= out[i] < 2**53:
            raise InputError(
                f"{rows.path}: row {chosen[i] + 1}: {name}", rows.text[name][chosen[i]], "a number, 0 or more", "correct the cell"
            )
    return out
