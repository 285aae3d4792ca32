"""The analytical latency: what it counts, beyond what the bounds and counts are tested for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec, list_gpus, load_gpu
from advisor.pipelines import ConfigurationBatch, ProblemBatch, analyse, column
from advisor.pipelines.schedule import ADDRESSES, PICOJOULES_PER_FLOP, RELATIVE_ENERGY, sustained_flop_per_us, sustained_us
from advisor.pipelines.space import problem_space

GEMM = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8}


def in_parts(name: str, values: list[int], **parameters: int) -> ConfigurationBatch:
    """One configuration with several values of one parameter."""
    columns = {each: column([value] * len(values)) for each, value in parameters.items()}
    return ConfigurationBatch(parameters={**columns, name: column(values)})


@pytest.mark.parametrize(("gpu", "dtype", "split"), [("T4", "bf16", 8), ("MI300X", "fp32", 16)])
def test_adding_up_the_parts_of_a_product_takes_its_time(gpu: str, dtype: str, split: int) -> None:
    """The parts are written, then read back and their sum written: where all SMs have work without a split, all of that is lost."""
    size, spec = 4096, load_gpu(gpu)
    problem = ProblemBatch(family="gemm", op="gemm", dtype=dtype, sizes=dict.fromkeys("MNK", column(size)))
    whole, parted = analyse(problem, in_parts("SPLIT_K", [1, split], **GEMM), spec).latency_us
    read_and_written = size * size * (4 * split + problem.result_bytes)
    assert parted - whole > (read_and_written - spec.l2_bytes) / (spec.dram_bytes_per_s / 1e6)


def test_combining_the_splits_of_attention_takes_its_time() -> None:
    """512 sequences give every SM work without splits; the parts, 1 GB, are written to DRAM and read back."""
    gpu, splits, batch, heads, size = load_gpu("H100"), 64, 512, 64, 128
    sizes = {name: column(value) for name, value in {"B": batch, "H": heads, "H_kv": 8, "M": 1, "N": 4096, "D": size}.items()}
    problem = ProblemBatch(family="attention", op="decode", sizes=sizes)
    found = analyse(problem, in_parts("NUM_KV_SPLITS", [1, splits], BLOCK_M=16, BLOCK_N=64), gpu)
    beyond_l2 = batch * heads * size * 4 * splits - gpu.l2_bytes
    assert np.diff(found.demand.dram_bytes)[0] >= beyond_l2
    assert np.diff(found.latency_us)[0] > 2 * beyond_l2 / (gpu.dram_bytes_per_s / 1e6)


def test_a_small_product_is_still_best_split() -> None:
    """16 x 1024 results of a depth of 16,384: without a split 8 of an H100's 132 SMs have work."""
    problem = ProblemBatch(family="gemm", op="gemm", sizes={"M": column(16), "N": column(1024), "K": column(16384)})
    configurations = in_parts("SPLIT_K", [1, 16], **{**GEMM, "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 128})
    whole, parted = analyse(problem, configurations, load_gpu("H100")).latency_us
    assert parted < whole


@pytest.mark.parametrize(("family", "op", "rows"), [("normalization", "softmax", 4), ("elementwise", "add", 4)])
def test_a_block_that_the_registers_cannot_hold_is_slow(family: str, op: str, rows: int) -> None:
    """4,096 values in each of 32 threads, against 64 in each of 512."""
    sizes = {"B": column(16384), "H": column(32768)}
    problem = ProblemBatch(family=family, op=op, dtype="fp32", sizes=sizes)
    columns = {"BLOCK_SIZE": column([32768, 32768]), "ROWS_PER_CTA": column([rows, 1])}
    spilled, held = analyse(problem, ConfigurationBatch(parameters=columns, num_warps=column([1, 16])), load_gpu("H100")).latency_us
    assert spilled > 2 * held


@pytest.mark.parametrize("length", [4096, 16384, 131072])
def test_the_best_of_row_configurations_holds_its_rows(length: int) -> None:
    """Longer rows than any CTA holds are taken in passes where no BLOCK_SIZE is given."""
    problem = ProblemBatch(family="normalization", op="softmax", dtype="fp32", sizes={"B": column(4096), "H": column(length)})
    space = problem_space(problem)
    found = analyse(problem, space, load_gpu("H100"))
    best = np.argmin(found.latency_us)
    held = found.demand.resources.accumulators
    assert held is not None and held[best] <= 255 - ADDRESSES
    assert held.min() <= 64
    assert (found.demand.k_iterations[best] > 1) == (length > 16384)


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
