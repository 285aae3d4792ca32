"""Attention forward: B sequences, H query heads sharing H_kv key/value heads, M queries, N keys, head size D.

Causal masking aligns the last query with the last key, as in decoding with a cache: query i sees N - M + i + 1 keys.
"""

from __future__ import annotations

import numpy as np

from advisor.hardware import GpuSpec
from advisor.pipelines import cache, occupancy, tile
from advisor.pipelines.batch import Array, ConfigurationBatch, ProblemBatch, column
from advisor.pipelines.demand import Demand, Work


def scored_pairs(queries: Array, keys: Array, causal: Array) -> Array:
    """Query-key pairs per head that a mask leaves: M N, or the trapezoid under the diagonal."""
    seen_first = np.maximum(keys - queries + 1, 0)  # keys the first query sees
    rows = np.minimum(queries, keys)  # queries that see any
    trapezoid = rows * (np.where(keys >= queries, seen_first, 1) + keys) / 2
    return np.where(causal > 0, trapezoid, queries * keys)


def _bytes(problem: ProblemBatch) -> tuple[Array, Array, Array]:
    """Bytes of Q, of K and V together, of the output; each distinct byte once."""
    s = problem.sizes
    q = s["B"] * s["H"] * s["M"] * s["D"] * problem.operand_bytes
    kv = 2 * s["B"] * s["H_kv"] * s["N"] * s["D"] * problem.weight_bytes
    return q, kv, s["B"] * s["H"] * s["M"] * s["D"] * problem.result_bytes


def work(problem: ProblemBatch, gpu: GpuSpec) -> Work:
    """4 D FLOP and one exponential per scored pair; Q, K, V and the output once."""
    s = problem.sizes
    pairs = s["B"] * s["H"] * scored_pairs(s["M"], s["N"], s.get("causal", column(0)))
    flop = 4 * pairs * s["D"]
    tensor = tile.compute_pipeline(gpu, problem.dtype)
    zero = np.zeros_like(flop)
    return Work(
        tensor_flop=flop if tensor else zero, fma_flop=zero if tensor else flop, xu_op=pairs,
        compulsory_bytes=sum(_bytes(problem)), tensor_dtype=tensor,
    )  # fmt: skip


def _key_steps(problem: ProblemBatch, block_rows: Array, block_n: Array, tiles: Array) -> tuple[Array, Array]:
    """Key blocks visited, summed over the query tiles of one head, and by the longest tile."""
    s = problem.sizes
    full = np.ceil(s["N"] / block_n)
    if not np.any(s.get("causal", column(0)) > 0):
        return full * tiles, full
    index = np.arange(1, int(np.max(tiles)) + 1, dtype=np.float64)
    last = np.minimum(index * block_rows[:, None], s["M"][:, None])  # queries up to and with this tile
    seen = np.clip(s["N"][:, None] - s["M"][:, None] + last, 0, s["N"][:, None])
    steps = np.where(index <= tiles[:, None], np.ceil(seen / block_n[:, None]), 0.0)
    causal = s.get("causal", column(0)) > 0
    return np.where(causal, steps.sum(-1), full * tiles), full


