"""Fused mixture of experts: token alignment, w13, SiLU-and-mul, w2 with routed weights, combine.

One file, copyable on its own: kernels, launches, torch references, configuration spaces, and what problem a call is
(`KERNELS`, a plain literal; README.md beside this file says what its keys mean). torch is imported where it runs.

Sizes, as vLLM and SGLang name them: `M` tokens, `E` experts, `topk` experts per token, `H` hidden size, `N` inner
size per expert. A slot is one (token, chosen expert) pair: slot `i` belongs to token `i // topk`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import torch

KERNELS = {
    "fused_moe_kernel": {
        "family": "fused_moe",
        "ops": {
            "w13": {
                "when": "not MUL_ROUTED_WEIGHT",
                "sizes": {
                    "M": "topk_weights_ptr.shape[0]",
                    "E": "b_ptr.shape[0]",
                    "topk": "topk_weights_ptr.shape[1]",
                    "H": "K",
                    "N": "N // 2",
                },
            },
            "w2": {
                "when": "MUL_ROUTED_WEIGHT",
                "sizes": {
                    "M": "topk_weights_ptr.shape[0]",
                    "E": "b_ptr.shape[0]",
                    "topk": "topk_weights_ptr.shape[1]",
                    "H": "N",
                    "N": "K",
                },
            },
        },
        "dtype": "a_ptr",
        "weight_dtype": "b_ptr",
        "output_dtype": "c_ptr",
        "dtypes": ["bf16", "fp16", "fp8"],
        "block_shape": {"fp8": [128, 128]},
        "space": {
            "BLOCK_SIZE_M": [16, 32, 64, 128, 256],
            "BLOCK_SIZE_N": [16, 32, 64, 128, 256],
            "BLOCK_SIZE_K": [32, 64, 128, 256],
            "GROUP_SIZE_M": [1, 4, 8, 16, 32, 64],
            "num_warps": [4, 8],
            "num_stages": [2, 3, 4, 5],
        },
        "grid": "EM // BLOCK_SIZE_M * cdiv(N, BLOCK_SIZE_N)",
        "routing": {"slots": "sorted_token_ids_ptr", "experts": "expert_ids_ptr", "length": "num_tokens_post_padded_ptr"},
        "example": {"M": 64, "E": 128, "topk": 8, "H": 2048, "N": 768},
        "valid": "valid",
        "default": "default",
        "arguments": "arguments",
        "make_inputs": "make_inputs",
        "prepare": "prepare",
        "reference": "reference",
        "tolerance": {"bf16": [1e-2, 1e-3], "fp16": [2e-3, 1e-3], "fp32": [5e-3, 5e-3], "fp8": [1e-2, 1e-2]},
    },
    "activation_kernel": {
        "family": "fused_moe",
        "ops": {
            "activation": {
                "sizes": {
                    "M": "num_rows // topk",
                    "E": "num_experts",
                    "topk": "topk",
                    "H": "hidden_size",
                    "N": "num_columns",
                }
            }
        },
        "dtype": "x_ptr",
        "output_dtype": "out_ptr",
        "dtypes": ["bf16", "fp16", "fp32"],
        "space": {"BLOCK_SIZE": [32, 64, 128, 256, 512, 1024, 2048, 4096], "num_warps": [1, 2, 4, 8], "num_stages": [1]},
        "grid": "num_rows * cdiv(num_columns, BLOCK_SIZE)",
        "example": {"M": 64, "E": 128, "topk": 8, "H": 2048, "N": 768},
        "valid": "valid_row_block",
        "default": "default_row_block",
        "arguments": "activation_arguments",
        "make_inputs": "make_activation_inputs",
        "prepare": "prepare_activation",
        "reference": "reference_activation",
        "tolerance": {"bf16": [1e-2, 1e-3], "fp16": [2e-3, 1e-3], "fp32": [1e-5, 1e-5]},
    },
    "combine_kernel": {
        "family": "fused_moe",
        "ops": {
            "combine": {
                "sizes": {
                    "M": "num_rows",
                    "E": "num_experts",
                    "topk": "TOPK",
                    "H": "num_columns",
                    "N": "intermediate_size",
                }
            }
        },
        "dtype": "x_ptr",
        "output_dtype": "out_ptr",
        "dtypes": ["bf16", "fp16", "fp32"],
        "space": {"BLOCK_SIZE": [32, 64, 128, 256, 512, 1024, 2048, 4096], "num_warps": [1, 2, 4, 8], "num_stages": [1]},
        "grid": "num_rows * cdiv(num_columns, BLOCK_SIZE)",
        "example": {"M": 64, "E": 128, "topk": 8, "H": 2048, "N": 768},
        "valid": "valid_row_block",
        "default": "default_row_block",
        "arguments": "combine_arguments",
        "make_inputs": "make_combine_inputs",
        "prepare": "prepare_combine",
        "reference": "reference_combine",
        "tolerance": {"bf16": [1e-2, 1e-3], "fp16": [2e-3, 1e-3], "fp32": [1e-5, 1e-5]},
    },
}

GROUP = 128
"""Elements along K that share one activation scale, and edge of a weight block, in block-scaled fp8."""

FP8_MAX = 448.0
"""Largest finite e4m3 value (OCP FP8 specification, table 1)."""

Problem = dict[str, Any]
Inputs = dict[str, Any]


# ---------------------------------------------------------------------------------------------------------- kernels


@triton.jit
def fused_moe_kernel(
    a_ptr,  # [rows, K]; rows = tokens (w13) or slots (w2)
    b_ptr,  # [E, N, K]
    c_ptr,  # [slots, N]
    a_scale_ptr,  # [rows, ceil(K / GROUP_K)] fp32, or None
    b_scale_ptr,  # [E, ceil(N / GROUP_N), ceil(K / GROUP_K)] fp32, or None
    topk_weights_ptr,  # [tokens, topk] fp32, contiguous
    sorted_token_ids_ptr,  # [EM] slots, by expert, padded with num_slots
    expert_ids_ptr,  # [EM / BLOCK_SIZE_M] expert of each block, -1 where another rank holds it
    num_tokens_post_padded_ptr,  # [1]
    N,
    K,
    EM,
    num_slots,
    stride_am,
    stride_ak,
    stride_be,
    stride_bn,
    stride_bk,
    stride_cm,
    stride_cn,
    stride_asm,
    stride_ask,
    stride_bse,
    stride_bsn,
    stride_bsk,
    SLOTS_PER_ROW: tl.constexpr,  # topk in w13 (the slots of a token share its row), 1 in w2
    MUL_ROUTED_WEIGHT: tl.constexpr,
    GROUP_N: tl.constexpr,  # 0: not block-scaled
    GROUP_K: tl.constexpr,
    EVEN_K: tl.constexpr,  # K % BLOCK_SIZE_K == 0: loads need no mask along K
    SWAP_AB: tl.constexpr,  # multiply transposed: few rows are then the columns of the matrix instruction (`swaps_operands`)
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    """`c[slot] = a[slot // SLOTS_PER_ROW] @ b[expert of slot].T`, times the routed weight where asked."""
    # Neighbouring programs walk GROUP_SIZE_M blocks of rows before the next block of columns, so that they share the
    # columns of one expert in the L2.
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(EM, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    pids_in_group = GROUP_SIZE_M * num_pid_n
    first_pid_m = (pid // pids_in_group) * GROUP_SIZE_M
    group_size = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + (pid % pids_in_group) % group_size
    pid_n = (pid % pids_in_group) // group_size

    # The grid is sized for the worst routing; what is really there is known on the device only.
    if pid_m * BLOCK_SIZE_M >= tl.load(num_tokens_post_padded_ptr):
        return

    rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    slots = tl.load(sorted_token_ids_ptr + rows).to(tl.int64)
    slot_mask = slots < num_slots
    columns = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N).to(tl.int64)
    c_ptrs = c_ptr + slots[:, None] * stride_cm + columns[None, :] * stride_cn
    c_mask = slot_mask[:, None] & (columns[None, :] < N)

    expert = tl.load(expert_ids_ptr + pid_m).to(tl.int64)
    if expert == -1:
        tl.store(c_ptrs, tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=c_ptr.dtype.element_ty), mask=c_mask)
        return

    # Columns past N wrap around instead of being masked: their products are never stored.
    wrapped = columns % N
    ks = tl.arange(0, BLOCK_SIZE_K)
    a_rows = slots // SLOTS_PER_ROW
    a_ptrs = a_ptr + a_rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + expert * stride_be + wrapped[None, :] * stride_bn + ks[:, None] * stride_bk
    if GROUP_K > 0:
        a_scale_ptrs = a_scale_ptr + a_rows * stride_asm
        b_scale_ptrs = b_scale_ptr + expert * stride_bse + (wrapped // GROUP_N) * stride_bsn

    if SWAP_AB:
        accumulator = tl.zeros((BLOCK_SIZE_N, BLOCK_SIZE_M), dtype=tl.float32)
    else:
        accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_SIZE_K)):
        if EVEN_K:
            a = tl.load(a_ptrs, mask=slot_mask[:, None], other=0.0)
            b = tl.load(b_ptrs)
        else:
            left = K - step * BLOCK_SIZE_K
            a = tl.load(a_ptrs, mask=slot_mask[:, None] & (ks[None, :] < left), other=0.0)
            b = tl.load(b_ptrs, mask=ks[:, None] < left, other=0.0)
        if SWAP_AB:
            left_operand, right_operand = tl.trans(b), tl.trans(a)
        else:
            left_operand, right_operand = a, b
        if GROUP_K > 0:
            # BLOCK_SIZE_K divides GROUP_K, so that one scale holds for the whole step.
            group = (step * BLOCK_SIZE_K) // GROUP_K
            a_scale = tl.load(a_scale_ptrs + group * stride_ask, mask=slot_mask, other=0.0)
            b_scale = tl.load(b_scale_ptrs + group * stride_bsk)
            if SWAP_AB:
                accumulator += tl.dot(left_operand, right_operand) * b_scale[:, None] * a_scale[None, :]
            else:
                accumulator += tl.dot(left_operand, right_operand) * a_scale[:, None] * b_scale[None, :]
        else:
            accumulator = tl.dot(left_operand, right_operand, accumulator)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk

    if SWAP_AB:
        accumulator = tl.trans(accumulator)
    if MUL_ROUTED_WEIGHT:
        weights = tl.load(topk_weights_ptr + slots, mask=slot_mask, other=0.0).to(tl.float32)
        accumulator *= weights[:, None]
    tl.store(c_ptrs, accumulator.to(c_ptr.dtype.element_ty), mask=c_mask)


@triton.jit
def activation_kernel(
    x_ptr,  # [num_rows, 2 * num_columns]: gate, then up
    out_ptr,  # [num_rows, num_columns]
    num_rows,
    num_columns,
    stride_x,
    stride_out,
    topk,  # topk, num_experts and hidden_size only say what the call is part of
    num_experts,
    hidden_size,
    BLOCK_SIZE: tl.constexpr,
):
    """`out = silu(gate) * up`, in fp32."""
    blocks = tl.cdiv(num_columns, BLOCK_SIZE)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = columns < num_columns
    gate = tl.load(x_ptr + row * stride_x + columns, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * stride_x + num_columns + columns, mask=mask, other=0.0).to(tl.float32)
    out = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + row * stride_out + columns, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def combine_kernel(
    x_ptr,  # [num_rows * TOPK, num_columns]
    out_ptr,  # [num_rows, num_columns]
    num_rows,
    num_columns,
    stride_x,
    stride_out,
    num_experts,  # num_experts and intermediate_size only say what the call is part of
    intermediate_size,
    TOPK: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """`out[token] = sum of x over the token's slots`, in fp32."""
    blocks = tl.cdiv(num_columns, BLOCK_SIZE)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = columns < num_columns
    total = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for choice in tl.static_range(TOPK):
        total += tl.load(x_ptr + (row * TOPK + choice) * stride_x + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * stride_out + columns, total.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def quantize_kernel(
    x_ptr,  # [num_rows, num_columns]
    out_ptr,  # [num_rows, num_columns] e4m3
    scale_ptr,  # [num_rows, ceil(num_columns / GROUP_SIZE)] fp32
    num_columns,
    stride_x,
    stride_out,
    stride_scale,
    LARGEST: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
):
    """One scale per row and group of GROUP_SIZE columns: `x = out * scale`."""
    groups = tl.cdiv(num_columns, GROUP_SIZE)
    row = (tl.program_id(0) // groups).to(tl.int64)
    group = tl.program_id(0) % groups
    columns = group * GROUP_SIZE + tl.arange(0, GROUP_SIZE)
    mask = columns < num_columns
    x = tl.load(x_ptr + row * stride_x + columns, mask=mask, other=0.0).to(tl.float32)
    # The floor keeps a group of zeros from dividing by zero.
    scale = tl.maximum(tl.max(tl.abs(x), axis=0), 1e-10) / LARGEST
    quantized = tl.minimum(tl.maximum(x / scale, -LARGEST), LARGEST).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * stride_out + columns, quantized, mask=mask)
    tl.store(scale_ptr + row * stride_scale + group, scale)


# ---------------------------------------------------------------------------------------------------------- launches


def align_tokens(
    topk_ids: torch.Tensor, block_size: int, num_experts: int, expert_map: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sorts slots by expert and pads each expert's slots to a multiple of `block_size`, without a host synchronization.

    Args:
        topk_ids: [tokens, topk] integers in 0 .. num_experts - 1.
        block_size: BLOCK_SIZE_M of the launches to come.
        num_experts: Experts over all ranks.
        expert_map: [num_experts] index of the expert on this rank, -1 where another rank holds it; None: all are here.

    Returns:
        sorted_token_ids: [EM] int32, slots by expert; padding holds the number of slots.
        expert_ids: [EM / block_size] int32, local expert of each block, -1 for another rank's.
        num_tokens_post_padded: [1] int32, how much of `sorted_token_ids` is in use.
    """
    import torch

    device = topk_ids.device
    slots = topk_ids.numel()
    experts = topk_ids.reshape(-1).to(torch.int64)
    counts = torch.zeros(num_experts, dtype=torch.int64, device=device)
    counts.scatter_add_(0, experts, torch.ones_like(experts))
    padded = (counts + block_size - 1) // block_size * block_size
    ends = torch.cumsum(padded, 0)
    order = torch.argsort(experts, stable=True)
    sorted_experts = experts[order]
    rank_in_expert = torch.arange(slots, device=device) - (torch.cumsum(counts, 0) - counts)[sorted_experts]
    positions = (ends - padded)[sorted_experts] + rank_in_expert

    # The host knows only the worst case: every expert pads by block_size - 1, or every slot has a block of its own.
    worst = min(slots + num_experts * (block_size - 1), slots * block_size)
    worst = (worst + block_size - 1) // block_size * block_size
    sorted_token_ids = torch.full((worst,), slots, dtype=torch.int32, device=device)
    sorted_token_ids.scatter_(0, positions, order.to(torch.int32))
    block_starts = torch.arange(0, worst, block_size, device=device)
    expert_ids = torch.searchsorted(ends, block_starts, right=True).clamp_(max=num_experts - 1)
    if expert_map is not None:
        expert_ids = expert_map[expert_ids]
    return sorted_token_ids, expert_ids.to(torch.int32), ends[-1:].to(torch.int32)


