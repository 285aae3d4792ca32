"""Curves of collectives: interpolated, carried to other GPUs by their links, and linear beyond what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.gpus.hardware import load_gpu
from advisor.steps.collectives import BY_A_SIBLING, MEASURED, OVER_PCIE, PCIE_SHARE, Curves, link_rate, load_constants
from advisor.system.errors import UsageError
from advisor.training.step_evaluation import LOG2_BYTES, fit_curves

CURVES = Curves(log2_bytes=(10, 20, 30), of={"H100": {"all_reduce/nccl": {2: (8.0, 16.0, 4096.0), 8: (16.0, 32.0, 8192.0)}}})

OF_L40S = {"log2_bytes": (10, 30), "of": {"L40S": {"all_reduce/nccl": {8: (22.8, 1.4e6)}}}}
"""The only other GPU over PCIe, so that the RTX PRO 6000 S is one that was never measured."""


def test_between_and_beyond_the_points():
    h100 = load_gpu("H100")
    share = (2**15 - 2**10) / (2**20 - 2**10)
    assert CURVES.latency_us("all_reduce", 2**15, 2, h100, "nccl")[0] == pytest.approx(8 + 8 * share)
    assert CURVES.latency_us("all_reduce", 2**32, 2, h100, "nccl")[0] == pytest.approx(4 * 4096)
    assert CURVES.latency_us("all_reduce", 1, 2, h100, "nccl") == (8.0, MEASURED)
    assert CURVES.latency_us("all_reduce", 1, 4, h100, "nccl")[0] == 16.0
    with pytest.raises(UsageError, match="16 GPUs"):
        CURVES.latency_us("all_reduce", 1, 16, h100, "nccl")


def test_another_gpu_takes_as_long_for_as_much_as_its_links_carry():
    h100, h800 = load_gpu("H100"), load_gpu("H800")
    size = 2.0**29
    ours, spread = CURVES.latency_us("all_reduce", size * link_rate(h800) / link_rate(h100), 8, h800, "nccl")
    assert ours == pytest.approx(CURVES.latency_us("all_reduce", size, 8, h100, "nccl")[0]) and spread == BY_A_SIBLING


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_over_pcie_an_unmeasured_gpu_is_a_ring_at_a_share_of_its_link(ranks):
    curves = load_constants().curves
    a40, size = load_gpu("A40"), 2.0**30
    us, spread = curves.latency_us("all_reduce", size, ranks, a40, "nccl")
    share = PCIE_SHARE[{3: 4}.get(ranks, ranks)]
    assert us == pytest.approx(2 * (ranks - 1) / ranks * size / (share * 31.5e9) * 1e6, rel=0.01)
    assert spread == (OVER_PCIE if ranks > 2 else BY_A_SIBLING)
    assert curves.latency_us("all_gather", size, ranks, a40, "nccl")[0] == pytest.approx(us / 2, rel=0.01)
    assert curves.latency_us("all_reduce", 8, ranks, a40, "nccl")[0] < 40


def test_over_pcie_small_messages_of_many_take_the_protocol_that_waits_less():
    """NCCL over eight RTX PRO 6000 S: 84 µs for 262,144 bytes, 149 for four times as much."""
    small, more = (Curves(**OF_L40S).latency_us("all_reduce", 2.0**n, 8, load_gpu("RTX PRO 6000 S"), "nccl")[0] for n in (18, 20))
    assert small == pytest.approx(84, rel=0.1) and more == pytest.approx(149, rel=0.1)


@pytest.mark.parametrize(("ranks", "gigabytes"), [(4, 3.7), (8, 2.0)])
def test_over_pcie_what_the_host_passes_holds_of_large_messages_alone(ranks, gigabytes):
    """L40S of a host that passes a tenth of their links, as if they had not been measured: small and large ones within 15 %."""
    curves = load_constants().curves
    told = replace(load_gpu("L40S"), host_bytes_per_s=gigabytes * 1e9)
    for size in (2.0**12, 2.0**29):
        us, spread = curves.latency_us("all_reduce", size, ranks, told, "vllm")
        assert us == pytest.approx(curves.latency_us("all_reduce", size, ranks, load_gpu("L40S"), "vllm")[0], rel=0.15)
        assert spread == BY_A_SIBLING


def test_the_shipped_curves_grow_and_know_the_engines():
    curves = load_constants().curves
    for gpu, ops in curves.of.items():
        assert {"all_reduce/vllm", "all_reduce/sglang", "all_reduce/sglang-eager", "all_gather/nccl"} <= set(ops)
        for by_ranks in ops.values():
            for values in by_ranks.values():
                assert values[-1] > 20 * values[0] > 0, gpu


def test_of_an_architecture_that_was_measured_its_own_is_taken():
    curves = load_constants().curves
    assert curves._nearest(load_gpu("H800"), "all_reduce/nccl").name == "H100"
    assert curves._nearest(load_gpu("A800"), "all_reduce/nccl").name == "A100"
    assert curves._nearest(load_gpu("L40"), "all_reduce/nccl").name == "L40S"


def test_a_curve_goes_through_what_was_measured_and_past_what_was_disturbed():
    sizes = [2.0**e for e in range(9, 30)]
    us = [5 + size / 1e5 for size in sizes]
    disturbed = [40 * each if i == 4 else each for i, each in enumerate(us)]
    for more in ([us, us, disturbed], [disturbed]):
        key = ("H100", "all_reduce/nccl", 2)
        fitted = fit_curves({key: (sizes * len(more), [each for run in more for each in run])})["curves"]["H100"]["all_reduce/nccl"]["2"]
        assert fitted == pytest.approx([5 + max(2.0**e, 512) / 1e5 for e in LOG2_BYTES], rel=0.01)
