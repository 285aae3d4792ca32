"""Figures of a launch beside its latencies: every pipeline, the occupancy, the figures of the GPU, a note on what a warm L2 lowers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from advisor import pipelines
from advisor.compiled.phases import pipeline_times
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import Analysis
from advisor.pipelines.bound import least_amounts, least_launch_us
from advisor.pipelines.occupancy import held_registers
from advisor.result.schema import LaunchReport, Occupancy, PipelineTime, SourcedFigure
from advisor.system.resources import phrase


def times_of(analysis: Analysis, gpu: GpuSpec) -> tuple[PipelineTime, ...]:
    """The pipelines of a launch in closed form: of the busiest SM where every SM has its own, with all modelled traffic."""

    def time_us(name: str, rate: float, demand: float, busiest: float | None) -> float:
        if not rate:
            return 0.0
        if busiest is None:  # the L2 takes longer where another cache behind it has to deliver
            return max(demand / rate, float(analysis.bound.times_us["l2"].flat[0]) if name == "l2" else 0.0)
        return busiest / (rate / gpu.num_sms * (float(analysis.demand.tensor_rate.flat[0]) if name == "tensor" else 1.0))

    least = least_amounts(analysis.work, gpu, analysis.problem.cache)
    return pipeline_times(
        analysis.demand, least, np.atleast_1d(analysis.work.compulsory_bytes), analysis.bound, gpu, least_launch_us(gpu), time_us
    )


def occupancy(analysis: Analysis, gpu: GpuSpec) -> Occupancy:
    """CTAs, waves and what limits the resident ones, by the resources that the analytical model estimates.

    Registers are those that a thread has: what the estimate is above them is spilled.
    """
    demand, plan = analysis.demand, analysis.schedule

    def first(values: pipelines.Array) -> float:
        return float(np.asarray(values).flat[0])

    return Occupancy(
        ctas=int(first(demand.ctas)),
        resident_ctas_per_sm=int(first(plan.resident)),
        limiter=plan.limiter_name,
        waves=first(plan.waves),
        last_wave_fill=first(plan.last_wave_fill),
        registers_per_thread=round(first(held_registers(gpu, demand.resources))),
        registers_origin="estimated",
        shared_memory_bytes=int(first(demand.resources.shared_memory_bytes)),
        spill_bytes=None,
        k_iterations=int(np.ceil(first(demand.k_iterations))),
        sms=gpu.num_sms,
    )


def gpu_figures(gpu: GpuSpec) -> tuple[SourcedFigure, ...]:
    """Every figure of the GPU that has a source."""
    out = []
    for field in fields(gpu):
        value = getattr(gpu, field.name)
        source = gpu.sources.get(field.name)
        if source is None or field.name == "sources" or value is None:
            continue
        values = {f"{field.name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {field.name: value}
        out += [SourcedFigure(name=name, value=v, source=source) for name, v in values.items()]
    return tuple(out)


TOLD_FROM = 1.25
"""A launch counts where what it reads and writes would take this many times its bound, passed all of it through DRAM."""


def warm_cache(launches: Sequence[LaunchReport], same: bool = False) -> tuple[str, ...]:
    """A sentence, where the bounds of launches count on operands that the L2 still holds of an earlier run; else none. `same`: whether a
    cold L2 changes none of their times."""
    count = sum(report.problem.cache == "warm" and report.passing_us >= TOLD_FROM * report.bound.us for report in launches)
    if not count:
        return ()
    key = "warm_one" if len(launches) == 1 else "warm_many"
    return (phrase(f"note.{key}", count=count, whole=len(launches), cure=phrase("note.cold_same" if same else "note.use_cold")),)
