"""One kernel as a profiler reports it: name, shape and durations; and reading files that strangers wrote."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.rows.cells import is_latency
from advisor.system.errors import InputError

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
        metrics: Whatever else it measured, by its own names (means over the launches).
    """

    name: str
    samples_us: tuple[float, ...]
    count: int
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    gpu: str | None = None
    compute_capability: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


class Collector:
    """Gathers launches into records, and what could not be read into notes."""

    def __init__(self) -> None:
        self._samples: dict[tuple[Any, ...], list[float]] = {}
        self._counts: dict[tuple[Any, ...], int] = {}
        self._metrics: dict[tuple[Any, ...], dict[str, list[float]]] = {}
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
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """One launch (or `count` of them with this mean duration)."""
        name = clean(name)
        if not name or duration_us is None or not is_latency(duration_us) or count < 1:
            self.note(f"{name or 'a kernel without a name'}: no usable duration")
            return
        key = (name, grid, block, gpu, compute_capability)
        self._samples.setdefault(key, []).append(duration_us)
        self._counts[key] = self._counts.get(key, 0) + count
        for metric, value in (metrics or {}).items():
            self._metrics.setdefault(key, {}).setdefault(metric, []).append(value)

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
                metrics={metric: sum(values) / len(values) for metric, values in self._metrics.get(key, {}).items()},
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
