"""What the operators of a step take on a GPU: one call of the predictor for all of a kind.

Bounds and costs of layers of experts, and `Cost`: what any operator of a step costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec
from advisor.learned.analytical import written_by_hand
from advisor.learned.base import Predictor, tunable_ceiling
from advisor.learned.layers import layer_model, moe_layer
from advisor.learned.layers.layer_model import LayerModel
from advisor.learned.layers.layer_time import layer_time
from advisor.learned.layers.moe_layer import KINDS, WEIGHT_BYTES, Launched, layers_of
from advisor.learned.library.moe_kernels import bound_of_layers, library_of_layers
from advisor.learned.machine import chip
from advisor.learned.operators import model as operator_model
from advisor.learned.operators.work import KIND_OF, columns_of, further_words
from advisor.pipelines import batch, token_draws
from advisor.pipelines.batch import ProblemBatch
from advisor.pipelines.bound import LEAST_LAUNCH_US
from advisor.pipelines.columns import Array
from advisor.pipelines.schedule import least_sustained_us
from advisor.pipelines.token_draws import LOW_SIGMAS
from advisor.result.schema import PIPELINES, Latency
from advisor.steps.collectives import ENGINES
from advisor.steps.model_config import FOUR_BITS
from advisor.steps.operators import Operator
from advisor.system import grouped
from advisor.system.errors import UsageError
from advisor.tables.entries import version_number

STORED_BYTES = 2
"""Of what goes into a layer and comes out of it, in any kind."""

_BINDING = tuple(PIPELINES.index(name) for name in ("tensor", "dram", "l2"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBound:
    """Bounds in microseconds, of any configuration and of the one launched, and the places in `PIPELINES` of what binds, [n] each."""

    us: Array
    config_us: Array
    binding: NDArray[np.int64]


def layer_bound(launch: Launched, cold: NDArray[np.bool_]) -> LayerBound:
    """The bounds of layers; `cold` [n]: nothing is in the L2 when they begin."""
    layers, gpu, c = launch.layers, launch.gpu, launch.configuration
    slots = launch.slots - np.where(layers.ranks > 1, LOW_SIGMAS * np.sqrt(launch.slots), 0)
    # Where a power law gives fewer slots than there are experts, ties say which rank gets them: the fullest has its share at least.
    share = layers.tokens * layers.topk / layers.ranks
    few = (layers.ranks > 1) & (layers.routing > 0) & (share * layers.ranks <= layers.experts)
    slots = np.maximum(np.where(few, np.minimum(slots, share), slots), 1.0)
    used = np.where(few, np.minimum(launch.loads.least_used, np.maximum(share / layers.tokens, 1.0)), launch.loads.least_used)
    rate = launch.flop_per_clock * gpu.num_sms * gpu.max_clock_mhz
    tensor = 2 * slots * layers.hidden * (launch.width + layers.inner) / rate
    weights = used * (launch.width + layers.inner) * layers.hidden * WEIGHT_BYTES[layers.kind]
    read = weights + np.minimum(launch.kept, slots) * layers.hidden * STORED_BYTES
    written = np.minimum(launch.kept, slots) * layers.hidden * STORED_BYTES
    missed = np.where(cold, read + np.maximum(written - gpu.l2_bytes, 0), np.maximum(read + written - gpu.l2_bytes, 0))
    dram = missed / (gpu.dram_bytes_per_s * gpu.dram_achievable_fraction) * 1e6
    l2 = (read + written) / gpu.l2_bytes_per_s * 1e6
    times = np.stack([tensor, dram, l2])
    us = times.max(axis=0) + LEAST_LAUNCH_US
    blocks = np.maximum(launch.blocks * used / launch.used, slots / c["BLOCK_SIZE_M"])
    padded = [np.ceil(width / c["BLOCK_SIZE_N"]) * c["BLOCK_SIZE_N"] * depth for width, depth in _products(launch)]
    activation_us = 2 * blocks * c["BLOCK_SIZE_M"] * sum(padded) / rate + LEAST_LAUNCH_US
    return LayerBound(us=us, config_us=np.maximum(us, activation_us), binding=np.array(_BINDING)[times.argmax(axis=0)])


def _products(launch: Launched) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Columns and depth of w13 and w2."""
    layers = launch.layers
    return (launch.width, layers.hidden), (layers.hidden, layers.inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One launch, microseconds: predicted with its 80 % interval, the bound and the pipeline that sets it, the tunable ceiling, and what
    the best library kernel takes, with where that was measured; None where none was.

    A library kernel chooses its own configuration: its ceiling is the prediction, and it is not `tunable`. `parts` are the kernels of a
    layer, microseconds each; `source` says which measured kernel this is; `launched`: by a tuned `table` or by
    the engine's `default`, where a configuration was asked for.
    """

    us: float
    low_us: float
    high_us: float
    bound_us: float
    binding: str
    ceiling_us: float
    tunable: bool
    library_us: float | None = None
    library: str = ""
    source: str = ""
    parts: tuple[tuple[str, float], ...] = ()
    launched: str = ""


def costs_of_layers(launch: Launched, model: LayerModel, cold: bool) -> list[Cost]:
    """The cost of each layer; `cold`: nothing of it is in the L2 when it begins, as within a step."""
    bound, predicted, time = (
        layer_bound(launch, np.full(len(launch.layers), cold)),
        model.predict(launch, cold),
        layer_time(launch, model.constants, cold),
    )
    out = []
    for i in range(len(launch.layers)):
        us, least = max(float(predicted.us[i]), float(bound.us[i])), float(bound.us[i])
        pieces = {
            "w13": time.w13.total,
            "w2": time.w2.total,
            "activation": time.activation,
            "combine": time.combine,
            "quantisation": time.quantisation,
            "align and launches": time.align + time.floor,
        }
        whole = sum(float(np.broadcast_to(piece, predicted.us.shape)[i]) for piece in pieces.values())
        shares = tuple((name, us * float(np.broadcast_to(piece, predicted.us.shape)[i]) / whole) for name, piece in pieces.items())
        out.append(
            Cost(
                us=us,
                low_us=min(max(float(predicted.low_us[i]), least), us),
                high_us=max(float(predicted.high_us[i]), us),
                bound_us=least,
                binding=PIPELINES[int(bound.binding[i])],
                ceiling_us=min(max(float(predicted.ceiling_us[i]), least), us),
                tunable=True,
                parts=tuple(pair for pair in shares if pair[1] > 0),
            )
        )
    return out


CONSTANTS: dict[str, tuple[tuple[float, float, float, float], ...]] = {
    "decode": ((22.6, 0.67, 0.12, 0.147), (11.0, 0.85, 0.60, 0.51), (11.6, 0.65, 0.74, 0.14)),
    "prefill": ((10.9, 0.41, 0.058, 0.84), (11.4, 0.29, 0.15, 0.357), (12.6, 0.41, 0.45, 0.431)),
}
"""Microseconds at least, shares of the memory's and the matrix units' rates, and microseconds per doubling of the keys; for GPUs of
mma.sync (Triton's kernel), Hopper (FlashAttention 3) and Blackwell with tensor memory (TRT-LLM). Fitted to SGLang 0.5.14's rows of RTX PRO
6000, H100 and H200, and B200, B300 and GB200 in the tables of ai-dynamo/aiconfigurator (Apache-2.0): 11 to 15 % of the latency off in
decoding (Triton's 28), 13 to 21 in a prefill; vLLM's rows there are host time."""
SPREAD = 0.22
"""Half an 80 % interval of the log, by those errors."""
LEAST_HEADS = 16
"""Queries of fewer heads fill a tile of this many."""
Estimate = tuple[float, float, float, float, str]


def latency(op: str, sizes: Mapping[str, float], gpu: GpuSpec) -> Estimate:
    """Latency, both ends of its interval and bound in microseconds, and what binds.

    Args:
        op: `decode` or `prefill`.
        sizes: B sequences, H heads, M queries and N keys of each, `rank`, `rope`, `nope` and `value` as configurations name them.
        gpu: With 16-bit operands.
    """
    s = sizes
    key, pairs = s["rank"] + s["rope"], s["B"] * s["M"] * (s["N"] - (s["M"] - 1) / 2)
    if op == "decode":
        moved = 2 * s["B"] * (s["N"] * key + s["H"] * (key + s["rank"]))
        flop = 2 * pairs * max(s["H"], LEAST_HEADS) * (key + s["rank"])
    else:
        moved = 4 * s["B"] * s["M"] * s["H"] * (s["nope"] + s["rope"] + s["value"])
        flop = 2 * pairs * s["H"] * (s["nope"] + s["rope"] + s["value"])
    kind = 1 if gpu.architecture == "hopper" else 2 if chip(gpu, "bf16").tensor_memory else 0
    floor, memory_share, tensor_share, doubling = CONSTANTS[op][kind]
    memory, tensor = moved / gpu.dram_bytes_per_s * 1e6, flop / gpu.peak_tensor_flop_per_s("bf16") * 1e6
    us = floor + doubling * np.log2(max(s["N"], 1)) + np.cbrt((memory / memory_share) ** 3 + (tensor / tensor_share) ** 3)
    bound = max(memory if op == "decode" else 0.0, tensor if s["H"] >= LEAST_HEADS else 0.0, LEAST_LAUNCH_US)
    return float(us), float(us * np.exp(-SPREAD)), float(us * np.exp(SPREAD)), bound, "dram" if memory > tensor else "tensor"


def costs(
    operators: Sequence[Operator], gpu: GpuSpec, predictor: Predictor, engine: str, *, references: bool = True, version: str = ""
) -> list[Cost]:
    """The cost of each operator of a family, in their order, with the kernels that the engine takes, of a `version` or of its newest one;
    without `references` nothing is said of libraries, which takes most of the time.

    Raises:
        UsageError: The GPU has no unit for a type.
    """
    groups = grouped(
        ((operator.family, operator.op, operator.dtype, operator.block_shape, operator.cache, tuple(operator.sizes), operator.words), i)
        for i, operator in enumerate(operators)
    )
    by_operator: dict[int, Cost] = {}
    for members in groups.values():
        some = [operators[i] for i in members]
        ask = {"latent_attention": _latent, "published": _published}.get(some[0].family, _layers if some[0].op == "layer" else _group)
        priced = ask(some, gpu, predictor, engine, version)
        if references and ask is _group:
            priced = [_with_library(cost, item, gpu, predictor) for cost, item in zip(priced, some, strict=True)]
        for i, cost in zip(members, priced, strict=True):
            by_operator[i] = cost
    return [by_operator[i] for i in range(len(operators))]


def _problem(operators: list[Operator], engine: str, gpu: GpuSpec, version: str = "") -> ProblemBatch:
    """Operators that share all but their sizes, as one batch.

    Attention of SGLang on the A100 is told as vLLM's: FlashInfer runs there, which reads a large cache within 5 % of FlashAttention 2 (RTX
    PRO 6000), where the kernel that was measured within SGLang takes 1.4 times as long. Products of blocks on Blackwell with tensor memory
    are told as those with one scale: the engines take TRT-LLM's there, where those measured turn the weights' scales in every call (12 µs
    at least, 4 on H200).
    """
    first = operators[0]
    if first.family == "attention" and engine == "sglang" and gpu.compute_capability == "8.0":
        engine = "vllm"
    block = None if first.family == "gemm" and chip(gpu, "bf16").tensor_memory else first.block_shape
    stored = first.dtype in FOUR_BITS  # weights alone
    rows = count = least = None
    if first.family == "fused_moe":
        sizes = [tuple(float(operator.sizes[name]) for name in ("M", "E", "topk")) for operator in operators]
        rows, count = batch.stack([token_draws.groups(*size, token_draws.RANDOM) for size in sizes])
        least = np.array([token_draws.least_used(*size, token_draws.RANDOM) for size in sizes])
    return ProblemBatch(
        family=first.family,
        op=first.op,
        dtype="bf16" if stored else first.dtype,
        weight_dtype=first.dtype if stored else None,
        block_shape=block,
        cache=first.cache,
        stack=engine if engine in ENGINES else None,
        stack_version=version or None if engine in ENGINES else None,
        sizes={name: np.array([float(operator.sizes[name]) for operator in operators]) for name in first.sizes},
        expert_rows=rows,
        expert_count=count,
        least_used=least,
    )


def _with_library(cost: Cost, operator: Operator, gpu: GpuSpec, predictor: Predictor) -> Cost:
    """The cost with what the best library kernel takes; it is not slower than the kernel that is one."""
    library = predictor.library_reference(_problem([operator], "", gpu), gpu)
    if library is None:
        return cost
    return replace(cost, library_us=max(min(library.us, cost.us), cost.bound_us), library=library.source)


def _group(operators: list[Operator], gpu: GpuSpec, predictor: Predictor, engine: str, version: str = "") -> list[Cost]:
    first, problem = operators[0], _problem(operators, engine, gpu, version)
    work = pipelines.work(problem, gpu)
    bound = pipelines.bound(work, gpu, problem.cache)
    prediction = predictor.predict(problem, None, gpu)
    if gpu.vendor == "amd" and first.family == "fused_moe" and not prediction.learned.any():
        prediction = written_by_hand(prediction)
    us, low, high = (np.maximum(item, least_sustained_us(work, gpu)) for item in (prediction.us, prediction.low_us, prediction.high_us))
    tunable = first.family == "fused_moe" and first.op in ("w13", "w2")
    ceiling = tunable_ceiling(predictor.ceiling(problem, gpu), bound.us, us).us if tunable else us
    columns = np.broadcast_arrays(us, low, high, bound.us, ceiling)
    binding = np.broadcast_to(bound.binding, us.shape)
    return [
        Cost(us=u, low_us=lo, high_us=hi, bound_us=b, binding=PIPELINES[int(which)], ceiling_us=min(c, u), tunable=tunable)
        for (u, lo, hi, b, c), which in zip(np.stack(columns, axis=-1).tolist(), binding, strict=True)
    ]


def _latent(operators: list[Operator], gpu: GpuSpec, predictor: Predictor, engine: str, version: str = "") -> list[Cost]:
    costs_of = []
    for operator in operators:
        us, low, high, bound, binding = latency(operator.op, operator.sizes, gpu)
        least = min(bound, us)
        costs_of.append(Cost(us=us, low_us=low, high_us=high, bound_us=least, binding=binding, ceiling_us=us, tunable=False))
    return costs_of


def _published(operators: list[Operator], gpu: GpuSpec, predictor: Predictor, engine: str, version: str = "") -> list[Cost]:
    """Operators that were measured as published (`learned.operators`), of the engine where it was measured.

    Raises:
        UsageError: None of their kind was measured on such a GPU.
    """
    first = operators[0]
    kind, words = KIND_OF[first.op], dict(first.words)
    model = operator_model.load_shipped().get(kind)
    if model is None or not model.answers_for(gpu):
        limit = f"GPUs of the kinds measured: {', '.join(sorted(model.measured))}" if model else "weights that know it"
        raise UsageError(f"{first.name} ({kind}) is not predicted on {gpu.name}", gpu.name, limit, "name one of these")
    further = tuple(words.get(name, "") for name in further_words(kind))
    place = model.answering(first.op, engine, version, words.get("kernel_source", ""), further, gpu)
    if place is None:
        raise UsageError(f"{first.name} ({first.op}) was not measured on such GPUs", gpu.name, ", ".join(sorted(model.measured)), None)
    series = model.series[place]
    row_columns = words | {"op_name": first.op, "kernel_source": series.kernel} | dict(zip(further_words(kind), series.words, strict=True))
    cells = {name: np.array([operator.sizes[name] for operator in operators]) for name in first.sizes}
    cells |= {name: np.full(len(operators), text) for name, text in row_columns.items()}
    rows = columns_of(kind, cells, len(operators))
    predicted = model.predict(rows, np.full(len(operators), place), gpu)
    least, binding = operator_model.bound(rows, gpu, cold=first.cache == "cold")
    us = np.maximum(predicted.us, least)
    low, high = np.clip(predicted.low_us, least, us), np.maximum(predicted.high_us, us)
    columns = zip(us.tolist(), low.tolist(), high.tolist(), least.tolist(), binding.tolist(), strict=True)
    return [
        Cost(us=column, low_us=down, high_us=up, bound_us=bound, binding=which, ceiling_us=column, tunable=False, source=series.title)
        for column, down, up, bound, which in columns
    ]


def _layers(operators: list[Operator], gpu: GpuSpec, predictor: Predictor, engine: str, version: str = "") -> list[Cost]:
    """Mixture-of-experts layers of random routing, as the version of the engine launches them, or its newest."""
    model = layer_model.load(getattr(getattr(predictor, "weights", None), "silicon", {}))
    size = {name: np.array([float(operator.sizes[name]) for operator in operators]) for name in operators[0].sizes}
    sglang = engine == "sglang"
    layers = layers_of(
        size,
        KINDS.index(_kind(operators[0])),
        sglang,
        version_number(version),
        token_draws.RANDOM,
        ranks=size["ranks"],
        ungated=size["gated"] == 0,
    )
    other = takes_other_kernels(operators[0], gpu)
    shared = np.array([float(dict(operator.words).get("shared", 0)) for operator in operators])
    routed = token_draws.loads(layers.tokens, layers.experts - shared, layers.topk - shared, layers.ranks, layers.routing)
    loads = routed.with_shared(layers.tokens, shared)
    if model is None or gpu.vendor != "nvidia":
        priced = [_kernels_of(operator, gpu, predictor, engine) for operator in operators]
    elif other and operators[0].dtype == "fp8":
        priced = [replace(_kernels_of(operator, gpu, predictor, engine), tunable=False) for operator in operators]
    else:
        launch, default = model.launched(layers, gpu, None, loads, moe_layer.here()), moe_layer.launched(layers, gpu).configuration
        by_table = np.any([launch.configuration[name] != default[name] for name in default], axis=0).tolist()
        costs = costs_of_layers(launch, model, cold=True)
        priced = [replace(cost, launched="table" if whether else "default") for cost, whether in zip(costs, by_table, strict=True)]
    form = "nvfp4" if operators[0].dtype == "nvfp4" and gpu.supports("fp4") else ""
    if form:  # what is priced above has activations of 16 bits
        least = zip(*(column.tolist() for column in bound_of_layers(layers, loads, form, gpu)), strict=True)
        priced = [replace(cost, bound_us=us, binding=binding) for cost, (us, binding) in zip(priced, least, strict=True)]
    # Libraries were measured on one rank: what a rank holds is a layer of its experts, with as many of each token's choices.
    rank = replace(layers, experts=layers.experts / layers.ranks, topk=layers.topk / layers.ranks, ranks=np.ones(len(layers)))
    runs = other or operators[0].dtype in FOUR_BITS or gpu.vendor == "amd"
    triton_us = () if runs else [cost.us for cost in priced]
    libraries = library_of_layers(rank, loads, gpu, "sglang" if sglang else "vllm", cold=True, form=form, triton_us=triton_us)
    pairs = list(zip(priced, libraries, strict=True))
    if runs:
        return [_of_library(cost, library, other or gpu.vendor == "amd") for cost, library in pairs]
    return [_beside_library(cost, library) for cost, library in pairs]


def _beside_library(cost: Cost, library: Latency | None) -> Cost:
    """The cost of a layer that Triton's kernels run, with what the best library kernel takes, faster or not."""
    return cost if library is None else replace(cost, library_us=max(library.us, cost.bound_us), library=library.source)


def _of_library(cost: Cost, library: Latency | None, always: bool) -> Cost:
    """The cost of a layer by a library's kernel, where there is one that is faster or `always` runs; else as it is."""
    if library is None or (library.us >= cost.us and not always):
        return cost
    us, low, high = (max(item, cost.bound_us) for item in (library.us, library.low_us or library.us, library.high_us or library.us))
    return replace(cost, us=us, low_us=low, high_us=high, ceiling_us=us, tunable=False, source=library.source, parts=(), launched="")


def takes_other_kernels(operator: Operator, gpu: GpuSpec) -> bool:
    """Whether the engines launch no Triton kernels for a layer of experts: fp8 and weights of four bits on Blackwell with tensor memory are
    TRT-LLM's or CUTLASS's (vLLM's and SGLang's automatic choice); elsewhere weights of four bits are Triton's or, where faster, Marlin's.

    Of 16 served points of MiniMax-M2.5 and Qwen3.5-397B in fp8 on B200 and B300, the time per output token is 13.5 % off with layers of
    libraries, 25 with the sum of kernels near their bounds that stood for them before.
    """
    return operator.op == "layer" and operator.dtype in ("fp8", *FOUR_BITS) and chip(gpu, "fp8").tensor_memory


def _kind(operator: Operator) -> str:
    """How a layer's operands are stored, of `KINDS`."""
    if operator.dtype in FOUR_BITS:
        return "w4a16_mxfp4"
    if operator.dtype == "fp8":
        return "fp8_block" if operator.block_shape else "fp8"
    return "bf16"


def _kernels_of(operator: Operator, gpu: GpuSpec, predictor: Predictor, engine: str) -> Cost:
    """A layer as the sum of its kernels, where the weights know no layers."""
    sizes = {name: value / operator.sizes["ranks"] if name in ("E", "topk") else value for name, value in operator.sizes.items()}
    kernels = [
        replace(operator, op=op, sizes={name: sizes[name] for name in ("M", "E", "topk", "H", "N")}, cache=cache)
        for op, cache in (("w13", "cold"), ("activation", "warm"), ("w2", "cold"), ("combine", "warm"))
    ]
    priced = [(kernel.op, _group([kernel], gpu, predictor, engine)[0]) for kernel in kernels]
    total = {name: sum(getattr(cost, name) for _, cost in priced) for name in ("us", "low_us", "high_us", "bound_us", "ceiling_us")}
    return Cost(**total, binding=priced[0][1].binding, tunable=True, parts=tuple((op, cost.us) for op, cost in priced))
