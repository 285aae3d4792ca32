"""Learned latencies of library kernels: gemm, and operators over rows, whose configuration nobody knows.

The reference is a fitted physics: of tiles (`tiled.py`) for gemm, of DRAM (below) for operators over rows; one forest per kind
corrects it on the GPUs learned and on those with as many of the same SMs.

The physics of library operators over rows: what a launch costs, and the time in which memory moves the operands and the result.

T = overhead + ratio x (what the L2 lost since the launch before / what DRAM sustains + the rest at the L2's rate), with two constants of
each operator that all GPUs share, so a GPU never seen is just another point; what they miss, a forest corrects (`direct.py`). The overhead
is that of the measurements learned from: about 17 us for operators that PyTorch launches one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import load_gpu
from advisor.learned import calibration, forest
from advisor.learned.analytical import SPREAD
from advisor.learned.calibration import WIDEST, Calibration
from advisor.learned.forest import Forest
from advisor.learned.library import tiled
from advisor.learned.library.tiled import Physics
from advisor.learned.machine import TENSOR_MEMORY, Machine, machine
from advisor.learned.moe.moe_physics import SPLIT_L2
from advisor.learned.moe.ranking_features import Columns, matrix
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch
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


WAVE_TILES = ((64, 128), (128, 128), (128, 256))
LIMITED = {
    "gemm": ("m", "n", "k", "batch", "area", "a", "b", "waves 128x128"),
    "rows": ("rows", "length", "rows per sm", "elements per sm", "l2 fill"),
}
"""Features whose range says what was learned, by group of kinds: logarithms of sizes. GPUs have no limits: on those left out, the learned
model is nearer than the analytical one (fp32 gemm 14 and 19 %, rows 5 and 12 % over five GPUs; `advisor evaluate DATA --leave-out gpu`)."""
TWIN_SPREAD, TWIN_MEMORY_SPREAD = 0.025, 0.05
"""What a GPU that differs in its memory alone from one learned adds to half an 80 % interval, in log latency: the first always, the second
at most for what the physics makes of that memory. Of 2,268 fused-MoE launches as served (`data/README.md`) 80 % took the H100 -0.3 to
+2.8 % longer than the H800; the H200, that `moe_physics.py` has up to 35 % faster than the H800, 0 to 8.5 % longer than that."""
SHRINKING = {"gemm/fp32": ("m", "n", "waves 128x128")}
"""Those below whose range cuBLAS takes smaller tiles or splits K: the error grows with the distance, which counts twice there."""


def kind_of(problem: ProblemBatch) -> str:
    """The group of problems that share a forest."""
    family = "gemm" if problem.family == "gemm" else "rows"
    return f"{family}/{problem.dtype}"


def covers(problem: ProblemBatch, configuration: ConfigurationBatch | None) -> bool:
    """Whether these are launches of a library, of operators that the model has features for, on operands of one type.

    One with a configuration is a launch of a Triton kernel.
    """
    known = problem.family == "gemm" or (problem.family in ("elementwise", "normalization") and problem.op in OPERATORS)
    return known and configuration is None and problem.weight_dtype in (None, problem.dtype)


def _columns(problem: ProblemBatch, gpu: Machine, physics: Physics | Streaming) -> tuple[Columns, Array]:
    return _rows(problem, gpu, physics) if isinstance(physics, Streaming) else _gemm(problem, gpu, physics)


def reference(problem: ProblemBatch, gpu: Machine, physics: Physics | Streaming) -> tuple[Array, Array]:
    """Reference latency in microseconds and features, [n] and [n, f]."""
    columns, us = _columns(problem, gpu, physics)
    shape = np.broadcast_shapes(*(np.shape(c) for c in columns.values()), us.shape)
    return np.broadcast_to(us, shape), matrix({n: np.broadcast_to(c, shape) for n, c in columns.items()})


def _gemm(problem: ProblemBatch, gpu: Machine, physics: Physics) -> tuple[Columns, Array]:
    """Sizes, waves and the physics' terms. Of the GPU only the SMs and their rate: what memory does, the physics carries to others."""
    m, n, k = (problem.sizes[name] for name in "MNK")
    batch = problem.sizes.get("B", np.ones(1))
    log = np.log
    us, stack = tiled.terms(problem, gpu, physics)
    columns: Columns = {f"term {name}": log((term + 1e-3) / us) for name, term in zip(tiled.TERMS, stack, strict=True)}
    columns |= {
        "latency": log(us),
        "m": log(m),
        "n": log(n),
        "k": log(k),
        "batch": log(batch),
        "area": log(m * n),
        "a": log(m * k),
        "b": log(n * k),
        "row fill 64": m / (np.ceil(m / 64) * 64),
        "row fill 128": m / (np.ceil(m / 128) * 128),
        "column fill 128": n / (np.ceil(n / 128) * 128),
        "depth fill 128": k / (np.ceil(k / 128) * 128),
    }
    for tm, tn in WAVE_TILES:
        waves = batch * np.ceil(m / tm) * np.ceil(n / tn) / gpu.num_sms
        columns[f"last wave {tm}x{tn}"] = np.where(waves < 64, np.ceil(waves) / waves, 1.0)
        columns[f"waves {tm}x{tn}"] = log(waves)
    return columns | {"sms": np.full(1, gpu.num_sms), "flop per clock": np.full(1, gpu.flop_per_clock_per_sm)}, us


