"""The quantities of tiled launches that the learned model is built on, in columns.

Times are microseconds at full throughput: what each pipeline needs, for the whole GPU and for the SM that gets most CTAs. Everything is
arithmetic on arrays, so that a space of thousands of configurations takes about a millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from advisor.learned.machine import Machine
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch
from advisor.pipelines.fused_moe import product
from advisor.pipelines.schedule import spilled_share

REGISTERS_PER_SM = 65536.0
MOST_REGISTERS = 255.0
"""Of a thread. Both are those of every NVIDIA GPU since Kepler (CUDA C++ Programming Guide, "Technical Specifications per Compute
Capability")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Columns [n] of launches on one GPU; after `concatenate`, of any."""

    # the configuration
    block_m: Array
    block_n: Array
    block_k: Array
    group_m: Array
    warps: Array
    stages: Array
    # the problem
    slots: Array  # token slots, all experts
    experts: Array  # that have any
    most_rows: Array  # of the busiest expert
    depth: Array
    width: Array
    tokens: Array
    all_experts: Array
    compulsory_bytes: Array
    weight_bytes: Array
    output_bytes: Array
    # the grid
    row_tiles: Array
    column_tiles: Array
    ctas: Array
    per_sm: Array  # CTAs of the busiest SM
    resident: Array
    waves: Array
    full_waves: Array
    k_iterations: Array
    shared_bytes: Array
    accumulators: Array  # fp32 registers per thread
    warp_group: Array  # 1 where the dot runs as wgmma
    # times
    dram_us: Array  # distinct bytes
    warm_dram_us: Array  # what exceeds the L2
    least_l2_us: Array
    l2_us: Array  # with re-reads
    padded_tensor_us: Array
    tensor_sm_us: Array
    smem_sm_us: Array
    in_flight_bytes: Array
    l2_traffic_bytes: Array
    # the GPU
    sms: Array
    clock_mhz: Array
    flop_per_clock: Array
    peak_flop: Array
    dram_rate: Array
    pin_rate: Array
    l2_rate: Array
    l2_capacity: Array
    smem_capacity: Array
    hopper: Array
    capability: Array

    def __len__(self) -> int:
        return self.ctas.size

    @property
    def config_bound_us(self) -> Array:
        """The largest of the pipelines' times: what nothing of this configuration can beat, up to the launch."""
        return np.maximum(np.maximum(self.warm_dram_us, self.least_l2_us), self.tensor_sm_us)

    @property
    def holds_accumulators(self) -> np.ndarray:
        """Whether the registers of a thread hold its accumulators, [n]: no launch that was measured spills them."""
        return spilled_share(self.accumulators, 32 * self.warps, REGISTERS_PER_SM, MOST_REGISTERS) == 0

    def take(self, index: np.ndarray | slice) -> Launch:
        """Rows `index` of every column."""
        return Launch(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


def concatenate(parts: list[Launch]) -> Launch:
    """Launches of several GPUs, one after another."""
    return Launch(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Launch)})


def fits(gpu: Machine, configuration: ConfigurationBatch, element_bytes: float = 2.0) -> np.ndarray:
    """Whether the shared memory of each configuration fits one CTA of the GPU."""
    c = as_columns(configuration)
    return _pipelined_bytes(c, _is_warp_group(c, gpu), element_bytes) <= gpu.smem_bytes_per_cta


def _is_warp_group(c: dict[str, Array], gpu: Machine) -> Array:
    """1 where the dot runs as wgmma or tcgen05, 0 elsewhere, [n]: 64 rows and four warps at least, on GPUs that have them."""
    return ((c["BM"] >= 64) & (c["W"] >= 4) & gpu.has_warp_group).astype(np.float64)


def _pipelined_bytes(c: dict[str, Array], warp_group: Array, element_bytes: float | Array) -> Array:
    """Shared memory of the operand tiles under way, [n] (`launchability.pipeline_buffers`: one buffer less where mma.sync reads them)."""
    buffers = np.where(warp_group > 0, c["S"], np.maximum(c["S"] - 1, 1))
    return (c["BM"] + c["BN"]) * c["BK"] * element_bytes * buffers


