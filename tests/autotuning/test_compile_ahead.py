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


@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets) * n)


def test_what_was_compiled_ahead_is_launched(monkeypatch):
    """The whole way, with a compiler that only pretends: which configurations reach the launcher, and with what."""
    torch = pytest.importorskip("torch")
    from types import SimpleNamespace

    from triton.runtime.errors import PTXASError

    from advisor.autotune import autotune

    compiled, launched = [], []

    def compile(source, target=None, options=None, **_):
        constants = {source.fn.arg_names[place[0]]: value for place, value in source.constants.items()}
        compiled.append(constants["BLOCK"])
        if constants["BLOCK"] == 32:
            raise PTXASError("too many registers")
        return SimpleNamespace(
            run=lambda *arguments: launched.append((constants["BLOCK"], options["num_warps"])), function=0, packed_metadata=(),
            launch_metadata=lambda *arguments: None,
        )  # fmt: skip

    monkeypatch.setattr("triton.compiler.compile", compile)
    scale.device_caches.clear()

    def bench(run, quantiles):
        run()
        return [1.0 / launched[-1][0]] * 3

    space = {"BLOCK": [16, 32, 64], "num_warps": [2]}
    kernel = autotune(space, ["n"], do_bench=bench)(scale)
    kernel[(1,)](torch.zeros(64), 3)
    assert sorted(compiled) == [16, 32, 64] and launched == [(16, 2), (64, 2), (64, 2)]
    assert [timing.state for timing in kernel.decision.timings] == ["measured", "compile", "measured"]
    assert "too many registers" in kernel.decision.timings[1].reason
    # A hook of the user's sees the failure too.
    failures = []
    kernel = autotune(space, ["n"], do_bench=bench, cache_results=False, post_hook=lambda args, exception: failures.append(exception))(scale)
    kernel[(1,)](torch.zeros(64), 5)
    assert [type(each).__name__ for each in failures] == ["NoneType", "PTXASError", "NoneType"]
    scale.device_caches.clear()
