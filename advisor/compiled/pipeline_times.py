"""The table of pipelines of a launch, whether its demand is known in closed form or read from compiled code."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines.bound import Bound, least_launch_us, share_of_least, throughput_per_us
from advisor.pipelines.demand import Demand
from advisor.result.schema import PIPELINE_UNITS, PIPELINES, PipelineTime


def pipeline_times(
    asked: Demand,
    least: Mapping[str, np.ndarray],
    bound: Bound,
    gpu: GpuSpec,
    launch_us: float,
    time_us: Callable[[str, float, float, float | None], float],
) -> tuple[PipelineTime, ...]:
    """Demand of the configuration and least work of the problem on every pipeline, and microseconds of each at full throughput.

    Args:
        asked: Demand of the configuration, one row.
        least: Least amount of the problem by pipeline, [1].
        bound: Of the problem, one row.
        gpu: On what.
        launch_us: Of the launch as it is.
        time_us: Time of a pipeline by its name, rate per microsecond, total demand, and that of the busiest SM (None: SMs share it).
    """
    rates = throughput_per_us(gpu, asked.tensor_dtype)
    totals, busiest = asked.totals(), asked.busiest_sm(gpu.num_sms)
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
            )
        )
    return tuple(out)
