"""Attention forward: B sequences, H query heads sharing H_kv key/value heads, M queries, N keys, head size D.

Causal masking aligns the last query with the last key, as in decoding with a cache: query i sees N - M + i + 1 keys.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import elementwise, memory, occupancy, tile
from advisor.pipelines.batch import ConfigurationBatch, ProblemBatch
from advisor.pipelines.columns import Array, column
from advisor.pipelines.demand import Demand, Work, fma_gain, least_special
from advisor.result.schema import result_dtype


def scored_pairs(queries: Array, keys: Array, causal: Array, window: Array | float = 0.0) -> Array:
    """Query-key pairs per head that a mask leaves: M N, or the trapezoid under the diagonal, of its last `window` keys unless that is 0."""
    seen_first = np.maximum(keys - queries + 1, 0)  # keys the first query sees
    rows = np.minimum(queries, keys)  # queries that see any
    trapezoid = rows * (np.where(keys >= queries, seen_first, 1) + keys) / 2
    growing = np.clip(window - (keys - queries), 0, queries)  # queries that see fewer keys than the window
    windowed = growing * (keys - queries) + growing * (growing + 1) / 2 + (queries - growing) * window
    return np.where(causal > 0, np.where(np.asarray(window) > 0, np.minimum(windowed, trapezoid), trapezoid), queries * keys)


MMA_ROWS = 16
"""Rows of a tile that a warp multiplies at least. Products that follow from each other have all warps along the rows (`warpsPerTile` in
Triton's `AccelerateMatmul.cpp`): warps beyond do again what others do."""

PER_TRIP, PER_SCORE = 85, 6
"""Instructions of a warp in a trip of its loop, and for each score of a thread; each of its accumulators takes one more. Source: counted in
nine kernels that Triton 3.9 makes of `triton_kernels/attention.py` for sm_90 (tiles of 16 to 128 by 16 to 64, D 64 and 128): within a tenth
where a warp group multiplies, a quarter else."""


def _bytes(problem: ProblemBatch) -> tuple[Array, Array, Array]:
    """Bytes of Q, of K and V together, of the output; each distinct byte once."""
    s = problem.sizes
    q = s["B"] * s["H"] * s["M"] * s["D"] * problem.operand_bytes
    window = s.get("window", column(0))
    keys = np.where(window > 0, np.minimum(s["N"], window + s["M"] - 1), s["N"])
    kv = 2 * s["B"] * s["H_kv"] * keys * s["D"] * problem.weight_bytes
    return q, kv, s["B"] * s["H"] * s["M"] * s["D"] * problem.result_bytes


def work(problem: ProblemBatch, gpu: GpuSpec) -> Work:
    """4 D FLOP and one exponential per scored pair; Q, K, V and the output once."""
    s = problem.sizes
    pairs = s["B"] * s["H"] * scored_pairs(s["M"], s["N"], s.get("causal", column(0)), s.get("window", column(0)))
    flop = 4 * pairs * s["D"]
    tensor = tile.compute_pipeline(gpu, problem.dtype)
    fma, xu = least_special(gpu, pairs, np.zeros_like(flop) if tensor else flop / fma_gain(gpu, problem.dtype, dot=True))
    q, kv, out = _bytes(problem)
    return Work(
        tensor_flop=flop * tile.product_count(gpu, problem.dtype) if tensor else np.zeros_like(flop),
        fma_flop=fma,
        xu_op=xu,
        compulsory_bytes=q + kv + out,
        result_bytes=out,
        tensor_dtype=tensor,
    )


def _prefill_steps(s: Mapping[str, Array], block_m: Array, block_n: Array, tiles: Array) -> tuple[Array, Array, Array]:
    """Steps of one head's query tiles: key blocks visited in all, by the longest tile, and keys loaded in all."""
    full = np.ceil(s["N"] / block_n)
    causal = s["causal"] > 0
    if not np.any(causal):
        return full * tiles, full, s["N"] * tiles
    index = np.arange(1, int(np.max(tiles)) + 1, dtype=np.float64)
    # The loop ends at the last key that the tile's last row sees, padding rows included.
    end = s["N"][:, None] - s["M"][:, None] + index * block_m[:, None]
    seen = np.clip(end, 0, s["N"][:, None])
    steps = np.where(index <= tiles[:, None], np.ceil(seen / block_n[:, None]), 0.0)
    keys = np.minimum(steps * block_n[:, None], s["N"][:, None])
    return (
        np.where(causal, steps.sum(-1), full * tiles),
        np.where(causal, steps.max(-1), full),
        np.where(causal, keys.sum(-1), s["N"] * tiles),
    )


def _resources(
    problem: ProblemBatch, gpu: GpuSpec, block_m: Array, block_n: Array, block_d: Array, warps: Array, stages: Array, warp_group: Array
) -> occupancy.Resources:
    """Resources of one CTA: Q, the buffers of K and V, and, for mma.sync on 64 rows or fewer, the probabilities on their way to V.

    Shared memory is that of 44 compilations of `triton_kernels/attention.py` (Triton 3.9.0; sm_80, 90, 100, 120), to the byte but for
    the barriers on sm_100; registers are a fit to them, within some 30.
    """
    keys = block_n * block_d * problem.weight_bytes
    staged = np.where(stages > 1, 2 * occupancy.pipelined_buffers(gpu, warp_group, stages), 1.0) * keys
    probabilities = np.where(np.logical_or(warp_group, block_m > 64), 0.0, block_m * block_n * problem.operand_bytes)
    accumulator = block_m * (block_n + block_d) / (gpu.warp_size * warps)
    columns = None
    tcgen05 = warp_group & np.asarray(gpu.architecture == "blackwell")
    if tcgen05.any():  # the scores twice, and the accumulator
        columns = np.where(tcgen05, 2.0 ** np.ceil(np.log2(2 * block_n + block_d)), 0.0)
    with_warp_group = 50 + 1.4 * accumulator if gpu.architecture == "blackwell" else 35 + 1.4 * accumulator
    return occupancy.Resources(
        registers=np.where(warp_group, with_warp_group, 60 + 1.6 * accumulator),
        shared_memory_bytes=block_m * block_d * problem.operand_bytes + staged + probabilities + np.where(tcgen05, 1024, 0),
        num_warps=warps,
        tensor_memory_columns=columns,
        accumulators=np.where(tcgen05, 0.0, accumulator),
    )


def demand(problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Demand:
    """Query tiles of BLOCK_M rows stream key blocks of BLOCK_N; a causal prefill ends at the diagonal.

    In decode the query heads of a group share one tile (and its K and V), every tile visits all keys, and NUM_KV_SPLITS CTAs
    share them, whose partial results a second, smaller kernel combines (`Demand.then`).
    """
    s = {name: column(values) for name, values in problem.sizes.items()}
    s.setdefault("causal", column(0))
    block_m, block_n = configuration.get("BLOCK_M", 64), configuration.get("BLOCK_N", 64)
    warps, stages = configuration.num_warps, configuration.num_stages
    shape = np.broadcast_shapes(*(v.shape for v in s.values()), block_m.shape, block_n.shape, warps.shape)
    s = {name: np.broadcast_to(values, shape) for name, values in s.items()}
    block_m, block_n = np.broadcast_to(block_m, shape), np.broadcast_to(block_n, shape)
    block_d = 2.0 ** np.ceil(np.log2(s["D"]))
    packed = problem.op == "decode"
    heads = s["H_kv"] if packed else s["H"]
    rows = s["M"] * (s["H"] / s["H_kv"] if packed else 1)
    tiles = np.ceil(rows / block_m)
    if packed:
        splits = np.maximum(configuration.get("NUM_KV_SPLITS", 1), 1) + np.zeros(shape)
        steps_head, keys_head = np.ceil(s["N"] / block_n) * tiles, s["N"] * tiles
        longest = np.ceil(np.ceil(s["N"] / splits) / block_n)
    else:
        splits = np.ones(shape)
        steps_head, longest, keys_head = _prefill_steps(s, block_m, block_n, tiles)
    ctas = s["B"] * heads * tiles * splits
    steps = s["B"] * heads * steps_head  # of the whole launch
    mean_steps = steps / ctas
    tensor = tile.compute_pipeline(gpu, problem.dtype)
    pairs = block_m * block_n * mean_steps
    flop = 4 * pairs * block_d
    matrix_flop = flop * tile.product_count(gpu, problem.dtype)
    rescaled = block_m * mean_steps  # rows, each with one more exponential and its accumulators multiplied
    warp_group = occupancy.wants_wgmma(gpu, block_m, warps, problem.dtype)
    replicas = np.maximum(MMA_ROWS * warps / block_m, 1.0)
    scores, accumulators = (block_m * width / (gpu.warp_size * warps) for width in (block_n, block_d))
    instructions = PER_TRIP + PER_SCORE * scores * replicas + accumulators
    staged = 2 * block_n * block_d * problem.weight_bytes
    smem = mean_steps * staged * (1 + np.where(warp_group, np.ceil(block_m / 64), warps))
    zero = np.zeros(shape)
    q_bytes, kv_bytes, out_bytes = _bytes(problem)
    loads = q_bytes * splits + s["B"] * heads * keys_head * 2 * s["D"] * problem.weight_bytes
    partial = np.where(splits > 1, s["B"] * s["H"] * s["M"] * (s["D"] + 1) * 4 * splits, 0.0)
    stores = np.where(splits > 1, partial, out_bytes)
    compulsory = q_bytes + kv_bytes + out_bytes + zero
    per_head = kv_bytes / np.maximum(s["B"] * s["H_kv"], 1)
    again = np.maximum(loads - q_bytes - kv_bytes, 0)
    missed = again * memory.re_read_fraction(per_head * np.maximum(gpu.num_sms / np.maximum(tiles, 1), 1), gpu.l2_bytes)
    useful = 4 * s["B"] * s["H"] * scored_pairs(s["M"], s["N"], s["causal"]) * s["D"]
    return Demand(
        per_cta={
            # At least: scale and subtract in one FMA, add to the sum; the maximum runs on the alu.
            "tensor": matrix_flop if tensor else zero,
            "fma": 3 * pairs + rescaled * block_d + (0 if tensor else flop),
            "xu": pairs + rescaled,
            "alu": pairs + zero,
            "issue": mean_steps * warps * instructions,
            "smem": smem,
        },
        ctas=ctas,
        launched_ctas=ctas,
        cta_load_bytes=loads / ctas,
        cta_store_bytes=stores / ctas,
        l2_bytes=loads + stores,
        dram_bytes=memory.likely_dram_bytes(compulsory + stores - out_bytes, gpu, problem.cache) + missed,
        compulsory_bytes=compulsory,
        useful_fraction=useful / np.maximum(flop * ctas, 1),
        certain_fma=1.0 if tensor else 1 / fma_gain(gpu, problem.dtype, dot=True),
        k_iterations=mean_steps,
        tensor_dtype=tensor,
        tensor_rate=tile.tensor_rate(gpu, tensor or "", warp_group) + zero,
        num_stages=stages,
        parts=splits,
        then=elementwise.sum_of_parts(s["B"] * s["H"] * s["M"], s["D"], splits, result_dtype(problem.dtype, problem.output_dtype), gpu),
        largest_cta_ratio=longest / np.maximum(mean_steps, 1e-9),
        in_turn=True,
        replicas=replicas,
        resources=_resources(problem, gpu, block_m, block_n, block_d, warps + zero, stages + zero, warp_group),
    )
