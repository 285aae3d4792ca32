"""What others read, set and copy of a kernel means what it means with triton.autotune: every test here runs on both."""

from __future__ import annotations

import copy
import pickle

import pytest

from .fakes import FakeKernel, Tensor
from .kernels import configs, scale

KEY = (1024, "torch.bfloat16")


@pytest.fixture(params=["triton", "advisor"])
def autotune(request):
    """Either decorator."""
    import triton

    from advisor.autotuning.decorator import autotune

    return {"triton": triton.autotune, "advisor": autotune}[request.param]


class Smallest:
    """A benchmark under which the smallest block is the fastest; counts."""

    def __init__(self):
        self.count = 0
        self.kernel = FakeKernel(scale)

    def __call__(self, call, quantiles):
        self.count += 1
        call()
        return [float(self.kernel.launches[-1]["BLOCK"])] * 3


@pytest.fixture
def bench():
    return Smallest()


def made(autotune, bench, listed=None, **options):
    options.setdefault("key", ["n"])
    return autotune(configs(32, 64) if listed is None else listed, do_bench=bench, **options)(bench.kernel)


def block(kernel, n=1024, **options):
    kernel[(1,)](Tensor(), n, **options)
    return kernel.fn.launches[-1]["BLOCK"]


def test_the_cache_can_be_copied_and_pickled(autotune, bench):
    kernel = made(autotune, bench)
    block(kernel)
    for same in (pickle.loads(pickle.dumps(kernel.cache)), copy.deepcopy(kernel.cache), copy.copy(kernel.cache)):
        assert type(same) is dict and same == kernel.cache and same[KEY].kwargs == {"BLOCK": 32}
        same.clear()
    assert list(kernel.cache) == [KEY]
    kept = pickle.dumps({KEY: kernel.configs[1]})
    kernel.cache = pickle.loads(kept)
    assert block(kernel) == 64


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
def test_a_copy_is_a_kernel_of_its_own(autotune, bench, how):
    kernel = made(autotune, bench)
    block(kernel)
    other = how(kernel)
    assert block(other) == 32 and isinstance(other, type(kernel)) and other.keys == ["n"]
    other.configs = configs(64)
    assert (block(other), block(kernel)) == (64, 32)
    other.configs = configs(64, 128)
    other.cache = {KEY: other.configs[1]}
    assert (block(other), block(kernel)) == (128, 32)


def test_the_list_of_configurations_is_the_callers_own(autotune, bench):
    listed = configs(32, 64)
    kernel = made(autotune, bench, listed)
    assert kernel.configs is listed
    listed[:] = configs(16, 128)
    assert block(kernel) == 16
    assert type(made(autotune, bench, tuple(listed)).configs) is tuple


def test_what_is_merged_into_the_cache_takes_effect(autotune, bench):
    kernel = made(autotune, bench)
    block(kernel)
    cache = kernel.cache
    cache |= {KEY: kernel.configs[1]}
    assert block(kernel) == 64


@pytest.mark.parametrize("how", ["assigned", "of a subclass"])
def test_whoever_stands_in_for_the_measuring_measures(autotune, bench, how):
    asked = []

    class Measured(type(made(autotune, bench))):
        def _bench(self, *args, config, **meta):
            asked.append((args[1:], config.kwargs["BLOCK"], sorted(meta)))
            return [-1.0 * config.kwargs["BLOCK"] + 100] * 3

    kernel = Measured(bench.kernel, bench.kernel.arg_names, configs(32, 64), ["n"], None, ["x"], do_bench=bench)
    if how == "assigned":
        stand_in, kernel = kernel._bench, made(autotune, bench)
        kernel._bench = stand_in
    assert block(kernel) == 64 and not bench.count
    assert asked == [((1024,), 32, ["grid", "warmup"]), ((1024,), 64, ["grid", "warmup"])]
    assert list(kernel.configs_timings.values()) == [[68.0] * 3, [36.0] * 3]


def test_whoever_stands_in_for_run_sees_every_launch(autotune, bench):
    seen = []
    kernel = made(autotune, bench)
    run = kernel.run
    kernel.run = lambda *args, **kwargs: (seen.append(sorted(kwargs)), run(*args, **kwargs))
    assert block(kernel) == block(kernel) == 32
    assert seen == [["grid", "warmup"]] * 2


def test_a_subclass_sees_every_launch(autotune, bench):
    seen = []

    class Watched(type(made(autotune, bench))):
        def run(self, *args, **kwargs):
            seen.append(sorted(kwargs))
            return super().run(*args, **kwargs)

    kernel = Watched(bench.kernel, bench.kernel.arg_names, configs(32, 64), ["n"], None, None, do_bench=bench)
    assert block(kernel) == block(kernel) == 32
    assert seen == [["grid", "warmup"]] * 2


def test_a_benchmark_that_is_assigned_measures(autotune, bench):
    kernel = autotune(configs(64, 32), ["n"], pre_hook=lambda given, reset_only=False: None)(bench.kernel)
    kernel.do_bench = bench
    assert kernel.do_bench is bench
    assert block(kernel) == 32 and bench.count == 2
    assert list(kernel.configs_timings.values()) == [[64.0] * 3, [32.0] * 3]


def test_pruning_can_be_asked_for_without_a_call(autotune, bench):
    kernel = made(autotune, bench, prune_configs_by={"early_config_prune": lambda given, named, **more: given[named["n"] :]})
    assert len(made(autotune, bench).prune_configs({})) == 2
    kernel.nargs = {"n": 1}
    assert [each.kwargs for each in kernel.prune_configs({})] == [{"BLOCK": 64}]


@pytest.mark.parametrize("twice", [{"warmup": True}, {"grid": (2,)}])
def test_what_the_launch_says_itself_is_not_given_twice(autotune, bench, twice):
    kernel = made(autotune, bench)
    for _ in range(2):
        with pytest.raises(TypeError, match="multiple values for keyword argument"):
            kernel[(1,)](Tensor(), 1024, **twice)
        block(kernel)
