"""Registers, shared memory, resident CTAs, and what limits them.

What Triton 3.9.0 makes of a tiled dot, read from `metadata.shared` and `cuobjdump -res-usage` of some 500 compilations of the
fused-MoE and gemm kernels of `triton_kernels/` for sm_80, 86, 89, 90, 100 and 120 (`tests/pipelines/test_compiled_resources.py`
holds some of them).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines.columns import Array

LIMITERS = ("none", "registers", "shared-memory", "warps", "slots", "grid", "tensor-memory")
"""What limits the resident CTAs; `Occupancy.limiter` of a launch is one of these."""

MAX_THREADS_PER_CTA = 1024
"""Source: CUDA C++ Programming Guide, technical specifications (every compute capability); HIP: the same."""

TENSOR_MEMORY_COLUMNS = 512
"""Columns of tensor memory per SM of sm_100; a CTA takes a power of two, 32 at least. Source: PTX ISA 8.7, tcgen05.alloc."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources of one CTA while it runs, columns [n]. `registers` are per thread, before the compiler's own cap.

    `accumulators` are those of them that must be live through the whole main loop (fp32 results of a dot, a block of rows); the compiler
    can cut operand fragments into slices, but not these.
    """

    registers: Array
    shared_memory_bytes: Array
    num_warps: Array
    tensor_memory_columns: Array | None = None  # sm_100 only
    accumulators: Array | None = None
    compiles: NDArray[np.bool_] | None = None  # whether the compiler takes the dot at all; None: it does


def has_warp_group(gpu: GpuSpec) -> bool:
    """Whether the GPU has warp-group matrix instructions: wgmma (sm_90) or tcgen05 (sm_100, 103)."""
    return gpu.architecture == "hopper" or (gpu.architecture == "blackwell" and gpu.compute_capability.startswith("10."))


def wants_wgmma(gpu: GpuSpec, rows: Array, num_warps: Array, dtype: str = "bf16") -> Array:
    """Whether the dot becomes a warp-group instruction (wgmma, tcgen05): 64 rows and four warps at least, not exact fp32."""
    return np.asarray(has_warp_group(gpu) & (dtype not in ("fp32", "fp64")) & (rows >= 64) & (num_warps >= 4))


def pipelined_buffers(gpu: GpuSpec, warp_group: Array, num_stages: Array) -> Array:
    """Operand buffers in shared memory for a loop of `num_stages` stages.

    One per stage where wgmma or tcgen05 reads the operands from shared memory, one less where mma.sync reads them through
    registers (sm_80, 86, 89, 120, and tiles of fewer than 64 rows on sm_90 and 100). Compiled with Triton 3.9.0.
    """
    if gpu.vendor == "amd":
        return np.maximum(num_stages - 1, 1)
    return np.where(warp_group, num_stages, np.maximum(num_stages - 1, 1))


def asynchronous(length: Array, element_bytes: float) -> Array:
    """Whether loads along rows of `length` elements become cp.async, so that their operand is pipelined at all.

    cp.async moves 4 bytes or more, and the compiler knows a stride's divisibility only where it is a multiple of 16 (what the
    launcher tells it): else 2-byte elements are loaded one by one, into one buffer. Compiled with Triton 3.9.0 (K = 2047).
    """
    return np.logical_or(length % 16 == 0, element_bytes >= 4)


def copies_asynchronously(gpu: GpuSpec) -> bool:
    """Whether the GPU can load into shared memory while it computes: before compute capability 8.0 there is no cp.async, and one buffer
    whatever `num_stages` says (77,000 launches of a GEMM on a V100, Triton 3.2: those of up to 96 KiB in one buffer ran)."""
    return gpu.vendor != "nvidia" or float(gpu.compute_capability) >= 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """The tile of a dot as it is multiplied (where a kernel swaps its operands, `block_m` is its BLOCK_SIZE_N), columns [n], and the bytes
    per element of its operands and result."""

    block_m: Array
    block_n: Array
    block_k: Array
    num_warps: Array
    num_stages: Array
    a_bytes: float
    b_bytes: float
    c_bytes: float
    block_scaled: bool = False
    stored_parts: Array | None = None  # of a kernel on tensor descriptors: parts in which the result leaves through shared memory
    flattened: Array | None = None  # of such a kernel: its pipeline runs on across tiles


def dot_shared_memory(gpu: GpuSpec, tile: Tile, warp_group: Array, pipelined: tuple[Array, Array]) -> Array:
    """Shared memory of a tiled dot, bytes; `pipelined`: whether the loads of the left and of the right operand may be.

    The operand buffers are exact in every case compiled (see the head of this file; gfx90a and gfx942 besides), and in all but 7 of 102,000
    launches of a GEMM on an A100 and an H100 (vllm-triton-backend, Triton 3.2): an operand of whose tile a thread loads fewer than 4 bytes
    has one buffer, and on AMD GPUs operands that are not pipelined take turns in one. The scales of a block-scaled product add one
    float per row or column where a thread holds one. The conversion of the result re-uses the buffers; where it needs
    more (before sm_90, two stages of a shallow tile), its size is an estimate, at most 64 KiB, which fits any GPU's CTA; before sm_75, all
    of the result, which does not (V100: no tile of 256 x 256 ran).
    """
    m, n, warps = tile.block_m, tile.block_n, tile.num_warps
    lanes = gpu.warp_size * warps
    a, b = m * tile.a_bytes * tile.block_k, n * tile.b_bytes * tile.block_k
    buffers = pipelined_buffers(gpu, warp_group, np.maximum(tile.num_stages, 1))
    in_turn = gpu.vendor == "amd"
    wide_a, wide_b = (np.where(in_turn, tile.num_stages > 1, part >= 4 * lanes) for part in (a, b))  # 4 bytes: the least of cp.async
    may_a, may_b = pipelined[0] & wide_a, pipelined[1] & wide_b
    if tile.a_bytes == tile.b_bytes:
        loop = a * np.where(may_a, buffers, 1.0) + b * np.where(may_b, buffers, 1.0)
        if in_turn:
            loop = np.where(may_a | may_b, loop, np.maximum(a, b))
    else:  # weights are widened on the way: in registers for mma.sync, through one more buffer for a warp-group instruction
        fewer = np.where(may_b, np.maximum(tile.num_stages - 1, 1), 1.0)
        widened = np.where(warp_group, n * tile.a_bytes * tile.block_k, 0.0)
        loop = a * np.where(may_a, buffers, 1.0) + b * fewer + widened
    if tile.block_scaled:
        in_tensor_memory = warp_group & np.asarray(gpu.architecture == "blackwell")
        rows = np.where((m >= lanes) & ~in_tensor_memory, m, 0.0)
        loop = loop + 4 * np.maximum(rows, np.where(n >= lanes, n, 0.0))
    if gpu.architecture in ("volta", "turing", "ampere", "ada") and tile.c_bytes == 2:
        halves = (n >= lanes) & (m >= 64) & np.asarray(gpu.architecture != "volta")
        loop = np.maximum(loop, m * n * 2 * np.where(halves, 0.5, 1.0))
    if gpu.architecture == "blackwell":
        loop = loop + np.where(warp_group, 16.0, 0.0)  # the barrier of tcgen05
    if tile.stored_parts is not None:
        loop = loop + _descriptor_shared_memory(gpu, tile, tile.stored_parts, pipelined_buffers(gpu, warp_group, tile.num_stages))
    return loop


def _descriptor_shared_memory(gpu: GpuSpec, tile: Tile, parts: Array, buffers: Array) -> Array:
    """Shared memory of a product on tensor descriptors besides its operand buffers, bytes [n].

    The result leaves through a buffer of its own (or of a part of it), for the next tile's loads may be under way; a barrier of 8
    bytes belongs to every buffer. In a flattened loop what the end of a tile converts cannot re-use the operand buffers either: on
    sm_90 the halves of a tile of 64 rows among eight warps, or the scales of an fp8 product, one float per row or column where a thread
    holds one. Compiled with Triton 3.9.0 (`tests/pipelines/test_descriptor_memory.py` holds some): exact on sm_90 and sm_120; sm_100
    keeps up to 80 bytes of barriers more and needs less for the halves, and is given the most it was seen to take.
    """
    m, n = tile.block_m, tile.block_n
    stored = m * n * tile.c_bytes
    lanes = 32 * tile.num_warps
    if gpu.architecture == "hopper":
        halves = np.where((parts > 1) & (m <= 64) & (tile.num_warps >= 8), stored, 0.0)
    elif has_warp_group(gpu):  # scaled, the sum leaves tensor memory in another arrangement
        halves = np.where((parts > 1) & ((m <= 64) | (tile.a_bytes < 2)), np.minimum(stored, 8192 if tile.a_bytes >= 2 else 16384), 0.0)
    else:
        halves = np.zeros(1)
    scales = 4 * np.maximum(np.where(m >= lanes, m, 0.0), np.where(n >= lanes, n, 0.0)) if tile.a_bytes < 2 else 0.0
    flattened = tile.flattened if tile.flattened is not None else np.zeros(1)
    barriers = 8 * buffers + (80 if gpu.architecture == "blackwell" and has_warp_group(gpu) else 0)
    return stored / np.maximum(parts, 1) + barriers + np.where(flattened > 0, np.maximum(halves, scales), 0.0)


def tensor_memory_columns(gpu: GpuSpec, tile: Tile, warp_group: Array) -> Array | None:
    """Columns of tensor memory the accumulator takes: 128 rows each, 32 at least. Compiled with Triton 3.9.0."""
    if gpu.architecture != "blackwell" or not has_warp_group(gpu):
        return None
    return np.where(warp_group, np.maximum(tile.block_n, 32) * np.ceil(tile.block_m / 128), 0.0)


INSTRUCTION_ACCUMULATORS, INSTRUCTION_REGISTERS = 128.0, 26.0
"""Sums of a thread in one wgmma of 64 x 256, the largest, and what ptxas wants beside them: "insufficient registers (64) to compile
instruction … register target of 90 or higher" (CUDA 12.9)."""


