"""What published operators need of a GPU: linear attention (gated delta rule, KDA, Mamba2) kernel by kernel, sparse attention as whole
modules (DeepSeek-V3.2, GLM-5, DeepSeek-V4, MiniMax-M3), attention of encoders, MLA's batched products, hyper-connections.

Each is one to four stages, one after another. A stage is the slowest of its matrix products, of what it moves, and of its chain of steps
that wait for one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.learned.library.chip import Chip, chip, missed_share
from advisor.learned.library.series_model import numbers
from advisor.pipelines import Array

TERMS = ("products", "dram", "l2", "chain")
"""What each stage has of each launch: microseconds at the GPU's peak; of a chain thousand clocks."""

HOST = "host"
"""A stage that is none of the GPU's: ten microseconds of the first of its terms where the host launches kernel by kernel."""

Stages = Mapping[str, tuple[Array, Array, Array, Array]]
Least = tuple[Array, Array]
"""Microseconds that the matrix units take at the least, and bytes that have to be moved."""


class Module(NamedTuple):
    """Sizes of a sparse attention module. Of weights: those that every rank holds, those of each head it holds, and the indexer's. Of a
    key: values that a head multiplies with its query, that it adds up, that the cache holds, and the fewest that any way to compute it
    multiplies. Of the indexer: heads, size, keys chosen; `compressed` keys are one for it, and the last `window` are seen as they are."""

    hidden: int
    fixed: float
    per_head: float
    indexer: float
    key: int
    value: int
    cached: int
    least: int
    index_heads: int
    index_dim: int
    top: int
    compressed: int = 1
    window: int = 0


def _latent(hidden: int, query: int, nope: int, value: int, index_heads: int) -> Module:
    """DeepSeek sparse attention: MLA with 512 + 64 values of a key, an indexer of heads of 128, 2,048 keys."""
    per_head = query * (nope + 64) + 512 * (nope + value) + value * hidden
    indexer = index_heads * 128 * query + hidden * (128 + index_heads)
    return Module(hidden, hidden * (query + 576), per_head, indexer, 576, 512, 576, nope + 64 + value, index_heads, 128, 2048)


def _compressed(hidden: int, query: int, top: int) -> Module:
    """DeepSeek-V4: heads of 512 whose key is their value, outputs in groups of eight heads by way of 1,024 values."""
    per_head = query * 512 + 512 * 1024 + 1024 / 8 * hidden
    indexer = 64 * 128 * query + hidden * (2 * 128 + 64)
    return Module(hidden, hidden * (query + 3 * 512), per_head, indexer, 512, 512, 512, 1024, 64, 128, top, 4, 128)


MODULES = {
    "DeepseekV32ForCausalLM": _latent(7168, 1536, 128, 128, 64),
    "GlmMoeDsaForCausalLM": _latent(6144, 2048, 192, 256, 32),
    "MiniMaxM3ForCausalLM": Module(6144, 0, 6144 * 128 * (2 + 2 / 16), 6144 * 128 * 5, 128, 128, 256, 256, 4, 128, 2048),
    "DeepseekV4ForCausalLM": _compressed(7168, 1536, 1024),
    "DeepseekV4Flash": _compressed(4096, 1024, 512),
}
"""By `architecture`, and DeepSeek-V4-Flash by its name: config.json of deepseek-ai/DeepSeek-V3.2, zai-org/GLM-5, MiniMaxAI/MiniMax-M3,
deepseek-ai/DeepSeek-V4-Pro and -Flash."""

