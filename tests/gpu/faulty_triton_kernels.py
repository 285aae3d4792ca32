"""Kernels that go wrong on a real GPU, each in its own way; `right` shows that the others' faults are not the file's."""

import triton
import triton.language as tl

KERNELS = {
    "copy_kernel": {
        "family": "elementwise",
        "ops": {"copy": {"sizes": {"B": "rows", "H": "columns"}}},
        "dtypes": ["fp32"],
        "space": {
            "MODE": ["right", "illegal", "hang", "memory", "resources", "compile", "wrong", "unwritten"],
            "num_warps": [4],
            "num_stages": [1, 3],
        },
        "make_inputs": "make_inputs",
        "prepare": "prepare",
        "reference": "reference",
        "arguments": "arguments",
        "tolerance": {"fp32": [0.0, 0.0]},
    }
}


@triton.jit
def copy_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr, MODE: tl.constexpr):
    """`out = x`, or not."""
    tl.static_assert(MODE != "compile")
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask)
    if MODE == "illegal":
        out_ptr += 1 << 40
    if MODE == "hang":
        # An input that is never 12345: the compiler cannot know, and loads it again each time.
        while tl.load(x_ptr, volatile=True) != 12345.0:
            tl.debug_barrier()
    if MODE == "resources":
        # Two tiles of 128 KiB and more stages than one: more shared memory than any SM has, which only loading the kernel finds out.
        row, column = tl.arange(0, 64), tl.arange(0, 512)
        total = tl.zeros((64, 64), dtype=tl.float32)
        for first in range(0, size, 512):
            a = tl.load(x_ptr + first + row[:, None] * 512 + column[None, :], mask=(column < size)[None, :], other=0.0)
            b = tl.load(x_ptr + first + column[:, None] * 64 + row[None, :], mask=(column < size)[:, None], other=0.0)
            total = tl.dot(a, b, total)
        x += tl.sum(total)
    if MODE == "wrong":
        x = tl.where(offsets == 7, x + 1, x)
    if MODE == "unwritten":
        mask = mask & (offsets != 7)
    tl.store(out_ptr + offsets, x, mask=mask)


def arguments(problem, config):
    """For compiling ahead."""
    return {"x_ptr": "*fp32", "out_ptr": "*fp32", "size": problem["B"] * problem["H"], "BLOCK": 1024}


def make_inputs(problem, device, generator):
    """Random numbers."""
    import torch

    x = torch.randn(problem["B"] * problem["H"], device=device, generator=generator)
    return {"problem": problem, "x": x, "output": torch.empty_like(x)}


def prepare(inputs, config):
    """One launch."""
    x, out = inputs["x"], inputs["output"]

    def run():
        import torch

        if config["MODE"] == "memory":
            torch.empty(1 << 50, dtype=torch.uint8, device=x.device)
        launch = {"MODE": config["MODE"], "num_warps": config["num_warps"], "num_stages": config["num_stages"]}
        copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024, **launch)
        return out

    return run


def reference(inputs):
    """The input."""
    return inputs["x"].double()
