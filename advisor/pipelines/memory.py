"""The memory: sustained rates of DRAM, what the L2 still holds when a launch starts and when it ends, and which re-reads it absorbs."""

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


SPLIT_L2 = ("8.0", "9.0", "10.0", "10.3")
"""Compute capabilities whose L2 has two partitions, each of which caches what the SMs next to it read (A100 white paper, "A100 L2
cache"): data that all SMs read fill it before their bytes reach its size."""
RESIDENT_SHARE, RESIDENT_SLOPE = 1.02, 60.0
SPLIT_RESIDENT_SHARE, SPLIT_RESIDENT_SLOPE = 0.75, 10.0
"""Of an L2 in one and in two parts, the size of a set of which half is still there in the next launch, and how sharply that ends, by the
logarithm of the size: where the learned model of fused MoE starts from (`moe_physics.py`), and nearly what it finds on 11 GPUs. With
what exceeds the L2 as all that misses, best configurations of the published sweeps were predicted 4 to 14 % wrong, with this 1 to 5 %."""


def least_dram_bytes(
    compulsory_bytes: Array, result_bytes: Array, l2_bytes: float, cache: str, in_place_bytes: Array | float = 0.0
) -> Array:
    """The least that must come from or go to DRAM, of `compulsory_bytes` of which `result_bytes` are written.

    With a cold cache every byte read, and of those written what exceeds the L2: it writes back later, so that a launch may end with its
    results in it. With a warm one (the same launch ran before), only what of all exceeds the L2: one launch may find its inputs there
    and leave its results there, but of launches alike each begins with what the one before left, an L2 of both together. Of the
    `in_place_bytes`, read and then overwritten and so counted twice, it holds two with one of its own. This is a bound: a real
    replacement policy keeps less.
    """
    if cache == "cold":
        return compulsory_bytes - result_bytes + np.maximum(0.0, result_bytes - l2_bytes)
    return _beyond_l2(compulsory_bytes, l2_bytes, in_place_bytes)


def likely_dram_bytes(compulsory_bytes: Array, gpu: GpuSpec, cache: str, in_place_bytes: Array | float = 0.0) -> Array:
    """Bytes [n] that likely come from or go to DRAM, out of those that have to be moved at least once.

    With a cold cache all of them: the results go out while the launch runs. With a warm one next to none of a set that fits the L2, and
    nearly all of one that does not: data that pass in the same order in every launch drive each other out before they are used again.
    """
    if cache == "cold":
        return compulsory_bytes
    missed = compulsory_bytes * missed_share(compulsory_bytes - in_place_bytes, gpu.l2_bytes, gpu.compute_capability in SPLIT_L2)
    return np.maximum(missed, _beyond_l2(compulsory_bytes, gpu.l2_bytes, in_place_bytes))


def missed_share(bytes_held: Array, l2_bytes: float, split: bool) -> Array:
    """Share [n], 0 to 1, of a set of `bytes_held` that an L2 (in two partitions: `split`) has lost when the next launch begins."""
    share, slope = (SPLIT_RESIDENT_SHARE, SPLIT_RESIDENT_SLOPE) if split else (RESIDENT_SHARE, RESIDENT_SLOPE)
    with np.errstate(divide="ignore"):
        fill = np.log(bytes_held / (share * l2_bytes))
    return 1 / (1 + np.exp(-np.clip(slope * fill, -50, 50)))


def _beyond_l2(compulsory_bytes: Array, l2_bytes: float, in_place_bytes: Array | float) -> Array:
    return np.maximum(0.0, compulsory_bytes - l2_bytes - np.minimum(l2_bytes, in_place_bytes))


def re_read_fraction(reuse_footprint_bytes: Array, l2_bytes: float) -> Array:
    """Share of re-reads that miss the L2, when `reuse_footprint_bytes` pass between a byte's two uses.

    0 while the footprint fits half the L2 (the rest holds other traffic), 1 from one and a half times the L2 on, linear
    between: the shape of an LRU cache under a mix of streams.
    """
    return np.clip((reuse_footprint_bytes / l2_bytes - 0.5) / 1.0, 0.0, 1.0)


def second_pass_fraction(in_flight_bytes: Array, gpu: GpuSpec) -> Array:
    """Share of what CTAs read again, or spill, that the L2 has lost meanwhile, where the CTAs in flight hold so many bytes.

    0 up to three quarters of the L2 (of half of it where it has two partitions), 1 from 1.35 times that on: cross entropy over rows of
    131 kB on an A100 still finds them (14 MB in flight, 40 MB of L2), of 262 kB no more (28 MB); sparsemax on an RTX 3090 (6 MB) never
    does, with 8 to 31 MB in flight (launches published by Liger-Kernel).
    """
    room = gpu.l2_bytes * (0.5 if gpu.compute_capability in SPLIT_L2 else 1.0)
    return np.clip((in_flight_bytes / room - 0.75) / 0.6, 0.0, 1.0)