WEIGHT_BYTES = {"bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "fp8_e4m3": 1.0}
RATES = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4", "fp8_e4m3": "fp8"}
GRAPHS_UP_TO = 256
"""Sequences of the largest decode that SGLang captures as a CUDA graph by default (`cuda_graph_max_bs`)."""

OF_KEYS, SINCE_ALL_CHANNELS = "_of_keys", 514
"""What ends our names of convolutions that were timed over the channels of the keys alone, as the publisher's collectors for TensorRT-LLM
and for SGLang before 0.5.14 time them ("conv_channels = num_k_heads * head_k_dim"): 16 x 2,048 tokens take TensorRT-LLM 88 us on a B200
with 16, 32 and 64 value heads alike, vLLM 295, 392 and 585."""

OF_VLLM = "_of_vllm"
"""What ends our name of sparse attention that vLLM's rows call `default`, as TensorRT-LLM's do."""

CHUNK = 64
"""Tokens of a chunk of flash-linear-attention's kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """Launches of one kind: numbers (`sizes`) and words (`labels`) by the publisher's names of the columns, [n] each."""

    kind: str
    sizes: Mapping[str, Array]
    labels: Mapping[str, NDArray[np.str_]]

    def __len__(self) -> int:
        return next(iter(self.sizes.values())).size

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Operators:
        """Some of them."""
        return Operators(
            kind=self.kind,
            sizes={name: values[rows] for name, values in self.sizes.items()},
            labels={name: values[rows] for name, values in self.labels.items()},
        )


class Kind(NamedTuple):
    """A kind of operators: its publisher's names of operators, columns of sizes (and what an absent one is), of words, its work, and the
    least that any kernel for it has to do."""

    operators: tuple[str, ...]
    sizes: Mapping[str, float]
    labels: tuple[str, ...]
    stages: Callable[[Operators, GpuSpec], Stages]
    least: Callable[[Operators, GpuSpec], Least]


def _rate(figures: Chip) -> float:
    return figures.rate * figures.sms * figures.clock


def _stage(n: int, products: Array | float = 0.0, dram: Array | float = 0.0, l2: Array | float = 0.0, chain: Array | float = 0.0) -> tuple:
    return tuple(np.broadcast_to(np.asarray(product, dtype=np.float64), (n,)) for product in (products, dram, l2, chain))


def _moved(moved: Array, figures: Chip, kept: Array | None = None) -> tuple[Array, Array]:
    """Microseconds of bytes in DRAM, as far as the L2 does not keep them, and in the L2."""
    missed = missed_share(moved if kept is None else kept, 0.8 * figures.l2_bytes)
    return moved / figures.dram * missed, moved / figures.l2_rate


def timed_kernel(kernel: str, operator: str, stack: str, version: int) -> str:
    """Our name of a kernel in the publisher's rows: its own, but for convolutions over the keys' channels alone, and for those of sparse
    attention that share a name with another stack's."""
    if operator.startswith("dsa_context") and (kernel, stack) == ("default", "vllm"):
        return kernel + OF_VLLM
    of_keys = stack == "trtllm" or (stack == "sglang" and 0 < version < SINCE_ALL_CHANNELS)
    return kernel + OF_KEYS if operator == "gdn" and of_keys and kernel.startswith("causal_conv1d_") else kernel


def _channels(rows: Operators) -> Array:
    """Channels that a convolution passes over, [n]."""
    s, mamba = rows.sizes, rows.labels["op_name"] == "mamba2"
    keys = np.where(mamba, s["n_groups"] * s["d_state"], s["num_k_heads"] * s["head_k_dim"])
    values = np.where(mamba, s["nheads"] * s["head_dim"], s["num_v_heads"] * s["head_v_dim"])
    return np.where(np.char.endswith(rows.labels["kernel_source"], OF_KEYS), keys, 2 * keys + values)


def _linear(rows: Operators, gpu: GpuSpec) -> Stages:
    s, figures, n = rows.sizes, chip(gpu, "bf16"), len(rows)
    batch, length = s["batch_size"], s["seq_len"]
    mamba = rows.labels["op_name"] == "mamba2"
    depth = np.where(mamba, s["d_state"], s["head_k_dim"])
    heads, width = np.where(mamba, s["nheads"], s["num_v_heads"]), np.where(mamba, s["head_dim"], s["head_v_dim"])
    chunk = np.where(mamba, np.maximum(s["chunk_size"], 1), CHUNK)
    tokens = batch * length
    kernel = rows.labels["kernel_source"]
    conv, chunked = np.char.find(kernel, "conv1d") >= 0, (np.char.find(kernel, "chunk") >= 0) | (np.char.find(kernel, "flashkda") >= 0)
    channels = _channels(rows)
    values = tokens * channels * 2.0
    state = batch * heads * depth * width * 4.0
    written = np.where(conv | chunked, 1.0, length)
    moved = np.where(conv, 2 * values + batch * channels * 12, values + tokens * heads * width * 2 + state * (1 + written))
    moved = np.where(chunked, moved + tokens / chunk * heads * depth * width * 4 + values, moved)
    filled = np.ceil(length / chunk) * chunk * batch
    flop = np.where(chunked, filled * heads * (chunk * (6 * depth + 4 * width) + 6 * depth * width), tokens * heads * depth * width * 8)
    waves = np.maximum(np.ceil(batch * heads / figures.sms), 1)
    chain = np.where(chunked, np.ceil(length / chunk) * waves, np.where(conv, np.minimum(length, 64) / 16, length))
    products = np.where(conv, tokens * channels * 8 / 128 / figures.sms / figures.clock, flop / _rate(figures))
    blocks = np.where(chunked, batch * heads * np.ceil(length / chunk), batch * heads * width / 32 * length)
    blocks = np.where(conv, batch * channels / 16 * np.ceil(length / 1024), blocks)  # TRT-LLM's: one of each channel
    return {
        "kernel": _stage(n, products, *_moved(moved, figures), chain / figures.clock * 1000),
        "blocks": _stage(n, chain=blocks / figures.sms / figures.clock * 1000),
    }


def _least_linear(rows: Operators, gpu: GpuSpec) -> Least:
    s = rows.sizes
    mamba, conv = rows.labels["op_name"] == "mamba2", np.char.find(rows.labels["kernel_source"], "conv1d") >= 0
    depth = np.where(mamba, s["d_state"], s["head_k_dim"])
    heads, width = np.where(mamba, s["nheads"], s["num_v_heads"]), np.where(mamba, s["head_dim"], s["head_v_dim"])
    tokens, read = s["batch_size"] * s["seq_len"], _channels(rows)
    moved = tokens * (read + np.where(conv, read, heads * width)) * 2
    moved += np.where(conv, 0, s["batch_size"] * heads * depth * width * 2 * np.where(rows.labels["phase"] == "context", 1, 2))
    return np.where(conv, 0, 4 * tokens * heads * depth * width / _rate(chip(gpu, "bf16"))), moved


def _pairs(batch: Array, new: Array, past: Array, most: Array | float) -> Array:
    """Query and key pairs of causal attention in which a query sees `most` keys at most."""
    most = np.minimum(most, past + new)
    seen = np.maximum(np.minimum(most - past, new), 0.0)  # queries that see fewer
    return batch * (seen * past + seen * (seen + 1) / 2 + (new - seen) * most)


def modules(rows: Operators) -> list[Module]:
    """The sizes of each row's module."""
    named = zip(rows.labels["architecture"].tolist(), rows.labels["model"].tolist(), strict=True)
    return [MODULES["DeepseekV4Flash" if "V4-Flash" in model else name] for name, model in named]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sparse:
    """Amounts of sparse attention, [n] each; of parts that an operator lacks 0. Of the matrices `needed` is what no kernel does without, of
    the keys `shared`: all queries of a sequence may choose the same."""

    tokens: Array
    keys: Array
    matrices: Array
    needed: Array
    weight: Array
    every: Array
    attended: Array
    dense: NDArray[np.bool_]
    eager: Array
    read: Array
    unique: Array
    shared: Array
    index: Array
    logits: Array
    heads: Array
    padded: Array
    of: Mapping[str, Array]


def _amounts(rows: Operators) -> _Sparse:
    s = rows.sizes
    operator, form, cache = (rows.labels[name] for name in ("op_name", "gemm_type", "kv_cache_dtype"))
    listed = modules(rows)
    of = {f: np.array([getattr(item, f) for item in listed], dtype=np.float64) for f in Module._fields}
    hca, kernel = np.char.find(operator, "hca") >= 0, rows.labels["kernel_source"]
    skipped, generation = np.char.find(operator, "skip_indexer") >= 0, np.char.find(operator, "generation") >= 0
    batch, heads = s["batch_size"], s["num_heads"]
    past, new = s["step"], np.where(generation, 1.0, s["isl"])
    ratio = np.where(hca, 128.0, of["compressed"])
    every = _pairs(batch, new, past, np.inf) / ratio
    top = np.where(hca, np.inf, of["top"] * ratio)
    near = np.where(of["window"] > 0, _pairs(batch, new, past, of["window"]), 0.0)
    part = np.array([next((w for w in ("attn", "logits", "topk") if w in item), "") for item in operator.tolist()])
    keys = past + new
    blocks = ~generation & ((np.char.find(np.char.lower(kernel), "flashmla") >= 0) | (kernel == "dsa_nsa"))  # of 64 heads
    deepseek = rows.labels["architecture"] == "DeepseekV32ForCausalLM"
    few = keys <= of["top"]  # of which all are attended: whoever notices asks no indexer
    dense = (np.char.find(kernel, "dense") >= 0) | ((kernel == "dsa_nsa") & deepseek & few & ~generation)
    attended = np.where(dense, every, _pairs(batch, new, past, top) / ratio) + near
    whole, indexes = part == "", ~hca & ~skipped & ~dense
    grouped = rows.labels["architecture"] == "MiniMaxM3ForCausalLM"
    weight, width = (np.array([WEIGHT_BYTES.get(label, 2.0) for label in labels.tolist()]) for labels in (form, cache))
    held = of["cached"] * np.where(grouped, np.maximum(heads / 16, 1), 1) * width
    attends, scores, selects = whole | (part == "attn"), (whole & indexes) | (part == "logits"), (whole & indexes) | (part == "topk")
    return _Sparse(
        tokens=batch * new,
        keys=keys / ratio,
        matrices=np.where(whole, of["fixed"] + heads * of["per_head"] + np.where(indexes, of["indexer"], 0), 0),
        needed=np.where(whole, of["fixed"] + heads * of["per_head"] + np.where(indexes & ~few, of["indexer"], 0), 0),
        weight=weight,
        every=np.where(scores, every, 0),
        attended=np.where(attends, attended, 0),
        dense=dense,
        eager=np.where(generation, batch > GRAPHS_UP_TO, 1.0),
        read=np.where(attends, attended * held, 0),
        unique=np.where(attends, np.minimum(attended, batch * (keys / ratio + np.minimum(of["window"], keys))) * held, 0),
        shared=np.where(attends, batch * (np.where(dense, keys, np.minimum(keys, top)) / ratio + np.minimum(of["window"], keys)) * held, 0),
        index=np.where(scores, batch * keys / ratio * (of["index_dim"] + 4), 0),
        logits=np.where(selects, every * 4, 0),
        heads=heads,
        padded=np.where(blocks, np.ceil(heads / 64) * 64, np.maximum(heads, 16)),
        of=of,
    )


def _rates(labels: NDArray[np.str_], gpu: GpuSpec) -> Array:
    """FLOP per microsecond of operands of these formats, [n]: bf16's where the matrix units lack them."""
    of = {
        label: _rate(chip(gpu, RATES[label] if label in RATES and gpu.supports(RATES[label]) else "bf16")) for label in set(labels.tolist())
    }
    return np.array([of[label] for label in labels.tolist()])


def _sparse(rows: Operators, gpu: GpuSpec) -> Stages:
    a, n, plain, quick = _amounts(rows), len(rows), chip(gpu, "bf16"), chip(gpu, "fp8")
    tiles, busy = np.ceil(a.tokens / 128) * 128, np.minimum(a.tokens, plain.sms)
    weights, passing = a.matrices * a.weight, np.where(a.matrices > 0, a.tokens * (a.of["hidden"] * 4 + a.heads * 1500), 0)
    logits = a.logits + np.where(a.every > 0, a.every * 4, 0)
    missed = missed_share(weights + passing, 0.8 * plain.l2_bytes)
    return {
        "projections": _stage(
            n,
            2 * tiles * a.matrices / _rates(rows.labels["gemm_type"], gpu),
            weights / plain.dram * missed,
            (weights + passing) / plain.l2_rate,
        ),
        "scores": _stage(
            n,
            2 * a.every * a.of["index_heads"] * a.of["index_dim"] / _rate(quick),
            a.index / plain.dram * missed_share(a.index + weights, plain.l2_bytes),
            (a.index + logits) / plain.l2_rate,
            np.where(a.every > 0, a.keys / 128 / plain.clock * 10, 0),
        ),
        "selection": _stage(
            n,
            0.0,
            a.logits / plain.dram * missed_share(a.logits, plain.l2_bytes),
            a.logits / plain.l2_rate,
            np.where(a.logits > 0, np.ceil(a.tokens / plain.sms) * (1 + a.keys / 1024) / plain.clock * 100, 0),
        ),
        "dense": _stage(n, np.where(a.dense, 2 * a.attended * a.heads * a.of["least"] / _rate(plain), 0)),
        HOST: _stage(n, a.eager * 10),
        "attention": _stage(
            n,
            np.where(a.dense, 0, 2 * a.attended * a.padded * (a.of["key"] + a.of["value"]) / _rate(plain)),
            a.unique / plain.dram * missed_share(a.unique, plain.l2_bytes),
            a.read / plain.l2_rate,
            a.attended / busy / 64 / plain.clock * 10,
        ),
    }


def _head_blocks(rows: Operators, gpu: GpuSpec) -> tuple[Array, NDArray[np.bool_]]:
    """Heads that a prefill kernel takes at once, [n], and where it is the one that its stack keeps for few heads.

    FlashMLA pads heads to 64 on Hopper and to 128 on Blackwell: there one head takes as long as 64. Below 32 heads vLLM runs another kernel
    on Blackwell, and on Hopper with caches of 8 bits the one that also decodes: of 8,192 tokens of GLM-5, 16 heads take an H200 10.0 ms and
    32 take 7.6. FlashInfer has one for less than 64.
    """
    kernel, cache, heads = rows.labels["kernel_source"], rows.labels["kv_cache_dtype"], rows.sizes["num_heads"]
    blackwell, eight = chip(gpu, "bf16").tensor_memory, cache != "bfloat16"
    of_flashinfer, of_vllm = kernel == "FLASHINFER_MLA_SPARSE", np.char.endswith(kernel, OF_VLLM)
    padding = (np.char.find(np.char.lower(kernel), "flashmla") >= 0) | of_vllm
    few = np.where(of_flashinfer, heads < 64, (heads < 32) & (of_vllm | (kernel == "FLASHMLA_SPARSE")) & (blackwell | eight))
    if blackwell:
        blocks = np.where(padding, np.where(few, 16.0, 128.0), np.where(np.char.endswith(kernel, "_trtllm"), 64.0, 1.0))
        return np.where((kernel == "dsa_nsa") & ~eight, 128.0, blocks), few
    deepseek = rows.labels["architecture"] == "DeepseekV32ForCausalLM"
    return np.where(padding | (kernel == "default") | ((kernel == "dsa_nsa") & deepseek), 64.0, 1.0), few


def _sparse_prefill(rows: Operators, gpu: GpuSpec) -> Stages:
    """`_sparse` with heads in the blocks of each kernel, and with what kernels for few heads take as a stage of its own."""
    a, stages = _amounts(rows), dict(_sparse(rows, gpu))
    blocks, few = _head_blocks(rows, gpu)
    products, *others = stages["attention"]
    terms = (products / a.padded * np.ceil(a.heads / blocks) * blocks, *others)
    stages["attention"] = _stage(len(rows), *(np.where(few, 0.0, term) for term in terms))
    stages["attention of few heads"] = _stage(len(rows), *(np.where(few, term, 0.0) for term in terms))
    return stages


def _least_sparse(rows: Operators, gpu: GpuSpec) -> Least:
    a = _amounts(rows)
    flop = 2 * a.tokens * a.needed / _rates(rows.labels["gemm_type"], gpu)
    flop += 2 * a.attended * a.heads * a.of["least"] / _rates(rows.labels["kv_cache_dtype"], gpu)
    return flop, a.needed * a.weight + np.minimum(a.unique, a.shared)


def _encoder(rows: Operators, gpu: GpuSpec) -> Stages:
    s, figures = rows.sizes, chip(gpu, "bf16")
    batch, length, heads, depth = s["batch_size"], s["isl"], s["num_heads"], s["head_dim"]
    padded = np.where(depth <= 64, 64, np.where(depth <= 96, 96, 128))
    tiles = batch * heads * np.ceil(length / 128)
    waves = tiles / figures.sms
    waves = np.where(waves < 6, np.ceil(waves), waves + 0.5)
    steps = np.ceil(length / 128)
    products = waves * steps * 128 * 128 * 4 * padded / (figures.rate * figures.clock)
    exponentials = waves * steps * 128 * 128 / gpu.xu_op_per_clock_per_sm / figures.clock
    moved = 4 * batch * heads * length * depth * 2.0
    again = 2 * batch * heads * steps * length * depth * 2.0 / figures.l2_rate
    dram, l2 = _moved(moved, figures)
    n = len(rows)
    chain = np.maximum(np.ceil(tiles / figures.sms / 2), 1) * steps
    return {"attention": _stage(n, products, dram, l2 + again, chain / figures.clock * 1000), "exponentials": _stage(n, exponentials)}


def _least_encoder(rows: Operators, gpu: GpuSpec) -> Least:
    batch, length, heads, depth = (rows.sizes[name] for name in ("batch_size", "isl", "num_heads", "head_dim"))
    flop = 4 * batch * heads * length**2 * depth
    return flop / _rate(chip(gpu, "bf16")), 4 * batch * heads * length * depth * 2


def _mla(rows: Operators, gpu: GpuSpec) -> Stages:
    s, form = rows.sizes, rows.labels["bmm_dtype"]
    fp8 = form == "fp8"
    plain, quick = chip(gpu, "bf16"), chip(gpu, "fp8" if gpu.supports("fp8") else "bf16")
    tokens, heads = s["num_tokens"], s["num_heads"]
    after = rows.labels["op_name"] == "mla_gen_post"
    columns, depth = np.where(after, 128, 512), np.where(after, 512, 128)
    tiles = heads * np.ceil(tokens / 128) * columns / 128 / plain.sms
    waves = np.where(tiles < 6, np.ceil(tiles), tiles + 0.5)
    rate = np.where(fp8, quick.rate, plain.rate)
    small = np.minimum(np.ceil(tokens / 16) * 16, 128)
    products = waves * 2 * small * 128 * depth / (rate * plain.clock)
    weights = heads * 128 * 512 * np.where(fp8, 1.0, 2.0)
    moved = weights + tokens * heads * (depth * np.where(fp8, 3.0, 2.0) + columns * 2)
    return {"product": _stage(len(rows), products, *_moved(moved, plain), waves * depth / 64 / plain.clock * 100)}


def _least_mla(rows: Operators, gpu: GpuSpec) -> Least:
    tokens, heads = rows.sizes["num_tokens"], rows.sizes["num_heads"]
    width = np.where(rows.labels["bmm_dtype"] == "fp8", 1.0, 2.0)
    flop = 2 * tokens * heads * 128 * 512 / _rates(rows.labels["bmm_dtype"], gpu)
    return flop, heads * 128 * 512 * width + tokens * heads * (128 + 512) * width


def _connections(rows: Operators, gpu: GpuSpec) -> Stages:
    s, figures = rows.sizes, chip(gpu, "bf16")
    tokens, hidden, ways = s["num_tokens"], s["hidden_size"], s["hc_mult"]
    before = rows.labels["op_name"] == "mhc_pre"
    moved = tokens * hidden * 2 * np.where(before, ways + 1, 2 * ways + 1)
    weights = np.where(before, ways * hidden * (2 * ways + ways * ways) * 4.0, 0.0)
    flop = np.where(before, 2 * tokens * ways * hidden * (2 * ways + ways * ways), 2 * tokens * ways * ways * hidden)
    waves = np.ceil(tokens / 64 / figures.sms)
    return {
        "kernel": _stage(len(rows), flop / _rate(figures), *_moved(moved + weights, figures), waves * hidden / 64 / figures.clock * 100)
    }


def _least_connections(rows: Operators, gpu: GpuSpec) -> Least:
    tokens, hidden, ways = (rows.sizes[name] for name in ("num_tokens", "hidden_size", "hc_mult"))
    return np.zeros(len(rows)), tokens * hidden * 2 * (ways + 1)


_OF_SPARSE = {"batch_size": 1.0, "isl": 1.0, "step": 0.0, "num_heads": 1.0}
_WORDS_OF_SPARSE = ("architecture", "model", "gemm_type", "kv_cache_dtype")
KINDS: Mapping[str, Kind] = {
    "linear attention": Kind(
        ("gdn", "kda", "mamba2"),
        {
            **dict.fromkeys(("batch_size", "seq_len", "d_conv"), 1.0),
            **dict.fromkeys(("num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim"), 0.0),
            **dict.fromkeys(("nheads", "head_dim", "n_groups", "d_state", "chunk_size"), 0.0),
        },
        ("phase",),
        _linear,
        _least_linear,
    ),
    "DSA prefill": Kind(
        ("dsa_context_module", "dsa_context_module_skip_indexer"), _OF_SPARSE, _WORDS_OF_SPARSE, _sparse_prefill, _least_sparse
    ),
    "DSA decode": Kind(
        ("dsa_generation_module", "dsa_generation_module_skip_indexer"), _OF_SPARSE, _WORDS_OF_SPARSE, _sparse, _least_sparse
    ),
    "MSA prefill": Kind(("msa_context_module",), _OF_SPARSE, _WORDS_OF_SPARSE, _sparse, _least_sparse),
    "MSA decode": Kind(("msa_generation_module",), _OF_SPARSE, _WORDS_OF_SPARSE, _sparse, _least_sparse),
    "compressed attention prefill": Kind(
        ("dsv4_csa_context_module", "dsv4_hca_context_module"), _OF_SPARSE, _WORDS_OF_SPARSE, _sparse, _least_sparse
    ),
    "compressed attention decode": Kind(
        ("dsv4_csa_generation_module", "dsv4_hca_generation_module"), _OF_SPARSE, _WORDS_OF_SPARSE, _sparse, _least_sparse
    ),
    "sparse attention kernels": Kind(
        (
            "dsv4_hca_attn_module",
            "dsv4_flash_hca_attn_module",
            "dsv4_paged_mqa_logits_module",
            "dsv4_csa_topk_calib",
            "glm5_dsa_attn_module",
            "glm5_mqa_logits_module",
            "glm5_topk_module",
        ),
        _OF_SPARSE,
        (*_WORDS_OF_SPARSE, "score_mode"),
        _sparse,
        _least_sparse,
    ),
    "encoder attention": Kind(
        ("encoder_attention",), dict.fromkeys(("batch_size", "isl", "num_heads", "head_dim"), 1.0), (), _encoder, _least_encoder
    ),
    "MLA products": Kind(
        ("mla_gen_pre", "mla_gen_post"), dict.fromkeys(("num_tokens", "num_heads"), 1.0), ("bmm_dtype",), _mla, _least_mla
    ),
    "hyper-connections": Kind(
        ("mhc_pre", "mhc_post"), dict.fromkeys(("num_tokens", "hidden_size", "hc_mult"), 1.0), (), _connections, _least_connections
    ),
}
KIND_OF = {operator: name for name, kind in KINDS.items() for operator in kind.operators}
WORDS = ("op_name", "kernel_source")
"""Words that every kind has beside its own."""


def further_words(kind: str) -> tuple[str, ...]:
    """Words that tell series apart beside the kernel: formats and phases, not models."""
    return tuple(name for name in KINDS[kind].labels if name not in ("architecture", "model"))


def columns_of(kind: str, cells: Mapping[str, NDArray[Any]], count: int) -> Operators:
    """The columns that a kind reads; numbers that are absent or empty are what `Kind.sizes` says."""
    about = KINDS[kind]
    sizes = {}
    for name, absent in about.sizes.items():
        values = np.asarray(cells[name], dtype=np.float64) if name in cells else np.full(count, absent)
        sizes[name] = np.where(np.isfinite(values), values, absent)
    labels = {name: np.asarray(cells[name]).astype(str) if name in cells else np.full(count, "") for name in (*WORDS, *about.labels)}
    return Operators(kind=kind, sizes=sizes, labels=labels)


def model_of(rows: Operators) -> NDArray[np.int64]:
    """A number for what is left out together as a model: the ratio of heads of gated delta rules (models of one ratio launch the same
    kernels), the sizes of Mamba2, else the module, whatever its weights are stored as, and its heads, [n]."""
    s = rows.sizes
    if rows.kind == "linear attention":
        ratio = s["num_v_heads"] / np.maximum(s["num_k_heads"], 1)
        ratio = np.where(rows.labels["op_name"] == "kda", s["num_v_heads"], ratio)
        return numbers(ratio, s["nheads"], s["n_groups"], s["d_state"], s["chunk_size"], unit=64)
    names = [s[name] for name in ("num_heads", "head_dim", "hidden_size") if name in s]
    if "architecture" in rows.labels:
        known = list(MODULES.values())
        names.append(np.array([float(known.index(module)) for module in modules(rows)]))
    return numbers(*names, unit=64)
