"""Which launch a profiler's record belongs to: by kernel name, threads per CTA and CTAs. What is ambiguous stays unmatched."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec, match_device_name
from advisor.measurement.importers.record import KernelRecord
from advisor.measurement.launch import Launch, Outcome
from advisor.result.schema import Round
from advisor.system.errors import AdvisorError

# Triton names a compiled kernel after its function; older versions append the specialization (`_0d1d2d34c`).
_SPECIALIZATION = re.compile(r"_(\d+[dce]*)+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A launch and its record."""

    launch: Launch
    record: KernelRecord

    def outcome(self, timer: str) -> Outcome:
        """The measured outcome: one round, since a profiler does not interleave."""
        return Outcome(rounds=(Round(samples_us=self.record.samples_us),), timer=timer)


def launched_ctas(launch: Launch, gpu: GpuSpec | None) -> int | None:
    """CTAs of the launch's grid; None where there is no model of it."""
    if gpu is None:
        return None

    try:
        demand = pipelines.demand(pipelines.problem_batch([launch.problem]), pipelines.configuration_batch([launch.configuration]), gpu)
    except (AdvisorError, KeyError):
        return None
    return round(float(np.ravel(demand.launched_ctas)[0]))


def match(
    records: Sequence[KernelRecord], launches: Sequence[Launch], gpu: GpuSpec | None
) -> tuple[tuple[Match, ...], tuple[str, ...], tuple[str, ...]]:
    """Matches, a reason for each record without a launch, and a reason for each launch without a record."""
    matches: list[Match] = []
    reasons: list[str] = []
    taken: set[str] = set()
    for record in records:
        shape = f"{record.name} grid {_shape(record.grid)} block {_shape(record.block)}"
        named = _distinct([launch for launch in launches if same_name(record.name, launch.kernel.function)])
        if not named:
            reasons.append(f"{shape}: no launch of this kernel was asked for")
            continue
        on = (match_device_name(record.gpu) if record.gpu else None) or gpu
        if gpu is not None and on is not None and on.name != gpu.name:
            reasons.append(f"{shape}: ran on {on.name}, not on {gpu.name}")
            continue
        if gpu is not None and record.compute_capability not in (None, gpu.compute_capability):
            reasons.append(f"{shape}: ran on compute capability {record.compute_capability}, not on {gpu.name} ({gpu.compute_capability})")
            continue
        warp = on.warp_size if on is not None else 32
        fitting = named
        if record.block:
            fitting = [launch for launch in fitting if launch.configuration.num_warps * warp == math.prod(record.block)]
        if not fitting:
            reasons.append(f"{shape}: no launch of this kernel has {math.prod(record.block)} threads per CTA")
            continue
        if record.grid:
            ctas = [launched_ctas(launch, on) for launch in fitting]
            fitting = [launch for launch, count in zip(fitting, ctas, strict=True) if count in (None, math.prod(record.grid))]
            if not fitting:
                asked = ", ".join(sorted({str(count) for count in ctas}))
                reasons.append(f"{shape}: {math.prod(record.grid)} CTAs, the launches asked for have {asked}")
                continue
        if len(fitting) > 1:
            reasons.append(f"{shape}: {len(fitting)} launches look alike to this profiler")
            continue
        matches.append(Match(launch=fitting[0], record=record))
        taken.add(fitting[0].key())
    missing = tuple(
        f"{launch.kernel.function} {launch.problem.op} {launch.problem.sizes} {launch.configuration.label()}: no record"
        for launch in _distinct(launches)
        if launch.key() not in taken
    )
    return tuple(matches), tuple(reasons), missing


def same_name(found: str, function: str) -> bool:
    bare = found.split("(")[0].strip()
    return bare == function or _SPECIALIZATION.sub("", bare) == function


def _distinct(launches: Sequence[Launch]) -> list[Launch]:
    return list({launch.key(): launch for launch in launches}.values())


def _shape(dimensions: tuple[int, ...]) -> str:
    return "x".join(map(str, dimensions)) or "?"
