"""Reading what profilers measured: Nsight Compute (CSV), torch's profiler (Chrome trace), Proton (`.hatchet`).

A profiler knows a kernel's name and shape, not the problem it computes: records are matched to launches that the caller names,
and everything without a match is said, with the reason.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec, match_device_name
from advisor.measurement.launch import Launch
from advisor.rows.cells import is_latency
from advisor.system.errors import AdvisorError, InputError
from advisor.system.reading import parse_json, read_text

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
        self._launches: dict[KernelRecord, list[tuple[float, int]]] = {}  # durations and counts, by a record without either
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
        kernel = KernelRecord(name=name, samples_us=(), count=0, grid=grid, block=block, gpu=gpu, compute_capability=compute_capability)
        self._launches.setdefault(kernel, []).append((duration_us, count))

    def note(self, text: str) -> None:
        """Something that was left out; a handful of notes is kept in words, the rest is counted."""
        if len(self.notes) < 20:
            self.notes.append(text)
        else:
            self._left_out += 1

    def finish(self) -> tuple[tuple[KernelRecord, ...], tuple[str, ...]]:
        """The records in order of appearance, and the notes."""
        records = tuple(
            replace(kernel, samples_us=tuple(us for us, _ in launches), count=sum(count for _, count in launches))
            for kernel, launches in self._launches.items()
        )
        return records, (*self.notes, *([f"and {self._left_out} more"] if self._left_out else ()))


def clean(text: object) -> str:
    """A name from outside: no control characters, no end of line, cut to a sane length."""
    return re.sub(r"[\x00-\x1f\x7f]+", " ", str(text)).strip()[:NAME_LIMIT]


def number(value: object) -> float | None:
    """A finite number, however it is written (`1,234.5` too); None where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or (isinstance(value, str) and len(value) > 64):
        return None
    try:
        parsed = float(value.replace(",", "") if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return parsed if math.isfinite(parsed) else None


def dimensions(value: object) -> tuple[int, ...]:
    """`[2, 1, 1]`, `(2, 1, 1)` or `2x1x1` as numbers; empty where it is nothing of the kind."""
    parts: Iterable[object] = value if isinstance(value, (list, tuple)) else re.findall(r"\d+", value) if isinstance(value, str) else ()
    extents = [number(part) for part in parts]
    if not 1 <= len(extents) <= 3 or any(extent is None or extent != int(extent) or not 0 < extent < 2**31 for extent in extents):
        return ()
    return tuple(int(extent) for extent in extents if extent is not None)


# Triton names a compiled kernel after its function; older versions append the specialization (`_0d1d2d34c`).
_SPECIALIZATION = re.compile(r"_(\d+[dce]*)+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A launch and its record."""

    launch: Launch
    record: KernelRecord


def launched_ctas(launch: Launch, gpu: GpuSpec | None) -> int | None:
    """CTAs of the launch's grid; None where there is no model of it."""
    if gpu is None:
        return None

    try:
        demand = pipelines.demand(pipelines.problem_batch([launch.problem]), pipelines.configuration_batch([launch.configuration]), gpu)
    except (AdvisorError, KeyError):
        return None
    return round(float(np.ravel(demand.launched_ctas)[0]))


def match(records: Sequence[KernelRecord], launches: Sequence[Launch], gpu: GpuSpec | None) -> tuple[tuple[Match, ...], tuple[str, ...]]:
    """Matches, and a reason for each record without a launch."""
    matches: list[Match] = []
    reasons: list[str] = []
    for record in records:
        shape = f"{record.name} grid {_shape(record.grid)} block {_shape(record.block)}"
        named = [launch for launch in launches if same_name(record.name, launch.kernel.function)]
        named = [*{launch.key(): launch for launch in named}.values()]
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
                known = ", ".join(sorted({str(count) for count in ctas}))
                reasons.append(f"{shape}: {math.prod(record.grid)} CTAs, the launches to measure have {known}")
                continue
        if len(fitting) > 1:
            reasons.append(f"{shape}: {len(fitting)} launches look alike to this profiler")
            continue
        matches.append(Match(launch=fitting[0], record=record))
    return tuple(matches), tuple(reasons)


def same_name(recorded: str, function: str) -> bool:
    bare = recorded.split("(")[0].strip()
    return bare == function or _SPECIALIZATION.sub("", bare) == function


def _shape(dimensions: tuple[int, ...]) -> str:
    return "x".join(map(str, dimensions)) or "?"


DURATION = "gpu__time_duration.sum"


def is_nsight_compute(text: str) -> bool:
    """Whether the text has Nsight Compute's header line."""
    return any(line.startswith(('"ID","Process ID"', "ID,Process ID")) for line in text[:100_000].splitlines())


def parse_nsight_compute(text: str, label: str) -> tuple[tuple[KernelRecord, ...], tuple[str, ...]]:
    """Records and notes.

    Raises:
        InputError: It has no durations, or too many lines.
    """
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.replace('"', "").startswith("ID,Process ID"))
    # The profiled program and ncu itself (`==PROF==`) print between the lines.
    body = [line for line in lines[start:] if line.strip() and not line.startswith("==")]
    try:
        rows = list(csv.reader(io.StringIO("\n".join(body)), strict=False))
    except csv.Error as error:
        raise InputError(f"{label}: not CSV ({error})", None, None, REMEDY) from None
    if len(rows) > RECORD_LIMIT:
        raise InputError(f"{label}: too many lines", len(rows), f"at most {RECORD_LIMIT}", REMEDY)
    header = [name.strip() for name in rows[0]]
    detailed = "Metric Name" in header  # a line for each metric, and not for each launch
    if not detailed and DURATION not in header:
        raise InputError(f"{label}: has no durations", None, f"a column {DURATION}", "profile with --set full, or --metrics " + DURATION)
    collector, unit = Collector(), "ns"
    for row in rows[1:]:
        if len(row) != len(header):
            collector.note(f"a line with {len(row)} cells under {len(header)} columns")
            continue
        cells = dict(zip(header, row, strict=True))
        if detailed and cells["Metric Name"].strip() != "Duration":
            continue
        if not detailed and not cells["ID"].strip():  # the line of units
            unit = cells[DURATION]
            continue
        duration_text, unit = (cells.get("Metric Value"), cells.get("Metric Unit", "")) if detailed else (cells[DURATION], unit)
        name, duration, scale = cells.get("Kernel Name", ""), number(duration_text), UNITS_US.get(unit.strip().lower())
        if scale is None:
            collector.note(f"{name}: unknown unit of its duration: {unit}")
            continue
        collector.add(
            name,
            None if duration is None else duration * scale,
            grid=dimensions(cells.get("Grid Size", "")),
            block=dimensions(cells.get("Block Size", "")),
            compute_capability=clean(cells.get("CC", "")) or None,
        )
    return collector.finish()


def is_torch_profiler(document: Any) -> bool:
    """Whether the JSON is a Chrome trace."""
    return isinstance(document, dict) and isinstance(document.get("traceEvents"), list)


def parse_torch_profiler(document: Any, label: str) -> tuple[tuple[KernelRecord, ...], tuple[str, ...]]:
    """Records and notes.

    Raises:
        InputError: It is too large.
    """
    events = document["traceEvents"]
    if len(events) > RECORD_LIMIT:
        raise InputError(f"{label}: too many events", len(events), f"at most {RECORD_LIMIT}", REMEDY)
    devices = {}
    for device in document.get("deviceProperties") or ():
        if isinstance(device, dict) and isinstance(device.get("name"), str):
            devices[number(device.get("id"))] = clean(device["name"])
    collector = Collector()
    for event in events:
        if not isinstance(event, dict) or event.get("cat") != "kernel" or event.get("ph", "X") != "X":
            continue
        arguments = event.get("args") if isinstance(event.get("args"), dict) else {}
        assert isinstance(arguments, dict)
        collector.add(
            str(event.get("name", "")),
            number(event.get("dur")),
            grid=dimensions(arguments.get("grid")),
            block=dimensions(arguments.get("block")),
            gpu=devices.get(number(arguments.get("device"))),
        )
    return collector.finish()


_TIME = "time ("


def is_proton(document: Any) -> bool:
    """Whether the JSON is a list that begins with a tree of frames."""
    return isinstance(document, list) and bool(document) and isinstance(document[0], dict) and "frame" in document[0]


def parse_proton(document: Any, label: str) -> tuple[tuple[KernelRecord, ...], tuple[str, ...]]:
    """Records and notes; a leaf with a time is a kernel.

    Raises:
        InputError: It is too large.
    """
    collector = Collector()
    stack: list[Any] = [node for node in document if isinstance(node, dict) and "frame" in node]
    seen = 0
    while stack:
        node = stack.pop()
        seen += 1
        if seen > RECORD_LIMIT:
            raise InputError(f"{label}: too many frames", f"over {RECORD_LIMIT}", "a smaller profile", REMEDY)
        if not isinstance(node, dict):
            collector.note("a frame that is not an object")
            continue
        children = node.get("children")
        if isinstance(children, list) and children:
            stack.extend(reversed(children))
            continue
        frame, metrics = node.get("frame"), node.get("metrics")
        name = frame.get("name") if isinstance(frame, dict) else None
        if not isinstance(name, str) or not isinstance(metrics, dict):
            collector.note("a leaf without a name or metrics")
            continue
        timed = next((key for key in metrics if isinstance(key, str) and key.startswith(_TIME)), None)
        total = number(metrics.get(timed)) if timed is not None else None
        scale = UNITS_US.get(timed[len(_TIME) :].rstrip(")").strip().lower()) if timed is not None else None
        if total is None or scale is None:
            collector.note(f"{name}: no time")
            continue
        count = int(number(metrics.get("count")) or 1)
        collector.add(name, total * scale / max(count, 1), count=max(count, 1))
    return collector.finish()


NSIGHT_COMPUTE = "nsight-compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The kernels of a profile.

    Attributes:
        format: nsight-compute, torch-profiler or proton.
        records: What it says of each kernel.
        matches: Records that belong to a launch asked for.
        unmatched: Why each other record (or part of the file) was left out.
    """

    format: str
    records: tuple[KernelRecord, ...] = ()
    matches: tuple[Match, ...] = ()
    unmatched: tuple[str, ...] = ()


def read_profile(path: str | os.PathLike[str], launches: Sequence[Launch] = (), gpu: GpuSpec | None = None) -> Profile | None:
    """Reads a profile of any of the formats; what it is shows in its contents. None: it is no profile, but rows, or some other text.

    Args:
        path: The file, plain or gzipped.
        launches: What the profile is matched to.
        gpu: Where they ran; needed to match by CTAs.

    Raises:
        InputError: It cannot be read, or is JSON of another kind.
    """
    label = os.path.basename(os.fspath(path))  # noqa: PTH119
    return parse_profile(read_text(path, label, "a profile or a CSV file", TEXT_LIMIT_BYTES, unpack=True), label, launches, gpu)


def parse_profile(text: str, label: str, launches: Sequence[Launch] = (), gpu: GpuSpec | None = None) -> Profile | None:
    """As `read_profile`, from text; `label` is what errors call the file."""
    if text.lstrip()[:1] in ("{", "["):
        document = parse_json(text, label, REMEDY)
        if is_torch_profiler(document):
            name, (records, notes) = "torch-profiler", parse_torch_profiler(document, label)
        elif is_proton(document):
            name, (records, notes) = "proton", parse_proton(document, label)
        else:
            got = "a list" if isinstance(document, list) else f"the keys {', '.join(map(clean, document)) or '(none)'}"
            raise InputError(
                f"{label}: JSON, but no profile",
                got,
                "rows (CSV), ncu --csv, or a Chrome trace of torch's profiler",
                "give what advisor measure or the profiler wrote",
            )
    elif is_nsight_compute(text):
        name, (records, notes) = NSIGHT_COMPUTE, parse_nsight_compute(text, label)
    else:
        return None
    matches, unmatched = match(records, launches, gpu)
    return Profile(format=name, records=records, matches=matches, unmatched=(*notes, *unmatched))


__all__ = ["NSIGHT_COMPUTE", "KernelRecord", "Match", "Profile", "match", "parse_profile", "read_profile"]