def swaps_operands(dtype: str, compute_capability: str | None, config: Mapping[str, int]) -> bool:
    """Whether the product is computed transposed, so that few rows of fp8 still make a wgmma (64 rows of weights at least).

    vLLM 0.33 (`enable_swap_ab`) and SGLang 0.5.23 (`should_enable_swap_ab`) do just there, and what is tuned here is for them.
    """
    return dtype == "fp8" and compute_capability == "9.0" and config["BLOCK_SIZE_M"] < 64 <= config["BLOCK_SIZE_N"]


def _compute_capability() -> str | None:
    """ "9.0", ... of the NVIDIA GPU that a launch goes to; None elsewhere, and in Triton's interpreter."""
    if not isinstance(fused_moe_kernel, triton.runtime.JITFunction):
        return None
    target = triton.runtime.driver.active.get_current_target()
    return f"{target.arch // 10}.{target.arch % 10}" if target.backend == "cuda" else None


def launch_fused_moe_kernel(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    topk_weights: torch.Tensor,
    alignment: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    config: Mapping[str, int],
    *,
    slots_per_row: int,
    mul_routed_weight: bool,
    a_scale: torch.Tensor | None = None,
    b_scale: torch.Tensor | None = None,
) -> None:
    """Enqueues one grouped product of tokens and their experts' weights.

    Args:
        a: [rows, K]; rows are tokens where `slots_per_row` is topk, slots where it is 1.
        b: [E, N, K] weights.
        c: [slots, N] output, written in full.
        topk_weights: [tokens, topk] fp32, contiguous.
        alignment: What `align_tokens` returned for BLOCK_SIZE_M of `config`.
        config: Block sizes, GROUP_SIZE_M, num_warps and num_stages; SWAP_AB, where it is not to follow from the GPU.
        slots_per_row: topk for w13, 1 for w2.
        mul_routed_weight: Multiply by the routed weight (w2).
        a_scale: [rows, ceil(K / 128)] fp32, with `b_scale` for block-scaled fp8.
        b_scale: [E, ceil(N / 128), ceil(K / 128)] fp32.
    """
    sorted_token_ids, expert_ids, num_tokens_post_padded = alignment
    n, k = b.shape[1], b.shape[2]
    slots = topk_weights.numel()
    if slots == 0:
        return
    config = dict(config)
    if b_scale is not None:  # one scale per step: what serving stacks do to a table's BLOCK_SIZE_K
        config["BLOCK_SIZE_K"] = min(config["BLOCK_SIZE_K"], GROUP)
        if "SWAP_AB" not in config:
            config["SWAP_AB"] = swaps_operands("fp8", _compute_capability(), config)
    blocks = triton.cdiv(sorted_token_ids.numel(), config["BLOCK_SIZE_M"])
    fused_moe_kernel[(blocks * triton.cdiv(n, config["BLOCK_SIZE_N"]),)](
        a,
        b,
        c,
        a_scale,
        b_scale,
        topk_weights,
        sorted_token_ids,
        expert_ids,
        num_tokens_post_padded,
        n,
        k,
        sorted_token_ids.numel(),
        slots,
        *a.stride(),
        *b.stride(),
        *c.stride(),
        *(a_scale.stride() if a_scale is not None else (0, 0)),
        *(b_scale.stride() if b_scale is not None else (0, 0, 0)),
        SLOTS_PER_ROW=slots_per_row,
        MUL_ROUTED_WEIGHT=mul_routed_weight,
        GROUP_N=GROUP if b_scale is not None else 0,
        GROUP_K=GROUP if b_scale is not None else 0,
        EVEN_K=k % config["BLOCK_SIZE_K"] == 0,
        **{"SWAP_AB": False, **config},
    )