def _rows(problem: ProblemBatch, gpu: Machine, streaming: Streaming) -> tuple[Columns, Array]:
    rows, length = problem.sizes["B"], problem.sizes["H"]
    log = np.log
    traffic = bytes_moved(problem)
    dram, l2 = traffic / gpu.streamed_dram_bytes, traffic / gpu.l2_rate_bytes
    warm = np.maximum(0, traffic - gpu.l2_capacity_bytes) / gpu.streamed_dram_bytes
    us = latency_us(problem, gpu, streaming)
    operands = 2.0 if problem.op in TWO_OPERANDS else 1.0
    elements = rows * length
    columns: Columns = {
        "operator": np.full(1, float(OPERATORS.index(problem.op))),
        "operands": np.full(1, operands),
        "dram": log(dram / us),
        "warm": log((warm + 1e-3) / us),
        "l2": log(l2 / us),
        "latency": log(us),
        "l2 fill": log(traffic / gpu.l2_capacity_bytes),
        "rows": log(rows),
        "length": log(length),
        "rows per sm": log(rows / gpu.num_sms),
        "elements per sm": log(elements / gpu.num_sms),
        "length odd": (length % 4) + np.zeros_like(rows),
        "fill 1024": length / (np.ceil(length / 1024) * 1024),
    }
    return columns | {
        "sms": np.full(1, gpu.num_sms),
        "capability": np.full(1, gpu.compute_capability),
        "clock": np.full(1, gpu.clock_mhz),
        "dram rate": np.full(1, log(gpu.streamed_dram_bytes)),
    }, us


def alike(kind: str, gpu: Machine) -> bool:
    """Whether a GPU's libraries run kernels like those learned: CUDA's, and fp8 on tensor cores such as Ada's and Hopper's. Blackwell's,
    of workstations too, have kernels of their own, which were measured (`kernels`)."""
    if kind == "gemm/fp8":
        return 8.9 <= gpu.compute_capability < min(TENSOR_MEMORY)
    return gpu.compute_capability > 0


