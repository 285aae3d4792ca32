"""What the tuner's hooks take is no part of a latency, and decides nothing."""

from __future__ import annotations

import itertools
import json
import math
import time

import pytest

from advisor.autotuning.tuner import Tuner

from .fakes import FakeKernel
from .kernels import configs, tuned

HOOK_S, KERNEL_S, NOISE = 0.02, {16: 0.016, 32: 0.010}, 0.2
"""The kernels differ by 60 %, with the hooks by less than the noise."""


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


def whole_call(run, quantiles):
    """As a user's benchmark does: the time of all that it is given."""
    run()
    times = []
    for _ in range(7):
        began = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - began))
    times.sort()
    return [times[3], times[1], times[5]]


def slow_hook(*_, **__):
    time.sleep(HOOK_S)


HOOKS = {
    "restored": {"restore_value": ["kv"]},
    "zeroed": {"reset_to_zero": ["kv"]},
    "own": {"pre_hook": slow_hook, "post_hook": slow_hook},
}


@pytest.mark.parametrize("bench", [whole_call, None], ids=["own benchmark", "the driver's"])
@pytest.mark.parametrize("hooks", HOOKS.values(), ids=HOOKS)
def test_the_kernel_alone_is_timed(hooks, bench):
    from advisor.autotuning.decorator import autotune

    kernel = autotune(configs(16, 32), ["n"], do_bench=bench, noise=NOISE, **hooks)(FakeKernel(update))
    kernel[(1,)](Cache(), 1024)
    assert kernel.best_config.kwargs["BLOCK"] == 32
    for timing in kernel.decision.timings:
        seconds = KERNEL_S[timing.config.kwargs["BLOCK"]]
        assert 0.9e6 * seconds < timing.us < 1e6 * (seconds + HOOK_S / 2), "in microseconds, and not the hooks'"
        assert 0 <= timing.low_us <= timing.us <= timing.high_us


def test_a_configurations_own_hook_counts_for_it_runs_with_every_launch():
    import triton

    from advisor.autotuning.decorator import autotune

    space = [triton.Config({"BLOCK": 32}, pre_hook=slow_hook), triton.Config({"BLOCK": 16})]
    kernel = autotune(space, ["n"], reset_to_zero=["kv"])(FakeKernel(update))
    kernel[(1,)](Cache(), 1024)
    assert kernel.best_config.kwargs["BLOCK"] == 16
    assert max(timing.us for timing in kernel.decision.timings) > 1e6 * HOOK_S


def first_runs_count(run, quantiles):
    """Times fewer runs than it makes, as benchmarks do that warm up."""
    times = []
    for _ in range(12):
        began = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - began))
    return sorted(times[2:7])[2]


def groups_of_three(run, quantiles):
    run()
    times = []
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(3):
            run()
        times.append(1e3 * (time.perf_counter() - began))
    return [sorted(times)[1], min(times), max(times)]


def brief(kv, n, BLOCK):
    time.sleep(KERNEL_S[BLOCK] / 5)


@pytest.mark.parametrize("bench", [first_runs_count, groups_of_three])
def test_hooks_that_jitter_by_more_than_the_launch_takes_are_not_in_its_time(bench):
    """The runs that a benchmark counts may have had the shorter hooks: then all of the hooks together are more than it gives."""
    from advisor.autotuning.decorator import autotune

    hooks_s = itertools.cycle([HOOK_S] * 7 + [2 * HOOK_S] * 5)
    kernel = autotune(configs(16, 32), ["n"], do_bench=bench, noise=NOISE, pre_hook=lambda *_, **__: time.sleep(next(hooks_s)))(
        FakeKernel(brief)
    )
    kernel[(1,)](Cache(), 1024)
    assert kernel.best_config.kwargs["BLOCK"] == 32
    for timing in kernel.decision.timings:
        assert 0.9 < timing.us / (1e6 * KERNEL_S[timing.config.kwargs["BLOCK"]] / 5) < 2


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


@pytest.mark.parametrize("options", [{"restore_value": ["x"]}, {"reset_to_zero": ["x"]}, {"pre_hook": slow_hook}, {"post_hook": slow_hook}])
def test_what_was_timed_with_the_hooks_does_not_compete(options, monkeypatch):
    """Earlier versions kept it under the kernel's source alone."""
    with monkeypatch.context() as earlier:
        earlier.setattr(Tuner, "leaves_hooks_out", False, raising=False)
        call(tuned(HOOKED, **options)[0])
    kernel, bench = tuned(BARE, **options)
    assert call(kernel) == 64 and len(bench.measured) == 3
    kernel, bench = tuned(BARE, **options)
    assert call(kernel) == 64 and not bench.measured, "kept, though"


@pytest.mark.parametrize(("options", "kept"), [({}, True), ({"restore_value": ["x"]}, False)])
def test_timings_of_a_kernel_without_hooks_are_still_taken(options, kept, monkeypatch):
    call(tuned(HOOKED)[0])
    kernel, bench = tuned(BARE, **options)
    call(kernel)
    assert len(bench.measured) == (1 if kept else 3)


def test_within_a_graph_the_hooks_count_and_the_timings_are_those_of_before():
    with pytest.warns(DeprecationWarning):
        captured = tuned(BARE, restore_value=["x"], use_cuda_graph=True)[0]
    assert not captured.leaves_hooks_out and tuned(BARE, restore_value=["x"])[0].leaves_hooks_out


@pytest.mark.parametrize("origin", ["imported", "found"])
def test_what_another_tuner_found_best_is_taken_and_not_its_latencies_which_hold_the_hooks(origin, tmp_path, monkeypatch):
    from advisor.autotuning import internals
    from advisor.autotuning.decisions.cache import default_cache
    from advisor.autotuning.decisions.exchange import import_path

    timings = [[{**config.__dict__}, [math.inf if config.kwargs["BLOCK"] == 32 else 5.0] * 3] for config in configs(*BARE)]
    path = tmp_path / "scale.autotune.json"
    path.write_text(json.dumps({"key": [1024, "torch.bfloat16"], "configs_timings": timings}))
    if origin == "found":
        monkeypatch.setattr(internals, "triton_timings_file", lambda fn, key, configs: path)
    else:
        import_path(default_cache(), path, "NVIDIA H200")
    kernel, bench = tuned(BARE, restore_value=["x"])
    assert call(kernel) == 64 and not bench.measured and kernel.decision.how == "imported"
    assert [timing.state for timing in kernel.decision.timings] == ["crash", "not-measured", "not-measured"]


def test_what_a_graph_captures_has_no_time(monkeypatch):
    from advisor.autotuning import internals
    from advisor.autotuning.run_clock import RunClock

    clock = RunClock()
    for capturing in (False, True):
        monkeypatch.setattr(internals, "is_capturing", lambda capturing=capturing: capturing)
        clock.begin()
        for _ in range(4):
            clock.mark()
    assert clock.launches_ms() == [] and clock.hooks_ms() == 0.0