def demand(problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Demand:
    """Query tiles of BLOCK_M rows stream key blocks of BLOCK_N.

    In decode the query heads of a group share one tile (and its K and V), and NUM_KV_SPLITS CTAs share the keys, whose partial
    results a second, smaller kernel combines (its traffic is counted here).
    """
    s = {name: column(values) for name, values in problem.sizes.items()}
    block_m, block_n = configuration.get("BLOCK_M", 64), configuration.get("BLOCK_N", 64)
    warps, stages = configuration.num_warps, configuration.num_stages
    shape = np.broadcast_shapes(*(v.shape for v in s.values()), block_m.shape, block_n.shape, warps.shape)
    s = {name: np.broadcast_to(values, shape) for name, values in s.items()}
    block_m, block_n = np.broadcast_to(block_m, shape), np.broadcast_to(block_n, shape)
    packed = problem.op == "decode"
    heads = s["H_kv"] if packed else s["H"]
    rows = s["M"] * (s["H"] / s["H_kv"] if packed else 1)
    splits = np.maximum(configuration.get("NUM_KV_SPLITS", 1), 1) if packed else np.ones(shape)
    tiles = np.ceil(rows / block_m)
    rows_per_query = s["H"] / s["H_kv"] if packed else 1
    steps_head, longest = _key_steps(
        ProblemBatch(family="attention", op=problem.op, sizes=s), block_m / rows_per_query, block_n, tiles
    )
    ctas = s["B"] * heads * tiles * splits
    steps = s["B"] * heads * steps_head  # of the whole launch
    mean_steps = steps / ctas
    tensor = tile.compute_pipeline(gpu, problem.dtype)
    flop = 4 * block_m * block_n * s["D"] * mean_steps
    pairs = block_m * block_n * mean_steps
    warp_group = occupancy.wants_wgmma(gpu, block_m, warps)
    has_warp_group = gpu.architecture == "hopper" or gpu.compute_capability.startswith("10.")
    rate = np.where(warp_group, 1.0, tile.MMA_SYNC_SHARE) if has_warp_group else np.ones(shape)
    staged = 2 * block_n * s["D"] * problem.weight_bytes
    smem = mean_steps * staged * (1 + np.where(warp_group, np.ceil(block_m / 64), warps))
    zero = np.zeros(shape)
    q_bytes, kv_bytes, out_bytes = _bytes(problem)
    loads = np.broadcast_to(q_bytes, shape) + steps * np.minimum(block_n, s["N"]) * 2 * s["D"] * problem.weight_bytes
    partial = np.where(splits > 1, s["B"] * s["H"] * s["M"] * (s["D"] + 1) * 4 * splits, 0.0)
    stores = np.where(splits > 1, partial, out_bytes)
    compulsory = q_bytes + kv_bytes + out_bytes + zero
    per_head = kv_bytes / np.maximum(s["B"] * s["H_kv"], 1)
    again = np.maximum(loads - q_bytes - kv_bytes, 0)
    missed = again * cache.re_read_fraction(per_head * np.maximum(gpu.num_sms / np.maximum(tiles, 1), 1), gpu.l2_bytes)
    useful = 4 * s["B"] * s["H"] * scored_pairs(s["M"], s["N"], s.get("causal", column(0))) * s["D"]
    return Demand(
        per_cta={
            "tensor": flop if tensor else zero, "fma": 6 * pairs + (0 if tensor else flop), "xu": pairs + zero,
            "alu": pairs + zero, "issue": pairs * 8 / gpu.warp_size + flop / np.where(warp_group, 262144, 4096), "smem": smem,
        },
        ctas=ctas, launched_ctas=ctas, cta_load_bytes=loads / ctas, cta_store_bytes=stores / ctas,
        l2_bytes=loads + stores + partial,
        dram_bytes=cache.least_dram_bytes(compulsory, gpu.l2_bytes, problem.cache) + missed,
        compulsory_bytes=compulsory, useful_fraction=useful / np.maximum(flop * ctas, 1),
        k_iterations=mean_steps, tensor_dtype=tensor, tensor_rate=rate + zero, num_stages=stages,
        largest_cta_ratio=np.ceil(longest / splits) / np.maximum(mean_steps, 1e-9),
        resources=occupancy.Resources(
            registers=np.minimum(block_m * (block_n + s["D"]) / (gpu.warp_size * warps) + 56, 255) + zero,
            shared_memory_bytes=block_m * s["D"] * problem.operand_bytes
            + staged * occupancy.pipelined_buffers(gpu, warp_group, stages) + zero,
            num_warps=warps + zero,
        ),
    )  # fmt: skip
