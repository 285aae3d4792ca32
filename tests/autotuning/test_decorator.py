"""The production contract: what fails is left out with a reason, hooks are kept, outputs restored and compared."""

from __future__ import annotations

import pickle

import pytest

from .fakes import FakeKernel, Tensor
from .kernels import call, configs, tuned


def failing(errors, latencies):
    """A latency function that raises for some blocks."""

    def latency(launch):
        if launch["BLOCK"] in errors:
            raise errors[launch["BLOCK"]]
        return latencies[launch["BLOCK"]]

    return latency


def out_of_resources():
    from triton.runtime.errors import OutOfResources

    return OutOfResources(300000, 232448, "shared memory")


def states(kernel):
    return {timing.config.kwargs["BLOCK"]: timing.state for timing in kernel.decision.timings}


def test_failures_are_recorded_as_what_they_are():
    from triton.runtime.errors import PTXASError

    errors = {16: out_of_resources(), 32: PTXASError("no"), 64: RuntimeError("PassManager::run failed"), 128: ValueError("odd")}
    kernel, _ = tuned(failing(errors, {256: 2.0}), space=configs(16, 32, 64, 128, 256))
    assert call(kernel) == 256
    assert states(kernel) == {16: "fit", 32: "compile", 64: "compile", 128: "crash", 256: "measured"}
    reasons = {timing.config.kwargs["BLOCK"]: timing.reason for timing in kernel.decision.timings}
    assert "shared memory" in reasons[16] and "odd" in reasons[128]
    # What is a property of the configuration lasts; what may go well next time is tried again.
    again, bench = tuned(failing({}, {16: 1, 32: 1, 64: 1, 128: 1, 256: 1, 512: 1.0}), space=configs(16, 32, 64, 128, 256, 512))
    call(again)
    assert sorted(launch["BLOCK"] for launch in bench.measured) == [128, 512]


def test_the_first_error_is_raised_where_nothing_works():
    from triton.runtime.errors import OutOfResources

    kernel, _ = tuned(failing({16: out_of_resources(), 32: out_of_resources()}, {}), space=configs(16, 32))
    with pytest.raises(OutOfResources):
        call(kernel)


