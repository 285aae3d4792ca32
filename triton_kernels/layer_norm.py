"""LayerNorm: each row to mean 0 and variance 1, times a weight, plus a bias; rows of any length.

One file, copyable on its own: the kernel, its launch, its torch reference, its configuration space, and what problem a
call is (`KERNELS`, a plain literal; README.md beside this file says what its keys mean). torch is imported where it runs.
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
    "layer_norm_kernel": {
        "family": "normalization",
        "ops": {"layer_norm": {"sizes": {"B": "num_rows", "H": "num_columns"}}},
        "dtype": "x_ptr",
        "output_dtype": "out_ptr",
        "dtypes": ["bf16", "fp16", "fp32"],
        "space": {
            "BLOCK_SIZE": [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384],
            "ROWS_PER_CTA": [1, 2, 4, 8, 16, 32, 64],
            "num_warps": [1, 2, 4, 8, 16],
            "num_stages": [1, 2],
        },
        "grid": "cdiv(num_rows, ROWS_PER_CTA)",
        "example": {"B": 4096, "H": 4096},
        "valid": "valid",
        "default": "default",
        "arguments": "arguments",
        "make_inputs": "make_inputs",
        "prepare": "prepare",
        "reference": "reference",
        "tolerance": {"bf16": [1e-2, 1e-3], "fp16": [2e-3, 1e-3], "fp32": [1e-5, 1e-5]},
    }
}

ELEMENTS_AT_ONCE = 1 << 24
"""Elements of which the reference makes fp64 copies at a time."""

Problem = dict[str, Any]
Inputs = dict[str, Any]


# --------------------------------------------------------------------------------------------------------------- kernel


@triton.jit
def layer_norm_kernel(
    x_ptr,  # [num_rows, num_columns]
    weight_ptr,  # [num_columns], or None: 1
    bias_ptr,  # [num_columns], or None: 0
    out_ptr,  # [num_rows, num_columns]
    num_rows,
    num_columns,
    stride_xr,
    stride_xc,
    stride_or,
    stride_oc,
    epsilon,
    ONE_PASS: tl.constexpr,  # num_columns <= BLOCK_SIZE: the row stays in registers
    BLOCK_SIZE: tl.constexpr,
    ROWS_PER_CTA: tl.constexpr,
):
    """ROWS_PER_CTA rows per program; rows longer than BLOCK_SIZE are read twice."""
    rows = (tl.program_id(0) * ROWS_PER_CTA + tl.arange(0, ROWS_PER_CTA)).to(tl.int64)[:, None]
    columns = tl.arange(0, BLOCK_SIZE).to(tl.int64)[None, :]
    x_ptrs = x_ptr + rows * stride_xr + columns * stride_xc
    out_ptrs = out_ptr + rows * stride_or + columns * stride_oc
    if ONE_PASS:
        mask = (rows < num_rows) & (columns < num_columns)
        x = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32)
        mean = tl.sum(x, axis=1) / num_columns
        centred = tl.where(mask, x - mean[:, None], 0.0)
        scale = tl.rsqrt(tl.sum(centred * centred, axis=1) / num_columns + epsilon)
        out = centred * scale[:, None]
        if weight_ptr is not None:
            out *= tl.load(weight_ptr + columns, mask=columns < num_columns, other=0.0).to(tl.float32)
        if bias_ptr is not None:
            out += tl.load(bias_ptr + columns, mask=columns < num_columns, other=0.0).to(tl.float32)
        tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask)
    else:
        # Mean and squared deviations are merged block by block (Chan, Golub, LeVeque 1979): the difference of sums of
        # squares would lose a small variance beside a large mean.
        mean = tl.zeros((ROWS_PER_CTA,), dtype=tl.float32)
        deviations = tl.zeros((ROWS_PER_CTA,), dtype=tl.float32)
        for first in range(0, num_columns, BLOCK_SIZE):
            mask = (rows < num_rows) & (columns < num_columns - first)
            # Kept in the L2 for the second reading.
            x = tl.load(x_ptrs, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            count = tl.minimum(num_columns - first, BLOCK_SIZE).to(tl.float32)
            block_mean = tl.sum(x, axis=1) / count
            centred = tl.where(mask, x - block_mean[:, None], 0.0)
            shift = block_mean - mean
            share = count / (first + count)
            deviations += tl.sum(centred * centred, axis=1) + shift * shift * (first * share)
            mean += shift * share
            x_ptrs += BLOCK_SIZE * stride_xc
        scale = tl.rsqrt(deviations / num_columns + epsilon)
        x_ptrs = x_ptr + rows * stride_xr + columns * stride_xc
        for first in range(0, num_columns, BLOCK_SIZE):
            in_row = columns < num_columns - first
            mask = (rows < num_rows) & in_row
            x = tl.load(x_ptrs, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            out = (x - mean[:, None]) * scale[:, None]
            if weight_ptr is not None:
                out *= tl.load(weight_ptr + first + columns, mask=in_row, other=0.0).to(tl.float32)
            if bias_ptr is not None:
                out += tl.load(bias_ptr + first + columns, mask=in_row, other=0.0).to(tl.float32)
            tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask)
            x_ptrs += BLOCK_SIZE * stride_xc
            out_ptrs += BLOCK_SIZE * stride_oc


# --------------------------------------------------------------------------------------------------------------- launch


def launch_layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    epsilon: float,
    config: Mapping[str, int],
) -> None:
    """Enqueues `out = (x - mean) / sqrt(variance + epsilon) * weight + bias`, row by row.

    Args:
        x: [rows, columns], any strides.
        weight: [columns], contiguous; None: 1.
        bias: [columns], contiguous; None: 0.
        out: [rows, columns], any strides, written in full.
        epsilon: Added to the variance.
        config: A configuration of `layer_norm_kernel`.
    """
    rows, columns = x.shape
    if x.numel() == 0:
        return
    layer_norm_kernel[(triton.cdiv(rows, config["ROWS_PER_CTA"]),)](
        x,
        weight,
        bias,
        out,
        rows,
        columns,
        *x.stride(),
        *out.stride(),
        epsilon,
        ONE_PASS=columns <= config["BLOCK_SIZE"],
        **config,
    )


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, epsilon: float = 1e-5
) -> torch.Tensor:
    """LayerNorm over the last dimension, by the default configuration."""
    import torch

    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    weight = None if weight is None else weight.contiguous()
    bias = None if bias is None else bias.contiguous()
    if x.numel():
        launch_layer_norm(rows, weight, bias, out, epsilon, default({"B": rows.shape[0], "H": rows.shape[1]}))
    return out.reshape(x.shape)


# ---------------------------------------------------------------------------------------------------------------- space


def valid(config: Mapping[str, int], problem: Mapping[str, Any]) -> bool:
    """Whether a configuration makes sense for a problem, on any GPU."""
    block, rows, warps = config["BLOCK_SIZE"], config["ROWS_PER_CTA"], config["num_warps"]
    # More than half of a block is used (the smallest is for all rows that fit), and blocks below 256 are for rows that fit:
    # longer ones would take more passes.
    fits_row = (block == 32 or block < 2 * problem["H"]) and block >= min(problem["H"], 256)
    # Several rows per CTA are for short rows; fewer than 4 elements per thread idle it, more than 64 crowd its registers.
    fits_rows = rows == 1 or (block >= problem["H"] and rows < 2 * problem["B"])
    multi_pass = block < problem["H"]
    return (
        fits_row
        and fits_rows
        and 4 * 32 * warps <= max(block * rows, 128)
        and block * rows <= 64 * 32 * warps
        and (config["num_stages"] == 1 or multi_pass)
    )


def configurations(problem: Mapping[str, Any]) -> Iterator[triton.Config]:
    """The valid configurations for a problem."""
    space = KERNELS["layer_norm_kernel"]["space"]
    for values in itertools.product(*space.values()):
        config = dict(zip(space, values, strict=True))
        if valid(config, problem):
            warps, stages = config.pop("num_warps"), config.pop("num_stages")
            yield triton.Config(config, num_warps=warps, num_stages=stages)


def default(problem: Mapping[str, Any]) -> dict[str, int]:
    """A configuration that is reasonable without tuning: the whole row at once where it fits, several short rows together."""
    block = min(max(triton.next_power_of_2(problem["H"]), 32), 16384)
    # No more rows together than leave a thousand CTAs: enough for every SM of a large GPU to have several.
    rows = max(1, min(4096 // block, triton.next_power_of_2(max(problem["B"] // 1024, 1)), 64))
    warps = next((count for count in (1, 2, 4, 8) if block * rows <= 16 * 32 * count), 16)
    return {"BLOCK_SIZE": block, "ROWS_PER_CTA": rows, "num_warps": warps, "num_stages": 1}


# ------------------------------------------------------------------------------------- what a launch gets, and reference


def arguments(problem: Mapping[str, Any], config: Mapping[str, int]) -> dict[str, Any]:
    """Every argument of `layer_norm_kernel` but the configuration's, for contiguous tensors."""
    pointer, h = f"*{problem['dtype']}", problem["H"]
    return {
        "x_ptr": pointer,
        "weight_ptr": pointer,
        "bias_ptr": pointer,
        "out_ptr": pointer,
        "num_rows": problem["B"],
        "num_columns": h,
        "stride_xr": h,
        "stride_xc": 1,
        "stride_or": h,
        "stride_oc": 1,
        "epsilon": 1e-5,
        "ONE_PASS": h <= config["BLOCK_SIZE"],
    }


