"""Matrix product `C = A @ B`: grouped ordering, split-K, and a persistent kernel on tensor descriptors.

One file, copyable on its own: kernels, launches, torch references, configuration spaces, and what problem a call is
(`KERNELS`, a plain literal; README.md beside this file says what its keys mean). torch is imported where it runs.

A is [M, K] and B is [K, N], with any strides; the usual B is the transpose of a [N, K] weight. Types: bf16, fp16, fp8
(e4m3, with a scale per row of A and per column of B), fp32 by TF32 tensor instructions (`tf32`) or exactly (`fp32`).
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
    "gemm_kernel": {
        "family": "gemm",
        "ops": {"gemm": {"sizes": {"M": "M", "N": "N", "K": "K"}}},
        "dtype": "a_ptr",
        "weight_dtype": "b_ptr",
        "output_dtype": "c_ptr",
        "precision": "INPUT_PRECISION",
        "dtypes": ["bf16", "fp16", "fp8", "tf32", "fp32"],
        "space": {
            "BLOCK_SIZE_M": [16, 32, 64, 128, 256],
            "BLOCK_SIZE_N": [16, 32, 64, 128, 256],
            "BLOCK_SIZE_K": [32, 64, 128],
            "GROUP_SIZE_M": [1, 4, 8, 16],
            "SPLIT_K": [1, 2, 4, 8, 16],
            "num_warps": [4, 8],
            "num_stages": [2, 3, 4, 5],
        },
        "grid": "cdiv(M, BLOCK_SIZE_M) * cdiv(N, BLOCK_SIZE_N), SPLIT_K",
        "example": {"M": 4096, "N": 4096, "K": 4096},
        "valid": "valid",
        "default": "default",
        "arguments": "arguments",
        "make_inputs": "make_inputs",
        "prepare": "prepare",
        "reference": "reference",
        "tolerance": {
            "bf16": [1e-2, 1e-3],
            "fp16": [2e-3, 1e-3],
            "fp8": [2e-2, 3e-2],
            "tf32": [5e-3, 5e-3],
            "fp32": [1e-4, 1e-5],
        },
        # Hopper's tensor cores add e4m3 products in 13 bits or so, over the whole sum: its error grows with the sum's length.
        "tolerance_beyond": {"fp8": {"K": 16384, "tolerance": [2e-2, 4e-2]}},
    },
    "gemm_persistent_kernel": {
        "family": "gemm",
        "ops": {"gemm": {"sizes": {"M": "M", "N": "N", "K": "K"}}},
        "dtype": "a_desc",
        "weight_dtype": "b_desc",
        "output_dtype": "c_desc",
        "precision": "INPUT_PRECISION",
        "dtypes": ["bf16", "fp16", "fp8", "tf32"],
        "min_capability": 90,
        "space": {
            "BLOCK_SIZE_M": [64, 128, 256],
            "BLOCK_SIZE_N": [64, 128, 256],
            "BLOCK_SIZE_K": [32, 64, 128],
            "GROUP_SIZE_M": [4, 8, 16],
            "EPILOGUE_SUBTILE": [1, 2],
            "FLATTEN": [False, True],
            "WARP_SPECIALIZE": [False, True],
            "num_warps": [4, 8],
            "num_stages": [2, 3, 4, 5],
        },
        "grid": "min(NUM_SMS, cdiv(M, BLOCK_SIZE_M) * cdiv(N, BLOCK_SIZE_N))",
        "shapes": {"a_desc": "M, K", "b_desc": "N, K", "c_desc": "M, N"},
        "example": {"M": 8192, "N": 8192, "K": 8192},
        "valid": "valid_persistent",
        "default": "default_persistent",
        "arguments": "persistent_arguments",
        "make_inputs": "make_inputs",
        "prepare": "prepare_persistent",
        "reference": "reference",
        "tolerance": {"bf16": [1e-2, 1e-3], "fp16": [2e-3, 1e-3], "fp8": [2e-2, 3e-2], "tf32": [5e-3, 5e-3]},
        "tolerance_beyond": {"fp8": {"K": 16384, "tolerance": [2e-2, 4e-2]}},
    },
}

MAX_PARTS = 1 << 28
"""Elements of [SPLIT_K, M, N] at most: 1 GiB of fp32. That many are 16384 tiles of 128 x 128, which fill any GPU many times over, so that
splitting the sum could only add traffic."""

Problem = dict[str, Any]
Inputs = dict[str, Any]


# ---------------------------------------------------------------------------------------------------------- kernels


@triton.jit
def _tile(tile, num_m, num_n, GROUP_SIZE_M: tl.constexpr):
    """Row and column of a tile: GROUP_SIZE_M rows of tiles are walked column by column, so that they share the L2."""
    tiles_in_group = GROUP_SIZE_M * num_n
    first_m = (tile // tiles_in_group) * GROUP_SIZE_M
    group_size = min(num_m - first_m, GROUP_SIZE_M)
    return first_m + (tile % tiles_in_group) % group_size, (tile % tiles_in_group) // group_size


@triton.jit
def gemm_kernel(
    a_ptr,  # [M, K]
    b_ptr,  # [K, N]
    c_ptr,  # [M, N], or with SPLIT_K > 1 the fp32 partial sums [SPLIT_K, M, N]
    a_scale_ptr,  # [M] fp32, or None
    b_scale_ptr,  # [N] fp32, or None
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cs,
    stride_cm,
    stride_cn,
    INPUT_PRECISION: tl.constexpr,
    EVEN_K: tl.constexpr,  # K % (BLOCK_SIZE_K * SPLIT_K) == 0: loads need no mask along K
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    SPLIT_K: tl.constexpr,
):
    """One tile of the product per program, or one part of its sum along K."""
    pid_m, pid_n = _tile(tl.program_id(0), tl.cdiv(M, BLOCK_SIZE_M), tl.cdiv(N, BLOCK_SIZE_N), GROUP_SIZE_M)
    split = tl.program_id(1)

    rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M).to(tl.int64)
    columns = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N).to(tl.int64)
    ks = tl.arange(0, BLOCK_SIZE_K)
    steps = tl.cdiv(K, BLOCK_SIZE_K * SPLIT_K)
    first_k = split * steps * BLOCK_SIZE_K
    # Rows and columns past the end wrap around instead of being masked: their products are never stored.
    a_ptrs = a_ptr + (rows % M)[:, None] * stride_am + (first_k.to(tl.int64) + ks)[None, :] * stride_ak
    b_ptrs = b_ptr + (first_k.to(tl.int64) + ks)[:, None] * stride_bk + (columns % N)[None, :] * stride_bn

    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for step in range(steps):
        if EVEN_K:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            left = K - first_k - step * BLOCK_SIZE_K
            a = tl.load(a_ptrs, mask=ks[None, :] < left, other=0.0)
            b = tl.load(b_ptrs, mask=ks[:, None] < left, other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision=INPUT_PRECISION)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk

    if a_scale_ptr is not None:
        accumulator *= tl.load(a_scale_ptr + rows, mask=rows < M, other=0.0)[:, None]
    if b_scale_ptr is not None:
        accumulator *= tl.load(b_scale_ptr + columns, mask=columns < N, other=0.0)[None, :]
    c_ptrs = c_ptr + split.to(tl.int64) * stride_cs + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    tl.store(c_ptrs, accumulator.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def sum_splits_kernel(
    partial_ptr,  # [SPLIT_K, M, N] fp32, contiguous
    c_ptr,  # [M, N]
    M,
    N,
    stride_cm,
    stride_cn,
    SPLIT_K: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """Adds the parts in a fixed order: the same bits every time, which atomic additions would not give."""
    blocks = tl.cdiv(N, BLOCK_SIZE)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = columns < N
    total = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    rows = tl.cast(M, tl.int64)  # not M.to(): an argument of 1 is a plain number
    for split in tl.static_range(SPLIT_K):
        total += tl.load(partial_ptr + (row + split * rows) * N + columns, mask=mask, other=0.0)
    c_ptrs = c_ptr + row * stride_cm + columns.to(tl.int64) * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def gemm_persistent_kernel(
    a_desc,  # [M, K], blocks of [BLOCK_SIZE_M, BLOCK_SIZE_K]
    b_desc,  # B_K_MAJOR: [N, K], blocks of [BLOCK_SIZE_N, BLOCK_SIZE_K]; else [K, N], [BLOCK_SIZE_K, BLOCK_SIZE_N]
    c_desc,  # [M, N], blocks of [BLOCK_SIZE_M, BLOCK_SIZE_N / EPILOGUE_SUBTILE]
    a_scale_ptr,  # [M] fp32, or None
    b_scale_ptr,  # [N] fp32, or None
    M,
    N,
    K,
    B_K_MAJOR: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    EPILOGUE_SUBTILE: tl.constexpr,  # 2: the tile leaves in halves, through half the shared memory
    FLATTEN: tl.constexpr,  # one software pipeline across tiles, so that the next tile's loads run under this one's end
    WARP_SPECIALIZE: tl.constexpr,
):
    """As many programs as stay resident, each taking every so-many-th tile."""
    num_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_n = tl.cdiv(N, BLOCK_SIZE_N)
    steps = tl.cdiv(K, BLOCK_SIZE_K)
    programs = tl.num_programs(0)
    # The end of a tile works out its own coordinates: were the loop's start to hand them over, they would have to live
    # through the flattened pipeline, whose prologue is already a tile ahead.
    stored_tile = tl.program_id(0) - programs

    for tile in tl.range(tl.program_id(0), num_m * num_n, programs, flatten=FLATTEN, warp_specialize=WARP_SPECIALIZE):
        pid_m, pid_n = _tile(tile, num_m, num_n, GROUP_SIZE_M)
        first_row = pid_m * BLOCK_SIZE_M
        first_column = pid_n * BLOCK_SIZE_N
        accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
        for step in range(steps):
            k = step * BLOCK_SIZE_K
            a = a_desc.load([first_row, k])
            if B_K_MAJOR:
                b = b_desc.load([first_column, k]).T
            else:
                b = b_desc.load([k, first_column])
            accumulator = tl.dot(a, b, accumulator, input_precision=INPUT_PRECISION)

        stored_tile += programs
        pid_m, pid_n = _tile(stored_tile, num_m, num_n, GROUP_SIZE_M)
        first_row = pid_m * BLOCK_SIZE_M
        first_column = pid_n * BLOCK_SIZE_N
        if a_scale_ptr is not None:
            rows = first_row + tl.arange(0, BLOCK_SIZE_M)
            accumulator *= tl.load(a_scale_ptr + rows, mask=rows < M, other=0.0)[:, None]
        if b_scale_ptr is not None:
            columns = first_column + tl.arange(0, BLOCK_SIZE_N)
            accumulator *= tl.load(b_scale_ptr + columns, mask=columns < N, other=0.0)[None, :]
        if EPILOGUE_SUBTILE == 2:
            halves = tl.reshape(accumulator, (BLOCK_SIZE_M, 2, BLOCK_SIZE_N // 2))
            left, right = tl.split(tl.permute(halves, (0, 2, 1)))
            c_desc.store([first_row, first_column], left.to(c_desc.dtype))
            c_desc.store([first_row, first_column + BLOCK_SIZE_N // 2], right.to(c_desc.dtype))
        else:
            c_desc.store([first_row, first_column], accumulator.to(c_desc.dtype))


# ---------------------------------------------------------------------------------------------------------- launches


def launch_gemm_kernel(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    config: Mapping[str, int],
    *,
    precision: str = "tf32",
    a_scale: torch.Tensor | None = None,
    b_scale: torch.Tensor | None = None,
    partial: torch.Tensor | None = None,
) -> None:
    """Enqueues `c = a @ b` by `gemm_kernel`, and with SPLIT_K > 1 the sum of its parts.

    Args:
        a: [M, K], any strides.
        b: [K, N], any strides.
        c: [M, N], written in full.
        config: A configuration of `gemm_kernel`.
        precision: Of fp32 operands: "tf32" or "ieee".
        a_scale: [M] fp32, contiguous; None: 1.
        b_scale: [N] fp32, contiguous; None: 1.
        partial: [SPLIT_K, M, N] fp32 scratch; None: allocated here where needed.
    """
    import torch

    m, k = a.shape
    n = b.shape[1]
    if m == 0 or n == 0:
        return
    if k == 0:
        c.zero_()
        return
    split = config["SPLIT_K"]
    out = c.unsqueeze(0)
    if split > 1:
        out = torch.empty((split, m, n), dtype=torch.float32, device=c.device) if partial is None else partial
    grid = (triton.cdiv(m, config["BLOCK_SIZE_M"]) * triton.cdiv(n, config["BLOCK_SIZE_N"]), split)
    gemm_kernel[grid](
        a,
        b,
        out,
        a_scale,
        b_scale,
        m,
        n,
        k,
        *a.stride(),
        *b.stride(),
        *out.stride(),
        INPUT_PRECISION=precision,
        EVEN_K=k % (config["BLOCK_SIZE_K"] * split) == 0,
        **config,
    )
    if split > 1:
        block = min(1024, triton.next_power_of_2(n))
        grid = (m * triton.cdiv(n, block),)
        sum_splits_kernel[grid](out, c, m, n, *c.stride(), SPLIT_K=split, BLOCK_SIZE=block)


def launch_gemm_persistent_kernel(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    config: Mapping[str, int],
    *,
    precision: str = "tf32",
    a_scale: torch.Tensor | None = None,
    b_scale: torch.Tensor | None = None,
    programs: int | None = None,
) -> None:
    """Enqueues `c = a @ b` by `gemm_persistent_kernel`; `descriptors_fit` says which tensors it takes.

    Args:
        a: [M, K], contiguous along K.
        b: [K, N], contiguous along K or N.
        c: [M, N], contiguous along N, written in full.
        config: A configuration of `gemm_persistent_kernel`.
        precision: Of fp32 operands; descriptors only make sense for "tf32".
        a_scale: [M] fp32, contiguous; None: 1.
        b_scale: [N] fp32, contiguous; None: 1.
        programs: CTAs to launch; None: one per SM.
    """
    import torch
    from triton.tools.tensor_descriptor import TensorDescriptor

    m, k = a.shape
    n = b.shape[1]
    if m == 0 or n == 0:
        return
    if k == 0:
        c.zero_()
        return
    block_m, block_n, block_k = (config[f"BLOCK_SIZE_{letter}"] for letter in "MNK")
    if programs is None:
        programs = torch.cuda.get_device_properties(a.device).multi_processor_count
    k_major = b.stride(0) == 1
    b_view, b_block = (b.T, [block_n, block_k]) if k_major else (b, [block_k, block_n])
    gemm_persistent_kernel[(min(programs, triton.cdiv(m, block_m) * triton.cdiv(n, block_n)),)](
        TensorDescriptor.from_tensor(a, [block_m, block_k]),
        TensorDescriptor.from_tensor(b_view, b_block),
        TensorDescriptor.from_tensor(c, [block_m, block_n // config["EPILOGUE_SUBTILE"]]),
        a_scale,
        b_scale,
        m,
        n,
        k,
        B_K_MAJOR=k_major,
        INPUT_PRECISION=precision,
        **config,
    )


def descriptors_fit(*tensors: torch.Tensor) -> bool:
    """Whether tensor descriptors can hold these: one stride of 1, the other and the address multiples of 16 bytes."""
    return all(
        tensor.data_ptr() % 16 == 0 and min(tensor.stride()) == 1 and max(tensor.stride()) * tensor.element_size() % 16 == 0
        for tensor in tensors
    )


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    a_scale: torch.Tensor | None = None,
    b_scale: torch.Tensor | None = None,
    allow_tf32: bool = True,
) -> torch.Tensor:
    """`a @ b` on this GPU, by the kernel and the default configuration that suit it.

    Args:
        a: [M, K] bf16, fp16, fp32 or e4m3.
        b: [K, N] of the same type.
        a_scale: [M] fp32, for e4m3.
        b_scale: [N] fp32, for e4m3.
        allow_tf32: Round fp32 operands to TF32.

    Returns:
        [M, N], the operands' type; bf16 for e4m3.
    """
    import torch

    names = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float8_e4m3fn: "fp8"}
    dtype = names.get(a.dtype, "tf32" if allow_tf32 else "fp32")
    problem = {"op": "gemm", "M": a.shape[0], "N": b.shape[1], "K": a.shape[1], "dtype": dtype}
    c = torch.empty((problem["M"], problem["N"]), dtype=torch.bfloat16 if dtype == "fp8" else a.dtype, device=a.device)
    precision = "ieee" if dtype == "fp32" else "tf32"
    large = problem["M"] >= 1024 and problem["N"] >= 1024
    b_fits = dtype not in ("fp8", "tf32") or b.stride(0) == 1
    persistent = large and dtype != "fp32" and b_fits and a.stride(1) == 1 and descriptors_fit(a, b, c)
    if persistent and torch.cuda.get_device_capability(a.device)[0] in (9, 10):
        config, launch = default_persistent(problem), launch_gemm_persistent_kernel
    else:
        config, launch = default(problem), launch_gemm_kernel
    launch(a, b, c, config, precision=precision, a_scale=a_scale, b_scale=b_scale)
    return c


# ------------------------------------------------------------------------------------------------------------- space


def valid(config: Mapping[str, int], problem: Mapping[str, Any]) -> bool:
    """Whether a configuration of `gemm_kernel` makes sense for a problem, on any GPU."""
    # More than 128 fp32 accumulators per thread leave no room for addresses in 255 registers.
    if config["BLOCK_SIZE_M"] * config["BLOCK_SIZE_N"] > 128 * 32 * config["num_warps"]:
        return False
    if config["SPLIT_K"] == 1:
        return True
    # Every part gets at least two steps, else its end outweighs its sum.
    enough = problem["K"] >= 2 * config["BLOCK_SIZE_K"] * config["SPLIT_K"]
    return enough and config["SPLIT_K"] * problem["M"] * problem["N"] <= MAX_PARTS


def valid_persistent(config: Mapping[str, Any], problem: Mapping[str, Any]) -> bool:
    """Whether a configuration of `gemm_persistent_kernel` makes sense for a problem (`capability`: 90 for sm_90)."""
    if config["BLOCK_SIZE_M"] * config["BLOCK_SIZE_N"] > 128 * 32 * config["num_warps"]:
        return False
    # Warp specialization is for tcgen05 GPUs. On sm_90, Triton 3.6 and 3.9 ignore it with eight warps and fail to compile
    # with four; on sm_100, 3.6 compiles it for a flattened loop only.
    if config["WARP_SPECIALIZE"] and not (config["FLATTEN"] and 100 <= problem.get("capability", 0) < 110):
        return False
    size = {"fp8": 1, "tf32": 4}.get(problem["dtype"], 2)
    output_size = {"tf32": 4}.get(problem["dtype"], 2)
    # A descriptor's rows begin at multiples of 16 bytes.
    return problem["K"] * size % 16 == 0 and problem["N"] * output_size % 16 == 0 and problem["dtype"] != "fp32"


def configurations(problem: Mapping[str, Any], kernel: str = "gemm_kernel") -> Iterator[triton.Config]:
    """The valid configurations of a kernel for a problem."""
    space = KERNELS[kernel]["space"]
    check = valid if kernel == "gemm_kernel" else valid_persistent
    for values in itertools.product(*space.values()):
        config = dict(zip(space, values, strict=True))
        if check(config, problem):
            warps, stages = config.pop("num_warps"), config.pop("num_stages")
            yield triton.Config(config, num_warps=warps, num_stages=stages)


def default(problem: Mapping[str, Any]) -> dict[str, int]:
    """A configuration of `gemm_kernel` that is reasonable without tuning."""
    m, n, k = problem["M"], problem["N"], problem["K"]
    large = m >= 128 and n >= 128
    block_m = 128 if large else next((size for size in (16, 32, 64) if m <= size), 64)
    block_n = 128 if large else 64
    block_k = 32 if problem["dtype"] in ("tf32", "fp32") else 64
    split = 1
    # Few tiles leave most SMs idle (100 stands for the SMs of a data-centre GPU): share the sum instead.
    while split < 16 and split * triton.cdiv(m, block_m) * triton.cdiv(n, block_n) < 100 and k >= 8 * block_k * split:
        split *= 2
    return {
        "BLOCK_SIZE_M": block_m,
        "BLOCK_SIZE_N": block_n,
        "BLOCK_SIZE_K": block_k,
        "GROUP_SIZE_M": 8,
        "SPLIT_K": split,
        "num_warps": 8 if large else 4,
        "num_stages": 3,
    }


def default_persistent(problem: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of `gemm_persistent_kernel`: the widest tile two warp groups hold, three or four stages deep."""
    wide = problem["N"] > 128 and problem["dtype"] != "tf32"
    return {
        "BLOCK_SIZE_M": 128,
        "BLOCK_SIZE_N": 256 if wide else 128,
        "BLOCK_SIZE_K": {"fp8": 128, "tf32": 32}.get(problem["dtype"], 64),
        "GROUP_SIZE_M": 8,
        "EPILOGUE_SUBTILE": 2,
        "FLATTEN": True,
        "WARP_SPECIALIZE": False,
        "num_warps": 8,
        "num_stages": 3 if problem["dtype"] == "fp8" else 4,
    }


