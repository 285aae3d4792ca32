"""What modules of sparse attention (DeepSeek-V3.2, GLM-5, DeepSeek-V4, MiniMax-M3) need of a GPU.

Launches of published operators, and what their stages are made of: microseconds at the peak of each pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.learned.machine import Chip, chip, missed_share
from advisor.pipelines import Array

TERMS = ("products", "dram", "l2", "chain")
"""What each stage has of each launch: microseconds at the GPU's peak; of a chain thousand clocks."""

HOST = "host"
"""A stage that is none of the GPU's: ten microseconds of the first of its terms where the host launches kernel by kernel."""

Stages = Mapping[str, tuple[Array, Array, Array, Array]]
Least = tuple[Array, Array]
"""Microseconds that the matrix units take at the least, and bytes that have to be moved."""


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


def together(parts: Sequence[Operators]) -> Operators:
    """The launches of all parts, which are of one kind."""
    sizes = {name: np.concatenate([part.sizes[name] for part in parts]) for name in parts[0].sizes}
    return Operators(
        kind=parts[0].kind, sizes=sizes, labels={name: np.concatenate([part.labels[name] for part in parts]) for name in parts[0].labels}
    )


class Kind(NamedTuple):
    """A kind of operators: its publisher's names of operators, columns of sizes (and what an absent one is), of words, its work, and the
    least that any kernel for it has to do."""

    operators: tuple[str, ...]
    sizes: Mapping[str, float]
    labels: tuple[str, ...]
    stages: Callable[[Operators, GpuSpec], Stages]
    least: Callable[[Operators, GpuSpec], Least]


def rate(figures: Chip) -> float:
    """FLOP per microsecond of the whole GPU."""
    return figures.rate * figures.sms * figures.clock


def stage(n: int, products: Array | float = 0.0, dram: Array | float = 0.0, l2: Array | float = 0.0, chain: Array | float = 0.0) -> tuple:
    """What a stage needs of each pipeline, [n] each."""
    return tuple(np.broadcast_to(np.asarray(product, dtype=np.float64), (n,)) for product in (products, dram, l2, chain))


def rounds(programs: Array) -> Array:
    """Rounds of programs over those that run at once, [n]: whole ones while they are few."""
    return np.where(programs < 6, np.ceil(programs), programs + 0.5)


def passes(bytes_moved: Array, figures: Chip, kept: Array | None = None) -> tuple[Array, Array]:
    """Microseconds of bytes in DRAM, as far as the L2 does not keep them, and in the L2."""
    missed = missed_share(bytes_moved if kept is None else kept, 0.8 * figures.l2_bytes)
    return bytes_moved / figures.dram * missed, bytes_moved / figures.l2_rate


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

OF_VLLM = "_of_vllm"
"""What ends our name of sparse attention that vLLM's rows call `default`, as TensorRT-LLM's do."""


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


def rates(labels: NDArray[np.str_], gpu: GpuSpec) -> Array:
    """FLOP per microsecond of operands of these formats, [n]: bf16's where the matrix units lack them."""
    of = {
        label: rate(chip(gpu, RATES[label] if label in RATES and gpu.supports(RATES[label]) else "bf16")) for label in set(labels.tolist())
    }
    return np.array([of[label] for label in labels.tolist()])


def sparse(rows: Operators, gpu: GpuSpec) -> Stages:
    """Projections, scores of the indexer, selection, and attention (dense where few keys are), with what a host adds."""
    a, n, plain, quick = _amounts(rows), len(rows), chip(gpu, "bf16"), chip(gpu, "fp8")
    tiles, busy = np.ceil(a.tokens / 128) * 128, np.minimum(a.tokens, plain.sms)
    weights, passing = a.matrices * a.weight, np.where(a.matrices > 0, a.tokens * (a.of["hidden"] * 4 + a.heads * 1500), 0)
    logits = a.logits + np.where(a.every > 0, a.every * 4, 0)
    missed = missed_share(weights + passing, 0.8 * plain.l2_bytes)
    return {
        "projections": stage(
            n,
            2 * tiles * a.matrices / rates(rows.labels["gemm_type"], gpu),
            weights / plain.dram * missed,
            (weights + passing) / plain.l2_rate,
        ),
        "scores": stage(
            n,
            2 * a.every * a.of["index_heads"] * a.of["index_dim"] / rate(quick),
            a.index / plain.dram * missed_share(a.index + weights, plain.l2_bytes),
            (a.index + logits) / plain.l2_rate,
            np.where(a.every > 0, a.keys / 128 / plain.clock * 10, 0),
        ),
        "selection": stage(
            n,
            0.0,
            a.logits / plain.dram * missed_share(a.logits, plain.l2_bytes),
            a.logits / plain.l2_rate,
            np.where(a.logits > 0, np.ceil(a.tokens / plain.sms) * (1 + a.keys / 1024) / plain.clock * 100, 0),
        ),
        "dense": stage(n, np.where(a.dense, 2 * a.attended * a.heads * a.of["least"] / rate(plain), 0)),
        HOST: stage(n, a.eager * 10),
        "attention": stage(
            n,
            np.where(a.dense, 0, 2 * a.attended * a.padded * (a.of["key"] + a.of["value"]) / rate(plain)),
            a.unique / plain.dram * missed_share(a.unique, plain.l2_bytes),
            a.read / plain.l2_rate,
            a.attended / busy / 64 / plain.clock * 10,
        ),
    }


