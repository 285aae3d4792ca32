"""Nsight Compute's CSV: `ncu --csv --page raw` (a line per launch) and `--page details` (a line per metric and launch)."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from advisor.measurement.importers.record import RECORD_LIMIT, REMEDY, UNITS_US, Collector, KernelRecord, clean, dimensions, number
from advisor.system.errors import InputError

DURATION = "gpu__time_duration.sum"
DETAILS_DURATION = "Duration"
_FIXED = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC")


def is_nsight_compute(text: str) -> bool:
    """Whether the text has Nsight Compute's header line."""
    return any(line.startswith(('"ID","Process ID"', "ID,Process ID")) for line in text[:100_000].splitlines())


def parse(text: str, label: str) -> tuple[tuple[KernelRecord, ...], tuple[str, ...]]:
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
