"""Prints what a decided call costs beyond the plain launch, ours beside triton.autotune's, with a fake driver.

Run it: `pytest -m bench -s tests/bench/dispatch.py`, or `python tests/bench/dispatch.py`.

The launch itself (binder, specialization, driver) is Triton's and real, up to the C launcher, which is replaced. Rounds of the three
are interleaved, and the cost is the median over rounds of each round's difference to the plain launch, in CPU time of this thread.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

pytestmark = [pytest.mark.bench, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")]

ROUNDS = 60
CALLS = 300


def fake_compile(source: Any, target: Any = None, options: Any = None, **_: Any) -> Any:
    """A compiled kernel that does nothing."""
    return SimpleNamespace(
        run=lambda *arguments: None, function=0, packed_metadata=(), launch_metadata=lambda *arguments: None, metadata=SimpleNamespace()
    )


def kernels() -> tuple[Any, Callable[[], Any]]:
    """A GEMM-like kernel's source: 15 arguments, 4 tuned."""
    import triton
    import triton.language as tl

    def make() -> Any:
        @triton.jit
        def kernel(
            a_ptr,
            b_ptr,
            c_ptr,
            bias_ptr,
            M,
            N,
            K,
            stride_am,
            stride_bk,
            stride_cm,
            scale,
            ACTIVATION: tl.constexpr,
            BLOCK_M: tl.constexpr,
            BLOCK_N: tl.constexpr,
            BLOCK_K: tl.constexpr,
        ):
            pass

        return kernel

    configs = [triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 32}, num_warps=4, num_stages=3) for m in (32, 64) for n in (32, 64)]
    return configs, make


def measure(device: str = "fake") -> dict[str, float]:
    """Cost per call in microseconds: `plain`, and what `advisor` and `triton` add."""
    import torch
    import triton

    from advisor.autotuning import decorator as ours

    configs, make = kernels()
    bench = lambda call, quantiles: [1.0, 1.0, 1.0]  # noqa: E731
    key = ["M", "N", "K"]
    with tempfile.TemporaryDirectory() as folder:
        plain = make()
        theirs = triton.autotune(configs, key, do_bench=bench)(make())
        own = ours.autotune(configs, key, do_bench=bench, cache_dir=folder, compile_ahead=False)(make())
        a = torch.empty(64, 64, dtype=torch.bfloat16)
        arguments = (a, a, a, None, 4096, 4096, 4096, 4096, 4096, 4096, 1.0)
        grid = (1,)
        chosen = configs[0].all_kwargs()

        def launch_plain() -> None:
            plain[grid](*arguments, ACTIVATION="none", **chosen)

        def launch_triton() -> None:
            theirs[grid](*arguments, ACTIVATION="none")

        def launch_advisor() -> None:
            own[grid](*arguments, ACTIVATION="none")

        subjects = {"plain": launch_plain, "triton": launch_triton, "advisor": launch_advisor}
        for launch in subjects.values():
            launch()
        per_round: dict[str, list[float]] = {name: [] for name in subjects}
        for number in range(ROUNDS):
            order = list(subjects.items())
            for name, launch in order if number % 2 else order[::-1]:
                start = time.thread_time()
                for _ in range(CALLS):
                    launch()
                per_round[name].append((time.thread_time() - start) / CALLS * 1e6)
    added = {
        name: statistics.median(x - y for x, y in zip(per_round[name], per_round["plain"], strict=True)) for name in ("triton", "advisor")
    }
    return {"plain": statistics.median(per_round["plain"]), **added}


def with_fake_driver() -> dict[str, float]:
    """`measure` on a driver without a GPU."""
    import triton.compiler as compiler
    from autotuning.fakes import FakeDriver
    from triton.runtime.driver import driver

    before, compile_before = driver._active, compiler.compile
    driver.set_active(FakeDriver())
    compiler.compile = fake_compile
    try:
        return measure()
    finally:
        driver._active, compiler.compile = before, compile_before


def lookup_us() -> float:
    """Cost of a repeated `best_config`."""
    from advisor.autotuning.decorator import best_config

    def call() -> None:
        best_config("fused_moe", M=64, E=128, topk=8, H=2048, N=768, dtype="bf16", gpu="H200")

    call()
    rounds = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(CALLS):
            call()
        rounds.append((time.thread_time() - start) / CALLS * 1e6)
    return statistics.median(rounds)


def test_print_dispatch_cost() -> None:
    pytest.importorskip("torch")
    found = with_fake_driver()
    print(
        f"\nplain launch {found['plain']:.2f} us; added by triton.autotune {found['triton']:.2f} us, "
        f"by advisor.autotune {found['advisor']:.2f} us; best_config, repeated {lookup_us():.2f} us"
    )


if __name__ == "__main__":
    test_print_dispatch_cost()
