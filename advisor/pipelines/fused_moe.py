"""The fused-MoE layer: w13 (gate and up projection), activation (SiLU-and-mul), w2 (down projection), combine (sum over top-k).

Sizes: M tokens, E experts, topk experts per token, H hidden, N intermediate per expert. w13 multiplies the M tokens, each as
often as it was routed, [M topk, H] by [E, 2N, H]; w2 multiplies [M topk, N] by [E, H, N].
"""

from __future__ import annotations

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import elementwise, tile
from advisor.pipelines.batch import ConfigurationBatch, ProblemBatch
from advisor.pipelines.columns import Array
from advisor.pipelines.demand import Demand, Work
from advisor.result.schema import result_dtype

GEMM_OPS = ("w13", "w2")


def product(problem: ProblemBatch, block_m: Array | None = None, least: bool = False) -> tile.Product:
    """The matrix product of w13 or w2, over experts; `block_m` sizes the launched grid, where it is known.

    `least`: weights of as few experts as 99 % of draws use, not of as many as they use on average.
    """
    sizes = problem.sizes
    rows, count = problem.routing
    slots = (rows * count).sum(-1)
    active = (count * (rows > 0)).sum(-1)
    if least and problem.least_used is not None:
        active = np.minimum(active, problem.least_used)
    up = problem.op == "w13"
    width = 2 * sizes["N"] if up else sizes["H"]
    depth = sizes["H"] if up else sizes["N"]
    distinct_rows = np.minimum(sizes["M"], slots) if up else slots
    a_row, b_group = depth * problem.operand_bytes, width * depth * problem.weight_bytes
    if problem.block_shape is not None:  # float32 scales
        block_n, block_k = problem.block_shape
        a_row = a_row + 4 * np.ceil(depth / block_k)
        b_group = b_group + 4 * np.ceil(width / block_n) * np.ceil(depth / block_k)
    launched = None
    if block_m is not None:  # every active expert pads its last block, and at most one expert is active per slot
        launched = np.ceil(np.minimum(slots + sizes["E"] * (block_m - 1), slots * block_m) / block_m)
    return tile.Product(
        rows=rows,
        count=count,
        width=width,
        depth=depth,
        distinct_a_bytes=distinct_rows * a_row,
        distinct_b_bytes=active * b_group,
        a_row_bytes=a_row,
        b_group_bytes=b_group,
        output_bytes=slots * width * problem.result_bytes,
        a_bytes=problem.operand_bytes,
        b_bytes=problem.weight_bytes,
        c_dtype=result_dtype(problem.dtype, problem.output_dtype),
        dtype=problem.dtype,
        l2_resident=problem.cache,
        launched_row_tiles=launched,
        block_scaled=problem.block_shape is not None,
        kind=problem.family,
    )


def _row_operator(problem: ProblemBatch) -> ProblemBatch:
    """Activation and combine as elementwise operators over rows, of the type in which w13 and w2 store their results."""
    sizes = problem.sizes
    rows, count = problem.routing
    slots = (rows * count).sum(-1)
    stored = result_dtype(problem.dtype, problem.output_dtype)
    if problem.op == "activation":
        shape = {"B": slots, "H": sizes["N"]}
        return ProblemBatch(family="elementwise", op="silu_and_mul", sizes=shape, dtype=stored, cache=problem.cache)
    shape = {"B": sizes["M"], "H": sizes["H"], "inputs": sizes["topk"]}
    return ProblemBatch(family="elementwise", op="sum", sizes=shape, dtype=stored, cache=problem.cache)


def work(problem: ProblemBatch, gpu: GpuSpec) -> Work:
    """The least work of the operator, whatever the configuration: no padding, every expert's weights once."""
    if problem.op not in GEMM_OPS:
        return elementwise.work(_row_operator(problem), gpu)
    return tile.work(product(problem, least=True), problem.dtype, gpu)


def demand(problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Demand:
    """The demand of the launch: rows padded per expert to BLOCK_SIZE_M, weights read once per row tile."""
    if problem.op not in GEMM_OPS:
        return elementwise.demand(_row_operator(problem), configuration, gpu, by_row=True)
    return tile.demand(product(problem, configuration.get("BLOCK_SIZE_M", 64)), configuration, gpu)
