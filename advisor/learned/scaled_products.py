"""Products that scale blocks (fp8 or int8, 128 x 128 weights, 1 x 128 activations), and the quantisation of their activations before them.

No such product of single matrices was measured configuration by configuration; its loop is that of a layer's first product with one expert
that all tokens take, and those were.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Prediction
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch

STEP_US, SCALED_US = 0.08, 0.0016
"""What a step of the stacks' kernel takes beyond that of the measured loop, and per accumulator of a thread: its scales are loaded, and
every accumulator is multiplied by both before the next step can begin. Fitted to 13 posted latencies of product and quantisation together
(H100, N = 2112, K = 7168, one CUDA graph; vLLM's pull requests 23280 and 23939, shipped table and default): 5.0 %; fitted to one of the two
alone, 6.4 and 10.6 % on the other."""

QUANTISATION_US = 2.5
"""A launch of the quantisation kernel within a graph, its gap included (same source)."""

L2_SHARE, DRAM_SHARE = 0.4, 0.45
"""Of their rates, what the quantisation of 1 x 128 groups gets: one read of 16 bits, one write of 8, and the scales (same source; torchao's
pull request 3306 posts 1.4 to 1.6 TB/s on an H100)."""

FITS = 0.5
"""Of the L2, what rows may take that come from it."""


def scales_blocks(problem: ProblemBatch) -> bool:
    """Whether it is a single product of 8-bit operands that scales blocks."""
    return problem.family == "gemm" and problem.block_shape is not None and problem.dtype in ("fp8", "int8") and "B" not in problem.sizes


def as_expert(problem: ProblemBatch) -> ProblemBatch:
    """A product that `scales_blocks` as the first one of a layer with one expert; any other as it is."""
    if not scales_blocks(problem):
        return problem
    one, sizes = np.ones(1), problem.sizes
    alike = {"M": sizes["M"], "E": one, "topk": one, "H": sizes["K"], "N": sizes["N"] / 2}
    return replace(problem, family="fused_moe", op="w13", sizes=alike)


def with_steps(prediction: Prediction, problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Prediction:
    """What is predicted `as_expert`, with the dependent steps of its scales."""
    demand = pipelines.demand(problem, configuration, gpu)
    accumulators = configuration.get("BLOCK_SIZE_M", 64) * configuration.get("BLOCK_SIZE_N", 64) / (gpu.warp_size * configuration.num_warps)
    step_us = STEP_US + SCALED_US * accumulators
    more = step_us * demand.k_iterations * np.maximum(pipelines.schedule(demand, gpu).waves, 1.0)
    more = np.where(np.isfinite(prediction.us), more, 0.0)
    return replace(prediction, us=prediction.us + more, low_us=prediction.low_us + more / 2, high_us=prediction.high_us + 2 * more)


def quantisation_us(rows: Array, depth: Array, gpu: GpuSpec) -> Array:
    """Microseconds that quantising `rows` of `depth` 16-bit activations takes, [n]."""
    moved = rows * depth * (2 + 1 + 4 / 128)
    beyond = 1 / (1 + np.maximum(moved / (FITS * gpu.l2_bytes), 1e-9) ** -3.0)
    dram = gpu.dram_bytes_per_s * gpu.dram_achievable_fraction
    return np.asarray(QUANTISATION_US + 1e6 * moved * ((1 - beyond) / (L2_SHARE * gpu.l2_bytes_per_s) + beyond / (DRAM_SHARE * dram)))