def _differ_in_memory_alone(one: Machine, other: Machine) -> bool:
    """Whether two GPUs with as many of the same SMs also run them at the same clock and the same power."""
    return (one.compute_capability, one.clock_mhz, one.sustained_flop) == (other.compute_capability, other.clock_mhz, other.sustained_flop)


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
    physics: Physics | Streaming
    held_out: Mapping[str, Any] = field(default_factory=dict)  # errors on shapes and GPUs left out, a third of the trees

    def predict(self, problem: ProblemBatch, gpu: Machine, seen: bool, coverage: float = 0.8) -> tuple[tuple[Array, Array, Array], Array]:
        """Prediction and both ends of the interval (microseconds), and how far outside of what was learned it lies, as a factor, [n].

        Up to `DOMAIN_MARGIN` counts as within; no factor is large enough for GPUs whose libraries run other kernels.
        """
        us, features = reference(problem, gpu, self.physics)
        far = self._far(problem, gpu, features)
        twin, of_products = gpu if seen else self._twin(gpu, problem.dtype), isinstance(self.physics, Physics)
        twin_us = us
        if of_products and twin not in (None, gpu):
            twin_us, features = reference(problem, twin, self.physics)
        centre = us if twin is None else us * np.exp(self.correction(features))  # of other GPUs the physics alone knows
        size = calibration.scale(self.scale, features)
        by_twin = of_products and not seen and twin is not None and _differ_in_memory_alone(gpu, twin)
        low, high = (self.calibration.quantile(self.kind, seen or by_twin, 0.5 + side * coverage / 2) for side in (-1, 1))
        down, up = np.clip(low * size, -WIDEST, 0), np.clip(high * size, 0, WIDEST)
        if by_twin:
            added = TWIN_SPREAD + np.minimum(np.abs(np.log(us / twin_us)), TWIN_MEMORY_SPREAD)
            down, up = -np.hypot(down, added), np.hypot(up, added)
        elif not seen and not self._speaks_of(gpu, problem.dtype):
            down, up = np.minimum(down, -SPREAD), np.maximum(up, SPREAD)
        return (centre, centre * np.exp(down), centre * np.exp(up)), far

    def _far(self, problem: ProblemBatch, gpu: Machine, features: Array) -> Array:
        """The largest factor by which a size lies outside of what was learned, [n]; 1 inside of all; infinite on GPUs unlike them."""
        if not alike(self.kind, gpu):
            return np.full(features.shape[0], np.inf)
        names = list(_columns(problem, gpu, self.physics)[0])
        beyond = np.zeros(features.shape[0])
        for name in LIMITED[self.kind.split("/")[0]]:
            i = names.index(name)
            below = (self.low[i] - features[:, i]) * (2 if name in SHRINKING.get(self.kind, ()) else 1)
            beyond = np.maximum(beyond, np.maximum(below, features[:, i] - self.high[i]))
        return np.exp(beyond)

    def _speaks_of(self, gpu: Machine, dtype: str) -> bool:
        """Whether GPUs that were left out tell how well those learned speak of this one: of other generations, if it is of another."""
        generations = {machine(load_gpu(name), dtype).compute_capability for name in self.gpus}
        left_out = (self.kind, False) in self.calibration.quantiles
        return left_out and (len(generations) > 1 or gpu.compute_capability in generations)

    def _twin(self, gpu: Machine, dtype: str) -> Machine | None:
        """The GPU learned that has as many of the same SMs, and the L2 most like it: what its memory does otherwise, the physics says.

        The forest knows what the kernels do on such SMs; of another memory it only knows how those of a few GPUs differ.
        """
        learned = (machine(load_gpu(name), dtype) for name in self.gpus)
        same = [m for m in learned if (m.num_sms, m.flop_per_clock_per_sm) == (gpu.num_sms, gpu.flop_per_clock_per_sm)]
        return min(same, key=lambda m: abs(np.log(m.l2_rate_bytes / gpu.l2_rate_bytes)), default=None)

    def arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """As named arrays and JSON values."""
        prefix = f"direct/{self.kind}"
        out = self.correction.arrays(f"{prefix}/correction") | self.scale.arrays(f"{prefix}/scale")
        out |= self.calibration.arrays(f"{prefix}/calibration") | {f"{prefix}/low": self.low, f"{prefix}/high": self.high}
        out[f"{prefix}/physics"] = self.physics.parameters
        meta = {"gpus": list(self.gpus), "held_out": dict(self.held_out)}
        library = self.physics.library if isinstance(self.physics, Physics) else None
        return out, meta | {"library": library}


def load(stored: Mapping[str, NDArray[Any]], kind: str, meta: Mapping[str, Any]) -> DirectModel:
    """The reverse of `DirectModel.arrays`."""
    prefix = f"direct/{kind}"
    parameters, library = stored[f"{prefix}/physics"], meta["library"]
    physics = Streaming(parameters=parameters) if library is None else tiled.physics(parameters, library)
    return DirectModel(
        kind=kind,
        correction=forest.from_arrays(stored, f"{prefix}/correction"),
        scale=forest.from_arrays(stored, f"{prefix}/scale"),
        calibration=calibration.from_arrays(stored, f"{prefix}/calibration"),
        low=stored[f"{prefix}/low"],
        high=stored[f"{prefix}/high"],
        gpus=tuple(meta["gpus"]),
        held_out=meta.get("held_out", {}),
        physics=physics,
    )
