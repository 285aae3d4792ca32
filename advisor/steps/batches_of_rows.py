"""Rows of whole layers (of Triton and of library kernels) and of published operators, as batches of one GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.learned.layers import moe_layer
from advisor.learned.layers.layer_model import LayerModel
from advisor.learned.layers.moe_layer import BF16, FP8, FP8_BLOCK, MXFP4, Launched, Layers, layers_of, without_gate
from advisor.learned.library import moe_layers
from advisor.learned.library.moe_kernels import LibraryLayers
from advisor.learned.library.moe_layers import NAMES, SPELLED, MoeLayers
from advisor.learned.library.series_model import Predicted, number
from advisor.learned.operators.model import OperatorModel
from advisor.learned.operators.sparse import MODULES, Operators
from advisor.learned.operators.work import KIND_OF, KINDS, columns_of, further_words, timed_kernel
from advisor.pipelines import token_draws
from advisor.pipelines.columns import Array
from advisor.pipelines.from_rows import LAYER
from advisor.pipelines.token_draws import Loads
from advisor.rows.rows import PUBLISHED, Rows
from advisor.rows.silicon import GPUS as FOLDERS_OF_GPUS
from advisor.system.errors import InputError
from advisor.tables.entries import FIELDS, version_number
from advisor.tables.routing import Routing


def by_gpu(
    rows: Rows, members: NDArray[np.int64], find_gpu: Callable[[str], GpuSpec], gpu: str | None
) -> Iterator[tuple[NDArray[np.int64], GpuSpec]]:
    """Rows `members` [n] of a file by GPU, in the order in which these occur.

    Args:
        rows: What was read.
        members: Numbers of rows.
        find_gpu: A name of the column gpu to its description.
        gpu: GPU of every row, in place of the column.

    Raises:
        InputError: Neither says which GPU.
    """
    named = rows.text.get("gpu", ())
    if members.size and gpu is None and not named:
        raise InputError(f"{rows.path}: no column gpu", None, "a GPU for every row", "add the column gpu or device, or give --gpu NAME")
    names = [gpu or named[row] for row in members.tolist()]
    specs = {name: find_gpu(FOLDERS_OF_GPUS.get(name, name)) for name in dict.fromkeys(names)}
    of = np.array([specs[name].name for name in names])
    for spec in {item.name: item for item in specs.values()}.values():
        yield members[of == spec.name], spec


def cells(rows: Rows, chosen: NDArray[np.int64], name: str) -> list[str]:
    """The cells of a column in rows `chosen`, without blanks around them; empty where there is no such column."""
    column = rows.text.get(name)
    return [""] * chosen.size if column is None else [column[row].strip() for row in chosen.tolist()]


TRITON = ("triton", "fused_moe")
"""Parts of the names of the stacks' Triton kernels, which `layer_batches` knows."""

LIBRARIES_ALONE = frozenset({"nvfp4", "w4a8_mxfp4_mxfp8", "w4afp8", "int4_wo", "mxfp8", "w4a4_mxfp4"})
"""Formats of which no layer of Triton kernels was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryBatch:
    """Layers of one GPU by their numbers in the file, the series that answers for each, and whether their weights are cold, [n] each."""

    rows: NDArray[np.int64]
    gpu: GpuSpec
    model: LibraryLayers
    layers: MoeLayers
    which: NDArray[np.int64]
    cold: NDArray[np.bool_]


def library_layers(rows: Rows) -> NDArray[np.bool_]:
    """Which rows are layers of a library's kernels, [n]: named so, of TRT-LLM, or of a format that no Triton layer was measured of."""
    blank = ("",) * len(rows)
    cells = zip(*(rows.text.get(name, blank) for name in ("implementation", "stack", "dtype")), strict=True)
    launched_by_library = [_is_library(*(cell.strip().lower() for cell in item)) for item in cells]
    return np.array(launched_by_library, dtype=bool) & (rows.op == LAYER) & ~rows.has_configuration


def _is_library(kernel: str, stack: str, form: str) -> bool:
    if kernel:
        return not any(part in kernel for part in TRITON)
    return stack == "trtllm" or SPELLED.get(form, form) in LIBRARIES_ALONE