def test_a_lost_context_ends_the_tuning_and_is_remembered():
    errors = {32: RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered")}
    kernel, bench = tuned(failing(errors, {16: 1.0, 64: 1.0}), space=configs(16, 32, 64))
    with pytest.raises(RuntimeError, match="illegal"):
        call(kernel)
    assert len(bench.measured) == 2
    again, bench = tuned({16: 1.0, 32: 0.1, 64: 0.5})
    assert call(again) == 64 and [launch["BLOCK"] for launch in bench.measured] == [64]
    assert states(again)[32] == "crash"


def test_interrupting_gives_claims_back():
    def latency(launch):
        if launch["BLOCK"] == 32:
            raise KeyboardInterrupt
        return 1.0

    kernel, _ = tuned(latency, space=configs(16, 32, 64))
    with pytest.raises(KeyboardInterrupt):
        call(kernel)
    again, bench = tuned({16: 1.0, 32: 0.5, 64: 2.0})
    assert call(again) == 32 and len(bench.measured) == 2


def test_a_benchmark_without_a_time():
    kernel, _ = tuned({16: float("inf"), 32: 2.0, 64: float("nan")})
    assert call(kernel) == 32 and states(kernel)[16] == "crash"


@pytest.mark.parametrize("time", [float("inf"), float("nan")])
def test_a_benchmark_without_any_time(time, monkeypatch):
    """In the interpreter the first that runs is taken, as of triton.autotune; on a GPU something is wrong."""
    from advisor.autotuning import internals
    from advisor.system.errors import MeasurementError

    kernel, _ = tuned({16: time, 32: time})
    with pytest.raises(MeasurementError, match="none of 2 configurations works"):
        call(kernel)
    monkeypatch.setattr(internals, "is_interpreted", lambda: True)
    kernel, bench = tuned(failing({8: out_of_resources()}, {16: time, 32: time}), space=configs(8, 16, 32))
    assert [call(kernel), call(kernel)] == [16, 16] and len(bench.measured) == 3
    assert kernel.decision.how == "default" and f"the benchmark gave {time}" in kernel.decision.reason


def test_deciding_asks_for_no_more_than_a_launch():
    from advisor.system.errors import UsageError

    kernel, bench = tuned({16: 1.0, 32: 0.5})
    with pytest.raises(UsageError, match=r"decide: the call has no grid; expected grid= among its keywords"):
        kernel.decide(None, 8)
    assert kernel.decide(None, 8, grid=(1,)).config.kwargs["BLOCK"] == 32
    assert kernel.decide(None, 8, grid=(1,)).how == "measured" and len(bench.measured) == 2


def test_a_benchmark_may_give_one_number():
    from advisor.autotuning.decorator import autotune

    kernel = FakeKernel(lambda n, BLOCK: None)
    tuner = autotune(configs(16, 32), ["n"], do_bench=lambda run, quantiles: (run(), kernel.launches[-1]["BLOCK"])[1])(kernel)
    tuner[(1,)](8)
    assert tuner.best_config.kwargs["BLOCK"] == 16 and tuner.decision.timings[0].us == 16000.0


def test_a_slow_configuration_is_left_out():
    import time

    from advisor.autotuning.decorator import autotune

    def slow(n, BLOCK):
        if BLOCK == 16:
            time.sleep(0.05)

    kernel = FakeKernel(slow)

    def bench(run, quantiles):
        for _ in range(3):
            run()
        return [1.0] * 3

    tuner = autotune(configs(16, 32), ["n"], do_bench=bench, time_limit_s=0.02)(kernel)
    tuner[(1,)](8)
    assert tuner.best_config.kwargs["BLOCK"] == 32 and states(tuner)[16] == "time"
    assert sum(launch["BLOCK"] == 16 for launch in kernel.launches) == 2


def test_other_configurations_take_effect_at_the_next_call():
    """As of triton.autotune: a single one is launched at once; of several, a key that is decided keeps its decision until it is cleared."""
    kernel, bench = tuned({16: 1.0, 32: 2.0, 64: 3.0, 128: 0.5}, space=configs(16, 32))
    assert call(kernel) == 16
    kernel.configs = configs(64)
    assert [call(kernel), call(kernel), call(kernel, n=1)] == [64, 64, 64] and len(bench.measured) == 2
    kernel.configs = configs(32, 64, 128)
    assert call(kernel) == 16
    kernel.cache.clear()
    assert call(kernel) == 128 and call(kernel, n=2048) == 128


def test_a_configuration_that_is_changed_in_place_takes_effect_at_the_next_launch():
    """As of triton.autotune, which reads its parameters, its options and its hook at every launch."""
    kernel, bench = tuned({16: 1.0, 32: 2.0})
    call(kernel)
    hooked = []
    kernel.best_config.num_warps = 8
    kernel.best_config.kwargs["BLOCK"] = 64
    kernel.best_config.pre_hook = lambda given: hooked.append(given["BLOCK"])
    call(kernel)
    kernel.run(Tensor(), 1024, grid=(1,), warmup=False)
    assert [(launch["BLOCK"], launch["num_warps"]) for launch in kernel.fn.launches[-2:]] == [(64, 8)] * 2
    assert hooked == [64, 64] and len(bench.measured) == 2


def test_conflicting_arguments():
    kernel, _ = tuned({16: 1.0, 32: 2.0})
    with pytest.raises(ValueError, match="Conflicting meta-parameters: BLOCK"):
        call(kernel, BLOCK=8)


def test_an_option_that_the_configurations_set_too_is_told_before_anything_is_measured():
    """triton.autotune measures them all, and then fails to launch the fastest."""
    kernel, bench = tuned({32: 1.0, 64: 2.0})
    with pytest.raises(TypeError, match=r"scale\(\) got multiple values for num_warps: .* an autotuner around this one"):
        call(kernel, num_warps=8)
    assert not bench.measured
    kernel, _ = tuned({32: 1.0, 64: 2.0})
    assert call(kernel, maxnreg=64) == 32  # which they leave open


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("wrong", [{"num_warps": 8}, {"n": 8}])
def test_an_argument_given_twice_gets_pythons_own_error(decided, wrong):
    from advisor.autotuning.decorator import autotune

    def plain(x, n, BLOCK):
        pass

    kernel = autotune(configs(16, 32), ["n"], do_bench=lambda run, quantiles: (run(), [1.0] * 3)[1])(FakeKernel(plain))
    if decided:
        call(kernel, 8)
    kernel.fn.run = lambda *args, grid, warmup, num_warps, num_stages, num_ctas=1, maxnreg=None, **kwargs: plain(*args, **kwargs)
    for _ in range(2):
        with pytest.raises(TypeError, match=f"multiple values for .*{next(iter(wrong))}") as caught:
            call(kernel, 8, **wrong)
        assert caught.value.__context__ is None and "read_key" not in str(caught.value)


def test_an_error_of_the_first_launch_stands_alone():
    kernel, _ = tuned(failing({16: ValueError("own"), 32: ValueError("own")}, {}), space=configs(16, 32))
    for launch in (lambda: call(kernel), lambda: kernel.run(None, 8, grid=(1,), warmup=False)):
        with pytest.raises(ValueError, match="own") as caught:
            launch()
        assert caught.value.__context__ is None


def test_hooks_of_a_configuration_run_with_every_launch():
    import triton

    seen = []
    hook = seen.append
    space = [triton.Config({"BLOCK": 16}, pre_hook=lambda args: hook(args["BLOCK"])), triton.Config({"BLOCK": 32})]
    kernel, _ = tuned({16: 1.0, 32: 2.0}, space=space)
    for _ in range(3):
        assert call(kernel) == 16
    assert seen == [16] * 4


def accumulate(out, n, BLOCK):
    out += BLOCK if BLOCK == 64 else 1


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def plain_bench(kernel):
    def bench(run, quantiles):
        run()
        run()
        return [float(kernel.launches[-1]["BLOCK"])] * 3

    return bench


@pytest.mark.parametrize("positional", [True, False])
def test_restored_and_reset_outputs(torch, positional):
    from advisor.autotuning.decorator import autotune

    for options, want in (({"restore_value": ["out"]}, 6.0), ({"reset_to_zero": ["out"]}, 1.0)):
        kernel = FakeKernel(accumulate)
        tuner = autotune(configs(16, 32), ["n"], do_bench=plain_bench(kernel), cache_results=False, **options)(kernel)
        out = torch.full((4,), 5.0)
        if positional:
            tuner[(1,)](out, 3)
        else:
            tuner[(1,)](out=out, n=3)
        assert out.tolist() == [want] * 4
        tuner[(1,)](out, 3)
        assert out.tolist() == [want + 1] * 4


@pytest.mark.parametrize("parameter", ["restore_value", "reset_to_zero"])
def test_an_output_that_is_none_is_left_alone(parameter):
    kernel, _ = tuned({16: 1.0, 32: 2.0}, **{parameter: ["x"]})
    kernel[(1,)](None, 3)
    assert kernel.best_config.kwargs["BLOCK"] == 16


def test_restored_after_a_failure(torch):
    from advisor.autotuning.decorator import autotune

    def half(out, n, BLOCK):
        out += 1
        if BLOCK == 16:
            raise out_of_resources()

    kernel = FakeKernel(half)
    tuner = autotune(configs(16, 32), ["n"], do_bench=plain_bench(kernel), restore_value=["out"])(kernel)
    out = torch.zeros(4)
    tuner[(1,)](out, 3)
    assert out.tolist() == [1.0] * 4


def test_the_users_hooks_come_in_pairs_and_see_failures():
    depth, seen = [0], []

    def before(args, reset_only=False):
        depth[0] += not reset_only

    def after(args, exception):
        depth[0] -= 1
        seen.append(type(exception).__name__)
        assert depth[0] == 0

    def failing_kernel(n, BLOCK):
        if BLOCK == 16:
            raise out_of_resources()

    from advisor.autotuning.decorator import autotune

    kernel = FakeKernel(failing_kernel)
    tuner = autotune(configs(16, 32), ["n"], do_bench=plain_bench(kernel), pre_hook=before, post_hook=after)(kernel)
    tuner[(1,)](3)
    assert seen == ["OutOfResources", "NoneType", "NoneType"]


@pytest.mark.parametrize("check, chosen", [(None, 64), (True, 32), ((0.0, 100.0), 64)])
def test_what_writes_something_else_is_left_out(torch, check, chosen):
    from advisor.autotuning.decorator import autotune

    kernel = FakeKernel(accumulate)
    bench = lambda run, quantiles: (run(), [1e3 / kernel.launches[-1]["BLOCK"]] * 3)[1]  # noqa: E731
    tuner = autotune(configs(16, 32, 64), ["n"], do_bench=bench, check_output=check, restore_value=["out"], cache_results=False)(kernel)
    out = torch.zeros(8)
    tuner[(1,)](out, 3)
    assert tuner.best_config.kwargs["BLOCK"] == chosen
    assert out.tolist() == [64.0 if chosen == 64 else 1.0] * 8
    if check is True:
        left_out = next(timing for timing in tuner.decision.timings if timing.config.kwargs["BLOCK"] == 64)
        assert left_out.state == "output" and "8 of 8 elements differ" in left_out.reason


def checked(fn, *blocks, **options):
    """A kernel whose later configurations are faster, checked."""
    from advisor.autotuning.decorator import autotune

    kernel = FakeKernel(fn)
    times = {block: 1.0 / (1 + place) for place, block in enumerate(blocks)}
    bench = lambda run, quantiles: (run(), [times[kernel.launches[-1]["BLOCK"]]] * 3)[1]  # noqa: E731
    return autotune(configs(*blocks), ["n"], do_bench=bench, check_output=True, **options)(kernel)


def twice(x, y, n, BLOCK):
    """Blocks below 64 leave the end unwritten."""
    y[:BLOCK] = (2 * x[:BLOCK]).to(y.dtype)


def twice_in_place(x, n, BLOCK):
    x[:BLOCK] *= 2


def add_to(x, y, n, BLOCK):
    y[:BLOCK] += x[:BLOCK]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int32"])
@pytest.mark.parametrize("before", ["wrong", "right", "nan"])
def test_what_leaves_its_output_unwritten_is_left_out(torch, dtype, before):
    """Also where the right values lie there already: left by the first configuration, or by an earlier call."""
    kind = getattr(torch, dtype)
    x = torch.ones(64) if dtype != "int32" else torch.arange(64)
    y = {"right": (2 * x).to(kind), "wrong": torch.zeros(64).to(kind)}.get(before)
    if y is None:
        y = torch.full((64,), float("nan") if kind.is_floating_point else 0.0).to(kind)
    tuner = checked(twice, 64, 16, 0, outputs=["y"])
    tuner[(1,)](x, y, 64)
    assert states(tuner) == {64: "measured", 16: "output", 0: "output"}
    assert (y.float() == (2 * x).to(kind).float()).all()


@pytest.mark.parametrize("start", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("options", [{}, {"reset_to_zero": ["y"]}, {"restore_value": ["y"]}])
def test_accumulators_and_kernels_in_place_start_from_what_was_there(torch, start, options):
    x, y = torch.randn(64) + 3, torch.full((64,), start)
    tuner = checked(add_to, 64, 128, 16, **options)
    tuner[(1,)](x, y, 64)
    assert states(tuner) == {64: "measured", 128: "measured", 16: "output"}
    x = torch.randn(64) + 3
    tuner = checked(twice_in_place, 64, 128, 16, restore_value=["x"])
    want = 2 * x
    tuner[(1,)](x, 64)
    assert states(tuner) == {64: "measured", 128: "measured", 16: "output"} and torch.equal(x, want)


def test_an_expanded_input_is_no_reason_to_leave_out(torch):
    tuner = checked(twice, 64, 16)
    tuner[(1,)](torch.ones(1).expand(64), torch.zeros(64), 64)
    assert states(tuner) == {64: "measured", 16: "output"}


def test_a_check_without_a_configuration_to_compare_with_says_so(torch, caplog):
    def full(x, y, n, BLOCK):
        if len(tuner.fn.launches) <= 2:
            raise RuntimeError("CUDA out of memory")
        twice(x, y, n, BLOCK)

    tuner = checked(full, 64, 16)
    tuner[(1,)](torch.ones(64), torch.zeros(64), 64)
    assert [record.message for record in caplog.records] == [
        "full: check_output compares nothing: no configuration ran to compare with (RuntimeError: CUDA out of memory)"
    ]


def test_locks_and_addresses_are_never_overwritten(torch):
    def locked(x, y, lock, n, BLOCK):
        assert (lock == 0).all()
        lock[1] += 1
        y[:BLOCK] = 2 * x[:BLOCK]
        lock[1] -= 1

    tuner = checked(locked, 64, 16, outputs=["y"])
    tuner[(1,)](torch.ones(64), torch.full((64,), 2.0), torch.zeros(4, dtype=torch.int32), 64)
    assert states(tuner) == {64: "measured", 16: "output"}


def test_a_misspelt_output_is_refused(torch):
    from advisor.system.errors import UsageError

    with pytest.raises(UsageError, match="outputs= names no argument of the kernel; got z; expected among x, y, n, BLOCK"):
        checked(twice, 64, 16, outputs=["z"])
    with pytest.raises(UsageError, match="a list of names"):
        checked(twice, 64, 16, outputs="y")


@pytest.mark.parametrize("what", ["no tensor", "no change"])
def test_a_check_that_can_find_nothing_says_so(torch, caplog, what):
    options = {"outputs": ["n"]} if what == "no tensor" else {"outputs": ["x"]}
    tuner = checked(twice, 64, 16, **options)
    for n in (64, 65):
        tuner[(1,)](torch.ones(64), torch.zeros(64), n)
    said = [record.message for record in caplog.records]
    assert len(said) == 1 and ("compares nothing" in said[0] if what == "no tensor" else "sees no change in x" in said[0])


def test_pruning_is_tritons():
    from triton.runtime.errors import AutotunerError

    from advisor.system.errors import UsageError

    asked = []

    def early(given, named, **kwargs):
        asked.append((len(given), sorted(named), sorted(kwargs)))
        return given[:3]

    estimates = []

    def model(**kwargs):
        estimates.append(kwargs["BLOCK"])
        return -kwargs["BLOCK"]

    prune = {"early_config_prune": early, "perf_model": model, "top_k": 0.7}
    kernel, bench = tuned({16: 1.0, 32: 2.0, 64: 3.0, 128: 0.1}, prune_configs_by=prune)
    assert call(kernel) == 32
    assert asked == [(4, ["n", "x"], ["grid", "warmup"])] and estimates == [16, 32, 64]
    assert [launch["BLOCK"] for launch in bench.measured] == [64, 32]
    alone, bench = tuned({16: 1.0, 32: 2.0}, prune_configs_by={"perf_model": model, "top_k": 0.3})
    assert call(alone) == 32 and not bench.measured and alone.decision.how == "only"
    empty, _ = tuned({16: 1.0, 32: 2.0}, prune_configs_by={"early_config_prune": lambda given, named, **kwargs: []})
    with pytest.raises(AutotunerError, match="at least one config"):
        call(empty)
    odd, _ = tuned({16: 1.0, 32: 2.0}, prune_configs_by={"perf_model": model, "top_k": 1.5})
    with pytest.raises(TypeError, match="top_k"):
        call(odd)
    none, _ = tuned({16: 1.0, 32: 2.0}, prune_configs_by={"perf_model": model, "top_k": 0})
    with pytest.raises(UsageError, match='"top_k" leaves no configuration; got 0; expected a positive count'):
        call(none)


def test_the_listener_hears(monkeypatch, capsys):
    from triton import knobs

    heard = []
    monkeypatch.setattr(knobs.autotuning, "listener", lambda **told: heard.append(told), raising=False)
    monkeypatch.setattr(knobs.autotuning, "print", True)
    call(tuned({16: 1.0, 32: 2.0})[0])
    call(tuned({16: 1.0, 32: 2.0})[0])
    call(tuned({16: 1.0})[0])
    first, second = heard
    assert sorted(first) == ["best_config", "cache_hit", "configs_timings", "duration", "fn", "key"]
    assert first["key"] == (1024, "torch.bfloat16") and first["best_config"].kwargs == {"BLOCK": 16}
    assert list(first["configs_timings"].values()) == [[1.0] * 3, [2.0] * 3]
    assert first["duration"] > 0 and not first["cache_hit"]
    assert second["duration"] is None and second["cache_hit"]
    assert list(second["configs_timings"].values()) == [[1.0] * 3, [2.0] * 3]
    assert capsys.readouterr().out.count("best config selected") == 1


def test_what_failed_is_printed_as_triton_prints_it(monkeypatch, capsys):
    from triton import knobs

    monkeypatch.setattr(knobs.autotuning, "print", True)
    call(tuned(failing({16: out_of_resources()}, {32: 1.0}), space=configs(16, 32))[0])
    first, second, third, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("Autotuning kernel scale with config BLOCK: 16,") and "BLOCK: 32," in third
    assert second.startswith("Autotuning failed with out of resource: shared memory, Required: 300000")


def test_a_thread_that_compiles_ahead_does_not_disturb_one_that_tunes():
    """What hooks and pruning read of the call is of this call, whatever another thread warms up meanwhile."""
    import threading
    import time

    kernel, _ = tuned({16: 1.0, 32: 2.0}, pre_hook=lambda given, reset_only=False: None)
    kernel.fn.warmup = lambda *args, **kwargs: kwargs["BLOCK"]
    warmed = []

    def meanwhile(launch):
        if not warmed:
            thread = threading.Thread(target=lambda: warmed.append(kernel.warmup(None, 5, grid=(1,))))
            thread.start()
            thread.join(0.2)
        assert kernel.nargs["n"] == 1024
        return float(launch["BLOCK"])

    kernel._do_bench.latency_ms = meanwhile
    assert call(kernel) == 16
    deadline = time.monotonic() + 10
    while not warmed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert warmed[-1] == [16, 32] and kernel.nargs is None


@pytest.fixture
def gpu_clock(monkeypatch):
    """A GPU that a kernel may keep busy, and a process that gives up after 0.2 s."""
    from advisor.autotuning import watching

    from .fakes import Event

    monkeypatch.setattr(Event, "busy_until", 0.0)
    monkeypatch.setattr(watching, "HANG_LEAST_S", 0.2)
    monkeypatch.setattr(watching, "_hung", [])
    SECONDS.clear()
    return Event


SECONDS = {}


def busy(x, n, BLOCK):
    """Keeps the GPU busy for `SECONDS[BLOCK]`; launching returns at once."""
    import time

    from .fakes import Event

    Event.busy_until = max(time.perf_counter(), Event.busy_until) + SECONDS.get(BLOCK, 0.0)


def blocks(kernel):
    """What `triton.testing.do_bench` does first: it would wait for ever."""
    from .fakes import FakeKernel

    assert isinstance(kernel, FakeKernel)

    def bench(run, quantiles):
        for _ in range(3):
            run()
        return [1.0 / kernel.launches[-1]["BLOCK"]] * 3

    return bench


def hanging(seconds, space=(16, 32, 64), **options):
    from advisor.autotuning.decorator import autotune

    SECONDS.update(seconds)
    kernel = FakeKernel(busy)
    return autotune(configs(*space), ["n"], do_bench=blocks(kernel), **{"time_limit_s": 0.02, **options})(kernel), kernel


def test_a_slow_kernel_is_waited_for_and_left_out(gpu_clock):
    tuner, _ = hanging({32: 0.06})
    tuner[(1,)](None, 8)
    assert tuner.best_config.kwargs["BLOCK"] == 64
    assert states(tuner) == {16: "measured", 32: "time", 64: "measured"}
    assert "at most 0.02 s" in next(each.reason for each in tuner.decision.timings if each.state == "time")


@pytest.mark.parametrize("check", [None, True])
def test_a_kernel_that_never_ends_is_an_error_recorded_and_not_tried_again(gpu_clock, check, caplog, torch):
    from advisor.autotuning.watching import NeverEndsError

    tuner, kernel = hanging({32: 3600.0}, check_output=check)
    with pytest.raises(NeverEndsError, match=r"BLOCK: 32.*given up.*time_limit_s=0\.02 \(raise it\).*cannot be stopped.*restart"):
        tuner[(1,)](torch.zeros(2), 8)
    launched = len(kernel.launches)
    # The process goes on without measuring: the best that was found out before.
    tuner[(1,)](torch.zeros(2), 8)
    tuner[(1,)](torch.zeros(2), 8)
    assert [launch["BLOCK"] for launch in kernel.launches[launched:]] == [16, 16]
    assert tuner.decision.how == "cached" and "blocks the GPU" in tuner.decision.reason and tuner.decision.provisional
    for n in (9, 10):
        tuner[(1,)](torch.zeros(2), n)  # nothing is known of these keys: the first configuration, and one warning
        assert tuner.best_config.kwargs["BLOCK"] == 16
    assert sum("blocks the GPU" in record.message for record in caplog.records) == 1
    # It ends after all: tuning goes on where it was, without the configuration that hung.
    gpu_clock.busy_until = 0.0
    launched = len(kernel.launches)
    tuner[(1,)](torch.zeros(2), 8)
    assert tuner.best_config.kwargs["BLOCK"] == 64 and states(tuner)[32] == "time"
    assert all(launch["BLOCK"] != 32 for launch in kernel.launches[launched:])
    # And so for every other process.
    other, kernel = hanging({32: 3600.0}, check_output=check)
    other[(1,)](torch.zeros(2), 8)
    assert other.best_config.kwargs["BLOCK"] == 64 and all(launch["BLOCK"] != 32 for launch in kernel.launches)


def test_without_a_limit_nothing_is_watched(gpu_clock):
    tuner, _ = hanging({32: 3600.0}, space=(16, 32), time_limit_s=None)
    tuner[(1,)](None, 8)
    assert tuner.best_config.kwargs["BLOCK"] == 32


def test_where_no_gpu_is_the_launch_says_what_to_do(monkeypatch):
    """Triton's own words are in it, and it is the RuntimeError that they come with; without a launch, a prediction needs no GPU."""
    import triton
    from triton.runtime.driver import driver

    def none(self):
        raise RuntimeError("0 active drivers ([]). There should only be one.")

    monkeypatch.setattr(type(driver), "active", property(none))
    kernel, bench = tuned({16: 1.0, 32: 2.0})
    only, _ = tuned({16: 1.0}, space=[triton.Config({"BLOCK": 16})])
    for launch in (
        lambda: call(kernel),
        lambda: kernel.run(None, 8, grid=(1,), warmup=False),
        lambda: kernel.decide(None, 8, grid=(1,)),
        lambda: call(only),
    ):
        with pytest.raises(RuntimeError, match=r"scale cannot be launched: .*; got 0 active drivers .*; TRITON_INTERPRET=1 ") as caught:
            launch()
        assert caught.value.exit_code == 4 and str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert not bench.measured
    assert tuned({16: 1.0, 32: 2.0}, mode="predict")[0].decide(None, 8, grid=(1,)).config.kwargs["BLOCK"] in (16, 32)
