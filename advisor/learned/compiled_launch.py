"""A compiled launch whose code is that of a measured family is predicted as one of it: by what its code does, whatever it is called."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.compiled.analysis import SOURCE, KernelAnalysis, kernel_analysis
from advisor.compiled.demand.assembly import CodeFacts
from advisor.compiled.families import NoFamilyError, family_launch
from advisor.compiled.launches.launch import Inspection, inputs_of, own_files
from advisor.gpus.hardware import GpuSpec
from advisor.learned import load_predictor
from advisor.learned.analytical import interval
from advisor.learned.configured.model import HOPPER
from advisor.pipelines import configuration_batch, problem_batch
from advisor.result.schema import Configuration, GapPart, Latency

GROUPS = re.compile("GROUP|SWIZZLE", re.IGNORECASE)
"""Names of the constant that says how many rows of tiles are visited together."""


LEAST_SPREAD = 0.3
"""Log of the latency to either side that an interval of an own kernel has at least: 18 of 23 launches of products and attention of
`ceilings/measurements/h100-own-launches.jsonl.gz` lie within it, whose kernels no row was learned of."""


def launch_analysis(inspection: Inspection, gpu: GpuSpec, cache: str = "warm", facts: CodeFacts | None = None) -> KernelAnalysis:
    """As `kernel_analysis`; with the latency of the learned model where it knows launches that do what this code does."""
    analysis = kernel_analysis(inspection, gpu, cache, facts)
    if analysis.predicted is None or inspection.launch.grid is None or not inspection.demand.total_tensor_flop:
        return analysis
    learned, split_us = _as_family(inspection, gpu, cache) or (_far_off(analysis.predicted, gpu), {})
    if learned is None:
        return analysis
    # The bound stays what it is: a prediction below it would be a fault of the model.
    least = analysis.config_bound.us
    learned = replace(
        learned, us=max(learned.us, least), low_us=max(learned.low_us or 0.0, least), high_us=max(learned.high_us or 0.0, least)
    )
    times = learned.us / analysis.predicted.us
    doubt = None if analysis.doubt_us is None else (analysis.doubt_us[0] * times, analysis.doubt_us[1] * times)
    return replace(analysis, predicted=learned, gap_parts=_split(analysis, learned.us), doubt_us=doubt, split_us=split_us)


def analysed_alike(
    inspections: Sequence[Inspection], gpu: GpuSpec, cache: str = "warm"
) -> tuple[list[KernelAnalysis], list[Latency | None]]:
    """The analyses of launches that are to be compared: where the learned model does not know one of them, it is asked of none. Then,
    beside them, what it says of those that it knows; else nothing is beside them. Of products of other types it is not asked either: it
    learned a family with one type for all of them, and takes `p @ v` in fp32 for that in bf16."""
    if len({frozenset(item.demand.tensor_flop) for item in inspections}) > 1:
        return [kernel_analysis(inspection, gpu, cache) for inspection in inspections], [None] * len(inspections)
    analyses = [launch_analysis(inspection, gpu, cache) for inspection in inspections]
    learned = [item.predicted if item.predicted is not None and item.predicted.source == SOURCE else None for item in analyses]
    if len({item is None for item in learned}) > 1:
        return [kernel_analysis(inspection, gpu, cache) for inspection in inspections], learned
    return analyses, [None] * len(analyses)


SPLITS = (2, 4, 8, 16, 32, 64)
"""Programs over which the keys of attention are shared: each program is then as a head of fewer keys."""


def _as_family(inspection: Inspection, gpu: GpuSpec, cache: str) -> tuple[Latency, dict[int, float]] | None:
    """The learned latency of the launch as one of its family, and in µs that of attention with its keys split over so many programs; None
    where its code is of none, or of one that was not measured."""
    compiled, launch = inspection.compiled, inspection.launch
    try:
        ttir, files, inputs = compiled.ttir, own_files(compiled), inspection.likely or inputs_of(launch, inspection.guess)
        demand = inspection.counted.demand(ttir, launch.grid or (1,), inputs, files)
        counted = family_launch(inspection.counted.module(ttir, files), demand, launch.shapes)
    except NoFamilyError:
        return None
    problem = replace(counted.problem, cache="cold" if cache == "cold" else "warm")
    tile: dict[str, int | bool | str] = dict(counted.tile)
    if problem.family == "gemm":
        groups = [value for name, value in compiled.constexprs.items() if GROUPS.search(name) and type(value) is int and value > 0]
        tile["GROUP_SIZE_M"] = groups[0] if len(groups) == 1 else 1
    configuration = Configuration(parameters=tile, num_warps=compiled.num_warps, num_stages=max(compiled.num_stages, 1))
    predictor = load_predictor()
    sizes = problem.sizes
    shared = [n for n in SPLITS if problem.family == "attention" and not sizes["causal"] and n * int(tile["BLOCK_N"]) <= int(sizes["N"])]
    parts = [replace(problem, sizes={**sizes, "H": n * sizes["H"], "H_kv": n * sizes["H_kv"], "N": sizes["N"] // n}) for n in shared]
    problems, configurations = problem_batch([problem, *parts]), configuration_batch([configuration] * (1 + len(parts)))
    prediction = predictor.predict(problems, configurations, gpu)
    if not prediction.learned[0] and not (prediction.extrapolated and gpu.compute_capability == HOPPER):
        return None  # what other kernels have in common was measured on Hopper alone
    us = float(prediction.us[0])
    text = " x ".join(f"{name} {value}" for name, value in sizes.items() if name in ("M", "N", "K", "D"))
    latency = Latency(
        us=us,
        origin="predicted",
        source=f"{predictor.name}, as {problem.family} of {text}: what the compiled code does",
        low_us=min(float(prediction.low_us[0]), us * math.exp(-LEAST_SPREAD)),
        high_us=max(float(prediction.high_us[0]), us * math.exp(LEAST_SPREAD)),
        coverage=prediction.coverage,
    )
    return latency, dict(zip(shared, prediction.us[1:].tolist(), strict=True))


def _far_off(latency: Latency, gpu: GpuSpec) -> Latency | None:
    """What the analytical model says of a launch with products, where it is known to be far off; None on GPUs where it is not."""
    if gpu.vendor != "amd":
        return None
    us, low, high = (float(item[0]) for item in interval(np.array([latency.us]), gpu, products=True))
    return replace(latency, us=us, low_us=low, high_us=high)


def _split(analysis: KernelAnalysis, us: float) -> tuple[GapPart, ...]:
    """The parts of the gap up to another latency: what is more is of pipelines below their peak; where it is less, all parts shrink."""
    assert analysis.predicted is not None
    before, bound_us = analysis.predicted.us, analysis.bound.us
    if us >= before:
        more = us - before
        return tuple(replace(part, us=part.us + more) if part.cause == "efficiency" else part for part in analysis.gap_parts)
    shrunk = (us - bound_us) / (before - bound_us) if before > bound_us else 0.0
    return tuple(replace(part, us=part.us * shrunk) for part in analysis.gap_parts)
