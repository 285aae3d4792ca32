"""What is learned of launches with a known configuration: how much longer they take than their longest pipeline.

A forest and two networks, for all families and GPUs: they see the launch as `features` tell it, and no name of a GPU. Where they part,
nothing alike was measured: intervals are as wide as they part, and little is recommended.

Launches of kernels that were never measured (`OtherKernels`): the analytical model, corrected by what launches of measured kernels have in
common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.learned import network
from advisor.learned.analytical import NOTICED
from advisor.learned.configured.features import NAMES, features
from advisor.learned.forest import BushyForest, bushy_from_arrays
from advisor.learned.network import Network
from advisor.pipelines import Array, ConfigurationBatch, Demand, ProblemBatch
from advisor.result.problem import Problem

PREFIX = "configured/"
LEVELS = np.linspace(0, 1, 101)
"""Levels at which distributions of errors left out are kept."""

MEASURED = {
    "gemm": ("gemm",),
    "fused_moe": ("w13", "w2"),
    "attention": ("prefill", "decode"),
    "normalization": ("rms_norm", "layer_norm", "softmax"),
    "elementwise": ("silu_and_mul",),
}
"""Operators that were measured over the whole range of their configurations; layer norm is like RMS norm."""

DTYPES = ("bf16", "fp16", "fp8", "tf32")
OLDEST, NEWER, HOPPER = 7.0, 10.0, "9.0"
"""Compute capabilities: of the oldest GPU of which rows were learned, of those whose matrix instructions (tcgen05) none of them has, and of
the one of which launches of all families were."""

ALL = "all kinds"
UNSEEN, SEEN = "another GPU", "measured GPU"

LIKELY_FIRST, LOOKED_AT = 1024, {SEEN: 32, UNSEEN: 64}
"""Configurations of a space at which one network looks, those whose longest pipelines are shortest; and those at which all of the model
looks, which that network has first: half of them are enough where it knows the GPU (`ceilings/ATTEMPTS.md`)."""


@dataclass(frozen=True, kw_only=True)
class ConfiguredModel:
    """See the head of this file.

    Attributes:
        forest: log(latency / longest pipeline) from `features`.
        networks: The same; the first is the smallest, which looks at most of a space (`order`).
        errors: log(measured / predicted) of launches left out, over how `unsure` each was, at `LEVELS`, by kind (`kind_of`; of single GPUs
            with their name behind it) and `SEEN` or `UNSEEN`.
        margins: The same of the gain of a first pick over another configuration, measured less predicted, over how unsure both were.
        gpus: GPUs with rows, by family.
        record: What first picks won on problems left out, as JSON values, by kind and GPU.
        others: What is known of kernels none of which was measured.
    """

    forest: BushyForest
    networks: Sequence[Network]
    errors: Mapping[tuple[str, str], Array]
    margins: Mapping[tuple[str, str], Array]
    gpus: Mapping[str, Sequence[str]]
    record: Mapping[str, Any] = field(default_factory=dict)
    others: OtherKernels | None = None

    def covers(self, problem: ProblemBatch, gpu: GpuSpec) -> bool:
        """Whether launches like these were measured: on this GPU; products, which were on four, also on others with the instructions of
        those; all else on others of the compute capability of one of them. Blocks of scales were measured in fused MoE alone, and fp8 there
        with them alone; tf32 in products on Hopper."""
        if problem.op not in MEASURED.get(problem.family, ()) or problem.dtype not in DTYPES:
            return False
        if problem.weight_dtype not in (None, problem.dtype):
            return False
        if problem.dtype == "fp8" and (problem.family not in ("gemm", "fused_moe") or not gpu.supports("fp8")):
            return False
        if problem.dtype == "tf32" and (problem.family != "gemm" or gpu.compute_capability != HOPPER):
            return False
        if (problem.block_shape is not None) != (problem.family == "fused_moe" and problem.dtype == "fp8"):
            return False
        if self.seen(problem, gpu):
            return True
        if gpu.vendor != "nvidia":
            return problem.family == "gemm" and problem.dtype != "fp8"
        if problem.family == "gemm" and problem.dtype != "fp8":
            return OLDEST <= float(gpu.compute_capability) < NEWER
        return gpu.compute_capability == HOPPER and bool(self.gpus.get(problem.family))

    def seen(self, problem: ProblemBatch, gpu: GpuSpec) -> bool:
        """Whether such launches were measured on this very GPU."""
        return gpu.name in self.gpus.get(problem.family, ())

    def log_us(
        self, problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec, demand: Demand | None = None
    ) -> tuple[Array, Array]:
        """Logarithm of the predicted latency in microseconds, and how `unsure` it is, [n] each; from a cold cache never less than from a
        warm one."""
        base, matrix = features(problem, configuration, gpu, demand)
        forest, networks = self.opinions(matrix)
        log_us = log_latency(base, matrix, forest, networks, self._known(problem, gpu))
        if problem.cache == "cold":
            log_us = np.maximum(log_us, self.log_us(replace(problem, cache="warm"), configuration, gpu)[0])
        return log_us, unsure(forest, networks)

    def _known(self, problem: ProblemBatch, gpu: GpuSpec) -> str:
        """`SEEN` where such launches were measured on this GPU or a relative of it, else `UNSEEN`."""
        return SEEN if self.nearest(problem, gpu) else UNSEEN

    def opinions(self, matrix: Array) -> tuple[Array, Array]:
        """log(latency / longest pipeline) of `features` as the forest and as the networks have it, [n] each."""
        return self.forest(matrix), np.mean([network(matrix, precise=True) for network in self.networks], axis=0)

    def order(
        self, problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec, demand: Demand, launches: NDArray[np.bool_]
    ) -> Array:
        """As `log_us` for those of a space that launch and may be the first, [n]; behind them those that are not by the network alone, then
        those that are not by their pipelines, and last, infinite, those that cannot launch."""
        base, matrix = features(problem, configuration, gpu, demand)
        known = self._known(problem, gpu)
        out = np.where(launches, base, np.inf)
        likely = _first(out, min(LIKELY_FIRST, int(launches.sum())))
        rough = base[likely] + self.networks[0](matrix[likely])
        few = _first(rough, LOOKED_AT[known])
        best = likely[few]
        fine = log_latency(base[best], matrix[best], *self.opinions(matrix[best]), known)
        out += max(float(rough.max() - base[likely].max()), 0.0) + BEHIND
        shift = max(float(fine.max() - rough[few].max()), 0.0) + BEHIND
        out += shift
        out[likely] = rough + shift
        out[best] = fine
        return out

    def interval(self, problem: ProblemBatch, gpu: GpuSpec) -> tuple[float, float]:
        """Errors that 10 % and 90 % of launches left out stay below, over how unsure they are."""
        return tuple(float(np.interp(level, LEVELS, self._of(self.errors, problem, gpu))) for level in (0.1, 0.9))  # type: ignore[return-value]

    def p_gain(self, problem: ProblemBatch, gpu: GpuSpec, predicted: float, doubt: float) -> float:
        """Probability of a gain, now / then, of `NOTICED` where one of `predicted` is promised, and both together are unsure by `doubt`."""
        if not np.isfinite(predicted):
            return 1.0
        values = self._of(self.margins, problem, gpu)
        return float(1 - np.interp((np.log(NOTICED) - np.log(predicted)) / doubt, values, LEVELS))

    def record_of(self, problem: ProblemBatch, gpu: GpuSpec) -> str:
        """What first picks of the kind won that would have been recommended, in words; empty where none were."""
        kind, (name, times) = kind_of(problem), self.nearest(problem, gpu) or ("", np.inf)
        seen = times == 1
        records: list[Mapping[str, Any]] = []
        for entry in (kind, SIMILAR.get(kind, kind)):
            names = [f"{entry}, {name}, problems left out"]
            if not seen:
                names = [name for name in self.record if name.startswith(f"{entry}, ") and name.endswith("GPU left out")]
            records = records or [self.record[name] for name in names if self.record.get(name, {}).get("recommended")]
        if not records:
            return ""
        count = sum(item["recommended"] for item in records)
        won = sum(item["recommended"] * item["won"] for item in records) / count
        gain = float(np.exp(sum(item["recommended"] * np.log(item["gain"]) for item in records) / count))
        worst = min(item["worst"] for item in records)
        where = name if seen else "other GPUs"
        wins = f"{100 * won:.0f} % won: {gain:.2f} times faster in the mean, {worst:.2f} at worst"
        return f"of {count} such recommendations for launches left out on {where}, {wins}"

    def nearest(self, problem: ProblemBatch, gpu: GpuSpec) -> tuple[str, float] | None:
        """The GPU on which such launches were measured that is this one, has all its figures, or is its relative (`related`), and how much
        wider errors are taken here; None where none of them is."""
        measured = self.gpus.get(problem.family, ())
        if gpu.name in measured:
            return gpu.name, 1.0
        apart = {name: _apart(load_gpu(name), gpu) for name in measured}
        name = min(apart, key=apart.__getitem__, default="")
        return (name, related(load_gpu(name), gpu)) if name and apart[name] <= ALIKE else None

    def _of(self, tables: Mapping[tuple[str, str], Array], problem: ProblemBatch, gpu: GpuSpec) -> Array:
        nearest, kind = self.nearest(problem, gpu), kind_of(problem)
        name, times = nearest or (gpu.name, 1.0)
        seen, kinds = SEEN if nearest else UNSEEN, (kind, SIMILAR.get(kind, kind))
        for entry in (*(f"{item} {name}" for item in kinds), *kinds):
            if (entry, seen) in tables:
                return tables[entry, seen] * times
        return tables[ALL, seen] * (times if nearest else LESS_KNOWN)

    def arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Named arrays, and what else there is, as JSON values."""
        out = self.forest.arrays(f"{PREFIX}forest")
        for i, item in enumerate(self.networks):
            out |= item.arrays(f"{PREFIX}network {i}")
        if self.others:
            out |= self.others.arrays()
        names = {}
        for what, tables in (("errors", self.errors), ("margins", self.margins)):
            names[what] = sorted([list(key) for key in tables])
            out[PREFIX + what] = np.stack([tables[kind, seen] for kind, seen in names[what]]).astype(np.float32)
        return out, {
            **names,
            "networks": len(self.networks),
            "gpus": {name: list(gpu) for name, gpu in self.gpus.items()},
            "record": self.record,
        }