def wgmma_compiles(gpu: GpuSpec, tile: Tile, warp_group: Array) -> NDArray[np.bool_]:
    """Whether the registers of a thread hold what one wgmma sums: those can be neither cut nor spilled (tiles of 256 x 256 among 16 or 32
    warps: none of 90 launches on an H100 ran). [n]"""
    lanes = gpu.warp_size * np.maximum(tile.num_warps, 1)
    sums = np.minimum(tile.block_m * tile.block_n / lanes, INSTRUCTION_ACCUMULATORS)
    wants = warp_group & np.asarray(gpu.architecture == "hopper")
    return ~wants | (sums + INSTRUCTION_REGISTERS <= gpu.registers_per_sm / lanes)


def held_registers(gpu: GpuSpec, resources: Resources) -> Array:
    """Registers per thread after the compiler's cap: it spills rather than exceed what one CTA's threads can share. [n]"""
    share = np.floor(gpu.registers_per_sm / (resources.num_warps * gpu.warp_size))
    return np.clip(resources.registers, 1, np.minimum(gpu.max_registers_per_thread, np.maximum(share, 1)))


def resident_ctas(gpu: GpuSpec, resources: Resources) -> tuple[Array, Array]:
    """CTAs one SM holds at once, and what limits them.

    Returns:
        resident [n]: 0 where not even one fits.
        limiter [n]: Index into `LIMITERS`.
    """
    lanes = gpu.warp_size
    per_warp = np.ceil(held_registers(gpu, resources) * lanes / gpu.register_allocation_unit) * gpu.register_allocation_unit
    # Each of the SM's partitions has its own registers, and a warp lives in one (the CUDA occupancy calculator's granularity of 4).
    partitions = 2 if gpu.compute_capability == "6.0" else 4
    warps = np.floor(gpu.registers_per_sm / partitions / per_warp) * partitions
    by_registers = np.floor(warps / resources.num_warps)
    need = resources.shared_memory_bytes + gpu.smem_reserved_bytes_per_cta
    by_smem = np.floor(gpu.smem_bytes_per_sm / np.maximum(need, 1.0))
    by_smem = np.where(resources.shared_memory_bytes > gpu.smem_bytes_per_cta, 0.0, by_smem)
    by_warps = np.floor(gpu.max_warps_per_sm / resources.num_warps)
    warps = np.asarray(resources.num_warps, dtype=np.int64)
    launches = (warps > 0) & (warps * lanes <= MAX_THREADS_PER_CTA) & (warps & (warps - 1) == 0)  # every back end asserts a power of two
    if resources.compiles is not None:
        launches = launches & np.asarray(resources.compiles, dtype=bool)
    by_warps = np.where(launches, by_warps, 0.0)
    by_slots = np.full_like(by_warps, float(gpu.max_ctas_per_sm))
    limits, names = [by_slots, by_warps, by_registers, by_smem], ["slots", "warps", "registers", "shared-memory"]
    if resources.tensor_memory_columns is not None:
        limits.append(np.floor(TENSOR_MEMORY_COLUMNS / np.maximum(resources.tensor_memory_columns, 1.0)))
        names.append("tensor-memory")
    stacked = np.stack(np.broadcast_arrays(*limits))
    return stacked.min(axis=0), np.array([LIMITERS.index(n) for n in names])[stacked.argmin(axis=0)]


