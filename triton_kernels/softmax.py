"""Softmax over the last dimension, for rows of any length.

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
    "softmax_kernel": {
        "family": "normalization",
        "ops": {"softmax": {"sizes": {"B": "num_rows", "H": "num_columns"}}},
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
def softmax_kernel(
    x_ptr,  # [num_rows, num_columns]
    out_ptr,  # [num_rows, num_columns]
    num_rows,
    num_columns,
    stride_xr,
    stride_xc,
    stride_or,
    stride_oc,
    ONE_PASS: tl.constexpr,  # num_columns <= BLOCK_SIZE: the row stays in registers
    BLOCK_SIZE: tl.constexpr,
    ROWS_PER_CTA: tl.constexpr,
):
    """ROWS_PER_CTA rows per program; rows longer than BLOCK_SIZE are read twice. A row of -inf gives NaN, as in torch."""
    LOG2_E: tl.constexpr = 1.4426950408889634
    rows = (tl.program_id(0) * ROWS_PER_CTA + tl.arange(0, ROWS_PER_CTA)).to(tl.int64)[:, None]
    columns = tl.arange(0, BLOCK_SIZE).to(tl.int64)[None, :]
    x_ptrs = x_ptr + rows * stride_xr + columns * stride_xc
    out_ptrs = out_ptr + rows * stride_or + columns * stride_oc
    if ONE_PASS:
        mask = (rows < num_rows) & (columns < num_columns)
        x = tl.load(x_ptrs, mask=mask, other=float("-inf")).to(tl.float32)
        exponentials = tl.exp2((x - tl.max(x, axis=1)[:, None]) * LOG2_E)
        out = exponentials / tl.sum(exponentials, axis=1)[:, None]
        tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask)
    else:
        largest = tl.full((ROWS_PER_CTA,), float("-inf"), dtype=tl.float32)
        total = tl.zeros((ROWS_PER_CTA,), dtype=tl.float32)
        for first in range(0, num_columns, BLOCK_SIZE):
            mask = (rows < num_rows) & (columns < num_columns - first)
            # Kept in the L2 for the second reading.
            x = tl.load(x_ptrs, mask=mask, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
            new_largest = tl.maximum(largest, tl.max(x, axis=1))
            # A row that began with -inf has no scale yet: -inf - -inf would be NaN for good.
            offset = tl.where(new_largest == float("-inf"), 0.0, new_largest)
            total = total * tl.exp2((largest - offset) * LOG2_E)
            total += tl.sum(tl.exp2((x - offset[:, None]) * LOG2_E), axis=1)
            largest = new_largest
            x_ptrs += BLOCK_SIZE * stride_xc
        scale = (1.0 / total)[:, None]
        x_ptrs = x_ptr + rows * stride_xr + columns * stride_xc
        for first in range(0, num_columns, BLOCK_SIZE):
            mask = (rows < num_rows) & (columns < num_columns - first)
            x = tl.load(x_ptrs, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            out = tl.exp2((x - largest[:, None]) * LOG2_E) * scale
            tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask)
            x_ptrs += BLOCK_SIZE * stride_xc
            out_ptrs += BLOCK_SIZE * stride_oc


# --------------------------------------------------------------------------------------------------------------- launch


def launch_softmax(x: torch.Tensor, out: torch.Tensor, config: Mapping[str, int]) -> None:
    """Enqueues `out = softmax(x)`, row by row.

    Args:
        x: [rows, columns], any strides.
        out: [rows, columns], any strides, written in full.
        config: A configuration of `softmax_kernel`.
    """
    rows, columns = x.shape
    if x.numel() == 0:
        return
    softmax_kernel[(triton.cdiv(rows, config["ROWS_PER_CTA"]),)](
        x, out, rows, columns, *x.stride(), *out.stride(), ONE_PASS=columns <= config["BLOCK_SIZE"], **config
    )


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension, by the default configuration."""
    import torch

    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        launch_softmax(rows, out, default({"B": rows.shape[0], "H": rows.shape[1]}))
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
    space = KERNELS["softmax_kernel"]["space"]
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
    """Every argument of `softmax_kernel` but the configuration's, for contiguous tensors."""
    pointer, h = f"*{problem['dtype']}", problem["H"]
    return {
        "x_ptr": pointer,
        "out_ptr": pointer,
        "num_rows": problem["B"],
        "num_columns": h,
        "stride_xr": h,
        "stride_xc": 1,
        "stride_or": h,
        "stride_oc": 1,
        "ONE_PASS": h <= config["BLOCK_SIZE"],
    }


def make_inputs(problem: Mapping[str, Any], device: str, generator: torch.Generator) -> Inputs:
    """Random rows, and an output to be written."""
    import torch

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[problem["dtype"]]
    rows, columns = problem["B"], problem["H"]
    return {
        "problem": dict(problem),
        "x": torch.randn((rows, columns), dtype=dtype, device=device, generator=generator) * 4,
        "output": torch.empty((rows, columns), dtype=dtype, device=device),
    }


def prepare(inputs: Inputs, config: Mapping[str, int]) -> Callable[[], torch.Tensor]:
    """Returns what enqueues exactly one launch of `softmax_kernel` and gives its output."""

    def run() -> torch.Tensor:
        launch_softmax(inputs["x"], inputs["output"], config)
        return inputs["output"]

    return run


def reference(inputs: Inputs) -> torch.Tensor:
    """Softmax in fp64."""
    import torch

    x = inputs["x"]
    out = torch.empty(x.shape, dtype=torch.float64, device=x.device)
    rows = max(1, ELEMENTS_AT_ONCE // max(1, x.shape[1]))
    for part, target in zip(x.split(rows), out.split(rows), strict=True):
        target[:] = part.double().softmax(-1)
    return out