def make_inputs(problem: Mapping[str, Any], device: str, generator: torch.Generator) -> Inputs:
    """Random rows, weight and bias, and an output to be written."""
    import torch

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[problem["dtype"]]
    rows, columns = problem["B"], problem["H"]
    return {
        "problem": dict(problem),
        "x": torch.randn((rows, columns), dtype=dtype, device=device, generator=generator),
        "weight": torch.randn(columns, dtype=dtype, device=device, generator=generator),
        "bias": torch.randn(columns, dtype=dtype, device=device, generator=generator),
        "epsilon": 1e-5,
        "output": torch.empty((rows, columns), dtype=dtype, device=device),
    }


def prepare(inputs: Inputs, config: Mapping[str, int]) -> Callable[[], torch.Tensor]:
    """Returns what enqueues exactly one launch of `layer_norm_kernel` and gives its output."""

    def run() -> torch.Tensor:
        x, out = inputs["x"], inputs["output"]
        launch_layer_norm(x, inputs["weight"], inputs["bias"], out, inputs["epsilon"], config)
        return out

    return run


def reference(inputs: Inputs) -> torch.Tensor:
    """LayerNorm in fp64."""
    import torch

    x, weight, bias = inputs["x"], inputs["weight"], inputs["bias"]
    weight = None if weight is None else weight.double()
    bias = None if bias is None else bias.double()
    out = torch.empty(x.shape, dtype=torch.float64, device=x.device)
    rows = max(1, ELEMENTS_AT_ONCE // max(1, x.shape[1]))
    for part, target in zip(x.split(rows), out.split(rows), strict=True):
        target[:] = torch.nn.functional.layer_norm(part.double(), x.shape[-1:], weight, bias, inputs["epsilon"])
    return out
