"""Sustained rates of DRAM: below what its pins carry, and lower where reads and writes take turns. No part of any bound."""

from __future__ import annotations

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines.columns import Array

READ_SHARE = 0.94
"""Of what the pins leave for data (`dram_achievable_fraction`), what kernels that mostly read get where no `dram_sustained_fraction` is
known: the longest launches of the published sweeps (`data/README.md`) have 0.92 to 0.96 on A100, H100, H20, H800, A40, L20, L40."""

TURNAROUND = 0.07
"""What taking turns costs a kernel that writes as much as it reads. Source: scale against read of github.com/te42kyfo/gpu-benches
(`gpu-stream`: A40 0.04, L40 0.06, A100 0.07, V100 0.07) and Copy against Dot of BabelStream in Azure's AI-benchmarking-guide (A100
0.08, H100 0.09, H200 0.10)."""


def sustained_bytes_per_us(gpu: GpuSpec) -> float:
    """Bytes per microsecond that kernels which only read get from DRAM."""
    share = gpu.dram_sustained_fraction
    if share is None:
        share = READ_SHARE * gpu.dram_achievable_fraction
    return gpu.dram_bytes_per_s * share / 1e6


def sustained_us(bytes_moved: Array, written_share: Array | float, gpu: GpuSpec) -> Array:
    """Time in microseconds for `bytes_moved` to and from DRAM, of which `written_share` (0 to 1) is written."""
    written = np.clip(written_share, 0.0, 1.0)
    return bytes_moved / (sustained_bytes_per_us(gpu) * (1 - TURNAROUND * 4 * written * (1 - written)))