FOREST_SHARE = {SEEN: 0.2, UNSEEN: 0.5}
"""Of what is predicted, beside two networks. Networks know a measured GPU better, trees one that is none (`ceilings/ATTEMPTS.md`)."""


TRUSTED = 0.9
"""Of what a GPU that was never measured is said to take beyond its longest pipeline. Errors are shares of what was measured: where they are
wide, a lower guess is nearer in the mean (`ceilings/ATTEMPTS.md`)."""


def log_latency(base: Array, matrix: Array, forest: Array, networks: Array, known: str) -> Array:
    """What the parts of the model say as one of launches with these `features`, log of microseconds [n], on a GPU that is `SEEN` or
    `UNSEEN`: on that with what the board's power sustains, which held down none of the launches that were learned."""
    correction = FOREST_SHARE[known] * forest + (1 - FOREST_SHARE[known]) * networks
    if known == SEEN:
        return base + correction
    sustained = (matrix[:, NAMES.index("sustained")] + matrix[:, NAMES.index("scale")]) * np.log(2)
    return np.asarray(np.logaddexp(4 * (base + TRUSTED * correction), 4 * sustained) / 4)  # as `features` add pipelines up


SURE = 0.05
"""How far forest and networks part where they do not part at all: as they do in the median of launches that were measured."""


