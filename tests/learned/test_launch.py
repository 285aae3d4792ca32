"""Quantities of launches against counting by hand, and the physics on top."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.gpus.hardware import load_gpu
from advisor.learned.analytical import served_configuration
from advisor.learned.machine import machine
from advisor.learned.moe import moe_physics
from advisor.learned.moe.launch import as_configuration, as_rows, concatenate, fits, moe_launch
from advisor.tables import launchability
from tests.learned.samples import CONFIGURATIONS, problems


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 130), st.integers(1, 8), st.sampled_from([16, 32, 64, 128]))
def test_tiles_are_counted_per_expert(tokens, experts, topk, block):
    topk = min(topk, experts)
    rows = np.array([[block, 64, 64, 1, 4, 3]], dtype=np.float64)
    launch = moe_launch(problems((experts, topk, 256, 96), (tokens,)), as_configuration(rows), machine(load_gpu("A100"), "bf16"))
    loads = np.bincount(np.arange(tokens * topk) % experts, minlength=experts)
    assert launch.row_tiles[0] == np.ceil(loads / block).sum()
    assert launch.ctas[0] == np.ceil(loads / block).sum() * np.ceil(192 / 64)
    assert launch.experts[0] == (loads > 0).sum()
    assert launch.most_rows[0] == loads.max()


def test_routing_given_equals_uniform_when_it_is():
    gpu, configuration = machine(load_gpu("H800"), "bf16"), as_configuration(CONFIGURATIONS[:1])
    uniform = problems((8, 2, 1024, 512), (64,))
    given_ = type(uniform)(
        family="fused_moe", op="w13", sizes=uniform.sizes, expert_rows=np.array([[16.0]]), expert_count=np.array([[8.0]])
    )
    np.testing.assert_allclose(moe_launch(given_, configuration, gpu).ctas, moe_launch(uniform, configuration, gpu).ctas)


def test_skewed_routing_costs_more():
    gpu, configuration = machine(load_gpu("H800"), "bf16"), as_configuration(CONFIGURATIONS[-1:])
    flat = problems((64, 6, 3072, 2048), (4096,))
    skew = type(flat)(
        family="fused_moe",
        op="w13",
        sizes=flat.sizes,
        expert_rows=np.array([[24576.0 - 63 * 1.0, 1.0]]),
        expert_count=np.array([[1.0, 63.0]]),
    )
    assert moe_launch(skew, configuration, gpu).row_tiles[0] > moe_launch(flat, configuration, gpu).row_tiles[0]


@pytest.mark.parametrize("name", ["A100", "L40", "H20", "RTX PRO 6000 S", "T4"])
def test_served_configurations_fit(name):
    gpu, problem = machine(load_gpu(name), "bf16"), problems(tokens=tuple(range(1, 6000, 97)))
    if load_gpu(name).smem_bytes_per_cta >= 99 * 1024:
        assert fits(gpu, served_configuration(problem, gpu)).all()


@pytest.mark.parametrize("name", ["A100", "L40", "H800", "H200", "RTX PRO 6000 S", "B200"])
def test_shared_memory_is_that_of_the_audit(name):
    gpu, here = load_gpu(name), machine(load_gpu(name), "bf16")
    rows = np.array(list(itertools.product((16, 32, 64, 128), (32, 64, 128, 256), (64, 128, 256), (1,), (2, 4, 8), (1, 2, 3, 4, 5))), float)
    m, n, k, _, warps, stages = rows.T
    expected = launchability.shared_memory_bytes(m, n, k, stages.astype(int), compute_capability=gpu.compute_capability, num_warps=warps)
    launch = moe_launch(problems(tokens=(64,)), as_configuration(rows), here)
    np.testing.assert_array_equal(launch.shared_bytes, expected)
    np.testing.assert_array_equal(fits(here, as_configuration(rows)), expected <= gpu.smem_bytes_per_cta)
    assert 0 < (expected <= gpu.smem_bytes_per_cta).mean() < 1


def test_physics_is_positive_and_above_its_largest_term():
    gpu = machine(load_gpu("H800"), "bf16")
    launch = moe_launch(problems(tokens=(300,)), as_configuration(CONFIGURATIONS), gpu)
    us, stack = moe_physics.terms(launch, moe_physics.start())
    assert np.isfinite(us).all()
    assert (us > stack.max(axis=0)).all()


def test_fit_finds_the_constants_it_was_made_with():
    gpus = [machine(load_gpu(n), "bf16") for n in ("A100", "H800", "L40")]
    launch = concatenate([moe_launch(problems(tokens=(t,)), as_configuration(CONFIGURATIONS), g) for g in gpus for t in (1, 40, 900, 4000)])
    true = moe_physics.start()
    true[list(moe_physics.PARAMETERS).index("dram_share")] += np.log(0.8)
    us = moe_physics.terms(launch, true)[0]
    found = moe_physics.fit(launch, us, np.ones(len(launch)), sample=600)
    assert np.abs(np.log(moe_physics.terms(launch, found)[0] / us)).mean() < 0.02


def test_configuration_rows_round_trip():
    np.testing.assert_array_equal(as_rows(as_configuration(CONFIGURATIONS)), CONFIGURATIONS)


def dram_us(name: str, fill: float) -> float:
    """The physics' time of DRAM traffic that the L2 does not hold, over that of all distinct bytes, for weights of `fill` times the L2."""
    gpu = machine(load_gpu(name), "bf16")
    width = round(fill * gpu.l2_capacity_bytes / (2 * 64 * 2 * 2048))
    launch = moe_launch(problems((64, 8, 2048, width), (8,)), as_configuration(CONFIGURATIONS[:1]), gpu)
    _, stack = moe_physics.terms(launch, moe_physics.start())
    share = moe_physics.PARAMETERS["dram_share"][0]
    return float(stack[moe_physics.TERMS.index("dram")][0] / (launch.dram_us[0] * gpu.dram_bytes / launch.dram_rate[0] / share))


def test_an_l2_of_two_partitions_fills_sooner():
    assert dram_us("L40", 0.9) < 0.02 and dram_us("RTX PRO 6000 S", 0.9) < 0.02
    assert dram_us("H800", 0.9) > 0.7 and dram_us("A100", 0.9) > 0.7
    assert dram_us("H800", 0.5) < 0.05


def test_a_set_little_larger_than_the_l2_is_kept_in_part():
    shares = [dram_us("L40", fill) for fill in (1.1, 1.5, 2.0, 4.0)]
    assert shares == sorted(shares) and shares[0] < 0.9 and shares[-1] > 0.99


def test_the_launch_itself_takes_clocks():
    gpu = machine(load_gpu("A40"), "bf16")
    faster = dataclasses.replace(gpu, clock_mhz=2 * gpu.clock_mhz)
    configuration, small = as_configuration(CONFIGURATIONS[:1]), problems((8, 2, 1024, 64), (1,))
    slow, fast = (moe_physics.terms(moe_launch(small, configuration, g), moe_physics.start())[0][0] for g in (gpu, faster))
    kilo, fixed = moe_physics.PARAMETERS["launch_kiloclocks"][0], moe_physics.PARAMETERS["launch_us"][0]
    assert slow - fast >= kilo / 1.74 / 2
    assert fast > fixed + kilo / 1.74 / 2
