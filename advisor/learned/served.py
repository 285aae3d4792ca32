"""The configuration a serving stack launches, where nobody recorded it.

The published launches "as served" were configured by shape alone: PipeWeave's analytical model (arXiv 2601.14910; repository
`zksainx/pipeweave`, `triton_moe_calculator.py`) names the block sizes per number of tokens, hidden size, experts and class of
shared memory, and the steps of the measured latencies lie where it says. Warps and stages are not known; the values here are
plausible, and the forest that corrects the physics has learned with them.
"""

from __future__ import annotations

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.learned.machine import Machine, machine
from advisor.pipelines import ConfigurationBatch, ProblemBatch
from advisor.tables.entries import default_fields

SMALL_SMEM_BYTES = 128 * 1024
LARGE_SMEM_BYTES = 200 * 1024


def served_configuration(problem: ProblemBatch, gpu: Machine) -> ConfigurationBatch:
    """Configuration columns [n] for fused-MoE problems of `gpu`."""
    tokens, experts, hidden = np.broadcast_arrays(problem.sizes["M"], problem.sizes["E"], problem.sizes["H"])
    small = gpu.smem_bytes_per_sm < SMALL_SMEM_BYTES
    medium = not small and gpu.smem_bytes_per_sm < LARGE_SMEM_BYTES
    largest = np.full(tokens.shape, 64.0 if medium else 128.0)
    if small:
        largest = np.where((tokens > 2048) & (experts < 64), 64.0, largest)
    block_m = np.select([tokens <= 128, tokens <= 256, tokens <= 512], [16.0, 32.0, 64.0], largest)
    if small:
        block_n = np.where((hidden <= 1536) & (tokens <= 128), 16.0, 64.0)
    else:
        block_n = np.full(tokens.shape, 128.0)
    block_k = np.where(tokens <= 256, 256.0 if small else 128.0, 64.0)
    wide = 1.0 if not (small or medium) else (16.0 if small else 32.0)
    group = np.select([hidden <= 2048, hidden <= 3072], [1.0, 1.0 if not (small or medium) else 16.0], wide)
    return ConfigurationBatch(
        parameters={"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": block_n, "BLOCK_SIZE_K": block_k, "GROUP_SIZE_M": group},
        num_warps=np.where(block_m * block_n >= 128 * 128, 8.0, 4.0),
        num_stages=np.full(tokens.shape, 3.0),
    )


WEIGHT_ONLY = {"int4": "int4_w4a16", "int8": "int8_w8a16", "fp8": "fp8_w8a16"}
"""How tables name types of weights that meet wider activations."""


def stack_configuration(problem: ProblemBatch, gpu: GpuSpec) -> ConfigurationBatch:
    """Configuration columns [n] of fused-MoE products of any types: `served_configuration`, and vLLM's default for quantised ones.

    Nothing was measured of those as served; the stacks' defaults follow the types.
    """
    quantised = problem.block_shape is not None or problem.operand_bytes != 2 or problem.weight_bytes != 2
    if not quantised:
        return served_configuration(problem, machine(gpu, problem.dtype))
    dtype = problem.dtype if problem.weight_dtype in (None, problem.dtype) else WEIGHT_ONLY.get(problem.weight_dtype, problem.dtype)
    fields = default_fields(
        "vllm", problem.sizes["M"], problem.sizes["E"], dtype=dtype, block_shape=problem.block_shape, amd=gpu.vendor == "amd"
    )
    columns = {name: column.astype(np.float64) for name, column in fields.items()}
    return ConfigurationBatch(num_warps=columns.pop("num_warps"), num_stages=columns.pop("num_stages"), parameters=columns)
