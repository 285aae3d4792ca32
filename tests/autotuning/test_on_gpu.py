"""The drop-in on a GPU: pytest -m gpu -s tests/autotuning/test_on_gpu.py. Prints what a decided call costs there."""

from __future__ import annotations

import statistics
import time

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")]

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)


@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) + 1, mask=offsets < n)


@triton.jit
def add_two(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) + 2, mask=offsets < n)


@triton.jit
def greedy(x, n, STAGES: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    for _ in tl.range(tl.cdiv(n, BLOCK), num_stages=STAGES):
        tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)
        offsets += BLOCK


SPACE = {"BLOCK": [256, 1024, 4096], "num_warps": [4, 8]}


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def test_tunes_restores_and_remembers():
    from advisor.autotuning.decorator import autotune

    x = torch.zeros(1 << 20, device="cuda")
    kernel = autotune(SPACE, ["n"], restore_value=["x"])(add_one)
    kernel[grid](x, x.numel())
    assert (x == 1).all() and kernel.decision.how == "measured" and kernel.decision.measurements == 6
    print("\n" + kernel.decision.explain())
    again = autotune(SPACE, ["n"], restore_value=["x"])(add_one)
    again[grid](x, x.numel())
    assert (x == 2).all() and again.decision.how == "cached" and again.best_config == kernel.best_config


def test_nothing_is_measured_in_a_capture():
    from advisor.autotuning.decorator import autotune, warmup

    x = torch.zeros(1 << 16, device="cuda")
    kernel = autotune(SPACE, ["n"], restore_value=["x"], cache_results=False)(add_two)  # none of it is loaded yet
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[grid](x, x.numel())
    assert kernel.decision.provisional and kernel.decision.measurements == 0
    (decision,) = warmup(kernel, [{"x": ((1 << 16,), torch.float32), "n": 1 << 16}], grid=grid)
    assert decision.how == "measured"
    x.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert (x == 2).all()


def test_what_does_not_fit_is_left_out():
    from advisor.autotuning.decorator import autotune

    x = torch.zeros(4096, device="cuda")
    kernel = autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 32}, num_warps=128)], ["n"], cache_results=False)(greedy)
    kernel[(1,)](x, 4096, STAGES=2)
    assert {timing.state for timing in kernel.decision.timings} == {"measured", "fit"}, kernel.decision.explain()


def test_print_the_cost_of_a_decided_call():
    from advisor.autotuning.decorator import autotune

    x = torch.zeros(256, device="cuda")
    ours = autotune(SPACE, ["n"], cache_results=False)(add_one)
    theirs = triton.autotune([triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 1024})], ["n"])(add_one)
    launches = {
        "plain": lambda: add_one[(1,)](x, 256, BLOCK=256),
        "triton": lambda: theirs[(1,)](x, 256),
        "advisor": lambda: ours[(1,)](x, 256),
    }
    taken: dict[str, list[float]] = {name: [] for name in launches}
    for launch in launches.values():
        launch()
    for _ in range(50):
        for name, launch in launches.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(200):
                launch()
            taken[name].append((time.perf_counter() - start) / 200 * 1e6)
    middle = {name: statistics.median(values) for name, values in taken.items()}
    print(
        f"\nplain launch {middle['plain']:.2f} us; added by triton.autotune {middle['triton'] - middle['plain']:.2f} us, "
        f"by advisor.autotune {middle['advisor'] - middle['plain']:.2f} us"
    )