def sparse_kernels(rows: Operators, gpu: GpuSpec) -> Stages:
    """`sparse` with selections as they are launched alone: a block for each query, which looks at its keys only where there are more than
    it chooses.

    SGLang's first kernel has a thread for each key that it chooses, 512 or 1,024, and takes the shared memory of a third of an SM; the
    others have 1,024. They look twice at all keys, and where their scores are the same four times more at as many as they store, 8,192.
    """
    a, s, figures, stages = _amounts(rows), rows.sizes, chip(gpu, "bf16"), dict(sparse(rows, gpu))
    alone, ratio = np.char.find(rows.labels["op_name"], "topk") >= 0, a.of["compressed"]
    threads = np.where(rows.labels["kernel_source"] == "topk_transform_v1", a.of["top"], 1024.0)
    queries = np.clip(s["step"] + s["isl"] + 1 - (a.of["top"] + 1) * ratio, 0, s["isl"])  # of a sequence, that see more than they choose
    keys, choosing = a.keys - queries / 2 / ratio, s["batch_size"] * queries
    looks = 2 * keys + np.where(np.char.endswith(rows.labels["score_mode"], "flat"), 4 * np.minimum(keys, 8192), 0)
    looked = np.ceil(choosing / figures.sms) * looks / 16 + np.ceil(a.tokens / figures.sms) * threads
    scores, chain = choosing * keys * 4, rounds(choosing / figures.sms / np.minimum(3, 2048 // threads)) * (40 + looks / threads) * 50
    missed = missed_share(scores, figures.l2_bytes)
    lone = stage(len(rows), looked / figures.clock, scores / figures.dram * missed, scores / figures.l2_rate)
    stages["selection"] = stage(len(rows), *(np.where(alone, *terms) for terms in zip(lone, stages["selection"], strict=True)))
    stages["rounds of selection"] = stage(len(rows), chain=np.where(alone, chain / figures.clock, 0.0))
    return stages


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


def sparse_prefill(rows: Operators, gpu: GpuSpec) -> Stages:
    """`sparse` with heads in the blocks of each kernel, with what kernels for few heads take as a stage of its own, and with the matrices
    and passes of heads apart from those that every rank holds."""
    a, stages, plain = _amounts(rows), dict(sparse(rows, gpu)), chip(gpu, "bf16")
    of_heads = a.heads * a.of["per_head"]
    # Queries are written, read and written again in the size of keys, outputs in that of values, 2 bytes each.
    weights, passing = of_heads * a.weight, a.tokens * a.heads * 6 * (a.of["key"] + a.of["value"])
    others, residual = (a.matrices - of_heads) * a.weight, a.tokens * a.of["hidden"] * 4
    missed = missed_share(weights + others + passing + residual, 0.8 * plain.l2_bytes)
    tiles, peak = np.ceil(a.tokens / 128) * 128, rates(rows.labels["gemm_type"], gpu)
    for name, matrices, moved in (
        ("projections", a.matrices - of_heads, others + residual),
        ("projections of heads", of_heads, weights + passing),
    ):
        stages[name] = stage(len(rows), 2 * tiles * matrices / peak, moved / plain.dram * missed, moved / plain.l2_rate)
    blocks, few = _head_blocks(rows, gpu)
    products, *moves = stages["attention"]
    terms = (products / a.padded * np.ceil(a.heads / blocks) * blocks, *moves)
    stages["attention"] = stage(len(rows), *(np.where(few, 0.0, term) for term in terms))
    stages["attention of few heads"] = stage(len(rows), *(np.where(few, term, 0.0) for term in terms))
    return stages


def least_sparse(rows: Operators, gpu: GpuSpec) -> Least:
    """What every implementation has to multiply and move."""
    a = _amounts(rows)
    flop = 2 * a.tokens * a.needed / rates(rows.labels["gemm_type"], gpu)
    flop += 2 * a.attended * a.heads * a.of["least"] / rates(rows.labels["kv_cache_dtype"], gpu)
    return flop, a.needed * a.weight + np.minimum(a.unique, a.shared)
