"""What published operators need of a GPU: linear attention (gated delta rule, KDA, Mamba2) kernel by kernel, sparse attention as whole
modules (DeepSeek-V3.2, GLM-5, DeepSeek-V4, MiniMax-M3), attention of encoders, MLA's batched products, hyper-connections.

Each is one to four stages, one after another. A stage is the slowest of its matrix products, of what it moves, and of its chain of steps
that wait for one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.learned.library.series_model import numbers
from advisor.learned.machine import chip
from advisor.learned.operators.sparse import (
    MODULES,
    OF_VLLM,
    Kind,
    Least,
    Operators,
    Stages,
    least_sparse,
    modules,
    passes,
    rate,
    rates,
    rounds,
    sparse,
    sparse_kernels,
    sparse_prefill,
    stage,
)
from advisor.pipelines import Array

OF_KEYS, SINCE_ALL_CHANNELS = "_of_keys", 514
"""What ends our names of convolutions that were timed over the channels of the keys alone, as the publisher's collectors for TensorRT-LLM
and for SGLang before 0.5.14 time them ("conv_channels = num_k_heads * head_k_dim"): 16 x 2,048 tokens take TensorRT-LLM 88 us on a B200
with 16, 32 and 64 value heads alike, vLLM 295, 392 and 585."""

CHUNK = 64
"""Tokens of a chunk of flash-linear-attention's kernels."""


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
    products = np.where(conv, tokens * channels * 8 / 128 / figures.sms / figures.clock, flop / rate(figures))
    blocks = np.where(chunked, batch * heads * np.ceil(length / chunk), batch * heads * width / 32 * length)
    blocks = np.where(conv, batch * channels / 16 * np.ceil(length / 1024), blocks)  # TRT-LLM's: one of each channel
    return {
        "kernel": stage(n, products, *passes(moved, figures), chain / figures.clock * 1000),
        "blocks": stage(n, chain=blocks / figures.sms / figures.clock * 1000),
    }


def _least_linear(rows: Operators, gpu: GpuSpec) -> Least:
    s = rows.sizes
    mamba, conv = rows.labels["op_name"] == "mamba2", np.char.find(rows.labels["kernel_source"], "conv1d") >= 0
    depth = np.where(mamba, s["d_state"], s["head_k_dim"])
    heads, width = np.where(mamba, s["nheads"], s["num_v_heads"]), np.where(mamba, s["head_dim"], s["head_v_dim"])
    tokens, read = s["batch_size"] * s["seq_len"], _channels(rows)
    moved = tokens * (read + np.where(conv, read, heads * width)) * 2
    moved += np.where(conv, 0, s["batch_size"] * heads * depth * width * 2 * np.where(rows.labels["phase"] == "context", 1, 2))
    return np.where(conv, 0, 4 * tokens * heads * depth * width / rate(chip(gpu, "bf16"))), moved


def _encoder(rows: Operators, gpu: GpuSpec) -> Stages:
    s, figures = rows.sizes, chip(gpu, "bf16")
    batch, length, heads, depth = s["batch_size"], s["isl"], s["num_heads"], s["head_dim"]
    padded = np.where(depth <= 64, 64, np.where(depth <= 96, 96, 128))
    tiles = batch * heads * np.ceil(length / 128)
    waves = rounds(tiles / figures.sms)
    steps = np.ceil(length / 128)
    products = waves * steps * 128 * 128 * 4 * padded / (figures.rate * figures.clock)
    exponentials = waves * steps * 128 * 128 / gpu.xu_op_per_clock_per_sm / figures.clock
    moved = 4 * batch * heads * length * depth * 2.0
    again = 2 * batch * heads * steps * length * depth * 2.0 / figures.l2_rate
    dram, l2 = passes(moved, figures)
    n = len(rows)
    chain = np.maximum(np.ceil(tiles / figures.sms / 2), 1) * steps
    return {"attention": stage(n, products, dram, l2 + again, chain / figures.clock * 1000), "exponentials": stage(n, exponentials)}


def _least_encoder(rows: Operators, gpu: GpuSpec) -> Least:
    batch, length, heads, depth = (rows.sizes[name] for name in ("batch_size", "isl", "num_heads", "head_dim"))
    flop = 4 * batch * heads * length**2 * depth
    return flop / rate(chip(gpu, "bf16")), 4 * batch * heads * length * depth * 2


