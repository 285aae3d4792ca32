"""The analytical pipeline model: (problem, configuration, GPU) -> demand, schedule, bounds, latency. Pure numpy, vectorised."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import attention, elementwise, fused_moe, gemm, normalization
from advisor.pipelines.batch import ConfigurationBatch, ProblemBatch, configuration_batch, problem_batch
from advisor.pipelines.bound import LEAST_LAUNCH_US, Bound, bound, config_bound, least_launch_us
from advisor.pipelines.columns import Array, column
from advisor.pipelines.demand import Demand, Work
from advisor.pipelines.schedule import Schedule, gap, latency_us, schedule

_FAMILIES = {
    "gemm": gemm,
    "fused_moe": fused_moe,
    "attention": attention,
    "normalization": normalization,
    "elementwise": elementwise,
}


def work(problem: ProblemBatch, gpu: GpuSpec) -> Work:
    """The least work of the problems, columns [n]."""
    return _FAMILIES[problem.family].work(problem, gpu)


def demand(problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Demand:
    """Work that the configurations ask of every pipeline for the problems, columns [n] (broadcast)."""
    return _FAMILIES[problem.family].demand(problem, configuration, gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Everything the analytical model says of launches, columns [n]."""

    problem: ProblemBatch
    configuration: ConfigurationBatch
    work: Work
    demand: Demand
    schedule: Schedule
    bound: Bound
    config_bound: Bound
    latency_us: Array


def analyse(problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Analysis:
    """The whole analytical model on one batch."""
    needed, demanded = work(problem, gpu), demand(problem, configuration, gpu)
    return Analysis(
        problem=problem,
        configuration=configuration,
        work=needed,
        demand=demanded,
        schedule=schedule(demanded, gpu),
        bound=bound(needed, gpu, problem.cache),
        config_bound=config_bound(needed, demanded, gpu, problem.cache),
        latency_us=latency_us(demanded, gpu),
    )


__all__ = [
    "LEAST_LAUNCH_US",
    "Analysis",
    "Array",
    "Bound",
    "ConfigurationBatch",
    "Demand",
    "ProblemBatch",
    "Schedule",
    "Work",
    "analyse",
    "bound",
    "column",
    "config_bound",
    "configuration_batch",
    "demand",
    "gap",
    "latency_us",
    "least_launch_us",
    "problem_batch",
    "schedule",
    "work",
]
