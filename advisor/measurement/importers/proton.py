"""Proton's `.hatchet` JSON: a tree of frames with metrics, and the devices they ran on. It keeps means, not samples."""

from __future__ import annotations

from typing import Any

from advisor.measurement.importers.record import RECORD_LIMIT, REMEDY, UNITS_US, Collector, KernelRecord, number
from advisor.system.errors import InputError

_TIME = "time ("


def is_proton(document: Any) -> bool:
    """Whether the JSON is a list that begins with a tree of frames."""
    return isinstance(document, list) and bool(document) and isinstance(document[0], dict) and "frame" in document[0]


def parse(document: Any, label: str) -> tuple[tuple[KernelRecord, ...], tuple[str, ...]]:
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