def launch_activation(x: torch.Tensor, out: torch.Tensor, config: Mapping[str, int], topk: int, num_experts: int, hidden_size: int) -> None:
    """`out = silu(x[:, :N]) * x[:, N:]`; both contiguous along columns."""
    rows, columns = out.shape
    if rows == 0:
        return
    grid = (rows * triton.cdiv(columns, config["BLOCK_SIZE"]),)
    activation_kernel[grid](x, out, rows, columns, x.stride(0), out.stride(0), topk, num_experts, hidden_size, **config)


def launch_combine(x: torch.Tensor, out: torch.Tensor, config: Mapping[str, int], num_experts: int, intermediate_size: int) -> None:
    """`out[token] = x[slots of the token].sum(0)`; both contiguous along columns."""
    rows, columns = out.shape
    if rows == 0:
        return
    grid = (rows * triton.cdiv(columns, config["BLOCK_SIZE"]),)
    topk = x.shape[0] // rows
    combine_kernel[grid](x, out, rows, columns, x.stride(0), out.stride(0), num_experts, intermediate_size, TOPK=topk, **config)


def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rounds [rows, K] to e4m3 with one fp32 scale per row and 128 columns."""
    import torch

    rows, columns = x.shape
    groups = triton.cdiv(columns, GROUP)
    out = torch.empty((rows, columns), dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty((rows, groups), dtype=torch.float32, device=x.device)
    if rows:
        quantize_kernel[(rows * groups,)](x, out, scale, columns, x.stride(0), out.stride(0), scale.stride(0), FP8_MAX, GROUP, num_warps=1)
    return out, scale


def fused_moe(
    hidden_states: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    config: Mapping[str, int] | None = None,
    *,
    w13_scale: torch.Tensor | None = None,
    w2_scale: torch.Tensor | None = None,
    expert_map: torch.Tensor | None = None,
) -> torch.Tensor:
    """One whole mixture-of-experts layer.

    Args:
        hidden_states: [M, H], bf16 or fp16 (quantized here when the weights have scales).
        w13: [E, 2 N, H], gate then up.
        w2: [E, H, N].
        topk_weights: [M, topk] fp32.
        topk_ids: [M, topk], over all ranks' experts.
        config: A configuration of `fused_moe_kernel`, used by w13 and w2 alike; None: `default`.
        w13_scale: [E, ceil(2 N / 128), ceil(H / 128)] fp32 for e4m3 weights.
        w2_scale: [E, ceil(H / 128), ceil(N / 128)] fp32.
        expert_map: [experts of all ranks] local index or -1.

    Returns:
        [M, H], the type of `hidden_states`.
    """
    import torch

    tokens, topk = topk_ids.shape
    experts, hidden, n = w13.shape[0], w13.shape[2], w13.shape[1] // 2
    out = torch.empty((tokens, hidden), dtype=hidden_states.dtype, device=hidden_states.device)
    if tokens == 0:
        return out
    block_scaled = w13_scale is not None
    problem = {"op": "w13", "M": tokens, "E": experts, "topk": topk, "H": hidden, "N": n}
    config = dict(config or default({**problem, "dtype": "fp8" if block_scaled else "bf16"}))
    topk_weights = topk_weights.to(torch.float32).contiguous()
    num_experts = experts if expert_map is None else expert_map.numel()
    alignment = align_tokens(topk_ids, config["BLOCK_SIZE_M"], num_experts, expert_map)
    activation, combine = (default_row_block({**problem, "op": op}) for op in ("activation", "combine"))

    def empty(columns: int) -> torch.Tensor:
        return torch.empty((tokens * topk, columns), dtype=out.dtype, device=out.device)

    gate_up, activated, expanded = empty(2 * n), empty(n), empty(hidden)
    a, a_scale = quantize(hidden_states) if block_scaled else (hidden_states, None)
    launch_fused_moe_kernel(
        a,
        w13,
        gate_up,
        topk_weights,
        alignment,
        config,
        slots_per_row=topk,
        mul_routed_weight=False,
        a_scale=a_scale,
        b_scale=w13_scale,
    )
    launch_activation(gate_up, activated, activation, topk, experts, hidden)
    a, a_scale = quantize(activated) if block_scaled else (activated, None)
    launch_fused_moe_kernel(
        a,
        w2,
        expanded,
        topk_weights,
        alignment,
        config,
        slots_per_row=1,
        mul_routed_weight=True,
        a_scale=a_scale,
        b_scale=w2_scale,
    )
    launch_combine(expanded, out, combine, experts, n)
    return out


# ------------------------------------------------------------------------------------------------------------- space


def valid(config: Mapping[str, int], problem: Mapping[str, Any]) -> bool:
    """Whether a configuration makes sense for a problem, on any GPU (shared memory and registers are the GPU's)."""
    # More than 128 fp32 accumulators per thread leave no room for addresses in 255 registers.
    if config["BLOCK_SIZE_M"] * config["BLOCK_SIZE_N"] > 128 * 32 * config["num_warps"]:
        return False
    if problem.get("dtype") == "fp8":
        return config["BLOCK_SIZE_K"] <= (problem.get("block_shape") or (GROUP, GROUP))[1]
    return True


def configurations(problem: Mapping[str, Any]) -> Iterator[triton.Config]:
    """The valid configurations of `fused_moe_kernel` for a problem."""
    space = KERNELS["fused_moe_kernel"]["space"]
    for values in itertools.product(*space.values()):
        config = dict(zip(space, values, strict=True))
        if valid(config, problem):
            warps, stages = config.pop("num_warps"), config.pop("num_stages")
            yield triton.Config(config, num_warps=warps, num_stages=stages)


def default(problem: Mapping[str, Any]) -> dict[str, int]:
    """A configuration that is reasonable without tuning; small blocks for few tokens."""
    m, per_expert = problem["M"], problem["M"] * problem["topk"] / problem["E"]
    if problem.get("dtype") == "fp8":
        return {
            "BLOCK_SIZE_M": 16 if m <= 64 else 64,
            "BLOCK_SIZE_N": GROUP,
            "BLOCK_SIZE_K": GROUP,
            "GROUP_SIZE_M": 1 if m <= 16 else 32,
            "num_warps": 4,
            "num_stages": 3,
        }
    return {
        "BLOCK_SIZE_M": next((size for size in (16, 32, 64) if per_expert <= size), 128),
        "BLOCK_SIZE_N": 64 if m <= 64 else 128,
        "BLOCK_SIZE_K": 128 if m <= 64 else 64,
        "GROUP_SIZE_M": 16 if per_expert > 128 else 1,
        "num_warps": 4 if per_expert <= 64 else 8,
        "num_stages": 4 if m <= 32 else 3,
    }


def valid_row_block(config: Mapping[str, int], problem: Mapping[str, Any]) -> bool:
    """No block more than twice the row, none below 256 that does not hold all of it, and at most 64 elements per thread."""
    width, block, warps = _row(problem), config["BLOCK_SIZE"], config["num_warps"]
    fits_row = (block == 32 or block < 2 * width) and block >= min(width, 256)
    # A warp or more with nothing to do is never faster.
    return fits_row and 32 * warps <= max(block, 32) and block <= 64 * 32 * warps


def default_row_block(problem: Mapping[str, Any]) -> dict[str, int]:
    """A configuration of `activation_kernel` and `combine_kernel`."""
    block = min(1024, max(32, triton.next_power_of_2(_row(problem))))
    return {"BLOCK_SIZE": block, "num_warps": min(4, max(1, block // 256)), "num_stages": 1}


def _row(problem: Mapping[str, Any]) -> int:
    """Columns of a row of the output."""
    return problem["N"] if problem["op"] == "activation" else problem["H"]


# ------------------------------------------------------------------------------------------------- what a launch gets


def _sizes(problem: Mapping[str, Any]) -> tuple[int, int, int]:
    """Rows of `a`, columns and depth of the product."""
    if problem["op"] == "w13":
        return problem["M"], 2 * problem["N"], problem["H"]
    return problem["M"] * problem["topk"], problem["H"], problem["N"]


def arguments(problem: Mapping[str, Any], config: Mapping[str, int]) -> dict[str, Any]:
    """Every argument of `fused_moe_kernel` but the configuration's: pointers as Triton types, the rest as values."""
    _, n, k = _sizes(problem)
    slots = problem["M"] * problem["topk"]
    block_scaled = problem.get("dtype") == "fp8"
    operand = {"fp8": "*fp8e4nv", "tf32": "*fp32"}.get(problem["dtype"], f"*{problem['dtype']}")
    output = f"*{problem.get('output_dtype') or 'bf16'}" if block_scaled else operand
    block_m = config["BLOCK_SIZE_M"]
    worst = min(slots + problem["E"] * (block_m - 1), slots * block_m)
    depth_groups, column_groups = triton.cdiv(k, GROUP), triton.cdiv(n, GROUP)
    return {
        "a_ptr": operand,
        "b_ptr": operand,
        "c_ptr": output,
        "a_scale_ptr": "*fp32" if block_scaled else None,
        "b_scale_ptr": "*fp32" if block_scaled else None,
        "topk_weights_ptr": "*fp32",
        "sorted_token_ids_ptr": "*i32",
        "expert_ids_ptr": "*i32",
        "num_tokens_post_padded_ptr": "*i32",
        "N": n,
        "K": k,
        "EM": triton.cdiv(worst, block_m) * block_m,
        "num_slots": slots,
        "stride_am": k,
        "stride_ak": 1,
        "stride_be": n * k,
        "stride_bn": k,
        "stride_bk": 1,
        "stride_cm": n,
        "stride_cn": 1,
        "stride_asm": depth_groups if block_scaled else 0,
        "stride_ask": 1 if block_scaled else 0,
        "stride_bse": column_groups * depth_groups if block_scaled else 0,
        "stride_bsn": depth_groups if block_scaled else 0,
        "stride_bsk": 1 if block_scaled else 0,
        "SLOTS_PER_ROW": problem["topk"] if problem["op"] == "w13" else 1,
        "MUL_ROUTED_WEIGHT": problem["op"] == "w2",
        "GROUP_N": GROUP if block_scaled else 0,
        "GROUP_K": GROUP if block_scaled else 0,
        "EVEN_K": k % config["BLOCK_SIZE_K"] == 0,
        "SWAP_AB": swaps_operands(problem["dtype"], problem.get("compute_capability"), config),
    }


def activation_arguments(problem: Mapping[str, Any], config: Mapping[str, int]) -> dict[str, Any]:
    """Every argument of `activation_kernel` but the configuration's."""
    pointer, n = f"*{problem['dtype']}", problem["N"]
    return {
        "x_ptr": pointer,
        "out_ptr": pointer,
        "num_rows": problem["M"] * problem["topk"],
        "num_columns": n,
        "stride_x": 2 * n,
        "stride_out": n,
        "topk": problem["topk"],
        "num_experts": problem["E"],
        "hidden_size": problem["H"],
    }


def combine_arguments(problem: Mapping[str, Any], config: Mapping[str, int]) -> dict[str, Any]:
    """Every argument of `combine_kernel` but the configuration's."""
    pointer, h = f"*{problem['dtype']}", problem["H"]
    return {
        "x_ptr": pointer,
        "out_ptr": pointer,
        "num_rows": problem["M"],
        "num_columns": h,
        "stride_x": h,
        "stride_out": h,
        "num_experts": problem["E"],
        "intermediate_size": problem["N"],
        "TOPK": problem["topk"],
    }


# ---------------------------------------------------------------------------------------------- inputs and references


def _torch_dtype(name: str) -> torch.dtype:
    import torch

    return {
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp32": torch.float32,
        "fp8": torch.float8_e4m3fn,
    }[name]


def _random(shape: tuple[int, ...], dtype: str, device: str, generator: torch.Generator) -> torch.Tensor:
    """Standard normal values; what the narrow types cannot draw themselves is drawn in a wider one, slice by slice."""
    import torch

    if dtype != "fp8":
        return torch.randn(shape, dtype=_torch_dtype(dtype), device=device, generator=generator)
    out = torch.empty(shape, dtype=torch.float8_e4m3fn, device=device)
    for index in range(shape[0]):
        out[index].copy_(torch.randn(shape[1:], dtype=torch.float32, device=device, generator=generator))
    return out


def make_routing(problem: Mapping[str, Any], device: str, generator: torch.Generator) -> torch.Tensor:
    """[M, topk] experts, distinct within a token: round robin, or with `problem["routing"]` slots for each expert."""
    import torch

    tokens, experts, topk = problem["M"], problem["E"], problem["topk"]
    labels = torch.randperm(experts, device=device, generator=generator)
    histogram = problem.get("routing")
    if histogram is None:
        return labels[torch.arange(tokens * topk, device=device) % experts].reshape(tokens, topk).to(torch.int32)
    if len(histogram) != experts or sum(histogram) != tokens * topk or max(histogram) > tokens:
        raise ValueError(
            f"routing must give each of {experts} experts at most {tokens} and all of them {tokens * topk} slots "
            f"(got {len(histogram)} experts, {sum(histogram)} slots, at most {max(histogram, default=0)})"
        )
    by_expert = torch.repeat_interleave(torch.tensor(histogram, device=device))
    # A run of at most M slots meets each token once when tokens go round.
    return by_expert.reshape(topk, tokens).T.contiguous().to(torch.int32)


def make_inputs(problem: Mapping[str, Any], device: str, generator: torch.Generator) -> Inputs:
    """Random tensors for w13 or w2, and an output to be written."""
    import torch

    rows, n, k = _sizes(problem)
    tokens, experts, topk, dtype = problem["M"], problem["E"], problem["topk"], problem["dtype"]
    block_scaled = dtype == "fp8"

    def scales(*shape: int) -> torch.Tensor:
        return torch.rand(shape, device=device, generator=generator) + 0.5

    output_dtype = _torch_dtype(problem.get("output_dtype") or ("bf16" if block_scaled else dtype))
    return {
        "problem": dict(problem),
        "a": _random((rows, k), dtype, device, generator),
        "b": _random((experts, n, k), dtype, device, generator),
        "a_scale": scales(rows, triton.cdiv(k, GROUP)) if block_scaled else None,
        "b_scale": scales(experts, triton.cdiv(n, GROUP), triton.cdiv(k, GROUP)) if block_scaled else None,
        "topk_ids": make_routing(problem, device, generator),
        "topk_weights": torch.rand((tokens, topk), device=device, generator=generator),
        "expert_map": None,
        "output": torch.empty((tokens * topk, n), dtype=output_dtype, device=device),
    }


def prepare(inputs: Inputs, config: Mapping[str, int]) -> Callable[[], torch.Tensor]:
    """Aligns the tokens, and returns what enqueues exactly one launch of `fused_moe_kernel` and gives its output."""
    second = inputs["problem"]["op"] == "w2"
    topk = inputs["topk_ids"].shape[1]
    expert_map = inputs.get("expert_map")
    num_experts = inputs["b"].shape[0] if expert_map is None else expert_map.numel()
    alignment = align_tokens(inputs["topk_ids"], config["BLOCK_SIZE_M"], num_experts, expert_map)

    def run() -> torch.Tensor:
        launch_fused_moe_kernel(
            inputs["a"],
            inputs["b"],
            inputs["output"],
            inputs["topk_weights"],
            alignment,
            config,
            slots_per_row=1 if second else topk,
            mul_routed_weight=second,
            a_scale=inputs["a_scale"],
            b_scale=inputs["b_scale"],
        )
        return inputs["output"]

    return run


def dequantize(values: torch.Tensor, scale: torch.Tensor | None, *, blocks: bool) -> torch.Tensor:
    """fp64 values of an operand; `blocks`: scales hold for 128 rows too, not only for 128 columns."""
    import torch

    wide = values.to(torch.float64)
    if scale is None:
        return wide
    spread = scale.to(torch.float64).repeat_interleave(GROUP, -1)[..., : values.shape[-1]]
    if blocks:
        spread = spread.repeat_interleave(GROUP, -2)[..., : values.shape[-2], :]
    return wide * spread


def reference(inputs: Inputs) -> torch.Tensor:
    """w13 or w2 in fp64, expert by expert."""
    import torch

    second = inputs["problem"]["op"] == "w2"
    topk_ids, b, b_scale = inputs["topk_ids"], inputs["b"], inputs["b_scale"]
    experts = topk_ids.reshape(-1).long()
    if inputs.get("expert_map") is not None:
        experts = inputs["expert_map"].long()[experts]
    a = dequantize(inputs["a"], inputs["a_scale"], blocks=False)
    if not second:
        a = a.repeat_interleave(topk_ids.shape[1], 0)
    out = torch.zeros((experts.numel(), b.shape[1]), dtype=torch.float64, device=b.device)
    for expert in range(b.shape[0]):
        slots = torch.nonzero(experts == expert).flatten()
        scale = None if b_scale is None else b_scale[expert]
        out[slots] = a[slots] @ dequantize(b[expert], scale, blocks=True).T
    return out * inputs["topk_weights"].reshape(-1, 1).double() if second else out


def make_activation_inputs(problem: Mapping[str, Any], device: str, generator: torch.Generator) -> Inputs:
    """Random gate and up for every slot."""
    import torch

    rows, n, dtype = problem["M"] * problem["topk"], problem["N"], problem["dtype"]
    return {
        "problem": dict(problem),
        "x": _random((rows, 2 * n), dtype, device, generator),
        "output": torch.empty((rows, n), dtype=_torch_dtype(dtype), device=device),
    }


def prepare_activation(inputs: Inputs, config: Mapping[str, int]) -> Callable[[], torch.Tensor]:
    """Returns what enqueues exactly one launch of `activation_kernel` and gives its output."""
    problem = inputs["problem"]

    def run() -> torch.Tensor:
        launch_activation(inputs["x"], inputs["output"], config, problem["topk"], problem["E"], problem["H"])
        return inputs["output"]

    return run


def reference_activation(inputs: Inputs) -> torch.Tensor:
    """SiLU of the gate times up, in fp64."""
    import torch

    gate, up = inputs["x"].double().chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def make_combine_inputs(problem: Mapping[str, Any], device: str, generator: torch.Generator) -> Inputs:
    """Random outputs of w2 for every slot."""
    import torch

    tokens, h, dtype = problem["M"], problem["H"], problem["dtype"]
    return {
        "problem": dict(problem),
        "x": _random((tokens * problem["topk"], h), dtype, device, generator),
        "output": torch.empty((tokens, h), dtype=_torch_dtype(dtype), device=device),
    }


def prepare_combine(inputs: Inputs, config: Mapping[str, int]) -> Callable[[], torch.Tensor]:
    """Returns what enqueues exactly one launch of `combine_kernel` and gives its output."""
    problem = inputs["problem"]

    def run() -> torch.Tensor:
        launch_combine(inputs["x"], inputs["output"], config, problem["E"], problem["N"])
        return inputs["output"]

    return run


def reference_combine(inputs: Inputs) -> torch.Tensor:
    """The sum over a token's slots, in fp64."""
    problem = inputs["problem"]
    return inputs["x"].double().reshape(problem["M"], problem["topk"], problem["H"]).sum(1)


def reference_layer(
    hidden_states: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    expert_map: torch.Tensor | None = None,
) -> torch.Tensor:
    """The whole layer in fp64, for weights that are not quantized (dequantize them first)."""
    import torch

    out = torch.zeros_like(hidden_states, dtype=torch.float64)
    for token, choice in itertools.product(range(topk_ids.shape[0]), range(topk_ids.shape[1])):
        expert = int(topk_ids[token, choice])
        if expert_map is not None:
            expert = int(expert_map[expert])
        if expert < 0:
            continue
        gate, up = (w13[expert].double() @ hidden_states[token].double()).chunk(2)
        hidden = torch.nn.functional.silu(gate) * up
        out[token] += topk_weights[token, choice].double() * (w2[expert].double() @ hidden)
    return out