def unsure(forest: Array, networks: Array) -> Array:
    """How far predictions may be off, relative to each other: both parts of the model err most where they part."""
    return np.asarray(np.hypot(SURE, forest - networks), dtype=np.float64)


def _first(values: Array, count: int) -> NDArray[np.intp]:
    """Where the least values are, in their order."""
    return np.argsort(np.round(values, DIGITS), kind="stable")[:count]


BEHIND = 0.05
DIGITS = 6
"""Decimals of a log latency that tell configurations apart: beyond them, sums depend on how many are asked of at once."""
TIE = 1e-8
"""By which the second of two that are not told apart stands behind, of a log latency."""

RELATIVE, ALIKE = 1.4, 1.5
"""How much wider errors are on a GPU's relative: intervals of problems left out on an H100, this much wider, held 81 % of 6,029 launches on
an H200 of which none was learned (1.0: 69, 2.1: 92; `ATTEMPTS.md`). And the ratio within which clocks, multiprocessors, memory and cache of
relatives are: the H200's memory is 1.43 times the H100's."""


def related(measured: GpuSpec, gpu: GpuSpec) -> float:
    """How much wider the errors that were measured on one GPU are on another: 1 where it has the same figures, infinitely where it is no
    relative, of the same architecture and instructions and not much larger or faster."""
    apart = _apart(measured, gpu)
    return 1.0 if apart < SAME else RELATIVE if apart <= ALIKE else np.inf