def mma_warps(block_m: Array, block_n: Array, num_warps: Array) -> tuple[Array, Array]:
    """Warps of mma.sync along M and along N of a CTA's output (Triton's rule for 16 x 8 fragments)."""
    block_m, block_n, num_warps = np.broadcast_arrays(block_m, block_n, num_warps)
    along_m, along_n = np.ones(block_m.shape), np.ones(block_m.shape)
    for _ in range(5):  # 32 warps at most
        open_ = along_m * along_n < num_warps
        if not open_.any():
            break
        tall = (block_m / 16 / along_m >= block_n / 16 / along_n) & (along_m < block_m / 16)
        along_m = np.where(open_ & tall, along_m * 2, along_m)
        along_n = np.where(open_ & ~tall, along_n * 2, along_n)
    return along_m, along_n


# Registers of a thread: constant, and per accumulator, operand fragment, and 16-byte access of A and of B in one step.
# Non-negative least squares over the fused-MoE compilations (Triton 3.9.0) that did not reach the cap of 255: mean error 3 to 10.
_REGISTERS = {
    ("mma", False): (26.0, 2.1, 0.16, 3.0, 2.5),  # sm_80, 86, 89
    ("mma", True): (54.0, 2.9, 0.4, 3.8, 0.0),  # block-scaled: the scaled sum is kept beside the product
    ("mma-new", False): (19.0, 1.6, 0.15, 3.0, 3.0),  # mma.sync on sm_90, 100, 120
    ("mma-new", True): (31.0, 2.1, 0.9, 0.0, 2.6),
    ("wgmma", False): (15.0, 1.33, 0.0, 2.6, 2.5),
    ("wgmma", True): (36.0, 2.9, 0.33, 0.0, 0.0),
    ("tcgen05", False): (9.0, 1.26, 0.0, 1.6, 1.0),
    ("tcgen05", True): (91.0, 2.7, 0.0, 0.0, 0.0),
}


