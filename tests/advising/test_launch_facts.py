"""What a report shows of a launch beside its latencies."""

from __future__ import annotations

import pytest

from advisor.advising.launch_facts import occupancy
from advisor.gpus.hardware import load_gpu
from advisor.pipelines import ConfigurationBatch, ProblemBatch, analyse, column


@pytest.mark.parametrize(("warps", "most"), [(4, 255), (8, 255), (16, 128), (32, 64)])
def test_no_thread_has_more_registers_than_there_are(warps: int, most: int) -> None:
    """Tiles of 256 x 256 want more of an A100: 255 at most, and 65,536 among all threads of a CTA."""
    problem = ProblemBatch(family="gemm", op="gemm", sizes=dict.fromkeys("MNK", column(4096)))
    blocks = {f"BLOCK_SIZE_{name}": column(size) for name, size in (("M", 256), ("N", 256), ("K", 64))}
    gpu = load_gpu("A100")
    analysis = analyse(problem, ConfigurationBatch(parameters=blocks, num_warps=column(warps), num_stages=column(2)), gpu)
    assert analysis.demand.resources.registers[0] > most
    assert occupancy(analysis, gpu).registers_per_thread == most
