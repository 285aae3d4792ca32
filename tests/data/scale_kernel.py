"""A kernel that nobody described: what `advisor inspect` and `advisor advise` are shown with."""

import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": block}, num_warps=warps) for block in (256, 1024, 4096) for warps in (4, 8)], key=["n"])
@triton.jit
def scale_kernel(x_ptr, y_ptr, factor, n, BLOCK: tl.constexpr):
    """y = factor * x."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, factor * tl.load(x_ptr + offsets, mask=mask), mask=mask)