def estimate_dot_registers(gpu: GpuSpec, tile: Tile, warp_group: Array) -> Array:
    """Registers per thread of a tiled dot, before the cap. The compiled-resource table, where a kernel has one, replaces this."""
    lanes = gpu.warp_size * tile.num_warps
    along_m, along_n = mma_warps(tile.block_m, tile.block_n, tile.num_warps)
    depth_bytes = tile.block_k * max(tile.a_bytes, tile.b_bytes)
    accumulators = tile.block_m * tile.block_n / lanes
    fragments = (tile.block_m / along_m + tile.block_n / along_n) * depth_bytes / (4 * gpu.warp_size)
    accesses_a = np.maximum(tile.block_m * tile.block_k * tile.a_bytes / (16 * lanes), 1.0)
    accesses_b = np.maximum(tile.block_n * tile.block_k * tile.b_bytes / (16 * lanes), 1.0)

    def total(path: str) -> Array:
        one, per_accumulator, per_fragment, per_a, per_b = _REGISTERS[path, tile.block_scaled]
        return one + per_accumulator * accumulators + per_fragment * fragments + per_a * accesses_a + per_b * accesses_b

    if not has_warp_group(gpu):
        return total("mma-new" if gpu.architecture == "blackwell" else "mma")
    return np.where(warp_group, total("wgmma" if gpu.architecture == "hopper" else "tcgen05"), total("mma-new"))