def _apart(measured: GpuSpec, gpu: GpuSpec) -> float:
    """By how much the figure in which two GPUs are least alike differs, as a ratio; infinite where their instructions do."""
    if (measured.compute_capability, measured.warp_size) != (gpu.compute_capability, gpu.warp_size):
        return np.inf
    one, other = (
        (
            *(item.num_sms, item.max_clock_mhz, item.dram_bytes_per_s, item.l2_bytes),
            *(item.tensor_flop_per_clock_per_sm.get(dtype, 0) for dtype in DTYPES),
        )
        for item in (measured, gpu)
    )
    return max(max(a, b) / max(min(a, b), 1e-9) for a, b in zip(one, other, strict=True) if a or b)


SAME = 1.01
LESS_KNOWN = 1.3
"""How much wider errors are taken on GPUs where no launch of the family was measured than GEMM's on GPUs left out."""


def load(stored: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> ConfiguredModel:
    """The reverse of `ConfiguredModel.arrays`."""
    tables = {
        what: {(kind, seen): values.astype(np.float64) for (kind, seen), values in zip(meta[what], stored[PREFIX + what], strict=True)}
        for what in ("errors", "margins")
    }
    return ConfiguredModel(
        forest=bushy_from_arrays(stored, f"{PREFIX}forest"),
        networks=[network.load(stored, f"{PREFIX}network {i}") for i in range(meta["networks"])],
        gpus=meta["gpus"],
        record=meta["record"],
        others=load_others(stored),
        **tables,
    )


SIMILAR = {"gemm": "gemm fp16", "gemm fp16": "gemm"}
"""Kinds of which one stands for the other on GPUs where the other was not measured."""


def kind_of(problem: ProblemBatch | Problem) -> str:
    """Launches whose errors and gains are told together."""
    told_apart = problem.dtype == "fp8" or (problem.family == "gemm" and problem.dtype in ("fp16", "tf32"))
    return problem.family if problem.family == "elementwise" else f"{problem.op} {problem.dtype}" if told_apart else problem.op


OTHERS_PREFIX = "other kernels/"
PARTS = ("rows", "products")
"""Launches without matrix products and with them: what is learned of the former says nothing of the latter."""

DEMANDED = [
    NAMES.index(name)
    for name in (
        *("in_turn", "warps", "depth", "elements_per_thread", "trips", "resident", "per_sm", "fill", "waves", "last_wave", "useful"),
        *("idle", "registers", "accumulators", "shared_memory", "active_warps", "tensor", "fma", "xu", "smem", "l2", "dram", "port"),
        *("chain", "trip_latency", "busiest", "sustained", "working_set", "re_read", "loads", "start", "scale", "intensity"),
        *("in_flight", "pipelined"),
    )
]
"""The features that mean the same for every kernel: no tile, no size, no family."""

PHYSICS, CARRIED = 0.6, 0.6
"""Share of the analytical latency beside the longest pipeline's (geometric mean), and how much of a correction carries over to a kernel
that was not measured; both are best for kernels left out (`ATTEMPTS.md`)."""


@dataclass(frozen=True, kw_only=True)
class OtherKernels:
    """See the head of this file.

    Attributes:
        forests: log(latency / `middle`) from the features `DEMANDED`, by `PARTS`.
        errors: log(measured / predicted) of launches of kernels left out: the quantiles of 10 and 90 %, [2].
    """

    forests: Mapping[str, BushyForest]
    errors: Array

    def log_us(self, physics: Array, base: Array, matrix: Array, products: bool) -> Array:
        """The predicted latency, [n], log of microseconds; `physics`: that of the analytical model, `base` and `matrix`: of `features`."""
        return middle(physics, base) + CARRIED * self.forests[PARTS[products]](matrix[:, DEMANDED])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Named arrays."""
        out: dict[str, NDArray[Any]] = {f"{OTHERS_PREFIX}errors": self.errors}
        for name, forest in self.forests.items():
            out |= forest.arrays(f"{OTHERS_PREFIX}{name}")
        return out


def middle(physics: Array, base: Array) -> Array:
    """What is corrected: between the analytical latency and the longest pipeline's, logs of microseconds, [n]."""
    return PHYSICS * physics + (1 - PHYSICS) * base


def load_others(stored: Mapping[str, NDArray[Any]]) -> OtherKernels | None:
    """The reverse of `OtherKernels.arrays`; None where there is none."""
    if f"{OTHERS_PREFIX}errors" not in stored:
        return None
    return OtherKernels(
        forests={name: bushy_from_arrays(stored, f"{OTHERS_PREFIX}{name}") for name in PARTS},
        errors=np.asarray(stored[f"{OTHERS_PREFIX}errors"], dtype=np.float64),
    )
