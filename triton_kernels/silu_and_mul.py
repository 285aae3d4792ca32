"""SiLU-and-mul: `silu(gate) * up`, the gate in the first half of each row and up in the second.

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
    "silu_and_mul_kernel": {
        "family": "elementwise",
        "ops": {"silu_and_mul": {"sizes": {"B": "num_rows", "H": "num_columns"}}},
        "dtype": "x_ptr",
        "output_dtype": "out_ptr",
        "dtypes": ["bf16", "fp16", "fp32"],
        "space": {
            "BLOCK_SIZE": [32, 64, 128, 256, 512, 1024, 2048, 4096],
            "ROWS_PER_CTA": [1, 2, 4, 8, 16, 32, 64],
            "num_warps": [1, 2, 4, 8, 16],
            "num_stages": [1],
        },
        "grid": "cdiv(num_rows, ROWS_PER_CTA) * cdiv(num_columns, BLOCK_SIZE)",
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
def silu_and_mul_kernel(
    x_ptr,  # [num_rows, 2 * num_columns]: gate, then up
    out_ptr,  # [num_rows, num_columns]
    num_rows,
    num_columns,
    stride_xr,
    stride_xc,
    stride_or,
    stride_oc,
    BLOCK_SIZE: tl.constexpr,
    ROWS_PER_CTA: tl.constexpr,
):
    """A block of ROWS_PER_CTA rows by BLOCK_SIZE columns per program, in fp32."""
    blocks = tl.cdiv(num_columns, BLOCK_SIZE)
    rows = (tl.program_id(0) // blocks) * ROWS_PER_CTA + tl.arange(0, ROWS_PER_CTA)
    rows = rows.to(tl.int64)[:, None]
    columns = ((tl.program_id(0) % blocks) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)).to(tl.int64)[None, :]
    mask = (rows < num_rows) & (columns < num_columns)
    gate_ptrs = x_ptr + rows * stride_xr + columns * stride_xc
    gate = tl.load(gate_ptrs, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_ptrs + num_columns * stride_xc, mask=mask, other=0.0).to(tl.float32)
    out = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + rows * stride_or + columns * stride_oc, out.to(out_ptr.dtype.element_ty), mask=mask)


# --------------------------------------------------------------------------------------------------------------- launch


def launch_silu_and_mul(x: torch.Tensor, out: torch.Tensor, config: Mapping[str, int]) -> None:
    """Enqueues `out = silu(x[:, :columns]) * x[:, columns:]`.

    Args:
        x: [rows, 2 * columns], any strides.
        out: [rows, columns], any strides, written in full.
        config: A configuration of `silu_and_mul_kernel`.
    """
    rows, columns = out.shape
    if out.numel() == 0:
        return
    grid = (triton.cdiv(rows, config["ROWS_PER_CTA"]) * triton.cdiv(columns, config["BLOCK_SIZE"]),)
    silu_and_mul_kernel[grid](x, out, rows, columns, *x.stride(), *out.stride(), **config)


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """SiLU of the first half of the last dimension times the second half, by the default configuration."""
    import torch

    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    columns = x.shape[-1] // 2
    out = torch.empty((rows.shape[0], columns), dtype=x.dtype, device=x.device)
    if out.numel():
        launch_silu_and_mul(rows, out, default({"B": rows.shape[0], "H": columns}))
    return out.reshape(*x.shape[:-1], columns)


# ---------------------------------------------------------------------------------------------------------------- space


def valid(config: Mapping[str, int], problem: Mapping[str, Any]) -> bool:
    """Whether a configuration makes sense for a problem, on any GPU."""
    block, rows, warps = config["BLOCK_SIZE"], config["ROWS_PER_CTA"], config["num_warps"]
    # More than half of a block is used (the smallest is for all rows that fit), and blocks below 256 are for rows that fit.
    fits_row = (block == 32 or block < 2 * problem["H"]) and block >= min(problem["H"], 256)
    # Fewer than 4 elements per thread idle it, more than 64 crowd its registers.
    fits_rows = rows == 1 or rows < 2 * problem["B"]
    return fits_row and fits_rows and 4 * 32 * warps <= max(block * rows, 128) and block * rows <= 64 * 32 * warps


def configurations(problem: Mapping[str, Any]) -> Iterator[triton.Config]:
    """The valid configurations for a problem."""
    space = KERNELS["silu_and_mul_kernel"]["space"]
    for values in itertools.product(*space.values()):
        config = dict(zip(space, values, strict=True))
        if valid(config, problem):
            warps, stages = config.pop("num_warps"), config.pop("num_stages")
            yield triton.Config(config, num_warps=warps, num_stages=stages)


def default(problem: Mapping[str, Any]) -> dict[str, int]:
    """A configuration that is reasonable without tuning: about a thousand results per CTA."""
    block = min(max(triton.next_power_of_2(problem["H"]), 32), 1024)
    # No more rows together than leave a thousand CTAs: enough for every SM of a large GPU to have several.
    rows = max(1, min(1024 // block, triton.next_power_of_2(max(problem["B"] // 1024, 1)), 64))
    warps = next((count for count in (1, 2, 4, 8) if block * rows <= 8 * 32 * count), 16)
    return {"BLOCK_SIZE": block, "ROWS_PER_CTA": rows, "num_warps": warps, "num_stages": 1}


# ------------------------------------------------------------------------------------- what a launch gets, and reference


def arguments(problem: Mapping[str, Any], config: Mapping[str, int]) -> dict[str, Any]:
    """Every argument of `silu_and_mul_kernel` but the configuration's, for contiguous tensors."""
    pointer, h = f"*{problem['dtype']}", problem["H"]
    return {
        "x_ptr": pointer,
        "out_ptr": pointer,
        "num_rows": problem["B"],
        "num_columns": h,
        "stride_xr": 2 * h,
        "stride_xc": 1,
        "stride_or": h,
        "stride_oc": 1,
    }


def make_inputs(problem: Mapping[str, Any], device: str, generator: torch.Generator) -> Inputs:
    """Random gate and up, and an output to be written."""
    import torch

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[problem["dtype"]]
    rows, columns = problem["B"], problem["H"]
    return {
        "problem": dict(problem),
        "x": torch.randn((rows, 2 * columns), dtype=dtype, device=device, generator=generator),
        "output": torch.empty((rows, columns), dtype=dtype, device=device),
    }


def prepare(inputs: Inputs, config: Mapping[str, int]) -> Callable[[], torch.Tensor]:
    """Returns what enqueues exactly one launch of `silu_and_mul_kernel` and gives its output."""

    def run() -> torch.Tensor:
        launch_silu_and_mul(inputs["x"], inputs["output"], config)
        return inputs["output"]

    return run


def reference(inputs: Inputs) -> torch.Tensor:
    """SiLU of the gate times up, in fp64."""
    import torch

    x = inputs["x"]
    out = torch.empty((x.shape[0], x.shape[1] // 2), dtype=torch.float64, device=x.device)
    rows = max(1, ELEMENTS_AT_ONCE // max(1, x.shape[1]))
    for part, target in zip(x.split(rows), out.split(rows), strict=True):
        gate, up = part.double().chunk(2, dim=-1)
        target[:] = torch.nn.functional.silu(gate) * up
    return out
