"""One memory operation of a kernel, counted: lanes it issues, distinct ones, where it reaches, elements in a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.demand.descriptor_blocks import block_addresses, block_elements
from advisor.compiled.demand.loops import Environment
from advisor.compiled.demand.sectors import SECTOR_BYTES, sector_ratio
from advisor.compiled.ir import values
from advisor.compiled.ir.execution import Access, Active, Count, Execution, Part, Running
from advisor.compiled.ir.ir import Operation
from advisor.compiled.ir.places import PlaceRecorder
from advisor.compiled.ir.remembered import Remembered
from advisor.compiled.ir.slicing import address_operands
from advisor.compiled.ir.values import Value, contiguous


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """What one execution of a memory operation asks for.

    Attributes:
        pointer: Addresses of its lanes; of a block whose place is not known, its descriptor.
        mask: Which lanes are active; None: all.
        shape: Of its lanes.
        masked: Whether something may leave lanes out.
        certain: Whether the mask is known, and nothing it hangs on is assumed.
        block: Elements per program of a block whose place is not known; None where lanes tell.
        starts: What its place follows from, of such a block.
    """

    pointer: Value
    mask: Value | None
    shape: tuple[int, ...]
    masked: bool
    certain: bool
    block: Count | None = None
    starts: tuple[Value, ...] = ()

    @property
    def unlocated(self) -> bool:
        """Whether its addresses are not known."""
        return self.block is not None or not self.pointer.known or not self.pointer.parts

    @property
    def unlocated_for(self) -> frozenset[str]:
        """Why its addresses are not known."""
        return self.pointer.reasons.union(*(start.reasons for start in self.starts))


def request(op: Operation, environment: Environment, shapes: Mapping[str, tuple[int, ...]], found: Execution) -> Request:
    """What a memory operation asks for. What of it is not known is named in `found`.

    Args:
        op: The operation.
        environment: Of the function that it stands in.
        shapes: Of the tensors behind descriptors that the launch makes, by argument.
        found: Takes what is not known.
    """
    operands = environment.values(address_operands(op))
    pointer, others = operands[0], operands[1:]
    certain = not any(operand.assumed for operand in operands)
    if "descriptor" in op.name:
        tensor = shapes.get(pointer.base or "")
        block = block_addresses(op, pointer, others, tensor)
        if block is None:
            elements, reasons = block_elements(op, pointer, others, tensor, found.programs)
            found.assume(reasons, "a block", op, "the prediction takes it for full, the bound for empty")
            return Request(pointer=pointer, mask=None, shape=_shape(op), masked=True, certain=False, block=elements, starts=tuple(others))
        return Request(pointer=block[0], mask=block[1], shape=block[0].shape, masked=True, certain=certain)
    mask = others[0] if others else None
    if mask is not None and not mask.known:
        found.assume(mask.reasons, "a mask", op, "the prediction takes all its lanes for active, the bound none")
        certain = False
    return Request(pointer=pointer, mask=mask, shape=_shape(op), masked=mask is not None, certain=certain)


def access_element(operation: Operation) -> str:
    """Type of one element in memory."""
    for kind in operation.types:
        if kind.element.startswith("!tt.ptr<"):
            return kind.pointee
    if operation.result is not None:
        return operation.result.element
    return next((t.element for t in operation.types if t.shape), "f32")


def _shape(op: Operation) -> tuple[int, ...]:
    """Of the lanes of an operation: the first tensor's that it has to do with."""
    return next((kind.shape for kind in op.types if kind.shape), ())


@dataclass(frozen=True, slots=True)
class AccessCounter:
    """Counts what memory operations ask for."""

    remembered: Remembered
    places: PlaceRecorder

    def count(self, op: Operation, asked: Request, running: Running, found: Execution) -> None:
        """Add one execution to what was found of an operation.

        What it does where it is only assumed to run, under a mask that is not known, or at an address that hangs on something assumed,
        is no more than assumed; where its address is not known, it still touches something.
        """
        issued, distinct = self._lanes(asked, found.programs)
        for assumed, some in running.parts() if asked.certain else [(True, running)]:
            part = (id(op), assumed)
            access = _access_of(part, op, asked, found)
            counts = some.counts
            access.executions += counts
            access.lanes += counts * issued
            access.distinct += counts * distinct
            if access.base != asked.pointer.base:
                access.base = None
            if asked.unlocated:
                access.unknown_extent = access.unlocated = True
                access.unlocated_for |= asked.unlocated_for
            else:  # a mask that binds nowhere is left out
                binding = None if (issued == _elements(asked.shape)).all() else asked.mask
                _reach(access, asked.pointer, binding, some.active)
                self.places.record(asked.pointer, binding, some, found.places.setdefault(part, {}))
            if access.contiguous is None and "descriptor" not in op.name:  # the copy engine fetches a block, not threads their lanes
                access.contiguous = contiguous(asked.pointer, asked.shape)
                size = max(round(element_bytes(access_element(op))), 1)
                if access.contiguous is not None and access.contiguous * size < SECTOR_BYTES:
                    access.sector_ratio = sector_ratio(asked.pointer, size)

    def _lanes(self, asked: Request, programs: int) -> tuple[Count, Count]:
        """Lanes that are active, per program, and distinct addresses of them."""
        if asked.block is not None:
            return asked.block, asked.block
        pointer, mask, shape, factors = asked.pointer, asked.mask, asked.shape, values.factors(asked.mask)
        issued = self.remembered.recall(("lanes", shape), lambda: values.lanes(mask, shape, programs), factors)
        if not pointer.known:
            return issued, issued
        distinct = self.remembered.recall(
            ("distinct", shape), lambda: values.distinct(pointer, mask, shape, programs), pointer.varying, factors
        )
        return issued, np.minimum(distinct, issued)


def _access_of(part: Part, op: Operation, asked: Request, found: Execution) -> Access:
    """What was found of an operation so far; nothing at first."""
    if part not in found.accesses:
        zero = np.zeros(found.programs)
        found.accesses[part] = Access(op, zero.copy(), zero.copy(), zero.copy(), asked.pointer.base, masked=asked.masked)
    return found.accesses[part]


def _elements(shape: tuple[int, ...]) -> float:
    return float(np.prod(shape)) if shape else 1.0


def _reach(access: Access, pointer: Value, mask: Value | None, active: Active) -> None:
    """Widen where an access reaches by what the programs that are active touch."""
    try:
        reach = values.extent(pointer, mask, active)
    except (ValueError, MemoryError):
        access.unknown_extent = True
        return
    if reach is not None:
        access.low = reach[0] if access.low is None else min(access.low, reach[0])
        access.high = reach[1] if access.high is None else max(access.high, reach[1])
