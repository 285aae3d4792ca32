"""The formats of profilers: Nsight Compute (CSV), torch's profiler (Chrome trace), Proton (`.hatchet`)."""

from __future__ import annotations

import csv
import io
from typing import Any

from advisor.measurement.importers.record import RECORD_LIMIT, REMEDY, UNITS_US, Collector, KernelRecord, clean, dimensions, number
from advisor.system.errors import InputError

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
    found, unit = Collector(), "ns"
    for row in rows[1:]:
        if len(row) != len(header):
            found.note(f"a line with {len(row)} cells under {len(header)} columns")
            continue
        cells = dict(zip(header, row, strict=True))
        if detailed and cells["Metric Name"].strip() != "Duration":
            continue
        if not detailed and not cells["ID"].strip():  # the line of units
            unit = cells[DURATION]
            continue
        told, unit = (cells.get("Metric Value"), cells.get("Metric Unit", "")) if detailed else (cells[DURATION], unit)
        name, duration, scale = cells.get("Kernel Name", ""), number(told), UNITS_US.get(unit.strip().lower())
        if scale is None:
            found.note(f"{name}: unknown unit of its duration: {unit}")
            continue
        found.add(
            name,
            None if duration is None else duration * scale,
            grid=dimensions(cells.get("Grid Size", "")),
            block=dimensions(cells.get("Block Size", "")),
            compute_capability=clean(cells.get("CC", "")) or None,
        )
    return found.finish()


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
    found = Collector()
    for event in events:
        if not isinstance(event, dict) or event.get("cat") != "kernel" or event.get("ph", "X") != "X":
            continue
        arguments = event.get("args") if isinstance(event.get("args"), dict) else {}
        assert isinstance(arguments, dict)
        found.add(
            str(event.get("name", "")),
            number(event.get("dur")),
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
        InputError: It is too large.
    """
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
        found.add(name, total * scale / max(count, 1), count=max(count, 1))
    return found.finish()
