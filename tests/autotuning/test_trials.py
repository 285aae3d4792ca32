"""Which configurations are measured next, and when it is enough."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")


from advisor.autotuning import internals
from advisor.autotuning.decorator import autotune
from advisor.autotuning.ranking import Ranking
from advisor.autotuning.trials import Trials, efforts

from .fakes import FakeDriver
from .stranger_kernels import product
from .test_compiled_ranking import SIDES, configs, of_product

pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")

BLOCKS = (256, 128, 64, 32, 16, 8)


def trials(predicted, compiled=(), most=4):
    """Of configurations of one parameter, in the order of what is predicted of them, microseconds."""
    ranked = Ranking(
        order=tuple(range(len(predicted))),
        by="",
        modelled=True,
        predicted_us=dict(enumerate(predicted)),
        scores=tuple(predicted),
        spread=0.1,
    )
    return Trials(ranked=ranked, configurations=[{"BLOCK": block} for block in BLOCKS], most=most, compiled=compiled)


def test_a_first_key_begins_with_the_head_of_the_order():
    assert trials((10.0, 11.0, 12.0, 13.0, 14.0, 15.0)).next({}, 4) == [0, 1, 2, 3]


def test_each_further_trial_of_a_first_key_must_promise_more(monkeypatch):
    """All have to be compiled; what a further key finds compiled costs no more than its measurement."""
    predicted, seen = (10.0, 10.1, 10.2, 10.3, 10.35, 10.4), {0: 10.0, 1: 9.8, 2: 10.1, 3: 10.2}
    for more, compiled, expected in ((0.0, (), 2), (0.5, (), 1), (0.5, range(6), 2)):
        monkeypatch.setattr("advisor.autotuning.trials.GAIN_MORE", more)
        some = trials(predicted, most=6, compiled=compiled)
        some.tried = [0, 1, 2, 3]
        assert len(some.next(seen, 4)) == expected, (more, compiled)


def test_a_further_key_begins_with_what_is_compiled():
    assert trials((10.0, 10.5, 12.0, 13.0, 14.0, 15.0), compiled={1, 4}).next({}, 4) == [1, 4]


def test_a_further_key_leaves_measurements_for_what_is_not_compiled():
    """Four are compiled and four may be measured: what is predicted to be a third faster is one of them all the same."""
    some = trials((10.0, 14.0, 14.1, 14.2, 14.3, 15.0), compiled={1, 2, 3, 4})
    assert some.next({}, 4) == [1, 2]
    assert 0 in some.next({1: 14.0, 2: 14.1}, 4)


def test_each_further_compilation_must_promise_more(monkeypatch):
    """What is predicted to be a fifth faster is worth one; another, only where it costs less."""
    counts = []
    for more in (0.5, 0.0):
        monkeypatch.setattr("advisor.autotuning.trials.COMPILING_MORE", more)
        some = trials((10.0, 10.1, 10.2, 12.0, 12.1, 12.2), compiled={3, 4}, most=6)
        assert some.next({}, 4) == [3, 4]
        seen = {3: 12.0, 4: 12.1}
        while chosen := [place for place in some.next(seen, 1) if place != 5]:
            seen |= dict.fromkeys(chosen, 11.9)
        counts.append(len(seen) - 2)
    assert counts[0] == 1 < counts[1]


def test_what_takes_longer_to_compile_must_promise_more():
    """Of tiles of 256 and 128 columns that are predicted to be alike, and much faster than what is compiled."""
    some = trials((10.0, 10.0, 14.0, 14.1, 15.0, 15.0), compiled={2, 3}, most=6)
    assert some.next({}, 4) == [2, 3]
    assert some.next({2: 14.0, 3: 14.1}, 1) == [1]


def test_efforts_are_of_tiles_and_warps_alone():
    of = lambda rows, warps=4, group=8: {"ROWS": rows, "DEPTH": 64, "GROUP_M": group, "FAST": True, "num_warps": warps, "num_stages": 32}  # noqa: E731
    found = efforts([of(64), of(256), of(64, group=64), of(256, warps=16)])
    assert found[1] == 2 * found[0] and found[2] == found[3] == found[0] and found.mean() == pytest.approx(1.0)


def test_a_further_key_of_a_kernel_compiles_hardly_anything(fake_driver, monkeypatch):
    from triton.runtime.driver import driver

    monkeypatch.setattr(driver, "_active", FakeDriver("NVIDIA H100 80GB HBM3"))
    product.device_caches.clear()
    values = [(m, n, 64, 8, 1, w, s) for m in (16, 64, 128) for n in (64, 128) for w, s in ((4, 3), (4, 4), (8, 3))]
    real, compiled, launched = product.run, [], []
    theirs = product._do_compile

    def run(*args, grid, warmup, **options):
        launched.append(options)
        return real(*args, grid=grid, warmup=True, **options)

    monkeypatch.setattr(product, "run", run, raising=False)
    monkeypatch.setattr(type(product), "_do_compile", lambda self, *args, **more: (compiled.append(args[0]), theirs(*args, **more))[1])
    monkeypatch.setattr(internals, "workers", lambda: 1)
    tuned = autotune(configs(SIDES, *values), do_bench=lambda call, quantiles: (call(), [1.0] * 3)[1], key=["rows", "cols", "depth"])(
        product
    )
    counts = []
    for sizes in ((4096, 4096, 4096), (2048, 4096, 4096), (16, 4096, 4096)):
        arguments, grid = of_product(*sizes)
        before = len(compiled)
        decision = tuned.decide(*arguments, grid=grid)
        counts.append(len(compiled) - before)
        assert "its code" in decision.ranked_by and decision.measurements >= 1
    assert 3 <= counts[0] <= 8 and counts[1] <= 1 and counts[2] <= 2
