"""A kernel as a profiler recorded it, and the launch that it belongs to: by kernel name, threads per CTA and CTAs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec, match_device_name
from advisor.measurement.launch import Launch, Outcome
from advisor.result.schema import Round
from advisor.rows.cells import is_latency
from advisor.system.errors import AdvisorError, InputError

TEXT_LIMIT_BYTES = 512 * 1024 * 1024
RECORD_LIMIT = 2_000_000
NAME_LIMIT = 500
REMEDY = "export it again, or cut it down to the kernels of interest"

# Spellings of time units in what profilers write -> microseconds.
UNITS_US: dict[str, float] = {
    "ns": 1e-3,
    "nsecond": 1e-3,
    "nanosecond": 1e-3,
    "us": 1.0,
    "usecond": 1.0,
    "µs": 1.0,
    "microsecond": 1.0,
    "ms": 1e3,
    "msecond": 1e3,
    "millisecond": 1e3,
    "s": 1e6,
    "second": 1e6,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    """All launches of one kernel with one shape in one file.

    Attributes:
        name: As the profiler prints it, cleaned of control characters.
        samples_us: Durations; one mean where the profiler keeps no more (`count` launches).
        count: Launches the durations stand for.
        grid, block: Empty where the profiler does not say.
        gpu: The device's name, where it says.
        compute_capability: The device's ("9.0"), where it says.
    """

    name: str
    samples_us: tuple[float, ...]
    count: int
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    gpu: str | None = None
    compute_capability: str | None = None


class Collector:
    """Gathers launches into records, and what could not be read into notes."""

    def __init__(self) -> None:
        self._samples: dict[tuple[Any, ...], list[float]] = {}
        self._counts: dict[tuple[Any, ...], int] = {}
        self.notes: list[str] = []
        self._left_out = 0

    def add(
        self,
        name: str,
        duration_us: float | None,
        *,
        grid: tuple[int, ...] = (),
        block: tuple[int, ...] = (),
        gpu: str | None = None,
        compute_capability: str | None = None,
        count: int = 1,
    ) -> None:
        """One launch (or `count` of them with this mean duration)."""
        name = clean(name)
        if not name or duration_us is None or not is_latency(duration_us) or count < 1:
            self.note(f"{name or 'a kernel without a name'}: no usable duration")
            return
        key = (name, grid, block, gpu, compute_capability)
        self._samples.setdefault(key, []).append(duration_us)
        self._counts[key] = self._counts.get(key, 0) + count

    def note(self, text: str) -> None:
        """Something that was left out; a handful of notes is kept in words, the rest is counted."""
        if len(self.notes) < 20:
            self.notes.append(text)
        else:
            self._left_out += 1

    def finish(self) -> tuple[tuple[KernelRecord, ...], tuple[str, ...]]:
        """The records in order of appearance, and the notes."""
        records = tuple(
            KernelRecord(
                name=key[0],
                samples_us=tuple(samples),
                count=self._counts[key],
                grid=key[1],
                block=key[2],
                gpu=key[3],
                compute_capability=key[4],
            )
            for key, samples in self._samples.items()
        )
        notes = (*self.notes, f"and {self._left_out} more") if self._left_out else tuple(self.notes)
        return records, notes


def clean(text: object) -> str:
    """A name from outside: no control characters, no end of line, cut to a sane length."""
    return re.sub(r"[\x00-\x1f\x7f]+", " ", str(text)).strip()[:NAME_LIMIT]


def parse_json(text: str, label: str) -> Any:
    """JSON from outside.

    Raises:
        InputError: It is not JSON, or nested beyond reason.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{label}: not valid JSON, line {error.lineno}: {error.msg}", None, None, REMEDY) from None
    except (RecursionError, ValueError) as error:
        raise InputError(f"{label}: not usable JSON ({type(error).__name__})", None, None, REMEDY) from None


def number(value: object) -> float | None:
    """A finite number, however it is written (`1,234.5` too); None where it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, str) or len(value) > 64:
        return None
    try:
        found = float(value.replace(",", "").strip())
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def dimensions(value: object) -> tuple[int, ...]:
    """`[2, 1, 1]`, `(2, 1, 1)` or `2x1x1` as numbers; empty where it is nothing of the kind."""
    parts: Iterable[object] = value if isinstance(value, (list, tuple)) else re.findall(r"\d+", value) if isinstance(value, str) else ()
    found = [number(part) for part in parts]
    if not 1 <= len(found) <= 3 or any(each is None or each != int(each) or not 0 < each < 2**31 for each in found):
        return ()
    return tuple(int(each) for each in found if each is not None)


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
            reasons.append(f"{shape}: this kernel is not among the launches to measure")
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
                reasons.append(f"{shape}: {math.prod(record.grid)} CTAs, the launches to measure have {asked}")
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