def moe_launch(problem: ProblemBatch, configuration: ConfigurationBatch, gpu: Machine) -> Launch:
    """Quantities of fused-MoE launches (w13 or w2), problem columns [n] or [1] against configuration columns [n] or [1]."""
    c = as_columns(configuration)
    p = product(problem)
    count = (p.rows > 0) * p.count
    slots, experts, most = (p.rows * count).sum(-1), count.sum(-1), p.rows.max(-1, where=count > 0, initial=1)
    bm, bn, bk, gm, warps, stages = (c[name] for name in ("BM", "BN", "BK", "GM", "W", "S"))
    row_tiles = _row_tiles(p.rows, count, bm)
    column_tiles, steps = np.ceil(p.width / bn), np.ceil(p.depth / bk)
    ctas = row_tiles * column_tiles
    size = p.a_bytes
    warp_group = _is_warp_group(c, gpu)
    shared = _pipelined_bytes(c, warp_group, size)
    accumulators = bm * bn / (32 * warps)
    registers = np.minimum(MOST_REGISTERS, accumulators + np.where(warp_group > 0, 48, (bm + bn) / warps + 64))
    by_registers = np.floor(REGISTERS_PER_SM / (np.ceil(registers / 8) * 256 * warps))
    resident = np.minimum(np.floor(gpu.smem_bytes_per_sm / (shared + 1024)), by_registers)
    resident = np.maximum(1, np.minimum(resident, np.minimum(16, np.floor(gpu.max_warps_per_sm / warps))))
    per_sm = np.ceil(ctas / gpu.num_sms)
    compulsory = p.distinct_a_bytes + p.distinct_b_bytes + p.output_bytes
    padded_depth = steps * bk
    tile_flop = 2 * bm * bn * padded_depth
    loads = slots * p.depth * size * column_tiles + row_tiles * column_tiles * bn * p.depth * p.b_bytes
    traffic = loads + p.output_bytes
    along_m = np.minimum(np.where((warps >= 8) & (bm >= bn), 4, 2), bm / 16)
    along_n = warps / along_m
    fragments = np.where(warp_group > 0, bm + bn, warps * (bm / along_m + bn / along_n))
    smem_per_depth = size * (fragments + bm + bn)
    smem_rate = gpu.smem_bytes_per_clock * gpu.clock_mhz
    filled = slots / (row_tiles * bm)
    running = np.minimum(ctas, gpu.num_sms * resident)
    columns: dict[str, Any] = {
        "block_m": bm,
        "block_n": bn,
        "block_k": bk,
        "group_m": gm,
        "warps": warps,
        "stages": stages,
        "slots": slots,
        "experts": experts,
        "most_rows": most,
        "depth": p.depth,
        "width": p.width,
        "tokens": problem.sizes["M"],
        "all_experts": problem.sizes["E"],
        "compulsory_bytes": compulsory,
        "weight_bytes": p.distinct_b_bytes,
        "output_bytes": p.output_bytes,
        "row_tiles": row_tiles,
        "column_tiles": column_tiles,
        "ctas": ctas,
        "per_sm": per_sm,
        "resident": resident,
        "waves": ctas / (gpu.num_sms * resident),
        "full_waves": np.ceil(ctas / (gpu.num_sms * resident)),
        "k_iterations": steps,
        "shared_bytes": shared,
        "accumulators": accumulators,
        "warp_group": warp_group,
        "dram_us": compulsory / gpu.dram_bytes,
        "warm_dram_us": np.maximum(0, compulsory - gpu.l2_capacity_bytes) / gpu.dram_bytes,
        "least_l2_us": compulsory / gpu.l2_rate_bytes,
        "l2_us": traffic / gpu.l2_rate_bytes,
        "padded_tensor_us": tile_flop * ctas / gpu.peak_flop,
        "tensor_sm_us": per_sm * tile_flop / (gpu.peak_flop / gpu.num_sms),
        "smem_sm_us": per_sm * padded_depth * smem_per_depth / smem_rate,
        "in_flight_bytes": running * np.maximum(stages - 1, 1) * (bm * np.minimum(1, filled) + bn) * bk * size,
        "l2_traffic_bytes": traffic,
        "sms": gpu.num_sms,
        "clock_mhz": gpu.clock_mhz,
        "flop_per_clock": gpu.flop_per_clock_per_sm,
        "peak_flop": gpu.peak_flop,
        "dram_rate": gpu.dram_bytes,
        "pin_rate": gpu.pin_bytes,
        "l2_rate": gpu.l2_rate_bytes,
        "l2_capacity": gpu.l2_capacity_bytes,
        "smem_capacity": gpu.smem_bytes_per_sm,
        "hopper": float(gpu.has_warp_group),
        "capability": gpu.compute_capability,
    }
    arrays = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in columns.values()))
    return Launch(**dict(zip(columns, (np.atleast_1d(a) for a in arrays), strict=True)))


def _row_tiles(rows: Array, count: Array, block_m: Array) -> Array:
    """Tiles of `block_m` rows that hold `count` groups of `rows`, [n]; of one problem by block, of which a space has few."""
    if len(rows) > 1:
        return np.asarray((count * np.ceil(rows / block_m[:, None])).sum(-1))
    blocks, which = np.unique(block_m, return_inverse=True)
    return np.asarray((count * np.ceil(rows / blocks[:, None])).sum(-1))[which]


FIELDS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")


def as_configuration(rows: Array) -> ConfigurationBatch:
    """Configurations [n, 6] (`FIELDS`) as a batch."""
    return ConfigurationBatch(
        parameters={name: rows[:, i] for i, name in enumerate(FIELDS[:4])}, num_warps=rows[:, 4], num_stages=rows[:, 5]
    )


def as_rows(configuration: ConfigurationBatch) -> Array:
    """The reverse of `as_configuration`, with defaults for parameters that are missing."""
    return np.stack(np.broadcast_arrays(*as_columns(configuration).values()), axis=1)


def as_columns(configuration: ConfigurationBatch) -> dict[str, Array]:
    """The six columns of a fused-MoE configuration, defaults where it lacks one."""
    return {
        "BM": configuration.get("BLOCK_SIZE_M", 64),
        "BN": configuration.get("BLOCK_SIZE_N", 64),
        "BK": configuration.get("BLOCK_SIZE_K", 64),
        "GM": configuration.get("GROUP_SIZE_M", 1),
        "W": configuration.num_warps,
        "S": configuration.num_stages,
    }
