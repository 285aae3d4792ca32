"""What DRAM sustains: measured shares where they are known, and less where reads and writes take turns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor import pipelines
from advisor.gpus.hardware import load_gpu
from advisor.learned.analytical import AnalyticalPredictor
from advisor.pipelines import ProblemBatch, column, memory

COPIED_TB_PER_S = {
    # Triad of BabelStream (Azure, AI-benchmarking-guide), and of github.com/te42kyfo/gpu-benches: two reads for one write
    "H100": 2.97,
    "H200": 4.15,
    "MI300X": 4.09,
    "A100-40GB-PCIe": 1.36,
    "V100-PCIe": 0.814,
    "H100 PCIe": 1.83,
    "L40": 0.765,
}


@pytest.mark.parametrize("name", COPIED_TB_PER_S)
def test_a_large_sum_of_two_tensors_runs_at_what_was_measured(name: str) -> None:
    gpu = load_gpu(name)
    problem = ProblemBatch(family="elementwise", op="add", sizes={"B": column(2**19), "H": column(2**10)}, dtype="fp32")
    us = AnalyticalPredictor().predict(problem, None, gpu).us[0]
    assert 3 * 4 * 2**29 / us / 1e6 == pytest.approx(COPIED_TB_PER_S[name], rel=0.08)


def test_what_is_sustained_is_no_part_of_a_bound() -> None:
    gpu = load_gpu("T4")
    problem = ProblemBatch(family="elementwise", op="relu", sizes={"B": column(2**16), "H": column(2**10)}, dtype="fp32")
    bounds = [float(pipelines.bound(pipelines.work(problem, g), g, "warm").us[0]) for g in (gpu, replace(gpu, dram_sustained_fraction=0.5))]
    us = [float(AnalyticalPredictor().predict(problem, None, g).us[0]) for g in (gpu, replace(gpu, dram_sustained_fraction=0.5))]
    assert bounds[0] == bounds[1]
    assert us[1] / us[0] == pytest.approx(0.8 / 0.5, rel=0.02)


def test_reads_and_writes_that_take_turns_cost_most_where_there_are_as_many_of_both() -> None:
    gpu = load_gpu("H100")
    us = [float(memory.sustained_us(column(1e9), share, gpu)[0]) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert us[0] == us[4] < us[1] == us[3] < us[2]
    assert us[0] == pytest.approx(1e9 / (0.94 * 3.352e6), rel=0.001)