# ------------------------------------------------------------------------------------------------- what a launch gets


def _types(problem: Mapping[str, Any]) -> tuple[str, str, str]:
    """Triton's names of the operands' and the output's element types, and the precision of the product."""
    dtype = problem["dtype"]
    operand = {"fp8": "fp8e4nv", "tf32": "fp32"}.get(dtype, dtype)
    return operand, problem.get("output_dtype") or ("bf16" if dtype == "fp8" else operand), _precision(dtype)


def _precision(dtype: str) -> str:
    return "ieee" if dtype == "fp32" else "tf32"


def arguments(problem: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Every argument of `gemm_kernel` but the configuration's, for B as the transpose of a contiguous [N, K]."""
    operand, output, precision = _types(problem)
    m, n, k, split = problem["M"], problem["N"], problem["K"], config["SPLIT_K"]
    scale = "*fp32" if problem["dtype"] == "fp8" else None
    return {
        "a_ptr": f"*{operand}",
        "b_ptr": f"*{operand}",
        "c_ptr": f"*{output}" if split == 1 else "*fp32",
        "a_scale_ptr": scale,
        "b_scale_ptr": scale,
        "M": m,
        "N": n,
        "K": k,
        "stride_am": k,
        "stride_ak": 1,
        "stride_bk": 1,
        "stride_bn": k,
        "stride_cs": m * n,
        "stride_cm": n,
        "stride_cn": 1,
        "INPUT_PRECISION": precision,
        "EVEN_K": k % (config["BLOCK_SIZE_K"] * split) == 0,
    }


def persistent_arguments(problem: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Every argument of `gemm_persistent_kernel` but the configuration's, for B the transpose of a contiguous [N, K]."""
    operand, output, precision = _types(problem)
    block_m, block_n, block_k = (config[f"BLOCK_SIZE_{letter}"] for letter in "MNK")
    scale = "*fp32" if problem["dtype"] == "fp8" else None
    return {
        "a_desc": f"tensordesc<{operand}[{block_m}, {block_k}]>",
        "b_desc": f"tensordesc<{operand}[{block_n}, {block_k}]>",
        "c_desc": f"tensordesc<{output}[{block_m}, {block_n // config['EPILOGUE_SUBTILE']}]>",
        "a_scale_ptr": scale,
        "b_scale_ptr": scale,
        "M": problem["M"],
        "N": problem["N"],
        "K": problem["K"],
        "B_K_MAJOR": True,
        "INPUT_PRECISION": precision,
    }


# ---------------------------------------------------------------------------------------------- inputs and references


def make_inputs(problem: Mapping[str, Any], device: str, generator: torch.Generator) -> Inputs:
    """Random A, B (the transpose of a contiguous [N, K]), scales for fp8, and an output to be written."""
    import torch

    operand, output, precision = _types(problem)
    dtypes = {
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp32": torch.float32,
        "fp8e4nv": torch.float8_e4m3fn,
    }
    m, n, k = problem["M"], problem["N"], problem["K"]
    fp8 = problem["dtype"] == "fp8"

    def random(rows: int) -> torch.Tensor:
        drawn = dtypes["bf16"] if fp8 else dtypes[operand]  # e4m3 cannot draw itself
        return torch.randn((rows, k), dtype=drawn, device=device, generator=generator).to(dtypes[operand])

    def scales(count: int) -> torch.Tensor | None:
        return torch.rand(count, device=device, generator=generator) + 0.5 if fp8 else None

    return {
        "problem": dict(problem),
        "a": random(m),
        "b": random(n).T,
        "a_scale": scales(m),
        "b_scale": scales(n),
        "precision": precision,
        "output": torch.empty((m, n), dtype=dtypes[output], device=device),
    }


def _scratch(inputs: Inputs, split: int) -> torch.Tensor:
    """[split, M, N] fp32 for the parts of a sum. All launches on these inputs share it, for they run one after the other.

    It has room for the largest valid split from the start: launches captured in a CUDA graph keep its address.
    """
    import torch

    c, k = inputs["output"], inputs["a"].shape[1]
    smallest = min(KERNELS["gemm_kernel"]["space"]["BLOCK_SIZE_K"])
    splits = KERNELS["gemm_kernel"]["space"]["SPLIT_K"]
    largest = max(each for each in splits if each == 1 or (each * c.numel() <= MAX_PARTS and k >= 2 * smallest * each))
    if split > largest:
        return torch.empty((split, *c.shape), dtype=torch.float32, device=c.device)
    if "scratch" not in inputs:
        inputs["scratch"] = torch.empty((largest, *c.shape), dtype=torch.float32, device=c.device)
    return inputs["scratch"][:split]


def prepare(inputs: Inputs, config: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
    """Returns what enqueues `gemm_kernel` (and, with SPLIT_K > 1, the sum of its parts) and gives its output."""
    a, b, c = inputs["a"], inputs["b"], inputs["output"]
    partial = _scratch(inputs, config["SPLIT_K"]) if config["SPLIT_K"] > 1 else None

    def run() -> torch.Tensor:
        launch_gemm_kernel(
            a,
            b,
            c,
            config,
            precision=inputs["precision"],
            a_scale=inputs["a_scale"],
            b_scale=inputs["b_scale"],
            partial=partial,
        )
        return c

    return run


def prepare_persistent(inputs: Inputs, config: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
    """Returns what enqueues exactly one launch of `gemm_persistent_kernel` and gives its output."""
    a, b, c = inputs["a"], inputs["b"], inputs["output"]
    programs = inputs.get("programs") or (None if a.is_cuda else 3)  # in the interpreter: fewer programs than tiles

    def run() -> torch.Tensor:
        launch_gemm_persistent_kernel(
            a,
            b,
            c,
            config,
            precision=inputs["precision"],
            a_scale=inputs["a_scale"],
            b_scale=inputs["b_scale"],
            programs=programs,
        )
        return c

    return run


def reference(inputs: Inputs) -> torch.Tensor:
    """The product in fp64."""
    out = inputs["a"].double() @ inputs["b"].double()
    if inputs["a_scale"] is not None:
        out *= inputs["a_scale"].double()[:, None]
        out *= inputs["b_scale"].double()[None, :]
    return out
