"""The Chrome trace of torch's profiler (`prof.export_chrome_trace`): kernels are complete events of category `kernel`."""

from __future__ import annotations

from typing import Any

from advisor.measurement.importers.record import RECORD_LIMIT, REMEDY, Collector, KernelRecord, clean, dimensions, number
from advisor.system.errors import InputError

_METRICS = {
    "registers per thread": "registers_per_thread",
    "shared memory": "shared_memory_bytes",
    "est. achieved occupancy %": "estimated_occupancy_percent",
}


def is_torch_profiler(document: Any) -> bool:
    """Whether the JSON is a Chrome trace."""
    return isinstance(document, dict) and isinstance(document.get("traceEvents"), list)


def parse(document: Any, label: str) -> tuple[tuple[KernelRecord, ...], tuple[str, ...]]:
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
