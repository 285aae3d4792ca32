"""Elementwise operators over rows: B rows of H results each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import memory, occupancy
from advisor.pipelines.batch import ConfigurationBatch, ProblemBatch
from advisor.pipelines.columns import Array, column
from advisor.pipelines.demand import Demand, Work, fma_gain, least_special
from advisor.system.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Per result element: elements read, FLOP on the fma pipeline, operations on the xu pipeline (exp, division, tanh) as kernels usually
    have them, and at least (None: as many)."""

    inputs: int = 1
    fma_flop: int = 1
    xu_op: int = 0
    least_xu_op: int | None = None

    @property
    def certain_xu(self) -> float:
        """Share of `xu_op` that every kernel needs."""
        return 1.0 if self.least_xu_op is None else self.least_xu_op / self.xu_op


OPERATORS: dict[str, Operator] = {
    "copy": Operator(fma_flop=0),
    "add": Operator(inputs=2),
    "sub": Operator(inputs=2),
    "mul": Operator(inputs=2),
    "div": Operator(inputs=2, xu_op=1),
    "pow": Operator(inputs=2, fma_flop=2, xu_op=2),
    "addu": Operator(),
    "mulu": Operator(),
    "divu": Operator(),
    "powu": Operator(),
    "relu": Operator(),
    "tanh": Operator(fma_flop=2, xu_op=1),
    "sigmoid": Operator(fma_flop=2, xu_op=2, least_xu_op=1),
    "silu": Operator(fma_flop=3, xu_op=2, least_xu_op=1),
    "gelu": Operator(fma_flop=6, xu_op=1),
    "silu_and_mul": Operator(inputs=2, fma_flop=4, xu_op=2, least_xu_op=1),
    "gelu_and_mul": Operator(inputs=2, fma_flop=7, xu_op=1),
    "sum": Operator(inputs=1, fma_flop=1),
}
"""Least operation counts per element. The unary forms (`addu`, ...) take a scalar. `sum` reads as many inputs per result as the
size `inputs` says, and adds one less. The sigmoid is an exponential and a division, or 1/2 + 1/2 tanh(x/2) with one tanh.approx
(PTX ISA, from sm_75 on). Where an operator can be had with fewer special functions (a power by a small integer), the fewer
count."""


OF_AN_INPUT, OF_A_RESULT, OF_A_SPECIAL, OF_A_WARP = 1.2, 0.6, 5, 54
"""Instructions to load and convert an element, to convert and store one, of a special function, whose argument is scaled, and of a warp
whatever its elements. Source: counted in the code that Triton 3.9 makes of `triton_kernels/silu_and_mul.py` for sm_90, bf16: 16.7 for each
result of two inputs, two special functions and four other FLOP."""


def operator(name: str) -> Operator:
    """The operator `name`.

    Raises:
        UsageError: It is not known; the message lists those that are.
    """
    try:
        return OPERATORS[name]
    except KeyError:
        raise UsageError("unknown elementwise operator", name, "one of " + ", ".join(OPERATORS)) from None


def work(problem: ProblemBatch, gpu: GpuSpec) -> Work:
    """Every input once, every result once."""
    op = operator(problem.op)
    elements = problem.sizes["B"] * problem.sizes["H"]
    inputs = problem.sizes.get("inputs", column(op.inputs))
    flop, special = _operations(problem, op)
    fma, xu = least_special(gpu, elements * special * op.certain_xu, elements * flop, problem.dtype)
    return Work(
        tensor_flop=np.zeros_like(elements),
        fma_flop=fma,
        xu_op=xu,
        compulsory_bytes=elements * (inputs * problem.operand_bytes + problem.result_bytes),
        result_bytes=elements * problem.result_bytes,
        tensor_dtype=None,
    )


def _operations(problem: ProblemBatch, op: Operator) -> tuple[Array, float]:
    """FLOP and special functions per result."""
    if problem.op == "sum":
        return np.maximum(problem.sizes.get("inputs", column(op.inputs)) - 1, 0) * op.fma_flop, float(op.xu_op)
    return column(op.fma_flop), float(op.xu_op)


