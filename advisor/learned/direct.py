"""Learned latencies of library kernels: gemm, and operators over rows, whose configuration nobody knows.

No physics is fitted here: the reference is the largest pipeline time, and one forest per kind corrects it from the waves that
the usual tiles would make.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned import calibration, forest
from advisor.learned.calibration import Calibration
from advisor.learned.features import Columns, matrix
from advisor.learned.forest import Forest
from advisor.learned.machine import Machine
from advisor.pipelines import Array, ProblemBatch

TILES = ((64, 64), (64, 128), (128, 128), (64, 256), (128, 256), (256, 128))
LAUNCH_US = 2.5
DOMAIN_MARGIN = 2.0
ROW_OPERATORS = (
    "add", "mul", "div", "pow", "addu", "mulu", "divu", "powu", "relu", "gelu", "tanh", "sigmoid", "exp", "sqrt", "softmax",
    "layer_norm", "rms_norm", "silu_and_mul",
)  # fmt: skip
TWO_OPERANDS = ("add", "mul", "div", "pow")


def kind_of(problem: ProblemBatch) -> str:
    """The group of problems that share a forest."""
    family = "gemm" if problem.family == "gemm" else "rows"
    return f"{family}/{problem.dtype}"


def covers_operator(problem: ProblemBatch) -> bool:
    """Whether the operator is one this model has features for."""
    return problem.family == "gemm" or (problem.family in ("elementwise", "normalization") and problem.op in ROW_OPERATORS)


def reference(problem: ProblemBatch, gpu: Machine) -> tuple[Array, Array]:
    """Reference latency in microseconds and features, [n] and [n, f]."""
    columns, us = _gemm(problem, gpu) if problem.family == "gemm" else _rows(problem, gpu)
    shape = np.broadcast_shapes(*(np.shape(c) for c in columns.values()), us.shape)
    return np.broadcast_to(us, shape), matrix({n: np.broadcast_to(c, shape) for n, c in columns.items()})


def _gemm(problem: ProblemBatch, gpu: Machine) -> tuple[Columns, Array]:
    m, n, k = (problem.sizes[name] for name in "MNK")
    batch = problem.sizes.get("B", np.ones(1))
    log = np.log
    traffic = batch * ((m * k + n * k) * problem.operand_bytes + m * n * problem.result_bytes)
    tensor = 2 * batch * m * n * k / gpu.peak_flop
    dram = traffic / gpu.dram_bytes
    us = np.maximum(np.maximum(tensor, dram * 0.7), traffic / gpu.l2_rate_bytes) + LAUNCH_US
    columns: Columns = {
        "tensor": log(tensor / us), "dram": log(dram / us), "l2 fill": log(traffic / gpu.l2_capacity_bytes), "latency": log(us),
        "m": log(m), "n": log(n), "k": log(k), "batch": log(batch),
    }  # fmt: skip
    per_sm = gpu.peak_flop / gpu.num_sms
    for tm, tn in TILES:
        waves = batch * np.ceil(m / tm) * np.ceil(n / tn) / gpu.num_sms
        columns[f"last wave {tm}x{tn}"] = np.where(waves < 64, np.ceil(waves) / waves, 1.0)
        columns[f"waves {tm}x{tn}"] = log(waves)
        columns[f"busiest {tm}x{tn}"] = log(np.ceil(waves) * 2 * tm * tn * k / per_sm / us)
    columns |= {
        "row fill 64": m / (np.ceil(m / 64) * 64), "row fill 128": m / (np.ceil(m / 128) * 128), "area": log(m * n),
        "column fill 128": n / (np.ceil(n / 128) * 128), "weights": log(batch * n * k * problem.operand_bytes / traffic),
        "output": log(batch * m * n * problem.result_bytes / gpu.dram_bytes / us),
        "sms": np.full(1, gpu.num_sms), "flop per clock": np.full(1, gpu.flop_per_clock_per_sm),
    }  # fmt: skip
    return columns, us


def _rows(problem: ProblemBatch, gpu: Machine) -> tuple[Columns, Array]:
    rows, length = problem.sizes["B"], problem.sizes["H"]
    log = np.log
    operands = 2.0 if problem.op in TWO_OPERANDS else 1.0
    traffic = rows * length * problem.operand_bytes * (operands + 1)
    dram, l2 = traffic / gpu.dram_bytes, traffic / gpu.l2_rate_bytes
    warm = np.maximum(0, traffic - gpu.l2_capacity_bytes) / gpu.dram_bytes
    us = np.maximum(np.maximum(warm, l2), 0.6 * dram) + LAUNCH_US
    elements = rows * length
    columns: Columns = {
        "operator": np.full(1, float(ROW_OPERATORS.index(problem.op))), "operands": np.full(1, operands),
        "dram": log(dram / us), "warm": log((warm + 1e-3) / us), "l2": log(l2 / us), "latency": log(us),
        "l2 fill": log(traffic / gpu.l2_capacity_bytes), "rows": log(rows), "length": log(length),
        "rows per sm": log(rows / gpu.num_sms), "elements per sm": log(elements / gpu.num_sms),
        "length odd": (length % 4) + np.zeros_like(rows), "fill 1024": length / (np.ceil(length / 1024) * 1024),
        "sms": np.full(1, gpu.num_sms), "capability": np.full(1, gpu.compute_capability), "clock": np.full(1, gpu.clock_mhz),
        "dram rate": np.full(1, log(gpu.dram_bytes)),
    }  # fmt: skip
    return columns, us


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectModel:
    """Forests of one kind of library kernels (`kind_of`)."""

    kind: str
    correction: Forest
    scale: Forest
    calibration: Calibration
    low: Array  # least and most of every feature learned
    high: Array
    gpus: tuple[str, ...]
    held_out: Mapping[str, Any] = field(default_factory=dict)  # errors on shapes and GPUs left out, a third of the trees

    def predict(self, problem: ProblemBatch, gpu: Machine, seen: bool,
                coverage: float = 0.8) -> tuple[Array, Array, Array, NDArray[np.bool_]]:  # fmt: skip
        """Prediction, both ends of the interval (microseconds), and whether it lies within what was learned."""
        us, features = reference(problem, gpu)
        centre = us * np.exp(self.correction(features))
        size = calibration.scale(self.scale, features)
        low = self.calibration.quantile(self.kind, seen, 0.5 - coverage / 2)
        high = self.calibration.quantile(self.kind, seen, 0.5 + coverage / 2)
        margin = np.log(DOMAIN_MARGIN) + 0.25 * (self.high - self.low)
        inside = ((features >= self.low - margin) & (features <= self.high + margin)).all(axis=1)
        return centre, centre * np.exp(np.minimum(low * size, 0)), centre * np.exp(np.maximum(high * size, 0)), inside

    def arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """As named arrays and JSON values."""
        prefix = f"direct/{self.kind}"
        out = self.correction.arrays(f"{prefix}/correction") | self.scale.arrays(f"{prefix}/scale")
        out |= self.calibration.arrays(f"{prefix}/calibration") | {f"{prefix}/low": self.low, f"{prefix}/high": self.high}
        return out, {"gpus": list(self.gpus), "held_out": dict(self.held_out)}


def load(stored: Mapping[str, NDArray[Any]], kind: str, meta: Mapping[str, Any]) -> DirectModel:
    """The reverse of `DirectModel.arrays`."""
    prefix = f"direct/{kind}"
    return DirectModel(
        kind=kind, correction=forest.from_arrays(stored, f"{prefix}/correction"), scale=forest.from_arrays(stored, f"{prefix}/scale"),
        calibration=calibration.from_arrays(stored, f"{prefix}/calibration"), low=stored[f"{prefix}/low"],
        high=stored[f"{prefix}/high"], gpus=tuple(meta["gpus"]), held_out=meta.get("held_out", {}),
    )  # fmt: skip
