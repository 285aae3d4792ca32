"""Factors of single GPUs that their launches as served show."""

from __future__ import annotations

import numpy as np

from advisor.gpus.hardware import load_gpu
from advisor.learned.machine import machine
from advisor.learned.moe import gpu_corrections, moe_physics
from advisor.learned.moe.launch import as_configuration, concatenate, moe_launch
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
    stack = moe_physics.terms(launch, moe_physics.start())[1]
    return gpu_corrections.fit(launch, residual, stack, np.ones(len(launch)), np.zeros((0, 2)))


def test_what_single_gpus_differ_by_is_found_and_centred():
    found = fitted({"A100": 0.1, "L20": 0.0, "H200": -0.1})
    for name, expected in (("A100", 0.1), ("L20", 0.0), ("H200", -0.1)):
        launch = launches(name)
        stack = moe_physics.terms(launch, moe_physics.start())[1]
        np.testing.assert_allclose(np.median(found.log_factor(launch, stack)), expected, atol=0.02)
    np.testing.assert_allclose(found.factors.mean(axis=0), 0, atol=1e-12)


def test_a_gpu_that_is_unknown_is_taken_to_be_like_those_with_sweeps():
    parts = [launches(name) for name in ("A100", "L20", "H20")]
    launch, residual = concatenate(parts), np.repeat([0.04, 0.02, -0.3], len(parts[0]))
    found = gpu_corrections.fit(
        launch,
        residual,
        moe_physics.terms(launch, moe_physics.start())[1],
        np.ones(len(launch)),
        gpu_corrections.machines_of(concatenate(parts[:2])),
    )
    shown = [float(np.median(found.log_factor(p, moe_physics.terms(p, moe_physics.start())[1]))) for p in parts]
    np.testing.assert_allclose(shown[:2], [0.01, -0.01], atol=0.01)
    assert shown[2] < -0.05


def test_wild_rows_do_not_sway_it():
    launch = concatenate([launches("A100"), launches("L20")])
    residual = np.where(np.arange(len(launch)) % 4 == 0, 1.5, 0.0)  # a GPU that throttles in a quarter of its rows
    found = gpu_corrections.fit(launch, residual, moe_physics.terms(launch, moe_physics.start())[1], np.ones(len(launch)), np.zeros((0, 2)))
    assert np.abs(found.factors).max() < 0.05


def test_a_gpu_that_nothing_is_known_of_is_like_all_others():
    launch = launches("B200")
    stack = moe_physics.terms(launch, moe_physics.start())[1]
    assert not fitted({"A100": 0.1, "L20": 0.0}).log_factor(launch, stack).any()
    assert not gpu_corrections.NONE.log_factor(launch, stack).any()


def test_round_trip():
    found = fitted({"A100": 0.1, "L20": 0.0})
    again = gpu_corrections.from_arrays(found.arrays("h"), "h")
    np.testing.assert_array_equal(again.factors, found.factors)
    np.testing.assert_array_equal(again.machines, found.machines)
