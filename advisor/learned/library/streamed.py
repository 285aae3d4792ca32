"""The physics of library operators over rows: what a launch costs, and the time in which memory moves the operands and the result.

T = overhead + ratio x (what the L2 lost since the launch before / what DRAM sustains + the rest at the L2's rate), with two constants of
each operator that all GPUs share, so a GPU never seen is just another point; what they miss, a forest corrects (`direct.py`). The overhead
is that of the measurements learned from: about 17 us for operators that PyTorch launches one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.learned.machine import Machine
from advisor.learned.moe.moe_physics import SPLIT_L2
from advisor.pipelines import Array, ProblemBatch
from advisor.pipelines.memory import TURNAROUND, missed_share
from advisor.pipelines.schedule import EFFICIENCY

OPERATORS = (
    "add",
    "mul",
    "div",
    "pow",
    "addu",
    "mulu",
    "divu",
    "powu",
    "relu",
    "gelu",
    "tanh",
    "sigmoid",
    "exp",
    "sqrt",
    "softmax",
    "layer_norm",
    "rms_norm",
    "silu_and_mul",
)
TWO_OPERANDS = ("add", "mul", "div", "pow")

START = (2.5, 1 / (0.94 * (1 - TURNAROUND)))
"""Overhead in microseconds and ratio of an operator that was not measured: a launch in a stream, and half reads, half writes."""

SHARPNESS = 0.05
"""Log error beyond which a row counts less than its square: the A100's rows of one L2 are not to move the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming:
    """Fitted constants: overhead in microseconds and ratio, [len(OPERATORS), 2]."""

    parameters: Array


def bytes_moved(problem: ProblemBatch) -> Array:
    """Bytes [n] of the operands and the result, once each."""
    operands = 2 if problem.op in TWO_OPERANDS else 1
    return problem.sizes["B"] * problem.sizes["H"] * problem.operand_bytes * (operands + 1)


def memory_us(problem: ProblemBatch, gpu: Machine) -> Array:
    """Time [n] in microseconds in which DRAM and the L2 move them, where the same launch ran before."""
    moved = bytes_moved(problem)
    missed = moved * missed_share(moved, gpu.l2_capacity_bytes, gpu.compute_capability in SPLIT_L2)
    return missed / gpu.streamed_dram_bytes + (moved - missed) / (EFFICIENCY["l2"] * gpu.l2_rate_bytes)


def latency_us(problem: ProblemBatch, gpu: Machine, streaming: Streaming) -> Array:
    """Predicted latency [n] in microseconds."""
    overhead_us, ratio = streaming.parameters[OPERATORS.index(problem.op)]
    return overhead_us + ratio * memory_us(problem, gpu)


def fit(parts: Sequence[tuple[ProblemBatch, Machine, Array]]) -> Streaming:
    """Constants that fit measured operators best, by robust least squares of the log error.

    Args:
        parts: Problems of one GPU and operator, the GPU, and latencies in microseconds, [n].
    """
    from scipy import optimize  # comes with scikit-learn, which training needs anyway

    parameters = np.tile(np.array(START), (len(OPERATORS), 1))
    for operator in sorted({problem.op for problem, _, _ in parts}):
        rows = [(memory_us(p, gpu), us) for p, gpu, us in parts if p.op == operator]
        moving_us, measured_us = (np.concatenate(column) for column in zip(*rows, strict=True))

        def residuals(x: Array, moving_us: Array = moving_us, measured_us: Array = measured_us) -> Array:
            return np.log((np.exp(x[0]) + np.exp(x[1]) * moving_us) / measured_us)

        solved = optimize.least_squares(residuals, np.log(np.array(START)), loss="soft_l1", f_scale=SHARPNESS)
        parameters[OPERATORS.index(operator)] = np.exp(solved.x)
    return Streaming(parameters=parameters)
