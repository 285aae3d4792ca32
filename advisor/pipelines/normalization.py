"""Row reductions: RMSNorm, LayerNorm, softmax over B rows of H elements."""

from __future__ import annotations

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import memory, occupancy
from advisor.pipelines.batch import ConfigurationBatch, ProblemBatch
from advisor.pipelines.columns import Array
from advisor.pipelines.demand import Demand, Work, fma_gain, least_special

FMA_FLOP = {"rms_norm": 4, "layer_norm": 7, "softmax": 4}
"""Per element: square and accumulate, scale and weight; mean, variance, normalise, weight and bias; max, subtract, sum, scale."""

XU_OP = {"rms_norm": 0, "layer_norm": 0, "softmax": 1}
"""Per element; the one rsqrt or reciprocal per row is added apart."""

INSTRUCTIONS = {"rms_norm": 8.3, "layer_norm": 13.2, "softmax": 11.0}
"""Per element, whichever pipeline takes them: loads, conversions, arithmetic, stores. Source: counted in the code that Triton 3.9 makes of
`triton_kernels/` for sm_90, bf16, between 8 and 32 elements a thread. A second pass over the row repeats half of them (`TWICE`)."""

TWICE = 1.5
PER_WARP, PER_REDUCTION = 64, 20
"""Instructions of a warp whatever its elements, and those of a reduction of one row; counted likewise."""

MERGED = ("layer_norm", "softmax")
"""Operators with two reductions, of every block of a row; the others add blocks up and reduce once."""

PARAMETERS = {"rms_norm": 1, "layer_norm": 2, "softmax": 0}
"""Vectors of H weights that every row uses."""

LONGEST_BLOCK = 16384
"""Elements of a row that a kernel takes at once at most, where its configuration does not say: the largest block of those in
`triton_kernels/`. A row of 65,536 float32 values is as large as all registers of an SM."""


def work(problem: ProblemBatch, gpu: GpuSpec) -> Work:
    """Every element read once and written once, the weights once."""
    rows, length = problem.sizes["B"], problem.sizes["H"]
    elements = rows * length
    special, flop = elements * float(XU_OP[problem.op]) + rows, elements * float(FMA_FLOP[problem.op])
    fma, xu = least_special(gpu, special, flop, problem.dtype)
    return Work(
        tensor_flop=np.zeros_like(elements),
        fma_flop=fma,
        xu_op=xu,
        compulsory_bytes=elements * (problem.operand_bytes + problem.result_bytes) + PARAMETERS[problem.op] * length * problem.weight_bytes,
        result_bytes=elements * problem.result_bytes,
        tensor_dtype=None,
    )


def longest_block(length: Array) -> Array:
    """BLOCK_SIZE of a configuration that names none, [n]: whole rows of `length` elements, or as much of them as a CTA holds."""
    return np.minimum(2.0 ** np.ceil(np.log2(np.maximum(length, 1))), LONGEST_BLOCK)


def demand(problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Demand:
    """CTAs of ROWS_PER_CTA rows; a row wider than BLOCK_SIZE takes passes, and is then read twice (statistics, then result).

    A block is held in registers. A configuration without BLOCK_SIZE takes whole rows, but `LONGEST_BLOCK` elements at most.
    """
    w = work(problem, gpu)
    rows, length = problem.sizes["B"], problem.sizes["H"]
    block = configuration.parameters.get("BLOCK_SIZE", longest_block(length))
    per_cta_rows, warps = configuration.get("ROWS_PER_CTA", 1), configuration.num_warps
    passes = np.ceil(length / block)
    reads = np.where(passes > 1, 2.0, 1.0)
    padded = passes * block * per_cta_rows
    ctas = np.ceil(rows / per_cta_rows)
    zero = np.zeros(np.broadcast_shapes(ctas.shape, padded.shape, warps.shape))
    elements = rows * length
    loads = elements * reads * problem.operand_bytes + ctas * PARAMETERS[problem.op] * length * problem.weight_bytes
    stores = elements * problem.result_bytes
    flop, xu = padded * FMA_FLOP[problem.op], padded * XU_OP[problem.op] * reads + per_cta_rows
    reductions = 2 * passes if problem.op in MERGED else np.ones_like(passes)
    again = np.where(passes > 1, elements * problem.operand_bytes, 0.0)
    resources = occupancy.Resources(
        registers=np.minimum(24 + 2 * block * per_cta_rows / (gpu.warp_size * warps), 255),
        shared_memory_bytes=128 + zero,
        num_warps=warps,
        accumulators=block * per_cta_rows / (gpu.warp_size * warps),
    )
    at_once = np.minimum(gpu.num_sms * np.maximum(occupancy.resident_ctas(gpu, resources)[0], 1), ctas)
    in_flight = at_once * per_cta_rows * length * problem.operand_bytes  # read between a row's first and its second reading
    return Demand(
        per_cta={
            "tensor": zero,
            "fma": flop + zero,
            "xu": xu + zero,
            "alu": padded * 1.0 + zero,
            "issue": padded * INSTRUCTIONS[problem.op] * np.where(passes > 1, TWICE, 1.0) / gpu.warp_size
            + warps * (PER_WARP + PER_REDUCTION * reductions * per_cta_rows)
            + zero,
            "smem": per_cta_rows * warps * 8.0 + zero,
        },
        ctas=ctas + zero,
        launched_ctas=ctas + zero,
        cta_load_bytes=loads / ctas + zero,
        cta_store_bytes=stores / ctas + zero,
        l2_bytes=loads + stores + zero,
        dram_bytes=memory.likely_dram_bytes(w.compulsory_bytes, gpu, problem.cache)
        + again * memory.re_read_fraction(in_flight, gpu.l2_bytes)
        + zero,
        compulsory_bytes=w.compulsory_bytes + zero,
        useful_fraction=elements / (ctas * padded) + zero,
        k_iterations=passes * reads + zero,
        tensor_dtype=None,
        tensor_rate=np.ones_like(zero),
        num_stages=configuration.num_stages,
        resources=resources,
        rounds=passes * reads + zero,
        reductions=reductions + zero,
        certain_fma=1 / fma_gain(gpu, problem.dtype),
    )
