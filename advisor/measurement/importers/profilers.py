"""The formats of profilers: Nsight Compute (CSV), torch's profiler (Chrome trace), Proton (`.hatchet`)."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from advisor.measurement.importers.record import RECORD_LIMIT, REMEDY, UNITS_US, Collector, KernelRecord, clean, dimensions, number
from advisor.system.errors import InputError

DURATION = "gpu__time_duration.sum"
DETAILS_DURATION = "Duration"
_FIXED = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC")


def is_nsight_compute(text: str) -> bool:
    """Whether the text has Nsight Compute's header line."""
    return any(line.startswith(('"ID","Process ID"', "ID,Process ID")) for line in text[:100_000].splitlines())


def parse_nsight_compute(text: str, label: str) -> tuple[tuple[KernelRecord, ...], tuple[str, ...]]:
    """Records and notes.

    Raises:
        InputError: It is not Nsight Compute's CSV, or has no durations.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.replace('"', "").startswith("ID,Process ID")), None)
    if start is None:
        raise InputError(f"{label}: has no header of Nsight Compute", None, "the output of ncu --csv --page raw", REMEDY)
    # The profiled program and ncu itself (`==PROF==`) print between the lines.
    body = [line for line in lines[start:] if line.strip() and not line.startswith("==")]
    try:
        rows = list(csv.reader(io.StringIO("\n".join(body)), strict=False))
    except csv.Error as error:
        raise InputError(f"{label}: not CSV ({error})", None, None, REMEDY) from None
    if len(rows) > RECORD_LIMIT:
        raise InputError(f"{label}: too many lines", len(rows), f"at most {RECORD_LIMIT}", REMEDY)
    header = [name.strip() for name in rows[0]]
    if "Metric Name" in header:
        return _details(header, rows[1:])
    return _raw(header, rows[1:], label)


def _raw(header: list[str], rows: list[list[str]], label: str) -> tuple[tuple[KernelRecord, ...], tuple[str, ...]]:
    if DURATION not in header:
        raise InputError(f"{label}: has no durations", None, f"a column {DURATION}", "profile with --set full, or --metrics " + DURATION)
    found = Collector()
    units = dict(zip(header, rows[0], strict=False)) if rows and not rows[0][0].strip() else {}
    scale = UNITS_US.get(units.get(DURATION, "ns").strip().lower())
    if scale is None:
        raise InputError(f"{label}: unknown unit of {DURATION}", units.get(DURATION), f"one of {', '.join(UNITS_US)}", REMEDY)
    for row in rows[1:] if units else rows:
        if len(row) != len(header):
            found.note(f"a line with {len(row)} cells under {len(header)} columns")
            continue
        cells = dict(zip(header, row, strict=True))
        duration = number(cells[DURATION])
        metrics = {name: value for name in header if name not in _FIXED and (value := number(cells[name])) is not None}
        found.add(
            cells.get("Kernel Name", ""),
            None if duration is None else duration * scale,
            metrics=metrics,
            grid=dimensions(cells.get("Grid Size", "")),
            block=dimensions(cells.get("Block Size", "")),
            compute_capability=clean(cells.get("CC", "")) or None,
        )
    return found.finish()


def _details(header: list[str], rows: Sequence[list[str]]) -> tuple[tuple[KernelRecord, ...], tuple[str, ...]]:
    """Gathers the lines of each launch (same ID and process)."""
    found = Collector()
    launches: dict[tuple[str, ...], dict[str, float]] = {}
    shapes: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        if len(row) != len(header):
            found.note(f"a line with {len(row)} cells under {len(header)} columns")
            continue
        cells = dict(zip(header, row, strict=True))
        key = (cells.get("Process ID", ""), cells["ID"])
        shapes.setdefault(key, cells)
        metrics = launches.setdefault(key, {})
        value, name, unit = number(cells.get("Metric Value", "")), cells["Metric Name"].strip(), cells.get("Metric Unit", "").strip()
        if value is None or not name:
            continue
        if name == DETAILS_DURATION:
            scale = UNITS_US.get(unit.lower())
            if scale is None:
                found.note(f"{cells.get('Kernel Name', '')}: unknown unit of its duration: {unit}")
                continue
            metrics[DETAILS_DURATION] = value * scale
        else:
            metrics[f"{name} [{unit}]" if unit else name] = value
    for launch, metrics in launches.items():
        cells = shapes[launch]
        duration = metrics.pop(DETAILS_DURATION, None)
        found.add(
            cells.get("Kernel Name", ""),
            duration,
            metrics=metrics,
            grid=dimensions(cells.get("Grid Size", "")),
            block=dimensions(cells.get("Block Size", "")),
            compute_capability=clean(cells.get("CC", "")) or None,
        )
    return found.finish()


_METRICS = {
    "registers per thread": "registers_per_thread",
    "shared memory": "shared_memory_bytes",
    "est. achieved occupancy %": "estimated_occupancy_percent",
}


def is_torch_profiler(document: Any) -> bool:
    """Whether the JSON is a Chrome trace."""
    return isinstance(document, dict) and isinstance(document.get("traceEvents"), list)


def parse_torch_profiler(document: Any, label: str) -> tuple[tuple[KernelRecord, ...], tuple[str, ...]]:
    """Records and notes.

    Raises:
        InputError: It is not a trace, or too large.
    """
    if not is_torch_profiler(document):
        raise InputError(f"{label}: is not a trace of torch's profiler", None, "traceEvents", "write it with export_chrome_trace")
    events = document["traceEvents"]
    if len(events) > RECORD_LIMIT:
        raise InputError(f"{label}: too many events", len(events), f"at most {RECORD_LIMIT}", REMEDY)
    devices = {}
    for device in document.get("deviceProperties") or ():
        if isinstance(device, dict) and isinstance(device.get("name"), str):
            devices[number(device.get("id"))] = clean(device["name"])
    found = Collector()
    for event in events:
        if not isinstance(event, dict) or event.get("cat") != "kernel" or event.get("ph", "X") != "X":
            continue
        arguments = event.get("args") if isinstance(event.get("args"), dict) else {}
        assert isinstance(arguments, dict)
        metrics = {ours: value for theirs, ours in _METRICS.items() if (value := number(arguments.get(theirs))) is not None}
        found.add(
            str(event.get("name", "")),
            number(event.get("dur")),
            metrics=metrics,
            grid=dimensions(arguments.get("grid")),
            block=dimensions(arguments.get("block")),
            gpu=devices.get(number(arguments.get("device"))),
        )
    return found.finish()


_TIME = "time ("


def is_proton(document: Any) -> bool:
    """Whether the JSON is a list that begins with a tree of frames."""
    return isinstance(document, list) and bool(document) and isinstance(document[0], dict) and "frame" in document[0]


def parse_proton(document: Any, label: str) -> tuple[tuple[KernelRecord, ...], tuple[str, ...]]:
    """Records and notes; a leaf with a time is a kernel.

    Raises:
        InputError: It is not Proton's, or too large.
    """
    if not is_proton(document):
        raise InputError(f"{label}: is not a Proton profile", None, "a list of frames", "write it with proton.finalize()")
    found = Collector()
    stack: list[Any] = [node for node in document if isinstance(node, dict) and "frame" in node]
    seen = 0
    while stack:
        node = stack.pop()
        seen += 1
        if seen > RECORD_LIMIT:
            raise InputError(f"{label}: too many frames", f"over {RECORD_LIMIT}", "a smaller profile", REMEDY)
        if not isinstance(node, dict):
            found.note("a frame that is not an object")
            continue
        children = node.get("children")
        if isinstance(children, list) and children:
            stack.extend(reversed(children))
            continue
        frame, metrics = node.get("frame"), node.get("metrics")
        name = frame.get("name") if isinstance(frame, dict) else None
        if not isinstance(name, str) or not isinstance(metrics, dict):
            found.note("a leaf without a name or metrics")
            continue
        timed = next((key for key in metrics if isinstance(key, str) and key.startswith(_TIME)), None)
        total = number(metrics.get(timed)) if timed is not None else None
        scale = UNITS_US.get(timed[len(_TIME) :].rstrip(")").strip().lower()) if timed is not None else None
        if total is None or scale is None:
            found.note(f"{name}: no time")
            continue
        count = int(number(metrics.get("count")) or 1)
        rest = {str(key): value for key, raw in metrics.items() if key not in (timed, "count") and (value := number(raw)) is not None}
        found.add(name, total * scale / max(count, 1), count=max(count, 1), metrics=rest)
    return found.finish()