def _mla(rows: Operators, gpu: GpuSpec) -> Stages:
    s, form = rows.sizes, rows.labels["bmm_dtype"]
    fp8 = form == "fp8"
    plain, quick = chip(gpu, "bf16"), chip(gpu, "fp8" if gpu.supports("fp8") else "bf16")
    tokens, heads = s["num_tokens"], s["num_heads"]
    after = rows.labels["op_name"] == "mla_gen_post"
    columns, depth = np.where(after, 128, 512), np.where(after, 512, 128)
    waves = rounds(heads * np.ceil(tokens / 128) * columns / 128 / plain.sms)
    rate = np.where(fp8, quick.rate, plain.rate)
    small = np.minimum(np.ceil(tokens / 16) * 16, 128)
    products = waves * 2 * small * 128 * depth / (rate * plain.clock)
    weights = heads * 128 * 512 * np.where(fp8, 1.0, 2.0)
    moved = weights + tokens * heads * (depth * np.where(fp8, 3.0, 2.0) + columns * 2)
    return {"product": stage(len(rows), products, *passes(moved, plain), waves * depth / 64 / plain.clock * 100)}


def _least_mla(rows: Operators, gpu: GpuSpec) -> Least:
    tokens, heads = rows.sizes["num_tokens"], rows.sizes["num_heads"]
    width = np.where(rows.labels["bmm_dtype"] == "fp8", 1.0, 2.0)
    flop = 2 * tokens * heads * 128 * 512 / rates(rows.labels["bmm_dtype"], gpu)
    return flop, heads * 128 * 512 * width + tokens * heads * (128 + 512) * width


def _connections(rows: Operators, gpu: GpuSpec) -> Stages:
    s, figures = rows.sizes, chip(gpu, "bf16")
    tokens, hidden, ways = s["num_tokens"], s["hidden_size"], s["hc_mult"]
    before = rows.labels["op_name"] == "mhc_pre"
    moved = tokens * hidden * 2 * np.where(before, ways + 1, 2 * ways + 1)
    weights = np.where(before, ways * hidden * (2 * ways + ways * ways) * 4.0, 0.0)
    flop = np.where(before, 2 * tokens * ways * hidden * (2 * ways + ways * ways), 2 * tokens * ways * ways * hidden)
    waves = np.ceil(tokens / 64 / figures.sms)
    return {"kernel": stage(len(rows), flop / rate(figures), *passes(moved + weights, figures), waves * hidden / 64 / figures.clock * 100)}


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
        ("dsa_context_module", "dsa_context_module_skip_indexer"), _OF_SPARSE, _WORDS_OF_SPARSE, sparse_prefill, least_sparse
    ),
    "DSA decode": Kind(("dsa_generation_module", "dsa_generation_module_skip_indexer"), _OF_SPARSE, _WORDS_OF_SPARSE, sparse, least_sparse),
    "MSA prefill": Kind(("msa_context_module",), _OF_SPARSE, _WORDS_OF_SPARSE, sparse, least_sparse),
    "MSA decode": Kind(("msa_generation_module",), _OF_SPARSE, _WORDS_OF_SPARSE, sparse, least_sparse),
    "compressed attention prefill": Kind(
        ("dsv4_csa_context_module", "dsv4_hca_context_module"), _OF_SPARSE, _WORDS_OF_SPARSE, sparse, least_sparse
    ),
    "compressed attention decode": Kind(
        ("dsv4_csa_generation_module", "dsv4_hca_generation_module"), _OF_SPARSE, _WORDS_OF_SPARSE, sparse, least_sparse
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
        sparse_kernels,
        least_sparse,
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
    numbers_of = {name: np.asarray(cells.get(name, np.nan), dtype=np.float64) for name in about.sizes}
    sizes = {name: np.where(np.isfinite(values), values, np.full(count, about.sizes[name])) for name, values in numbers_of.items()}
    labels = {name: np.asarray(cells[name]).astype(str) if name in cells else np.full(count, "") for name in (*WORDS, *about.labels)}
    if kind == "sparse attention kernels":  # of which attention alone has heads: else they would only tell models apart
        sizes["num_heads"] = np.where(np.char.find(labels["op_name"], "attn") < 0, 1.0, sizes["num_heads"])
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
