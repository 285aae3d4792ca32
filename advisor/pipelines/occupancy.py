"""Registers, shared memory, resident CTAs, and what limits them.

Shared memory of a software-pipelined dot, as Triton 3.6 to 3.9 allocates it: one buffer per stage where wgmma or tcgen05 reads
the operands from shared memory (sm_90, sm_100), one less where mma.sync reads them through registers (sm_80, 86, 89, 120).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.hardware import GpuSpec
from advisor.pipelines.batch import Array

LIMITERS = ("none", "registers", "shared-memory", "warps", "slots", "grid")
"""What limits the resident CTAs; `Occupancy.limiter` of a launch is one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one CTA holds while it runs, columns [n]. `registers` are per thread, before the compiler's own cap."""

    registers: Array
    shared_memory_bytes: Array
    num_warps: Array


def wants_wgmma(gpu: GpuSpec, block_m: Array, num_warps: Array) -> Array:
    """Whether the dot becomes a warp-group (wgmma, tcgen05) instruction: 64 rows and four warps at least."""
    has = gpu.architecture == "hopper" or (gpu.architecture == "blackwell" and gpu.compute_capability.startswith("10"))
    return np.asarray(has & (block_m >= 64) & (num_warps >= 4))


def pipelined_buffers(gpu: GpuSpec, warp_group: Array, num_stages: Array) -> Array:
    """Operand buffers in shared memory for a loop of `num_stages` stages."""
    if gpu.vendor == "amd":
        return np.maximum(num_stages - 1, 1)
    return np.where(warp_group, num_stages, np.maximum(num_stages - 1, 1))


def resident_ctas(gpu: GpuSpec, resources: Resources) -> tuple[Array, Array]:
    """CTAs one SM holds at once, and what limits them.

    Returns:
        resident [n]: 0 where not even one fits.
        limiter [n]: Index into `LIMITERS`.
    """
    lanes = gpu.warp_size
    registers = np.clip(resources.registers, 1, gpu.max_registers_per_thread)
    per_warp = np.ceil(registers * lanes / gpu.register_allocation_unit) * gpu.register_allocation_unit
    by_registers = np.floor(np.floor(gpu.registers_per_sm / per_warp) / resources.num_warps)
    need = resources.shared_memory_bytes + gpu.smem_reserved_bytes_per_cta
    by_smem = np.floor(gpu.smem_bytes_per_sm / np.maximum(need, 1.0))
    by_smem = np.where(resources.shared_memory_bytes > gpu.smem_bytes_per_cta, 0.0, by_smem)
    by_warps = np.floor(gpu.max_warps_per_sm / resources.num_warps)
    by_slots = np.full_like(by_warps, float(gpu.max_ctas_per_sm))
    limits = np.stack(np.broadcast_arrays(by_slots, by_warps, by_registers, by_smem))
    names = np.array([LIMITERS.index(n) for n in ("slots", "warps", "registers", "shared-memory")])
    return limits.min(axis=0), names[limits.argmin(axis=0)]


def mma_warps(block_m: Array, block_n: Array, num_warps: Array) -> tuple[Array, Array]:
    """How mma.sync's warps tile a CTA's output: warps along M and along N (Triton's rule for 16 x 8 fragments)."""
    block_m, block_n, num_warps = np.broadcast_arrays(block_m, block_n, num_warps)
    along_m, along_n = np.ones(block_m.shape), np.ones(block_m.shape)
    for _ in range(5):  # 32 warps at most
        open_ = along_m * along_n < num_warps
        tall = (block_m / 16 / along_m >= block_n / 16 / along_n) & (along_m < block_m / 16)
        along_m = np.where(open_ & tall, along_m * 2, along_m)
        along_n = np.where(open_ & ~tall, along_n * 2, along_n)
    return along_m, along_n


def estimate_dot_registers(warp_group: Array, block_m: Array, block_n: Array, block_k: Array, num_warps: Array,
                           element_bytes: float) -> Array:  # fmt: skip
    """Registers per thread of a tiled dot: accumulators, operand fragments (mma.sync only), addresses and the rest.

    The constant parts come from compiling a fused-MoE tile of 64 x 128 x 64 (4 warps, 3 stages, Triton 3.9): 168 registers on
    sm_80, 120 on sm_90. The compiled-resource table, where there is one for a kernel, replaces this estimate.
    """
    accumulators = block_m * block_n / (32 * num_warps)
    along_m, along_n = mma_warps(block_m, block_n, num_warps)
    fragments = (block_m / along_m + block_n / along_n) * block_k * element_bytes / (32 * 4)
    return np.where(warp_group, accumulators + 56, accumulators + np.minimum(fragments, 128) + 8 + 24)
