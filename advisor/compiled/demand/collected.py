"""What the executions of some sets of programs come to together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.demand.accesses import access_element
from advisor.compiled.demand.costs import SCALAR_COSTS, Cost, absorbed, cost, element_bytes, staged_shares
from advisor.compiled.ir.arithmetic import Divisor
from advisor.compiled.ir.execution import Access, Execution, LoopCount
from advisor.compiled.ir.ir import Operation
from advisor.compiled.ir.places import Family, families
from advisor.pipelines.occupancy import MAX_THREADS_PER_CTA

COLUMNS = ("tensor", "fma", "packed", "xu", "alu", "fp64", "smem", "load", "store", "atomic", "trips", "requested_load", "requested_store")

_OF_LINES = {"tensor": "tensor_flop", "fma": "fma_flop", "xu": "xu_op", "alu": "alu_op", "fp64": "fp64_flop", "smem": "smem_bytes"}
"""What operations ask of the pipelines, by column: as lines of the source have it."""

Line = tuple[str, int]
"""A file and a line of it."""


@dataclass(slots=True)
class Columns:
    """What programs ask for.

    Attributes:
        sets: Of each set of programs, column of `COLUMNS` -> [programs].
        tensor: FLOP of the tensor pipeline, by type, of all sets.
        padding: What of all that is padding.
    """

    sets: list[dict[str, NDArray[np.float64]]] = field(default_factory=list)
    tensor: dict[str, float] = field(default_factory=dict)
    padding: Cost = field(default_factory=Cost)

    def rows(self) -> dict[str, NDArray[np.float64]]:
        """The columns over all sets."""
        return {name: np.concatenate([np.zeros(0), *(columns[name] for columns in self.sets)]) for name in COLUMNS}


@dataclass(frozen=True, slots=True)
class AccessPart:
    """What one memory operation does in a set of programs, and which elements: for certain, or assumed to."""

    assumed: bool
    access: Access
    families: list[Family]


@dataclass(slots=True, eq=False)
class Collected:
    """Sums over sets of programs.

    Attributes:
        scale: Programs that each evaluated one stands for.
        divisors: What divisions divide by, by the `id` of the operation.
        spared: Bytes of shared memory that products need not move, the same.
        certain: Of `all`, what is not assumed.
        accesses: By the `id` of the operation, for each set of programs; so are loops.
        lines: What each line asks for, by field of `LineDemand`.
        executions: Of each line, by the `id` of the block.
        narrow: What operations ask of the pipelines of which each thread of a CTA may do one, by how many elements they have.
        scalar_divisors: Numbers that scalars are divided by.
    """

    scale: float
    divisors: Mapping[int, Divisor]
    spared: Mapping[int, float] = field(default_factory=dict)
    all: Columns = field(default_factory=Columns)
    certain: Columns = field(default_factory=Columns)
    accesses: dict[int, list[AccessPart]] = field(default_factory=dict)
    loops: dict[int, list[LoopCount]] = field(default_factory=dict)
    lines: dict[Line, dict[str, float]] = field(default_factory=dict)
    executions: dict[Line, dict[int, float]] = field(default_factory=dict)
    narrow: dict[int, Cost] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    approximations: set[str] = field(default_factory=set)
    scalar_divisors: set[int] = field(default_factory=set)

    def take(self, execution: Execution) -> None:
        """Add what one set of programs does."""
        for columns in (self.all, self.certain):
            columns.sets.append({name: np.zeros(execution.programs) for name in COLUMNS})
        self._take_products(execution)
        self._take_blocks(execution)
        self._take_accesses(execution)
        for key, loop in execution.loops.items():
            for columns in (self.all, self.certain):
                columns.sets[-1]["trips"] += loop.trips
            self.loops.setdefault(key, []).append(loop)
        for reason, assumption in execution.unknown.items():
            self.unknown.setdefault(reason, assumption)
        self.approximations |= execution.approximations
        self.scalar_divisors |= execution.divisors

    def _counted(self, assumed: bool) -> tuple[Columns, ...]:
        return (self.all,) if assumed else (self.all, self.certain)

    def _take_products(self, execution: Execution) -> None:
        """Add what of products is padding: of what is staged for them, that of each operand."""
        for (_, assumed), product in execution.products.items():
            done = float(product.executions.sum())
            once, (left, right) = cost(product.operation), staged_shares(product.operation)
            staged = left * (done - float(product.left.sum())) + right * (done - float(product.right.sum()))
            padded = replace(once.times((done - float(product.filled.sum())) * self.scale), smem=once.smem * staged * self.scale)
            for columns in self._counted(assumed):
                columns.padding.add(padded)

    def _take_blocks(self, execution: Execution) -> None:
        """Add what the operations of blocks ask of the pipelines, and how often lines are executed."""
        for (key, assumed), times in execution.blocks.items():
            often = float(times.sum())
            here: set[Line] = set()
            without = absorbed(execution.block_of[key].operations)
            for operation in execution.block_of[key].operations:
                if operation.location is not None:
                    here.add((operation.location.file, operation.location.line))
                once = Cost() if id(operation) in without else cost(operation, self.divisors)
                flop = sum(once.tensor_flop.values())
                lanes = max((kind.elements for kind in operation.types), default=1)
                if lanes < MAX_THREADS_PER_CTA and not flop:
                    self.narrow.setdefault(lanes, Cost()).add(once.times(often * self.scale))
                for name, amount in (("tensor", flop), *((name, getattr(once, name)) for name in SCALAR_COSTS)):
                    if amount:
                        self.all.sets[-1][name] += times * amount
                        if not assumed:
                            spared = self.spared.get(id(operation), 0.0) if name == "smem" else 0.0
                            self.certain.sets[-1][name] += times * (amount - spared)
                        if name in _OF_LINES:
                            self._add_to_line(operation, _OF_LINES[name], amount * often)
                for kind, amount in once.tensor_flop.items():
                    for columns in self._counted(assumed):
                        columns.tensor[kind] = columns.tensor.get(kind, 0.0) + amount * often * self.scale
            for line in here:
                blocks = self.executions.setdefault(line, {})
                blocks[key] = blocks.get(key, 0.0) + often * self.scale

    def _take_accesses(self, execution: Execution) -> None:
        for (key, assumed), access in execution.accesses.items():
            kind, size = access_kind(access.operation), element_bytes(access_element(access.operation))
            for columns in self._counted(assumed):
                columns.sets[-1][kind] += access.lanes * size
                if kind != "atomic":
                    columns.sets[-1][f"requested_{kind}"] += access.distinct * size
            self._add_to_line(access.operation, f"{kind}_bytes", float(access.lanes.sum()) * size)
            places = families(execution.places.get((key, assumed), {}), execution.sets)
            self.accesses.setdefault(key, []).append(AccessPart(assumed, access, places))

    def _add_to_line(self, operation: Operation, name: str, amount: float) -> None:
        if operation.location is None or not amount:
            return
        line = self.lines.setdefault((operation.location.file, operation.location.line), {})
        line[name] = line.get(name, 0.0) + amount * self.scale


def access_kind(operation: Operation) -> str:
    """load, store or atomic."""
    if "atomic" in operation.name or operation.name.endswith("_reduce"):
        return "atomic"
    return "load" if operation.name.endswith(("load", "gather")) else "store"
