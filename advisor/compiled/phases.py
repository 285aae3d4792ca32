"""The pipelines of a launch of compiled code as a table, and what passes one thing after another in it.

The latter holds for launches without matrix products: the cold start, and in each CTA loads, reductions, stores. A dozen constants, fitted
to measured launches (`advisor train`, folder of `any_kernel`) and stored in `ceilings/kernels.json`. They see the compiled code and the
GPU, never a kernel's name."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines.bound import Bound, least_launch_us, share_of_least, throughput_per_us
from advisor.pipelines.columns import Array, column
from advisor.pipelines.demand import Demand, Phases
from advisor.pipelines.schedule import DRAM_LATENCY_US, L2_LATENCY_US
from advisor.result.schema import PIPELINE_UNITS, PIPELINES, PipelineTime
from advisor.system.resources import folder

GDDR = ("6.1", "7.5", "8.6", "8.9", "12.0", "12.1")
"""Compute capabilities whose memory is GDDR."""
LONG_US = 25.0
"""From which predicted latency on a launch is a long one: below, what starts it counts more than its bytes."""
COLD_ROUNDS = 11
"""Rounds that a CTA of a cold launch made at most, of those measured. What follows is taken to wait as in launches whose bytes the L2 has
lost, which were measured up to 512 rounds: what a cold GPU has to find first, pages and code, it has found by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """What one CTA of a launch does in turn.

    Attributes:
        rounds: Loads that wait for each other: one for all that stand outside of loops, one for each trip that loads, or for some that the
            compiler makes one of, one for each scalar.
        reductions: Reductions and scans over the CTA's threads.
        from_dram: Share of these loads that DRAM answers: what a program reads again, or others have read before it, is nearer.
        in_flight_bytes: Of one of them that DRAM answers, where most do.
        waits: What each load of one CTA is waited for, by the line and text of its operation: how often, in rounds that DRAM answers.
            Of loads that are waited for together the longest wait counts, divided among them.
    """

    rounds: float | Array
    reductions: float | Array
    from_dram: float | Array
    in_flight_bytes: float = 0.0
    waits: Mapping[tuple[int | None, str], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What was fitted.

    Attributes:
        values: By name. `start`: SM-clocks until a cold GPU works, per SM, in hundreds; `amd_start_us` what AMD's runtime adds;
            `cta_us`, `round_us`, `reduce_us`: of a CTA, of each load that waits for another, of each reduction; the same with `warm` before
            them of launches that follow each other in a graph, and `warm start_us` from one such launch to the next; `dram`, `gddr`:
            logarithm of what DRAM, and GDDR besides, sustains relative to `dram.sustained_bytes_per_us`; `dram 9.0` and `start 9.0`: of a
            compute capability that was measured, besides.
        errors: 10 and 90 % quantiles of log(measured / predicted) by `regime`.
    """

    values: Mapping[str, float]
    errors: Mapping[str, tuple[float, float]]

    def phases(self, chain: Chain, gpu: GpuSpec, cache: str) -> Phases:
        """The phases of a launch on `gpu`: alone and cold, or warm in a graph of them (NVIDIA's, whose were measured)."""
        values, capability = self.values, gpu.compute_capability
        warm = "warm " if cache != "cold" and gpu.vendor == "nvidia" else ""
        if warm:
            start: float | None = values["warm start_us"]
        elif cache == "cold":
            start = values["start"] * 100 * gpu.num_sms / gpu.max_clock_mhz * math.exp(values.get(f"start {capability}", 0.0))
            start += values["amd_start_us"] * math.exp(values.get(f"start {capability}", 0.0)) * (gpu.vendor == "amd")
        else:
            start = None
        share = values["dram"] + values["gddr"] * (capability in GDDR) + values.get(f"dram {capability}", 0.0)
        near_us = values["warm round_us"] * L2_LATENCY_US / DRAM_LATENCY_US  # a cache answers as fast whatever it held before
        round_us = values[f"{warm}round_us"] * chain.from_dram + near_us * (1 - chain.from_dram)
        found_us = (values[f"{warm}round_us"] - values["warm round_us"]) * chain.from_dram * (gpu.vendor == "nvidia")
        waited = round_us * (chain.rounds - 1) - found_us * np.maximum(chain.rounds - COLD_ROUNDS, 0)
        serial = values[f"{warm}cta_us"] + waited + values[f"{warm}reduce_us"] * chain.reductions
        return Phases(
            start_us=None if start is None else column(start),
            serial_us=np.maximum(column(serial), 0.0),
            dram_share=column(math.exp(share)),
        )

    def interval(self, us: float, gpu: GpuSpec) -> tuple[float, float]:
        """The interval of a prediction that holds 80 % of measurements, in microseconds."""
        low, high = self.errors[self.regime(us, gpu)]
        return us * math.exp(low), us * math.exp(high)

    def regime(self, us: float, gpu: GpuSpec) -> str:
        """Launches whose predictions err alike: by vendor, length, and whether a GPU of this compute capability was measured."""
        return f"{gpu.vendor}, {'long' if us >= LONG_US else 'short'}, {'known' if self.measured(gpu) else 'new'}"

    def measured(self, gpu: GpuSpec) -> bool:
        """Whether launches on a GPU of this compute capability are behind the constants."""
        return f"start {gpu.compute_capability}" in self.values


def with_phases(demand: Demand, gpu: GpuSpec, cache: str) -> Demand:
    """A demand in closed form with the phases of its launch, where it has no matrix products and such launches were measured; and that of
    the launch that adds up its parts."""
    then = demand.then and with_phases(demand.then, gpu, cache)
    if demand.rounds is None or demand.reductions is None or cache == "cold" or not shipped().measured(gpu):
        return replace(demand, then=then)
    from_dram = np.clip(demand.dram_bytes / np.maximum(demand.compulsory_bytes, 1), 0, 1)
    chain = Chain(rounds=demand.rounds, reductions=demand.reductions, from_dram=from_dram)
    return replace(demand, then=then, phases=shipped().phases(chain, gpu, cache))


@functools.cache
def shipped() -> Constants:
    """The constants in `ceilings/`."""
    return read_constants(json.loads((folder("ceilings") / "kernels.json").read_text(encoding="utf-8")))


def read_constants(stored: Mapping[str, Mapping[str, object]]) -> Constants:
    """The constants as they are stored."""
    return Constants(values=stored["values"], errors={name: tuple(ends) for name, ends in stored["errors"].items()})  # type: ignore[arg-type, misc]


def pipeline_times(
    demanded: Demand,
    least: Mapping[str, np.ndarray],
    passing: np.ndarray,
    bound: Bound,
    gpu: GpuSpec,
    launch_us: float,
    time_us: Callable[[str, float, float, float | None], float],
) -> tuple[PipelineTime, ...]:
    """Demand of the configuration and least work of the problem on every pipeline, and microseconds of each at full throughput.

    Args:
        demand: Demand of the configuration, one row.
        least: Least amount of the problem by pipeline, [1].
        passing: Bytes of the problem read and written, each once, [1].
        bound: Of the problem, one row.
        gpu: On what.
        launch_us: Of the launch as it is.
        time_us: Time of a pipeline by its name, rate per microsecond, total demand, and that of the busiest SM (None: SMs share it).
    """
    rates = throughput_per_us(gpu, demanded.tensor_dtype)
    totals, busiest = demanded.totals(), demanded.busiest_sm(gpu.num_sms)
    out = []
    for name in PIPELINES:
        rate, demand, of_problem, busy = 0.0, 1.0, 1.0, None
        if name == "launch":
            us, problem_us = launch_us, least_launch_us(gpu)
        else:
            rate, demand = rates[name], float(totals[name].flat[0])
            busy = float(busiest[name].flat[0]) if name in busiest else None
            share = share_of_least(name, float(least[name].flat[0]), demand)
            of_problem = float(least[name].flat[0]) * share
            us, problem_us = time_us(name, rate, demand, busy), float(bound.times_us[name].flat[0]) * share
        out.append(
            PipelineTime(
                pipeline=name,
                unit=PIPELINE_UNITS[name],
                demand=demand,
                problem_demand=of_problem,
                busiest_sm_demand=busy,
                throughput_per_s=rate * 1e6,
                time_us=us,
                problem_time_us=problem_us,
                passing=float(passing.flat[0]) if name == "dram" else 0.0,
            )
        )
    return tuple(out)
