"""What was counted of the launches of one run: those that differ only in what leaves the TTIR as it is (warps, stages) are counted once."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.demand.demand import read_demand
from advisor.compiled.ir.execution import Inputs


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    demand: KernelDemand | None = None
    inputs: Inputs | None = None  # kept, for its contents are told apart by their `id`


@dataclass(slots=True)
class Counted:
    """Demands by all that they follow from. Threads may share it: what two ask for at once, the second waits for."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _entries: dict[Hashable, _Entry] = field(default_factory=dict)

    def demand(
        self,
        ttir: str,
        grid: tuple[int, ...],
        inputs: Inputs,
        own_files: tuple[str, ...] = (),
        programs: NDArray[np.int64] | None = None,
    ) -> KernelDemand:
        """As `read_demand`, which raises what it raises each time anew."""
        key = (ttir, grid, _of(inputs), own_files, None if programs is None else programs.tobytes())
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
        with entry.lock:
            if entry.demand is None:
                entry.demand, entry.inputs = read_demand(ttir, grid, inputs, own_files, programs), inputs
            return entry.demand


def _of(inputs: Inputs) -> Hashable:
    """What tells arguments apart. Types count too: 1, 1.0 and True are equal, and not the same to a kernel."""
    tables = (inputs.scalars, inputs.sizes, inputs.shapes)
    told = tuple(tuple(sorted((name, type(value).__name__, repr(value)) for name, value in table.items())) for table in tables)
    held = tuple(sorted((name, repr(v) if isinstance(v, (int, float)) else f"at {id(v)}") for name, v in inputs.contents.items()))
    return told, held, inputs.assumed_trips, inputs.arguments
