"""Factors of single GPUs that their launches as served show."""

from __future__ import annotations

import numpy as np

from advisor.hardware import load_gpu
from advisor.learned import habits, reach
from advisor.learned.configurations import as_configuration
from advisor.learned.launch import concatenate, moe_launch
from advisor.learned.machine import machine
from tests.learned.samples import CONFIGURATIONS, problems

TOKENS = (1, 2, 4, 8, 16, 32, 64, 100, 128, 200, 256, 400)


def launches(name):
    gpu = machine(load_gpu(name), "bf16")
    parts = [moe_launch(problems((64, 6, 3072, 2048), (t,)), as_configuration(CONFIGURATIONS), gpu) for t in TOKENS * 8]
    return concatenate([p.take(np.arange(1)) for p in parts])


def fitted(planted):
    """Habits from launches whose DRAM-bound ones are off by exp(factor)."""
    parts = {name: launches(name) for name in planted}
    launch = concatenate(list(parts.values()))
    residual = np.concatenate([np.full(len(part), planted[name]) for name, part in parts.items()])
    stack = reach.terms(launch, reach.start())[1]
    return habits.fit(launch, residual, stack, np.ones(len(launch)), np.zeros((0, 2)))


def test_what_single_gpus_differ_by_is_found_and_centred():
    found = fitted({"A100": 0.1, "L20": 0.0, "H200": -0.1})
    for name, expected in (("A100", 0.1), ("L20", 0.0), ("H200", -0.1)):
        launch = launches(name)
        stack = reach.terms(launch, reach.start())[1]
        np.testing.assert_allclose(np.median(found.log_factor(launch, stack)), expected, atol=0.02)
    np.testing.assert_allclose(found.factors.mean(axis=0), 0, atol=1e-12)


def test_a_gpu_that_is_unknown_is_taken_to_be_like_those_with_sweeps():
    parts = [launches(name) for name in ("A100", "L20", "H20")]
    launch, residual = concatenate(parts), np.repeat([0.04, 0.02, -0.3], len(parts[0]))
    found = habits.fit(launch, residual, reach.terms(launch, reach.start())[1], np.ones(len(launch)),
                       habits.machines_of(concatenate(parts[:2])))  # fmt: skip
    shown = [float(np.median(found.log_factor(p, reach.terms(p, reach.start())[1]))) for p in parts]
    np.testing.assert_allclose(shown[:2], [0.01, -0.01], atol=0.01)
    assert shown[2] < -0.05


def test_wild_rows_do_not_sway_it():
    launch = concatenate([launches("A100"), launches("L20")])
    residual = np.where(np.arange(len(launch)) % 4 == 0, 1.5, 0.0)  # a GPU that throttles in a quarter of its rows
    found = habits.fit(launch, residual, reach.terms(launch, reach.start())[1], np.ones(len(launch)), np.zeros((0, 2)))
    assert np.abs(found.factors).max() < 0.05


def test_a_gpu_that_nothing_is_known_of_is_like_all_others():
    launch = launches("B200")
    stack = reach.terms(launch, reach.start())[1]
    assert not fitted({"A100": 0.1, "L20": 0.0}).log_factor(launch, stack).any()
    assert not habits.NONE.log_factor(launch, stack).any()


def test_round_trip():
    found = fitted({"A100": 0.1, "L20": 0.0})
    again = habits.from_arrays(found.arrays("h"), "h")
    np.testing.assert_array_equal(again.factors, found.factors)
    np.testing.assert_array_equal(again.machines, found.machines)
