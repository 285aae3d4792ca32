"""Fake kernels that the tests tune."""

from __future__ import annotations

from typing import Any

from .fakes import Bench, FakeKernel, Tensor


def scale(x, n, BLOCK):
    """Does nothing: its latency is the benchmark's."""


def gemm_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M):
    """Does nothing either; the family is known from KERNELS."""


KERNELS = {
    "gemm_kernel": {"family": "gemm", "ops": {"gemm": {"sizes": {"M": "M", "N": "N", "K": "K"}}}, "dtype": "a_ptr"},
}

GEMM_SPACE = {
    "BLOCK_SIZE_M": [16, 32, 64, 128],
    "BLOCK_SIZE_N": [32, 64, 128, 256],
    "BLOCK_SIZE_K": [32, 64],
    "GROUP_SIZE_M": [1, 8],
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4],
}


def configs(*blocks: int) -> list[Any]:
    import triton

    return [triton.Config({"BLOCK": block}) for block in blocks]


def tuned(latencies_ms: dict[int, float] | Any, fn: Any = scale, space: Any = None, **options: Any) -> tuple[Any, Bench]:
    """A tuned fake kernel and its benchmark; `latencies_ms` by BLOCK, or a function of the launch."""
    from advisor.autotuning.decorator import autotune

    kernel = FakeKernel(fn)
    bench = Bench(kernel, latencies_ms if callable(latencies_ms) else lambda launch: latencies_ms[launch["BLOCK"]])
    if space is None:
        space = configs(*latencies_ms)
    options.setdefault("key", ["n"])
    return autotune(space, do_bench=bench, **options)(kernel), bench


def call(kernel: Any, n: int = 1024, **options: Any) -> Any:
    kernel[(1,)](Tensor(), n, **options)
    return kernel.best_config.kwargs["BLOCK"]


def call_gemm(kernel: Any, M: int = 512, N: int = 1024, K: int = 1024) -> Any:
    kernel[(1,)](Tensor(), Tensor(), Tensor(), M, N, K)
    return kernel.best_config
