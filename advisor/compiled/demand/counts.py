"""What was counted in a kernel: its accesses, loops, source lines, classes of programs, and all of it together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.demand.costs import Cost, element_bytes
from advisor.compiled.ir.execution import not_given
from advisor.compiled.ir.ir import Operation
from advisor.compiled.ir.lattices import Lattice


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDemand:
    """One load, store or atomic operation over the whole launch.

    Attributes:
        kind: load, store or atomic.
        argument: The pointer argument; None where it cannot be told.
        element: Type of an element.
        executions: Over all programs.
        certain_executions: Of these, those that happen whatever the data are that decide branches, trips and masks.
        issued_bytes: Of active lanes.
        requested_bytes: Distinct bytes within each execution (lanes that share an address count once).
        certain_bytes: The same of the certain executions.
        reach_bytes: The first byte touched, counted from where the argument points, and the one behind the last; None where not known.
        unlocated_for: Why it is not known where it reaches; empty where it is, or where nothing tells.
        touched: Bytes touched, counted alike: none that is not, and all unless they are too many to list, or of programs not looked at.
        certain: Of these, what certain executions touch.
        growth: How many times `touched` all programs likely touch; 1 unless only some were looked at and they tell no rule.
        lanes: Of one execution, masked or not.
        masked: Whether there is a mask; `active_fraction` of its lanes are active.
        contiguous: Elements in a row; None where no execution tells, or one has an address that is not known.
        sector_ratio: Bytes of the sectors that hold what one execution asks for, over those bytes; of short rows, else 1.
        unused_bytes: Of those sectors, what no access that follows it closely uses.
        loop: The innermost loop that it stands in, by its `id`; None: in none.
        around: The loops that it stands in, the outermost first: the `id` of each, and its trips where these are constants of the code.
    """

    operation: Operation = field(repr=False)
    kind: str
    argument: str | None
    element: str
    executions: float
    certain_executions: float
    issued_bytes: float
    requested_bytes: float
    certain_bytes: float
    reach_bytes: tuple[float, float] | None
    unlocated_for: frozenset[str]
    touched: tuple[Lattice, ...] = field(repr=False)
    certain: tuple[Lattice, ...] = field(repr=False)
    growth: float
    lanes: int
    masked: bool
    active_fraction: float
    contiguous: int | None
    sector_ratio: float
    unused_bytes: float
    loop: int | None
    line: int | None
    file: str | None
    around: tuple[tuple[int, int | None], ...] = ()

    @property
    def name(self) -> str:
        """The argument, or the line where it cannot be told."""
        return self.argument or f"line {self.line}"

    @property
    def in_loop(self) -> bool:
        """Whether it stands in a loop."""
        return self.loop is not None

    @property
    def extent_bytes(self) -> float | None:
        """From the first to the last byte touched; None where not known."""
        return None if self.reach_bytes is None else self.reach_bytes[1] - self.reach_bytes[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDemand:
    """One loop: trips per entry. `reasons`: why they are not known."""

    line: int | None
    depth: int
    entries: float
    trips: float
    mean_trips: float
    reasons: tuple[str, ...]
    sampled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LineDemand:
    """What one line of the author's source asks for, over the whole launch. `executions`: of its busiest operation."""

    file: str
    line: int
    executions: float = 0.0
    tensor_flop: float = 0.0
    fma_flop: float = 0.0
    fp64_flop: float = 0.0
    xu_op: float = 0.0
    alu_op: float = 0.0
    smem_bytes: float = 0.0
    load_bytes: float = 0.0
    store_bytes: float = 0.0
    atomic_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramClass:
    """Programs that do the same: how many, and what each does."""

    label: str  # full | part | little work
    programs: float
    tensor_flop: float
    fma_flop: float
    load_bytes: float
    store_bytes: float
    trips: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CertainDemand:
    """Of the demand of a launch, what it asks for whatever the data are that decide branches, trips and masks: a bound holds this alone.
    Of programs of which some stand for others, what they ask for at least, by how much they differ.

    Attributes:
        per_program: As that of `KernelDemand`.
        tensor_flop: By type, whole launch.
        padding: As that of `KernelDemand`.
    """

    per_program: Mapping[str, NDArray[np.float64]] = field(repr=False)
    tensor_flop: Mapping[str, float]
    fp64_flop: float
    fma_flop: float
    packed_flop: float
    xu_op: float
    smem_bytes: float
    requested_load_bytes: float
    padding: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDemand:
    """The demand of a launch.

    Attributes:
        per_program: Column of `COLUMNS` -> [evaluated programs].
        exact: Whether all programs, and all trips of their loops, were counted or do as those that were, and nothing is assumed of data
            that decide what is done.
        certain: What is not assumed.
        scale: Programs each evaluated one stands for.
        tensor_flop: By type, whole launch.
        packed_flop: Of `fma_flop`, that in types of 16 bits, of which one instruction can do two.
        padding: What of the FLOP belongs to rows and columns of tiles that hold nothing of the problem.
        narrow: Of what is asked of the pipelines, that of operations on fewer elements than a CTA may have threads, by how many.
        likely_unused_bytes: Of sectors that DRAM carries because of what is touched in them, and that is not touched.
        unlocated: Arguments of which it is not known which bytes are touched: their footprint may be far larger.
        likely_accesses: The accesses where strides that are not given are those of contiguous rows; empty where none is assumed.
        unknown: What is not known -> what was assumed.
    """

    grid: tuple[int, int, int]
    programs: int
    exact: bool
    certain: CertainDemand
    scale: float
    per_program: Mapping[str, NDArray[np.float64]] = field(repr=False)
    tensor_flop: Mapping[str, float]
    fp64_flop: float
    fma_flop: float
    packed_flop: float
    xu_op: float
    alu_op: float
    smem_bytes: float
    padding: Cost
    narrow: Mapping[int, Cost]
    load_bytes: float  # issued by active lanes
    store_bytes: float
    atomic_bytes: float
    requested_load_bytes: float  # distinct within each access
    requested_store_bytes: float
    footprint_bytes: Mapping[str, float]  # per pointer argument: distinct bytes, those known to be touched
    read_footprints: Mapping[str, float]  # the same of what is loaded
    written_footprints: Mapping[str, float]  # of what is stored or updated
    likely_footprint_bytes: Mapping[str, float]  # what a prediction reckons with: no less than what is known
    likely_read_footprints: Mapping[str, float]
    likely_written_footprints: Mapping[str, float]
    likely_unused_bytes: float
    reductions: float  # and scans, that a program does one after another, those of every trip of a loop counted
    rewritten: Mapping[str, float]  # of what is loaded, at most so many bytes that the launch wrote before
    unlocated: frozenset[str]
    accesses: tuple[AccessDemand, ...]
    likely_accesses: tuple[AccessDemand, ...] = field(default=(), repr=False, kw_only=True)
    loops: tuple[LoopDemand, ...]
    lines: tuple[LineDemand, ...]
    classes: tuple[ProgramClass, ...]
    unknown: Mapping[str, str]
    approximations: tuple[str, ...]

    @property
    def updated(self) -> frozenset[str]:
        """Arguments that only atomic operations reach: unlike what is stored, their old values have to come from somewhere. An exchange
        needs none."""
        updates = {a.name for a in self.accesses if a.kind == "atomic" and "exch" not in a.operation.text}
        return frozenset(updates - {a.name for a in self.accesses if a.kind != "atomic" or "exch" in a.operation.text})

    @property
    def likely_in_place_bytes(self) -> float:
        """Distinct bytes that are both read and written, of what a prediction reckons with."""
        return _in_both(self.likely_footprint_bytes, self.likely_read_footprints, self.likely_written_footprints)

    @property
    def stored_first(self) -> Mapping[str, float]:
        """Bytes of each argument of which a program reads only what it stored before: its first access is a store, and the stores cover
        the loads. What is read comes from the L2, as long as that holds it."""
        first = {access.name: access.kind for access in reversed(self.accesses)}
        read, written, both = self.likely_read_footprints, self.likely_written_footprints, self.likely_footprint_bytes
        names = [n for n, kind in first.items() if kind == "store" and n in read and n not in self.unlocated]
        return {name: read[name] for name in names if both[name] <= written[name] * 1.001}

    @property
    def addressed_by(self) -> tuple[str, ...]:
        """Arguments whose contents would tell where accesses go of which that is not known."""
        return tuple(not_given(frozenset[str]().union(*(access.unlocated_for for access in self.accesses))))

    @property
    def offsets(self) -> frozenset[str]:
        """Tensors that are read one element further than by another load: where rows of another begin and where they end (`cu_seqlens`)."""
        loads = [
            (item.name, *item.reach_bytes, element_bytes(item.element))
            for item in self.accesses
            if item.kind == "load" and item.reach_bytes
        ]
        return frozenset(name for name, low, high, size in loads if (name, low - size, high - size, size) in loads)

    def repeated(self, threads: int, least: int = 1) -> Cost:
        """What of operations on at least so many elements those of `threads` do again that hold the same ones as others: every warp does at
        least one instruction of each operation."""
        again = Cost()
        for lanes, once in self.narrow.items():
            again.add(once.times(max(threads / lanes - 1, 0.0) if lanes >= least else 0.0))
        return again

    @property
    def total_tensor_flop(self) -> float:
        """All types together."""
        return sum(self.tensor_flop.values())

    @property
    def main_tensor_type(self) -> str | None:
        """The type with most FLOP, as `Cost.tensor_flop` names it (`costs.input_type`)."""
        return max(self.tensor_flop, key=lambda k: self.tensor_flop[k]) if self.total_tensor_flop else None


def _in_both(all_: Mapping[str, float], read: Mapping[str, float], written: Mapping[str, float]) -> float:
    """Bytes that are in both of two sets per argument, of the sizes of the sets and of their unions."""
    both = {name: read[name] + written[name] - all_.get(name, 0.0) for name in read.keys() & written.keys()}
    return sum(min(max(count, 0.0), read[name], written[name]) for name, count in both.items())