def library_batches(
    rows: Rows, find_model: Callable[[GpuSpec], LibraryLayers | None], find_gpu: Callable[[str], GpuSpec], gpu: str | None = None
) -> Iterator[LibraryBatch]:
    """The layers of a file that `library_layers` names, by GPU.

    Args:
        rows: What was read.
        find_model: A GPU to what was learned of libraries' layers on its vendor's GPUs.
        find_gpu: A name of the column gpu to its description.
        gpu: GPU of every row, in place of the column.

    Raises:
        InputError: A cell says nothing that can be.
    """
    members = np.flatnonzero(library_layers(rows))
    for chosen, spec in by_gpu(rows, members, find_gpu, gpu):
        model = find_model(spec)
        if model is None or not model.answers_for(spec):
            where, known = f"{rows.path}: row {chosen[0] + 1}: op", ", ".join(sorted(model.measured)) if model else "none"
            limit = f"library layers on GPUs of the kinds measured: {known}"
            raise InputError(where, f"layer on {spec.name}", limit, "leave the row out, or give its kernels: op = w13 and w2")
        yield _library_batch(rows, chosen, model, spec)


def _library_batch(rows: Rows, chosen: NDArray[np.int64], model: LibraryLayers, gpu: GpuSpec) -> LibraryBatch:
    def texts(name: str) -> list[str]:
        return [cell.lower() for cell in cells(rows, chosen, name)]

    def refuse(name: str, i: int, limit: str, remedy: str = "correct the cell") -> InputError:
        return InputError(f"{rows.path}: row {chosen[i] + 1}: {name}", rows.text[name][chosen[i]], limit, remedy)

    sizes = {name: rows.columns[name][chosen].astype(float) for name in ("M", "E", "topk", "H", "N")}
    forms = [SPELLED.get(item, item) for item in (cell.removeprefix("torch.") for cell in texts("dtype"))]
    scaled = texts("block_shape")
    forms = ["fp8_block" if form == "fp8" and block else form for form, block in zip(forms, scaled, strict=True)]
    for i, form in enumerate(forms):
        if form not in NAMES:
            raise refuse("dtype", i, f"one of {', '.join(NAMES)}", "of other formats no library layer was measured")
        if not model.says_of(form):
            listed = ", ".join(name for name in NAMES if model.says_of(name))
            raise refuse("dtype", i, f"one of {listed}", "leave the row out: models of other formats predict this one too poorly")
    for i, stack in enumerate(stacks := texts("stack")):
        if stack not in ("", *moe_layers.STACKS):
            raise refuse("stack", i, f"one of {', '.join(moe_layers.STACKS)}, or nothing")
    for i, ranks in enumerate(texts("ep")):
        if ranks not in ("", "1"):
            raise refuse("ep", i, "1", "library layers were measured on one rank: give the experts and tokens of one")
    specified = list(zip(texts("implementation"), stacks, texts("stack_version"), forms, strict=True))
    answers = {item: model.answering(*item, gpu) for item in dict.fromkeys(specified)}
    which = np.array([answers[item] for item in specified])
    series = [model.series[i] for i in which.tolist()]
    gated = texts("gated")
    by_model = moe_layers.ungated(
        sizes["H"],
        sizes["topk"],
        np.array([kernel or item.kernel for (kernel, *_), item in zip(specified, series, strict=True)]),
        np.array([stack or item.stack for (_, stack, *_), item in zip(specified, series, strict=True)]),
        np.array([number(version or item.version) for (*_, version, _), item in zip(specified, series, strict=True)]),
    )
    ungated = np.array([plain if not cell else cell in _FALSE for cell, plain in zip(gated, by_model.tolist(), strict=True)])
    routing = texts("routing")
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
    return LibraryBatch(
        rows=chosen, gpu=gpu, model=model, layers=layers, which=which, cold=np.array([cell == "cold" for cell in texts("cache")])
    )


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
    """Operators of one kind on one GPU by their numbers in the file, and the place of the series that answers for each, [n]; `unmeasured`:
    where it is of another kernel than the one named."""

    rows: NDArray[np.int64]
    gpu: GpuSpec
    model: OperatorModel
    operators: Operators
    which: NDArray[np.int64]
    unmeasured: NDArray[np.bool_]

    def predict(self) -> Predicted:
        """What the model says of them."""
        out = self.model.predict(self.operators, self.which, self.gpu)
        if self.unmeasured.any():
            some = np.flatnonzero(self.unmeasured)
            wider = self.model.predict_unmeasured(self.operators.take(some), self.which[some], self.gpu)
            out.low_us[some], out.high_us[some] = wider.low_us, wider.high_us
        return out


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
            yield _operator_batch(rows, of_gpu[kinds == kind], kind, _model(rows, of_gpu[kinds == kind], kind, models, spec), spec)