def demand(problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec, *, by_row: bool = False) -> Demand:
    """CTAs of BLOCK_SIZE results each; lanes beyond the end are masked, and neither loaded nor stored.

    Where there is ROWS_PER_CTA, or with `by_row` (the fused-MoE activation and combine), a CTA takes BLOCK_SIZE columns of that
    many rows, and every row ends in masked lanes; else the results are taken as one long row.
    """
    w = work(problem, gpu)
    elements = problem.sizes["B"] * problem.sizes["H"]
    block, warps = configuration.get("BLOCK_SIZE", 1024), configuration.num_warps
    ctas = np.ceil(elements / block)
    if by_row or "ROWS_PER_CTA" in configuration.parameters:
        rows = configuration.get("ROWS_PER_CTA", 1)
        ctas = np.ceil(problem.sizes["B"] / rows) * np.ceil(problem.sizes["H"] / block)
        block = block * rows
    op = operator(problem.op)
    flop_each, special_each = _operations(problem, op)
    zero = np.zeros(np.broadcast_shapes(ctas.shape, warps.shape))
    flop, xu = block * flop_each, block * special_each
    moved = block * (OF_AN_INPUT * problem.sizes.get("inputs", column(op.inputs)) + OF_A_RESULT)
    result = elements * problem.result_bytes
    return Demand(
        per_cta={
            "tensor": zero,
            "fma": flop + zero,
            "xu": xu + zero,
            "alu": block * 1.0 + zero,
            "issue": (moved + flop + OF_A_SPECIAL * xu) / gpu.warp_size + OF_A_WARP * warps + zero,
            "smem": zero,
        },
        ctas=ctas + zero,
        launched_ctas=ctas + zero,
        cta_load_bytes=(w.compulsory_bytes - result) / ctas + zero,
        cta_store_bytes=result / ctas + zero,
        l2_bytes=w.compulsory_bytes + zero,
        dram_bytes=memory.likely_dram_bytes(w.compulsory_bytes, gpu, problem.cache) + zero,
        compulsory_bytes=w.compulsory_bytes + zero,
        useful_fraction=elements / (ctas * block) + zero,
        k_iterations=np.ones_like(zero),
        tensor_dtype=None,
        tensor_rate=np.ones_like(zero),
        num_stages=configuration.num_stages,
        rounds=np.ones_like(zero),
        reductions=zero,
        certain_xu=op.certain_xu,
        certain_fma=1 / fma_gain(gpu, problem.dtype),
        resources=occupancy.Resources(
            registers=np.minimum(24 + 2 * block / (gpu.warp_size * warps), 255),
            shared_memory_bytes=zero,
            num_warps=warps,
            accumulators=block / (gpu.warp_size * warps),
        ),
    )


def sum_of_parts(rows: Array, width: Array, parts: Array, dtype: str, gpu: GpuSpec) -> Demand | None:
    """The launch that adds up float32 results stored in `parts` parts, [parts, rows, width], into one of type `dtype`; None where no
    result of the batch is in more than one.

    As the kernels of `triton_kernels/` do it (`sum_splits_kernel` of gemm.py; `combine_splits_kernel` of attention.py, whose weights are
    left out): CTAs of one row, and of 1,024 results at most. The launch before has just written the parts, so the L2 holds what fits.
    """
    if not (parts > 1).any():
        return None
    sizes = {"B": rows, "H": width, "inputs": parts}
    problem = ProblemBatch(family="elementwise", op="sum", dtype="fp32", output_dtype=dtype, sizes=sizes, cache="warm")
    block = np.minimum(2.0 ** np.ceil(np.log2(np.maximum(width, 1))), 1024.0)
    return demand(problem, ConfigurationBatch(parameters={"BLOCK_SIZE": block}), gpu, by_row=True)
