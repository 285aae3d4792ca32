"""Attention forward: causal or not, grouped heads, prefill, and decode with the keys split over programs.

One file, copyable on its own: kernels, launches, torch references, configuration spaces, and what problem a call is
(`KERNELS`, a plain literal; README.md beside this file says what its keys mean). torch is imported where it runs.

Sizes: `B` sequences, `H` query heads of which each `H / H_kv` in a row share a key/value head, `M` queries, `N` keys, `D`
head size. A causal query `i` sees the keys `0 .. i + N - M`: the last query sees all, as with a cache of earlier keys. A
query that sees no key gives zeros.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import torch

KERNELS = {
    "attention_kernel": {
        "family": "attention",
        "ops": {
            "prefill": {
                "sizes": {
                    "B": "q_ptr.shape[0]",
                    "H": "q_ptr.shape[1]",
                    "H_kv": "k_ptr.shape[1]",
                    "M": "M",
                    "N": "N",
                    "D": "HEAD_DIM",
                    "causal": "CAUSAL",
                }
            }
        },
        "dtype": "q_ptr",
        "weight_dtype": "k_ptr",
        "output_dtype": "out_ptr",
        "dtypes": ["bf16", "fp16"],
        "space": {
            "BLOCK_M": [16, 32, 64, 128],
            "BLOCK_N": [16, 32, 64, 128],
            "num_warps": [4, 8],
            "num_stages": [1, 2, 3, 4],
        },
        "grid": "cdiv(M, BLOCK_M) * H * B",
        "example": {"B": 4, "H": 32, "H_kv": 8, "M": 4096, "N": 4096, "D": 128, "causal": 1},
        "valid": "valid",
        "default": "default",
        "arguments": "arguments",
        "make_inputs": "make_inputs",
        "prepare": "prepare",
        "reference": "reference",
        "tolerance": {"bf16": [2e-2, 1e-2], "fp16": [2e-3, 2e-3], "fp32": [1e-2, 1e-2]},
    },
    "decode_kernel": {
        "family": "attention",
        "ops": {
            "decode": {
                "sizes": {
                    "B": "q_ptr.shape[0]",
                    "H": "q_ptr.shape[1]",
                    "H_kv": "k_ptr.shape[1]",
                    "M": "M",
                    "N": "N",
                    "D": "HEAD_DIM",
                    "causal": "CAUSAL",
                }
            }
        },
        "dtype": "q_ptr",
        "weight_dtype": "k_ptr",
        "output_dtype": "q_ptr",
        "dtypes": ["bf16", "fp16"],
        "space": {
            "BLOCK_M": [16, 32, 64],
            "BLOCK_N": [16, 32, 64, 128],
            "NUM_KV_SPLITS": [1, 2, 4, 8, 16, 32, 64],
            "num_warps": [2, 4, 8],
            "num_stages": [1, 2, 3, 4],
        },
        "grid": "NUM_KV_SPLITS * cdiv(M * (H // H_kv), BLOCK_M) * H_kv * B",
        "example": {"B": 32, "H": 32, "H_kv": 8, "M": 1, "N": 8192, "D": 128, "causal": 1},
        "valid": "valid_decode",
        "default": "default_decode",
        "arguments": "decode_arguments",
        "make_inputs": "make_inputs",
        "prepare": "prepare_decode",
        "reference": "reference",
        "tolerance": {"bf16": [2e-2, 1e-2], "fp16": [2e-3, 2e-3], "fp32": [1e-2, 1e-2]},
    },
}

LOG2_E = math.log2(math.e)

Problem = dict[str, Any]
Inputs = dict[str, Any]


# ---------------------------------------------------------------------------------------------------------- kernels


@triton.jit
def _attend(
    q,  # [BLOCK_M, BLOCK_D]
    k_ptr,  # first key of this sequence and head
    v_ptr,
    stride_kn,
    stride_kd,
    stride_vn,
    stride_vd,
    first,  # first key of the block
    last_key,  # [BLOCK_M] last key each query sees
    N,
    scale,  # of the scores, times log2(e)
    accumulator,  # [BLOCK_M, BLOCK_D] fp32
    total,  # [BLOCK_M] sum of the exponentials so far
    largest,  # [BLOCK_M] largest scaled score so far
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
):
    """One block of keys of the online softmax, in base 2."""
    keys = first + tl.arange(0, BLOCK_N)
    ds = tl.arange(0, BLOCK_D)
    k_ptrs = k_ptr + keys.to(tl.int64)[:, None] * stride_kn + ds[None, :] * stride_kd
    v_ptrs = v_ptr + keys.to(tl.int64)[:, None] * stride_vn + ds[None, :] * stride_vd
    if MASKED:
        k = tl.load(k_ptrs, mask=(keys[:, None] < N) & (ds[None, :] < HEAD_DIM), other=0.0)
    elif BLOCK_D != HEAD_DIM:
        k = tl.load(k_ptrs, mask=ds[None, :] < HEAD_DIM, other=0.0)
    else:
        k = tl.load(k_ptrs)
    scores = tl.dot(q, tl.trans(k))
    if MASKED:
        visible = (keys[None, :] < N) & (keys[None, :] <= last_key[:, None])
        scores = tl.where(visible, scores, float("-inf"))
    new_largest = tl.maximum(largest, tl.max(scores, axis=1) * scale)
    offset = new_largest
    if MASKED:  # a query that has seen no key yet: -inf - -inf would be NaN
        offset = tl.where(new_largest == float("-inf"), 0.0, new_largest)
    p = tl.exp2(scores * scale - offset[:, None])
    rescale = tl.exp2(largest - offset)
    total = total * rescale + tl.sum(p, axis=1)
    accumulator = accumulator * rescale[:, None]
    if MASKED:
        v = tl.load(v_ptrs, mask=(keys[:, None] < N) & (ds[None, :] < HEAD_DIM), other=0.0)
    elif BLOCK_D != HEAD_DIM:
        v = tl.load(v_ptrs, mask=ds[None, :] < HEAD_DIM, other=0.0)
    else:
        v = tl.load(v_ptrs)
    accumulator = tl.dot(p.to(v.dtype), v, accumulator)
    return accumulator, total, new_largest


@triton.jit
def attention_kernel(
    q_ptr,  # [B, H, M, D]
    k_ptr,  # [B, H_kv, N, D]
    v_ptr,  # [B, H_kv, N, D]
    out_ptr,  # [B, H, M, D]
    scale,
    H,
    H_kv,
    M,
    N,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_qd,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_kd,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_vd,
    stride_ob,
    stride_oh,
    stride_om,
    stride_od,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,  # HEAD_DIM, rounded up to a power of two
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One block of queries of one head per program."""
    tiles = tl.cdiv(M, BLOCK_M)
    # The last queries see the most keys: started first, they do not end last.
    tile = tiles - 1 - tl.program_id(0) % tiles
    head = ((tl.program_id(0) // tiles) % H).to(tl.int64)
    batch = (tl.program_id(0) // tiles // H).to(tl.int64)
    kv_head = head // (H // H_kv)
    k_ptr += batch * stride_kb + kv_head * stride_kh
    v_ptr += batch * stride_vb + kv_head * stride_vh

    queries = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    ds = tl.arange(0, BLOCK_D)
    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh
    q_ptrs += queries.to(tl.int64)[:, None] * stride_qm + ds[None, :] * stride_qd
    in_range = (queries[:, None] < M) & (ds[None, :] < HEAD_DIM)
    q = tl.load(q_ptrs, mask=in_range, other=0.0)

    accumulator = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    largest = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)

    # Blocks that every query sees whole need no mask; the diagonal and the end do.
    if CAUSAL:
        last_key = queries + (N - M)
        everyone = tile * BLOCK_M + N - M + 1
        anyone = tl.minimum(N, tile * BLOCK_M + BLOCK_M + N - M)
    else:
        last_key = tl.zeros((BLOCK_M,), dtype=tl.int32) + N
        everyone = N
        anyone = N
    unmasked = tl.maximum(everyone, 0) // BLOCK_N * BLOCK_N
    for first in range(0, unmasked, BLOCK_N):
        accumulator, total, largest = _attend(
            q,
            k_ptr,
            v_ptr,
            stride_kn,
            stride_kd,
            stride_vn,
            stride_vd,
            first,
            last_key,
            N,
            scale,
            accumulator,
            total,
            largest,
            HEAD_DIM,
            BLOCK_D,
            BLOCK_N,
            False,
        )
    for first in range(unmasked, anyone, BLOCK_N):
        accumulator, total, largest = _attend(
            q,
            k_ptr,
            v_ptr,
            stride_kn,
            stride_kd,
            stride_vn,
            stride_vd,
            first,
            last_key,
            N,
            scale,
            accumulator,
            total,
            largest,
            HEAD_DIM,
            BLOCK_D,
            BLOCK_N,
            True,
        )

    out = accumulator / tl.where(total == 0.0, 1.0, total)[:, None]
    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh
    out_ptrs += queries.to(tl.int64)[:, None] * stride_om + ds[None, :] * stride_od
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=in_range)


@triton.jit
def decode_kernel(
    q_ptr,  # [B, H, M, D]
    k_ptr,  # [B, H_kv, N, D]
    v_ptr,  # [B, H_kv, N, D]
    partial_ptr,  # [splits, B, H, M, D] fp32, or with one split the output
    lse_ptr,  # [splits, B, H, M] fp32, contiguous: log2 of the sum of exponentials; unused with one split
    key_lengths_ptr,  # [B] keys of each sequence, or None: N
    scale,
    B,
    H,
    H_kv,
    M,
    N,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_qd,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_kd,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_vd,
    stride_ps,
    stride_pb,
    stride_ph,
    stride_pm,
    stride_pd,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    NUM_KV_SPLITS: tl.constexpr,
):
    """Few queries: all that share a key/value head form the rows of a tile, and programs share the keys."""
    heads_per_kv = H // H_kv
    rows_in_all = M * heads_per_kv
    tiles = tl.cdiv(rows_in_all, BLOCK_M)
    split = tl.program_id(0) % NUM_KV_SPLITS
    tile = (tl.program_id(0) // NUM_KV_SPLITS) % tiles
    kv_head = ((tl.program_id(0) // NUM_KV_SPLITS // tiles) % H_kv).to(tl.int64)
    batch = (tl.program_id(0) // NUM_KV_SPLITS // tiles // H_kv).to(tl.int64)
    k_ptr += batch * stride_kb + kv_head * stride_kh
    v_ptr += batch * stride_vb + kv_head * stride_vh
    keys = N
    if key_lengths_ptr is not None:
        keys = tl.load(key_lengths_ptr + batch).to(tl.int32)

    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    queries = rows // heads_per_kv
    heads = kv_head * heads_per_kv + rows % heads_per_kv
    ds = tl.arange(0, BLOCK_D)
    in_range = (rows[:, None] < rows_in_all) & (ds[None, :] < HEAD_DIM)
    q_offsets = heads * stride_qh + queries.to(tl.int64) * stride_qm
    q = tl.load(q_ptr + batch * stride_qb + q_offsets[:, None] + ds[None, :] * stride_qd, mask=in_range, other=0.0)

    accumulator = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    largest = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    per_split = tl.cdiv(tl.cdiv(keys, NUM_KV_SPLITS), BLOCK_N) * BLOCK_N
    begin = split * per_split
    end = tl.minimum(begin + per_split, keys)
    last_key = queries + (keys - M)
    everyone = end
    if CAUSAL:
        everyone = tl.minimum(end, tile * BLOCK_M // heads_per_kv + keys - M + 1)
    else:
        last_key = tl.zeros((BLOCK_M,), dtype=tl.int32) + keys
    unmasked = begin + tl.maximum(everyone - begin, 0) // BLOCK_N * BLOCK_N
    for first in range(begin, unmasked, BLOCK_N):
        accumulator, total, largest = _attend(
            q,
            k_ptr,
            v_ptr,
            stride_kn,
            stride_kd,
            stride_vn,
            stride_vd,
            first,
            last_key,
            keys,
            scale,
            accumulator,
            total,
            largest,
            HEAD_DIM,
            BLOCK_D,
            BLOCK_N,
            False,
        )
    for first in range(unmasked, end, BLOCK_N):
        accumulator, total, largest = _attend(
            q,
            k_ptr,
            v_ptr,
            stride_kn,
            stride_kd,
            stride_vn,
            stride_vd,
            first,
            last_key,
            keys,
            scale,
            accumulator,
            total,
            largest,
            HEAD_DIM,
            BLOCK_D,
            BLOCK_N,
            True,
        )

    safe = tl.where(total == 0.0, 1.0, total)
    out = accumulator / safe[:, None]
    out_offsets = split.to(tl.int64) * stride_ps + batch * stride_pb + heads * stride_ph + queries * stride_pm
    out_ptrs = partial_ptr + out_offsets[:, None] + ds[None, :] * stride_pd
    tl.store(out_ptrs, out.to(partial_ptr.dtype.element_ty), mask=in_range)
    if NUM_KV_SPLITS > 1:
        lse = tl.where(total == 0.0, float("-inf"), largest + tl.log2(safe))
        lse_offsets = ((split * B + batch) * H + heads) * M + queries
        tl.store(lse_ptr + lse_offsets, lse, mask=rows < rows_in_all)


@triton.jit
def combine_splits_kernel(
    partial_ptr,  # [NUM_KV_SPLITS, rows, HEAD_DIM] fp32, contiguous
    lse_ptr,  # [NUM_KV_SPLITS, rows] fp32, contiguous
    out_ptr,  # [B, H, M, D]
    rows,
    H,
    M,
    stride_ob,
    stride_oh,
    stride_om,
    stride_od,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    NUM_KV_SPLITS: tl.constexpr,
):
    """Weighs each split's result by its share of the exponentials; one query of one head per program."""
    row = tl.program_id(0).to(tl.int64)
    splits = tl.arange(0, NUM_KV_SPLITS)
    ds = tl.arange(0, BLOCK_D)
    lse = tl.load(lse_ptr + splits.to(tl.int64) * rows + row)
    largest = tl.max(lse, axis=0)
    weights = tl.exp2(lse - tl.where(largest == float("-inf"), 0.0, largest))
    total = tl.sum(weights, axis=0)
    partial_ptrs = partial_ptr + (splits.to(tl.int64) * rows + row)[:, None] * HEAD_DIM + ds[None, :]
    partial = tl.load(partial_ptrs, mask=ds[None, :] < HEAD_DIM, other=0.0)
    out = tl.sum(partial * weights[:, None], axis=0) / tl.where(total == 0.0, 1.0, total)
    query, head, batch = row % M, row // M % H, row // M // H
    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + query * stride_om + ds * stride_od
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=ds < HEAD_DIM)


# ---------------------------------------------------------------------------------------------------------- launches


def launch_attention_kernel(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    config: Mapping[str, int],
    *,
    causal: bool,
    scale: float | None = None,
) -> None:
    """Enqueues attention of many queries.

    Args:
        q: [B, H, M, D], any strides.
        k: [B, H_kv, N, D], any strides.
        v: [B, H_kv, N, D], any strides.
        out: [B, H, M, D], any strides, written in full.
        config: A configuration of `attention_kernel`.
        causal: Query i sees the keys 0 .. i + N - M only.
        scale: Of the scores; None: 1 / sqrt(D).
    """
    batch, heads, m, d = q.shape
    if out.numel() == 0:
        return
    scale = d**-0.5 if scale is None else scale
    attention_kernel[(triton.cdiv(m, config["BLOCK_M"]) * heads * batch,)](
        q,
        k,
        v,
        out,
        scale * LOG2_E,
        heads,
        k.shape[1],
        m,
        k.shape[2],
        *q.stride(),
        *k.stride(),
        *v.stride(),
        *out.stride(),
        HEAD_DIM=d,
        BLOCK_D=max(16, triton.next_power_of_2(d)),
        CAUSAL=bool(causal),
        **config,
    )


def launch_decode_kernel(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    config: Mapping[str, int],
    *,
    causal: bool,
    scale: float | None = None,
    key_lengths: torch.Tensor | None = None,
    scratch: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> None:
    """Enqueues attention of few queries, and with NUM_KV_SPLITS > 1 the combination of its parts.

    Args:
        q: [B, H, M, D], any strides.
        k: [B, H_kv, N, D], any strides.
        v: [B, H_kv, N, D], any strides.
        out: [B, H, M, D], any strides, written in full.
        config: A configuration of `decode_kernel`.
        causal: Query i sees the keys 0 .. i + N - M only.
        scale: Of the scores; None: 1 / sqrt(D).
        key_lengths: [B] integers, how many of the N keys each sequence has; None: all.
        scratch: What `decode_scratch` returned; None: allocated here.
    """
    batch, heads, m, d = q.shape
    kv_heads, n = k.shape[1], k.shape[2]
    if out.numel() == 0:
        return
    scale = d**-0.5 if scale is None else scale
    splits = config["NUM_KV_SPLITS"]
    partial, lse = (out.unsqueeze(0), None) if splits == 1 else scratch or decode_scratch(q, splits)
    block_d = max(16, triton.next_power_of_2(d))
    tiles = triton.cdiv(m * (heads // kv_heads), config["BLOCK_M"])
    decode_kernel[(splits * tiles * kv_heads * batch,)](
        q,
        k,
        v,
        partial,
        lse,
        key_lengths,
        scale * LOG2_E,
        batch,
        heads,
        kv_heads,
        m,
        n,
        *q.stride(),
        *k.stride(),
        *v.stride(),
        *partial.stride(),
        HEAD_DIM=d,
        BLOCK_D=block_d,
        CAUSAL=bool(causal),
        **config,
    )
    if splits > 1:
        rows = batch * heads * m
        combine_splits_kernel[(rows,)](partial, lse, out, rows, heads, m, *out.stride(), HEAD_DIM=d, BLOCK_D=block_d, NUM_KV_SPLITS=splits)


def decode_scratch(q: torch.Tensor, splits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Where the splits leave their results [splits, B, H, M, D] and log-sums [splits, B, H, M]."""
    import torch

    partial = torch.empty((splits, *q.shape), dtype=torch.float32, device=q.device)
    return partial, torch.empty((splits, *q.shape[:-1]), dtype=torch.float32, device=q.device)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    key_lengths: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of [B, H, M, D] queries over [B, H_kv, N, D] keys and values, by the kernel that suits their number.

    Args:
        q: Queries, any strides.
        k: Keys, any strides.
        v: Values, any strides.
        causal: Query i sees the keys 0 .. i + N - M only.
        scale: Of the scores; None: 1 / sqrt(D).
        key_lengths: [B] integers, how many of the N keys each sequence has (few queries only); None: all.

    Returns:
        [B, H, M, D], the type of `q`.

    Raises:
        ValueError: H is no multiple of H_kv, or `key_lengths` comes with many queries.
    """
    import torch

    heads, kv_heads = q.shape[1], k.shape[1]
    if kv_heads == 0 or heads % kv_heads:
        raise ValueError(f"query heads must be a multiple of key/value heads (got {heads} and {kv_heads})")
    out = torch.empty_like(q)
    problem = {"B": q.shape[0], "H": heads, "H_kv": kv_heads, "M": q.shape[2], "N": k.shape[2], "D": q.shape[3]}
    if q.shape[2] * (heads // kv_heads) <= 64:
        config = default_decode(problem)
        launch_decode_kernel(q, k, v, out, config, causal=causal, scale=scale, key_lengths=key_lengths)
    elif key_lengths is None:
        launch_attention_kernel(q, k, v, out, default(problem), causal=causal, scale=scale)
    else:
        raise ValueError(f"key_lengths needs at most 64 queries per key/value head (got {q.shape[2]} queries)")
    return out


# ------------------------------------------------------------------------------------------------------------- space


def valid(config: Mapping[str, int], problem: Mapping[str, Any]) -> bool:
    """Whether a configuration of `attention_kernel` makes sense for a problem, on any GPU."""
    # Scores and result stay in registers: with more than 192 per thread there is no room for the rest of the loop.
    per_thread = config["BLOCK_M"] * (config["BLOCK_N"] + problem["D"]) / (32 * config["num_warps"])
    # Each warp of a product takes 16 rows.
    return per_thread <= 192 and config["BLOCK_M"] >= (16 if config["num_warps"] == 4 else 64)


def valid_decode(config: Mapping[str, int], problem: Mapping[str, Any]) -> bool:
    """Whether a configuration of `decode_kernel` makes sense for a problem, on any GPU."""
    per_thread = config["BLOCK_M"] * (config["BLOCK_N"] + problem["D"]) / (32 * config["num_warps"])
    rows = problem["M"] * problem["H"] // problem["H_kv"]
    fits_rows = config["BLOCK_M"] == 16 or config["BLOCK_M"] < 2 * rows
    splits = config["NUM_KV_SPLITS"]
    return per_thread <= 192 and fits_rows and (splits == 1 or problem["N"] >= splits * config["BLOCK_N"])


def configurations(problem: Mapping[str, Any], kernel: str = "attention_kernel") -> Iterator[triton.Config]:
    """The valid configurations of a kernel for a problem."""
    space = KERNELS[kernel]["space"]
    check = valid if kernel == "attention_kernel" else valid_decode
    for values in itertools.product(*space.values()):
        config = dict(zip(space, values, strict=True))
        if check(config, problem):
            warps, stages = config.pop("num_warps"), config.pop("num_stages")
            yield triton.Config(config, num_warps=warps, num_stages=stages)


def default(problem: Mapping[str, Any]) -> dict[str, int]:
    """A configuration of `attention_kernel` that is reasonable without tuning."""
    small = problem["M"] <= 64
    return {
        "BLOCK_M": 64 if small else 128,
        "BLOCK_N": 64,
        "num_warps": 4 if small or problem["D"] <= 64 else 8,
        "num_stages": 2 if problem["D"] > 128 else 3,
    }


def default_decode(problem: Mapping[str, Any]) -> dict[str, int]:
    """A configuration of `decode_kernel` that is reasonable without tuning: enough splits to occupy the GPU."""
    rows = problem["M"] * problem["H"] // problem["H_kv"]
    block_m = next((size for size in (16, 32) if rows <= size), 64)
    programs = problem["B"] * problem["H_kv"] * triton.cdiv(rows, block_m)
    splits = 1
    # 256: about two programs for each SM of a data-centre GPU; a split shorter than 256 keys is not worth combining.
    while splits < 64 and splits * programs < 256 and problem["N"] >= 512 * splits:
        splits *= 2
    return {"BLOCK_M": block_m, "BLOCK_N": 64, "NUM_KV_SPLITS": splits, "num_warps": 4, "num_stages": 2}


# ------------------------------------------------------------------------------------------------- what a launch gets


def arguments(problem: Mapping[str, Any], config: Mapping[str, int]) -> dict[str, Any]:
    """Every argument of `attention_kernel` but the configuration's, for contiguous tensors."""
    pointer = f"*{problem['dtype']}"
    return {
        "q_ptr": pointer,
        "k_ptr": pointer,
        "v_ptr": pointer,
        "out_ptr": pointer,
        "scale": problem["D"] ** -0.5 * LOG2_E,
        "H": problem["H"],
        "H_kv": problem["H_kv"],
        "M": problem["M"],
        "N": problem["N"],
        **_strides("q", "bhmd", problem["H"], problem["M"], problem["D"]),
        **_strides("k", "bhnd", problem["H_kv"], problem["N"], problem["D"]),
        **_strides("v", "bhnd", problem["H_kv"], problem["N"], problem["D"]),
        **_strides("o", "bhmd", problem["H"], problem["M"], problem["D"]),
        "HEAD_DIM": problem["D"],
        "BLOCK_D": max(16, triton.next_power_of_2(problem["D"])),
        "CAUSAL": bool(problem.get("causal", 0)),
    }


def decode_arguments(problem: Mapping[str, Any], config: Mapping[str, int]) -> dict[str, Any]:
    """Every argument of `decode_kernel` but the configuration's, for contiguous tensors."""
    values = arguments(problem, config)
    splits = config["NUM_KV_SPLITS"]
    h, m, d = problem["H"], problem["M"], problem["D"]
    return {
        **{name: value for name, value in values.items() if name != "out_ptr" and not name.startswith("stride_o")},
        "partial_ptr": values["out_ptr"] if splits == 1 else "*fp32",
        "lse_ptr": None if splits == 1 else "*fp32",
        "key_lengths_ptr": None,
        "B": problem["B"],
        "stride_ps": problem["B"] * h * m * d,
        **_strides("p", "bhmd", h, m, d),
    }


def _strides(tensor: str, axes: str, heads: int, rows: int, depth: int) -> dict[str, int]:
    """Strides of a contiguous [B, heads, rows, depth]."""
    return dict(zip((f"stride_{tensor}{axis}" for axis in axes), (heads * rows * depth, rows * depth, depth, 1), strict=True))


# ---------------------------------------------------------------------------------------------- inputs and references


def make_inputs(problem: Mapping[str, Any], device: str, generator: torch.Generator) -> Inputs:
    """Random queries, keys and values, [B, heads, length, D] as views of [B, length, heads, D], as models make them."""
    import torch

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[problem["dtype"]]

    def random(length: int, heads: int) -> torch.Tensor:
        shape = (problem["B"], length, heads, problem["D"])
        return torch.randn(shape, dtype=dtype, device=device, generator=generator).transpose(1, 2)

    q = random(problem["M"], problem["H"])
    return {
        "problem": dict(problem),
        "q": q,
        "k": random(problem["N"], problem["H_kv"]),
        "v": random(problem["N"], problem["H_kv"]),
        "causal": bool(problem.get("causal", 0)),
        "key_lengths": None,
        "output": torch.empty_like(q),
    }


def prepare(inputs: Inputs, config: Mapping[str, int]) -> Callable[[], torch.Tensor]:
    """Returns what enqueues exactly one launch of `attention_kernel` and gives its output."""
    q, k, v, out = inputs["q"], inputs["k"], inputs["v"], inputs["output"]

    def run() -> torch.Tensor:
        launch_attention_kernel(q, k, v, out, config, causal=inputs["causal"])
        return out

    return run


def prepare_decode(inputs: Inputs, config: Mapping[str, int]) -> Callable[[], torch.Tensor]:
    """Returns what enqueues `decode_kernel` (and, with NUM_KV_SPLITS > 1, the combination) and gives its output."""
    q, k, v, out = inputs["q"], inputs["k"], inputs["v"], inputs["output"]
    splits = config["NUM_KV_SPLITS"]
    scratch = decode_scratch(q, splits) if splits > 1 else None

    def run() -> torch.Tensor:
        launch_decode_kernel(q, k, v, out, config, causal=inputs["causal"], key_lengths=inputs["key_lengths"], scratch=scratch)
        return out

    return run


def reference(inputs: Inputs) -> torch.Tensor:
    """Softmax(q k.T / sqrt(D)) v in fp64, one sequence and head at a time."""
    import torch

    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    batch, heads, m, d = q.shape
    n = k.shape[2]
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    query, key = torch.arange(m, device=q.device)[:, None], torch.arange(n, device=q.device)[None, :]
    for b, h in itertools.product(range(batch), range(heads)):
        kv = h // (heads // k.shape[1])
        length = n if inputs.get("key_lengths") is None else int(inputs["key_lengths"][b])
        visible = key < length
        if inputs["causal"]:
            visible = visible & (key <= query + length - m)
        scores = (q[b, h].double() @ k[b, kv].double().T * d**-0.5).masked_fill(~visible, -math.inf)
        weights = torch.softmax(scores, dim=-1)
        out[b, h] = torch.nan_to_num(weights) @ v[b, kv].double()  # NaN: a query that sees nothing
    return out
