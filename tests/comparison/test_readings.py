"""A kernel whose list or launch hangs on the architecture is read for each GPU."""

from __future__ import annotations

from advisor.comparison.kernels.readings import of_kernel, readings
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import parse_source

GPUS = tuple(load_gpu(name) for name in ("H100", "H200", "B200"))
TEXT = """
import torch
import triton
import triton.language as tl

WARPS = [8] if torch.cuda.get_device_capability()[0] >= 10 else [2, 4]

@triton.autotune(configs=[triton.Config({}, num_warps=w) for w in WARPS], key=[])
@triton.jit
def tuned(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)

@triton.autotune(configs=[triton.Config({}, num_warps=4)], key=[])
@triton.jit
def plain(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)
"""


def read(text=TEXT, gpus=GPUS):
    return readings(None, parse_source(text, "k.py"), gpus, ((), ()), {}, ())


def groups(found, kernel):
    return [tuple(gpu.name for gpu in each.gpus) for each in of_kernel(found, kernel, kernel)]


def test_of_kernel_by_architecture():
    """GPUs of one target are read once, and those that list the same are one."""
    found = read()
    assert [len(each.gpus) for each in found] == [2, 1]
    assert groups(found, "tuned") == [("H100", "H200"), ("B200",)]
    assert groups(found, "plain") == [("H100", "H200", "B200")]
    assert [len(each.sides[1]["tuned"].configurations) for each in found] == [2, 1]


def test_readings_without_gpus():
    """Without GPUs there is one reading, in which what hangs on one stays open."""
    (found,) = read(gpus=())
    assert found.gpus == () and found.sides[1]["tuned"].problem is not None and found.sides[1]["plain"].problem is None