def _model(rows: Rows, chosen: NDArray[np.int64], kind: str, models: Mapping[str, OperatorModel], gpu: GpuSpec) -> OperatorModel:
    where, model = f"{rows.path}: row {chosen[0] + 1}", models.get(kind)
    if model is None:
        raise InputError(f"{where}: {kind} is not predicted", rows.op[chosen[0]], f"one of {', '.join(models)}", "leave the row out")
    if not model.answers_for(gpu):
        limit = f"GPUs of the kinds measured: {', '.join(sorted(model.measured))}"
        raise InputError(f"{where}: {kind}", gpu.name, limit, "leave the row out, or name one of these")
    return model


def _operator_batch(rows: Rows, chosen: NDArray[np.int64], kind: str, model: OperatorModel, gpu: GpuSpec) -> OperatorBatch:
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
    kernels = [timed_kernel(*row) for row in named]
    words_of = zip(*further, strict=True) if further else [()] * chosen.size
    keys = list(zip(rows.op[chosen].tolist(), stacks, versions, kernels, words_of, strict=True))
    places = {key: model.answering(*key, gpu) for key in dict.fromkeys(keys)}
    for i, key in enumerate(keys):
        known_kernels = sorted({item.kernel for item in model.series if item.operator == key[0]})
        if kind == "linear attention" and not any(key[3] and key[3] in kernel for kernel in known_kernels):
            limit = f"one of {', '.join(known_kernels)}"
            raise InputError(f"{rows.path}: row {chosen[i] + 1}: kernel_source", key[3], limit, "fill the cell")
        if places[key] is None:
            raise InputError(f"{rows.path}: row {chosen[i] + 1}: op_name", key[0], "an operator measured on such GPUs", "leave the row out")
    which = np.array([places[key] for key in keys], dtype=np.int64)
    about = numbers | words | {"op_name": rows.op[chosen].tolist(), "kernel_source": [model.series[i].kernel for i in which.tolist()]}
    operators = columns_of(kind, {name: np.asarray(values) for name, values in about.items()}, chosen.size)
    unmeasured = np.array([bool(key[3]) and key[3] not in model.series[i].kernel for key, i in zip(keys, which.tolist(), strict=True)])
    return OperatorBatch(rows=chosen, gpu=gpu, model=model, operators=operators, which=which, unmeasured=unmeasured)


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
                yield _triton_batch(rows, chosen, model, spec, configured)


def _triton_batch(rows: Rows, chosen: NDArray[np.int64], model: LayerModel, gpu: GpuSpec, configured: bool) -> LayerBatch:
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
    ungated = np.where(gated < 0, without_gate(sizes["H"], sizes["topk"], sglang, version), gated == 0)
    layers = layers_of(sizes, kind, sglang, given, routing, ranks=ranks, ungated=ungated)
    loads = token_draws.loads(layers.tokens, layers.experts, layers.topk, layers.ranks, layers.routing)
    if histogram.any():
        loads = _with_histograms(rows, chosen, histogram, layers, loads)
    configuration = {name: rows.columns[name][chosen].astype(float) for name in FIELDS} if configured else None
    cold = np.array([cell == "cold" for cell in cells(rows, chosen, "cache")])
    return LayerBatch(rows=chosen, launch=model.launched(layers, gpu, configuration, loads, moe_layer.here()), cold=cold)


def _with_histograms(rows: Rows, chosen: NDArray[np.int64], given: NDArray[np.bool_], layers: Layers, loads: Loads) -> Loads:
    """Loads with those that cells of the column `routing` give, blank-separated token slots per expert."""
    names = [field.name for field in fields(loads)]
    columns = {name: getattr(loads, name).copy() for name in names}
    for i in np.flatnonzero(given):
        where, cell = f"{rows.path}: row {chosen[i] + 1}: routing", rows.text["routing"][chosen[i]]
        slots = Routing.read(cell, where, int(layers.experts[i])).slots
        assert slots is not None  # a name is no histogram
        histogram = token_draws.of_histogram(slots[: int(layers.experts[i] / layers.ranks[i])], layers.tokens[i] * layers.topk[i])
        for name, value in zip(names, (*histogram[:4], histogram[4:]), strict=True):
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
