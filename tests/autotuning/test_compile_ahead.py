"""Compiling in threads, with the real compiler and no GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

from advisor.autotuning import internals

pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")


@triton.jit
def double(x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.static_assert(BLOCK < 1024)
    tl.store(x + offsets, tl.load(x + offsets) * 2)


def test_failures_are_told_and_the_rest_is_ready():
    torch = pytest.importorskip("torch")
    x = torch.zeros(2048)
    launches = [((x,), {"grid": (1,), "BLOCK": block, "num_warps": 4}) for block in (64, 1024, 128)]
    failed = internals.compile_ahead(double, launches, workers=2)
    assert [type(error).__name__ for error in failed] == ["NoneType", "CompileTimeAssertionFailure", "NoneType"]
    kernels = double.device_caches[0][0]
    ready = [kernel for kernel in kernels.values() if getattr(kernel, "asm", None)]
    assert len(ready) == 2
