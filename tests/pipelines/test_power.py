"""What the board's power limit does to predictions, and does not do to bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec, list_gpus, load_gpu
from advisor.pipelines import ConfigurationBatch, ProblemBatch, column
from advisor.pipelines.power import PICOJOULES_PER_FLOP, RELATIVE_ENERGY, sustained_flop_per_us, sustained_us

TILE = ConfigurationBatch(
    parameters={"BLOCK_SIZE_M": column(128), "BLOCK_SIZE_N": column(128), "BLOCK_SIZE_K": column(64), "GROUP_SIZE_M": column(8)},
    num_warps=column(8),
    num_stages=column(3),
)


def product(m: int, dtype: str = "bf16") -> ProblemBatch:
    return ProblemBatch(family="gemm", op="gemm", sizes={"M": column(m), "N": column(4096), "K": column(4096)}, dtype=dtype)


def predicted(problem: ProblemBatch, gpu: GpuSpec) -> float:
    return float(pipelines.latency_us(pipelines.demand(problem, TILE, gpu), gpu)[0])


def test_a_board_with_less_power_is_slower_and_its_bound_the_same() -> None:
    l4 = load_gpu("L4")
    free, strong, weak = (replace(l4, board_power_w=watts) for watts in (None, 10_000, 36))
    assert predicted(product(4096), free) == pytest.approx(predicted(product(4096), strong), rel=1e-3)
    assert predicted(product(4096), weak) == pytest.approx(2 * predicted(product(4096), l4), rel=0.03)
    assert predicted(product(4096), l4) > 1.5 * predicted(product(4096), free)
    bounds = {float(pipelines.bound(pipelines.work(product(4096), gpu), gpu, "warm").us[0]) for gpu in (l4, free, weak)}
    assert len(bounds) == 1


def test_memory_bound_launches_have_power_to_spare() -> None:
    l4 = load_gpu("L4")
    assert predicted(product(16), l4) == pytest.approx(predicted(product(16), replace(l4, board_power_w=None)), rel=0.01)


def test_the_gap_names_the_power_limit_where_it_costs() -> None:
    for name, held in (("L4", True), ("H100", False)):
        gpu = load_gpu(name)
        asked = pipelines.demand(product(4096), TILE, gpu)
        parts = pipelines.gap(asked, gpu, pipelines.bound(pipelines.work(product(4096), gpu), gpu, "warm").us)
        assert (float(parts["power"][0]) > 0.2 * predicted(product(4096), gpu)) is held


def test_padding_costs_no_energy() -> None:
    l4 = load_gpu("L4")
    times = [float(sustained_us(pipelines.demand(product(m), TILE, l4), l4)[0]) for m in (1, 128, 256)]
    assert times == pytest.approx([times[1] / 128, times[1], 2 * times[1]])


def test_every_nvidia_gpu_with_a_power_limit_has_energies_for_what_its_matrix_units_take() -> None:
    for gpu in list_gpus():
        if gpu.board_power_w is None:
            assert sustained_flop_per_us(gpu, None) == np.inf
            continue
        assert gpu.compute_capability in PICOJOULES_PER_FLOP, gpu.name
        for dtype in gpu.tensor_flop_per_clock_per_sm:
            assert dtype in RELATIVE_ENERGY
            peak = gpu.peak_tensor_flop_per_s(dtype) / 1e6
            assert sustained_flop_per_us(gpu, dtype) > 0.2 * peak, (gpu.name, dtype)
