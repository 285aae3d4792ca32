"""Configurations one or two changes away from the one that runs: where rules look for a remedy that really saves time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from advisor import pipelines
from advisor.diagnosis.pricing import Pricing, take_rows
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import Array, ConfigurationBatch, Demand, ProblemBatch, Schedule
from advisor.pipelines.batch import by_kind
from advisor.pipelines.space import block_k_range
from advisor.result.schema import LAUNCH_OPTIONS, Configuration, Problem

_TILES = {"BLOCK_SIZE_M": (16, 256), "BLOCK_SIZE_N": (32, 256), "BLOCK_SIZE_K": (32, 256)}
"""Least and largest value of each block: the space of vLLM's and SGLang's fused-MoE tuners, and BLOCK_SIZE_K = 32."""

_RANGES: dict[str, dict[str, tuple[int, int]]] = {
    "gemm": {**_TILES, "SPLIT_K": (1, 16)},
    "fused_moe": _TILES,
    "attention": {"BLOCK_M": (16, 256), "BLOCK_N": (16, 256), "NUM_KV_SPLITS": (1, 64)},
    "normalization": {"BLOCK_SIZE": (32, 65536), "ROWS_PER_CTA": (1, 64)},
    "elementwise": {"BLOCK_SIZE": (128, 16384)},
}
OTHER_REGISTERS = 24
"""Registers of a tiled loop beside accumulators and operands: addresses, counters, masks. Source: Triton 3.9, fused MoE for sm_80
and sm_90; operands can be loaded in smaller pieces, and are not counted where spills are to be certain."""

_GROUPS = (1, 4, 8, 16, 32, 64)
_PAIRS = (
    ("BLOCK_SIZE_M", "BLOCK_SIZE_N"),
    ("BLOCK_SIZE_M", "num_warps"),
    ("BLOCK_SIZE_M", "num_stages"),
    ("BLOCK_SIZE_N", "BLOCK_SIZE_K"),
    ("BLOCK_SIZE_N", "num_warps"),
    ("BLOCK_SIZE_N", "num_stages"),
    ("BLOCK_SIZE_K", "num_stages"),
    ("BLOCK_M", "BLOCK_N"),
    ("BLOCK_M", "num_warps"),
    ("BLOCK_N", "num_stages"),
    ("BLOCK_SIZE", "num_warps"),
)

ROUNDING = 1e-6
"""Latencies that differ by less, relatively, are one latency reckoned in two ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Parameters to change (none: take the recommended configuration), and the latency that is then predicted.

    `slower_us` is what each other launch that runs with the configuration takes longer for it, by launch id; negative: less.
    `limit`: in words, what `us` is where it was not predicted of this configuration: measured, or no less than `Limits` allow; else empty.
    """

    parameters: Mapping[str, int]
    us: float
    slower_us: Mapping[str, float] = field(default_factory=dict)
    limit: str = ""

    @property
    def together_us(self) -> float:
        """`us`, and what the others take longer: comparable between changes to one configuration."""
        return self.us + sum(self.slower_us.values())

    def text(self) -> str:
        """`BLOCK_SIZE_M=32 and num_warps=8`."""
        return " and ".join(f"{name}={value}" for name, value in self.parameters.items()) or "the recommended configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The latencies that no change to a configuration may be promised to undercut.

    `least_us`: the tunable ceiling, which is the best of the space that neighbours belong to. `ranked`: what the order of the space
    has first. It is learned for itself and finds the best sooner than predicted latencies do (in 864 published sweeps its first is within
    1 % of the best in 95 of 100, what is predicted fastest in 6; the weights had seen them), which may be lower for another
    configuration: a page that recommends the one does not promise more of the other, and one that finds it not worth a change finds no
    other worth it.
    """

    least_us: float = 0.0
    ranked: Change | None = None
    ranked_name: str = "the first-ranked configuration"

    def apply(self, parameters: Mapping[str, int], us: float, slower_us: Mapping[str, float]) -> Change:
        """A change that is predicted to take `us`, and promises no less than the limits."""
        least, limit = self.least_us, "reaches the tunable ceiling"
        if self.ranked is not None:
            as_ranked = self.ranked.together_us - sum(slower_us.values())
            if as_ranked > least:
                least, limit = as_ranked, f"no better than {self.ranked_name}"
        # What is ranked first, reached by these changes, is limited by nothing but rounding.
        limited = us < least * (1 - ROUNDING)
        return Change(parameters=parameters, us=max(us, least), slower_us=slower_us, limit=limit if limited else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """Changed configurations in columns [c].

    `latency_us` is what the predictor says of each, as of the launch that runs; inf where one cannot launch. Causes are split by the
    analytical model: `modelled_us` is its latency, and `excess` scales what a cause has of it. No change promises less than `limits` allow.
    `slower_us`, by launch id, is what it costs each other launch that runs with the configuration.
    """

    changes: tuple[dict[str, int], ...]
    demand: Demand
    schedule: Schedule
    latency_us: Array
    modelled_us: Array
    values: dict[str, Array]  # every parameter, after the change
    gpu: GpuSpec
    excess: float
    now_us: float  # as it is; inf where it cannot launch
    limits: Limits
    slower_us: Mapping[str, Array] = field(default_factory=dict)

    def column(self, values: Array) -> Array:
        """A column of `demand` or `schedule`, broadcast to [c]."""
        return np.broadcast_to(values, self.latency_us.shape)

    def cost(self, cause: str) -> Array:
        """Microseconds that a cause of `pipelines.schedule.CAUSES` costs each neighbour, in the measure of `LaunchContext.costs`."""
        free = np.broadcast_to(pipelines.latency_us(self.demand, self.gpu, (cause,)), self.latency_us.shape)
        finite = np.isfinite(self.modelled_us)
        saved = np.where(finite, self.modelled_us, 0.0) - np.where(finite, free, 0.0)
        return np.where(finite, self.excess * saved, np.inf)

    def only(self, *names: str) -> NDArray[np.bool_]:
        """Which neighbours change nothing but these."""
        return np.array([set(c) <= set(names) for c in self.changes], dtype=bool)

    def best(self, cures: NDArray[np.bool_] | Array) -> Change | None:
        """The fastest neighbour of those that cure the cause; of nearly equal ones the one with fewer changes.

        Launches that run with one configuration are judged together: what one wins and the others lose is no remedy.

        Args:
            cures: Which neighbours cure the cause. [c]
        """
        if not self.changes:
            return None
        together = self.latency_us + sum(self.slower_us.values())
        usable = np.broadcast_to(np.asarray(cures, dtype=bool), together.shape) & np.isfinite(together) & (together < self.now_us)
        if not usable.any():
            return None
        least = float(together[usable].min())
        # Relative to what the launch itself takes: what others win makes `together` small, or negative.
        near = [int(k) for k in np.flatnonzero(usable & (together <= least + 0.01 * self.latency_us))]
        k = min(near, key=lambda k: (len(self.changes[k]), float(together[k])))
        slower = {name: float(column[k]) for name, column in self.slower_us.items()}
        return self.limits.apply(self.changes[k], float(self.latency_us[k]), slower)


def change(configuration: Configuration, changes: dict[str, int]) -> Configuration:
    """The configuration with parameters and launch options replaced."""
    options = {name: value for name, value in changes.items() if name in LAUNCH_OPTIONS}
    parameters = {name: value for name, value in changes.items() if name not in LAUNCH_OPTIONS}
    return replace(configuration, parameters={**configuration.parameters, **parameters}, **options)


def accumulators(problem: ProblemBatch, batch: ConfigurationBatch, gpu: GpuSpec, demand: Demand) -> Array:
    """Registers per thread that certainly hold values: a tile's fp32 results, attention's scores, a normalised row. [c]

    None where they lie in tensor memory (tcgen05 on sm_100, 103): the loop holds none, the end of a tile fetches them once. The scaled
    sum of a block-scaled product is kept in registers beside it.
    """
    family = _family(problem)
    columns = demand.resources.tensor_memory_columns
    elsewhere = columns > 0 if columns is not None and problem.block_shape is None else np.zeros(1, dtype=bool)
    if family in ("gemm", "fused_moe"):
        values = batch.get("BLOCK_SIZE_M", 64) * batch.get("BLOCK_SIZE_N", 64)
    elif family == "attention":
        values = batch.get("BLOCK_M", 64) * (batch.get("BLOCK_N", 64) + problem.sizes["D"])
    else:
        values = batch.get("BLOCK_SIZE", 1) * batch.get("ROWS_PER_CTA", 1)
    return np.broadcast_to(np.where(elsewhere, 0.0, values / (gpu.warp_size * batch.num_warps)), (len(batch),))


def _family(problem: Problem | ProblemBatch) -> str:
    return "elementwise" if problem.family == "fused_moe" and problem.op not in ("w13", "w2") else problem.family


def _alternatives(problem: Problem, configuration: Configuration, gpu: GpuSpec) -> dict[str, list[int]]:
    """Other values of each parameter: rows of a tile over the whole range, the others within two doublings."""
    alternatives: dict[str, list[int]] = {}
    for name, (low, high) in _RANGES[_family(problem)].items():
        now = configuration.parameters.get(name)
        if isinstance(now, bool) or not isinstance(now, int) or now < 1:
            continue
        if name == "BLOCK_SIZE_K":
            least, most = block_k_range(problem, gpu.vendor)
            low, high = max(low, least), min(high, most or high)
        near: tuple[int, ...] = (now // 4, now // 2, now * 2, now * 4)
        if name in ("BLOCK_SIZE_M", "BLOCK_M"):  # a wrong number of rows is often far off: 256 where 16 are needed
            near = tuple(1 << n for n in range(low.bit_length() - 1, high.bit_length()) if 1 << n != now)
        alternatives[name] = [v for v in near if low <= v <= high]
    group = configuration.parameters.get("GROUP_SIZE_M")
    if isinstance(group, int) and _family(problem) in ("gemm", "fused_moe"):
        alternatives["GROUP_SIZE_M"] = [v for v in _GROUPS if v != group]
    warps, stages = configuration.num_warps, configuration.num_stages
    alternatives["num_warps"] = [v for v in (warps // 2, warps * 2) if 1 <= v <= 16 and v * gpu.warp_size <= 1024]
    # ROCm pipelines in software with two stages or not at all.
    if gpu.vendor == "nvidia" and _family(problem) in ("gemm", "fused_moe", "attention"):
        alternatives["num_stages"] = [v for v in range(max(stages - 3, 1), stages + 3) if v != stages and 2 <= v <= 5]
    return alternatives


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A launch under changed configurations, as the analytical model has it, in columns [c].

    `latency_us` is inf where one cannot launch, and where accumulators alone would not fit the registers: no model prices spills.
    """

    changes: tuple[dict[str, int], ...]
    configuration: ConfigurationBatch
    demand: Demand
    schedule: Schedule
    latency_us: Array


def changed(launches: Sequence[tuple[Problem, Configuration, Collection[str]]], gpu: GpuSpec) -> list[Changed]:
    """All single changes, and the pairs of changes that tuners usually make together, of every launch; one call of the model for all
    launches of a kind.

    Args:
        launches: Problems, their configurations, and parameters of these that no change may touch.
        gpu: The GPU.
    """
    changes_of = [_changes(*launch, gpu) for launch in launches]
    batches = []
    for (problem, configuration, _), changes in zip(launches, changes_of, strict=True):
        now = pipelines.configuration_batch([configuration])
        columns = {**now.parameters, "num_warps": now.num_warps, "num_stages": now.num_stages}
        rows = changes or [{}]  # a batch has rows
        values = {name: np.array([float(item.get(name, column[0])) for item in rows]) for name, column in columns.items()}
        warps, stages = values.pop("num_warps"), values.pop("num_stages")
        batches.append((problem, ConfigurationBatch(parameters=values, num_warps=warps, num_stages=stages)))
    out: dict[int, Changed] = {}
    for kind in by_kind(batches):
        demand = pipelines.demand(kind.problem, kind.configuration, gpu)
        modelled = np.broadcast_to(pipelines.latency_us(demand, gpu), (len(kind.configuration),))
        registers = accumulators(kind.problem, kind.configuration, gpu, demand)
        modelled = np.where(registers > gpu.max_registers_per_thread - OTHER_REGISTERS, np.inf, modelled)
        plan = pipelines.schedule(demand, gpu)
        for place, its_rows in zip(kind.places, kind.rows, strict=True):
            out[place] = Changed(
                changes=tuple(changes_of[place]),
                configuration=batches[place][1],
                demand=take_rows(demand, its_rows),
                schedule=take_rows(plan, its_rows),
                latency_us=modelled[its_rows],
            )
    return [out[place] for place in range(len(launches))]


def _changes(problem: Problem, configuration: Configuration, fixed: Collection[str], gpu: GpuSpec) -> list[dict[str, int]]:
    options = {name: values for name, values in _alternatives(problem, configuration, gpu).items() if name not in fixed}
    changes: list[dict[str, int]] = [{name: v} for name, values in options.items() for v in values]
    for first, second in _PAIRS:
        changes += [{first: a, second: b} for a in options.get(first, ()) for b in options.get(second, ())]
    return changes


def neighbourhood(
    problem: Problem,
    around: Changed,
    gpu: GpuSpec,
    *,
    scale: float,
    excess: float,
    now_us: float,
    limits: Limits,
    pricing: Pricing | None = None,
) -> Neighbourhood:
    """A launch under changed configurations, priced.

    `scale` takes the analytical latency to the shown one, and `excess` what of it lies above the bound; `now_us` is what the launch takes,
    `limits` are what no change is promised to undercut. Without `pricing` the scaled analytical model prices neighbours.
    """
    batch, modelled = around.configuration, around.latency_us
    latency = scale * modelled if pricing is None else np.where(np.isfinite(modelled), pricing.us(problem, batch, gpu), np.inf)
    columns = {**batch.parameters, "num_warps": batch.num_warps, "num_stages": batch.num_stages}
    return Neighbourhood(
        changes=around.changes,
        demand=around.demand,
        schedule=around.schedule,
        latency_us=latency,
        modelled_us=modelled,
        values={name: np.broadcast_to(values, (len(batch),)) for name, values in columns.items()},
        gpu=gpu,
        excess=excess,
        now_us=now_us,
        limits=limits,
        slower_us=pricing.slower_us(batch, gpu) if pricing is not None else {},
    )
