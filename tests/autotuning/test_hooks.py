"""What the tuner's hooks take is part of a latency, as of triton.autotune, and such a latency competes with no other."""

from __future__ import annotations

import time

import pytest

from .fakes import FakeKernel
from .kernels import configs, tuned

HOOK_S, KERNEL_S = 0.02, {16: 0.016, 32: 0.010}


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Sleeping moves the clock, and nothing else does: a real one jitters by more than a launch takes where the machine is busy."""
    now = [1.0]
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])


class Cache:
    """A large tensor that a kernel updates in place: cloning, restoring or zeroing it takes long."""

    dtype = "torch.bfloat16"
    shape = (1,)

    def clone(self):
        time.sleep(HOOK_S)
        return self

    def copy_(self, other):
        time.sleep(HOOK_S)

    def zero_(self):
        time.sleep(HOOK_S)


def update(kv, n, BLOCK):
    time.sleep(KERNEL_S[BLOCK])


def slow_hook(*_, **__):
    time.sleep(HOOK_S)


def test_a_configurations_own_hook_counts_for_it_runs_with_every_launch():
    import triton

    from advisor.autotuning.decorator import autotune

    space = [triton.Config({"BLOCK": 32}, pre_hook=slow_hook), triton.Config({"BLOCK": 16})]
    kernel = autotune(space, ["n"], reset_to_zero=["kv"])(FakeKernel(update))
    kernel[(1,)](Cache(), 1024)
    assert kernel.best_config.kwargs["BLOCK"] == 16
    assert max(timing.us for timing in kernel.decision.timings) > 1e6 * HOOK_S


def test_a_benchmark_with_figures_of_its_own_is_taken_at_its_word():
    from advisor.autotuning.decorator import autotune

    told = {16: 0.1, 32: 0.2}
    launched = FakeKernel(update)

    def bench(run, quantiles):
        run()
        return [told[launched.launches[-1]["BLOCK"]]] * 3

    kernel = autotune(configs(16, 32), ["n"], do_bench=bench, restore_value=["kv"])(launched)
    kernel[(1,)](Cache(), 1024)
    assert {timing.config.kwargs["BLOCK"]: timing.us for timing in kernel.decision.timings} == pytest.approx({16: 100.0, 32: 200.0})


HOOKED = {32: 23.0, 64: 21.0}
BARE = {32: 3.0, 64: 1.0, 128: 2.0}


def call(kernel):
    kernel[(1,)](Cache(), 1024)
    return kernel.best_config.kwargs["BLOCK"]


@pytest.mark.parametrize(("options", "kept"), [({}, True), ({"restore_value": ["x"]}, False)])
def test_timings_of_a_kernel_without_hooks_are_not_those_of_one_with_hooks(options, kept):
    call(tuned(HOOKED)[0])
    kernel, bench = tuned(BARE, **options)
    call(kernel)
    assert len(bench.measured) == (1 if kept else 3)
