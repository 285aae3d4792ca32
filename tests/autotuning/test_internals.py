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
    assert internals.compiled(double, launches) == {0, 2} and internals.compiled(scale, launches) == frozenset()


@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets) * n)


def test_what_was_compiled_ahead_is_launched(monkeypatch):
    """The whole way, with a compiler that only pretends: which configurations reach the launcher, and with what."""
    torch = pytest.importorskip("torch")
    from types import SimpleNamespace

    from triton.runtime.errors import PTXASError

    from advisor.autotuning.decorator import autotune

    compiled, launched = [], []

    def compile(source, target=None, options=None, **_):
        constants = {source.fn.arg_names[place[0]]: value for place, value in source.constants.items()}
        compiled.append(constants["BLOCK"])
        if constants["BLOCK"] == 32:
            raise PTXASError("too many registers")
        return SimpleNamespace(
            run=lambda *arguments: launched.append((constants["BLOCK"], options["num_warps"])),
            function=0,
            packed_metadata=(),
            launch_metadata=lambda *arguments: None,
        )

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
    hook = lambda args, exception: failures.append(exception)  # noqa: E731
    kernel = autotune(space, ["n"], do_bench=bench, cache_results=False, post_hook=hook)(scale)
    kernel[(1,)](torch.zeros(64), 5)
    assert [type(each).__name__ for each in failures] == ["NoneType", "PTXASError", "NoneType"]
    scale.device_caches.clear()


@triton.jit
def row_sum(out, x, M, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, N, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        at = rows[:, None] * N + columns[None, :]
        total += tl.sum(tl.load(x + at, mask=(rows < M)[:, None] & (columns < N)[None, :], other=0.0), axis=1)
    tl.store(out + rows, total, mask=rows < M)


def test_an_unknown_kernel_is_predicted_from_its_code():
    torch = pytest.importorskip("torch")
    from advisor.autotuning.decorator import autotune

    space = {"ROWS": [1, 32], "COLUMNS": [32, 256], "num_warps": [4]}
    kernel = autotune(space, ["M", "N"], mode="predict")(row_sum)
    arguments = (torch.zeros(4096), torch.zeros(4096, 512), 4096, 512)
    decision = kernel.decide(*arguments, grid=lambda meta: (triton.cdiv(4096, meta["ROWS"]),), warmup=False)
    assert decision.how == "predicted", decision.reason
    assert "compiled code" in decision.ranked_by
    assert len({timing.predicted_us for timing in decision.timings}) > 1
    assert [timing.predicted_us for timing in decision.timings] == sorted(timing.predicted_us for timing in decision.timings)
    row_sum.device_caches.clear()


def test_shortened_holds_several_runs():
    from triton.testing import do_bench

    rep = lambda expected_us: internals.shortened(do_bench, expected_us).keywords["rep"]  # noqa: E731
    assert rep(None) == rep(100.0) == internals.REP_MS and rep(10_000.0) == 50.0 and rep(1e6) == internals.MOST_REP_MS
    assert internals.shortened(len, 1.0) is len


def test_what_ranks_is_loaded_while_the_driver_starts(monkeypatch):
    from advisor.autotuning import compiled_ranking

    from .kernels import call, tuned

    loaded = []
    monkeypatch.setattr(compiled_ranking, "load", lambda: loaded.append(1))
    call(tuned({16: 1.0, 32: 2.0})[0])
    assert not loaded  # the driver runs
    monkeypatch.setattr(internals, "has_started", lambda: False)
    call(tuned({16: 1.0, 32: 2.0})[0], n=3)
    assert not loaded  # the kernel was tuned before
    monkeypatch.setattr("advisor.autotuning.decisions.cache.Cache.knows", lambda self, kernel: False)
    call(tuned({16: 1.0, 32: 2.0})[0], n=4)
    assert loaded == [1]


def test_idle_cores_compile_what_other_sizes_ask_for(monkeypatch):
    from types import SimpleNamespace

    from advisor.autotuning.measuring import Call, Session

    monkeypatch.setattr(internals, "workers", lambda: 4)
    monkeypatch.setattr(Session, "_compiles", True)
    compiled = []
    monkeypatch.setattr(internals, "compile_ahead", lambda fn, launches, workers: [compiled.append(each[1]["n"]) for each in launches])
    configs = [SimpleNamespace(pre_hook=None, all_kwargs=lambda n=n: {"n": n}) for n in range(20)]
    call = Call(configs=configs, args=(), kwargs={}, named={}, identities=[])
    session = Session(tuner=SimpleNamespace(fn=None), call=call, cache=None, problem="", predicted_us={})
    session.likely = (3, 1, 7, 9, 11, 13, 15, 17, 19)
    session._compile([1, 2])
    assert compiled == [1, 2, 3, 7, 9, 11, 13, 15]  # twice as many as are compiled at once
    compiled.clear()
    session._compile([1, 2, 4, 5])
    assert compiled == [1, 2, 4, 5], "no core is idle"
