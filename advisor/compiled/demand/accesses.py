"""One memory operation of a kernel, counted: lanes it issues, distinct ones, where it reaches, elements in a row.

Sectors are the granule in which the L2 and DRAM hand out memory: accesses fetch of them what they do not use. A descriptor is used at
a block of its tensor, whose addresses are known, or at least how much of it lies inside.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.demand.counts import AccessDemand
from advisor.compiled.demand.loops import Environment
from advisor.compiled.ir import values
from advisor.compiled.ir.arithmetic import distinct_values
from advisor.compiled.ir.execution import SHAPE, Access, Active, Count, Execution, Part, Remembered, Running
from advisor.compiled.ir.ir import Operation
from advisor.compiled.ir.lattices import Lattice, likely_distinct_bytes
from advisor.compiled.ir.places import PlaceRecorder
from advisor.compiled.ir.slicing import address_operands
from advisor.compiled.ir.values import Value, contiguous
from advisor.system import grouped

SECTOR_BYTES = 32
"""Granule of L1 and L2. Source: CUDA C++ Best Practices Guide, coalesced access to global memory."""
CONSIDERABLE = 1.25
"""Bytes fetched over bytes asked for, from which an access counts as scattered: a row that ends inside a sector is none yet."""


def sector_ratio(pointer: Value, element_bytes: int) -> float:
    """Bytes of the sectors that hold what the lanes of one program ask for, over those bytes: 1 where neighbours lie side by side.

    All lanes of the program count together, as its loads share the L1. It is one in the middle, for the first is rarely typical; masks
    leave out ends, which changes little.
    """
    if not pointer.varying:
        return 1.0
    offsets = functools.reduce(np.add, (part[part.shape[0] // 2] for part in pointer.varying))
    elements = distinct_values(offsets)
    sectors = distinct_values((elements - elements[0]) * element_bytes // SECTOR_BYTES)
    return max(len(sectors) * SECTOR_BYTES / (len(elements) * element_bytes), 1.0)


def scattered(access: AccessDemand) -> bool:
    """Whether neighbouring threads touch less than a sector in a row, and what lies between is not asked for either."""
    if access.contiguous is None or access.lanes < 32 or access.kind == "atomic":
        return False
    if access.requested_bytes < 0.5 * access.issued_bytes:
        return False  # broadcast: lanes share addresses
    return access.sector_ratio >= CONSIDERABLE


def unused_sector_bytes(accesses: Sequence[AccessDemand]) -> list[float]:
    """Bytes of sectors that each access of a kernel fetches and does not use; 0 where it is coalesced, or its addresses are not known.

    Scattered loads of one argument that stand in the same loop, or in none, follow one another: what one has fetched, the others find in
    the L1 (of even and odd elements, the second load). Stores go through it, each by itself.
    """
    apart = [a for a in accesses if scattered(a)]
    near = grouped(((access.argument, access.loop), access) for access in apart if access.kind == "load")
    shares = {id(item): share for group in near.values() for share in [_shared(group)] for item in group}
    ratios = {id(a): a.sector_ratio * shares.get(id(a), 1.0) for a in apart}
    return [a.requested_bytes * (ratio - 1) if (ratio := ratios.get(id(a), 1.0)) >= CONSIDERABLE else 0.0 for a in accesses]


def _shared(loads: Sequence[AccessDemand]) -> float:
    """What some loads together touch of sectors over what each of them does; 1 where that is not known."""
    touched = [[widened(item) for item in access.touched] for access in loads]
    if len(loads) == 1 or not all(touched):
        return 1.0
    return min(likely_distinct_bytes(itertools.chain.from_iterable(touched)) / sum(map(likely_distinct_bytes, touched)), 1.0)


def widened(lattice: Lattice) -> Lattice:
    """The bytes of a lattice with those up to a sector from each: at least what is fetched for them, wherever sectors begin."""
    run = next((count for step, count in lattice.steps if step == 1), 1)
    rest = [item for item in lattice.steps if item[0] != 1]
    whole = Lattice(lattice.offset, [(1, max(run, SECTOR_BYTES)), *rest], list(lattice.listed))
    whole.close()
    return whole


Layout = tuple[tuple[Value, ...], tuple[Value, ...]]
"""Sizes and strides of a tensor."""

_BLOCKS = frozenset({"tt.descriptor_load", "tt.descriptor_store", "tt.descriptor_reduce"})
_SHAPE = re.compile(r"tensordesc<(?:tensor<)?((?:\d+x)+)")


def descriptor_parts(arguments: Sequence[str], kinds: Sequence[str], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int | bool]:
    """Values of the arguments that Triton makes of a descriptor, of a contiguous tensor.

    Told by their place, for Triton 3.6 only numbers them (`%x_0`; 3.9 has `%x.shape.0`): behind the descriptor its sizes and strides;
    behind the base, where the GPU has no copy engine, sizes and strides, flags (padding, and from 3.9 on rounding), and both once more.

    Args:
        arguments: Names of the kernel's arguments in the IR (`%x`).
        kinds: Their types.
        shapes: Of the tensors of descriptors, by the kernel's own name.
    """
    parts: dict[str, int | bool] = {}
    for place, (name, kind) in enumerate(zip(arguments, kinds, strict=True)):
        shape = shapes.get(name[1:])
        if shape is None or not kind.startswith(("!tt.ptr", "!tt.tensordesc")):
            continue
        numbers = (*shape, *(math.prod(shape[axis + 1 :]) for axis in range(len(shape))))
        numbers *= 2 if kind.startswith("!tt.ptr") else 1
        for part, text in zip(arguments[place + 1 :], kinds[place + 1 :], strict=True):
            if not numbers:
                break
            parts[part[1:]] = False if text == "i1" else numbers[0]
            numbers = numbers if text == "i1" else numbers[1:]
    return parts


def block_addresses(
    op: Operation, descriptor: Value, starts: Sequence[Value], tensor: tuple[int, ...] | None
) -> tuple[Value, Value | None] | None:
    """Addresses of a block, and which of its lanes lie inside the tensor (None: all do).

    Args:
        op: Uses the descriptor.
        descriptor: With the layout that the kernel gave it, if it made it.
        starts: Where the block begins, along each dimension of the tensor.
        tensor: Its shape, if the launch says it.

    Returns:
        Addresses and lanes; None where something of it is not known.
    """
    block = next((match.group(1) for kind in op.types if (match := _SHAPE.search(kind.text))), "")
    shape = tuple(int(n) for n in block.split("x")[:-1])
    layout = descriptor.layout or _row_major(tensor)
    if layout is None or op.name not in _BLOCKS:
        return None
    sizes, strides = layout
    if not len(shape) == len(sizes) == len(strides) == len(starts) or not all(v.known for v in (descriptor, *sizes, *strides, *starts)):
        return None
    offset, inside = values.with_shape(descriptor, shape), []
    same = (-1, *(1,) * len(shape))  # in all lanes of a program
    for axis, (length, start, size, stride) in enumerate(zip(shape, starts, sizes, strides, strict=True)):
        first = start.scalar().reshape(same)
        lanes = np.arange(length).reshape([-1 if d == axis + 1 else 1 for d in range(len(shape) + 1)])
        steps = values.multiply(Value((first, lanes), shape), values.with_shape(stride, shape), shape)
        offset = values.add(offset, steps, shape)
        within = (first + lanes >= 0) & (first + lanes < size.scalar().reshape(same))
        if not within.all():
            inside.append(within)
    return offset, Value(tuple(inside), shape, True) if inside else None


def _row_major(shape: tuple[int, ...] | None) -> Layout | None:
    """Sizes and strides of a descriptor from the host. How far apart its rows are is not said; which elements are the same is."""
    if shape is None:
        return None
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return tuple(values.number(int(n)) for n in shape), tuple(values.number(int(n)) for n in strides)


def block_elements(
    op: Operation, descriptor: Value, starts: Sequence[Value], tensor: tuple[int, ...] | None, programs: int
) -> tuple[Count, frozenset[str]]:
    """Elements of a block that lie inside the tensor, per program, of one whose addresses are not known.

    Returns:
        The elements, and why it is not known how many there are: then all of the block are taken for them.
    """
    block = op.result if op.result is not None else next((t for t in reversed(op.types) if t.shape), None)
    if block is None:
        return np.ones(programs), frozenset()
    total = np.full(programs, float(block.elements))
    if tensor is None:
        parts = (*descriptor.layout[0], *descriptor.layout[1], *starts) if descriptor.layout else ()
        reasons = frozenset[str]().union(*(v.reasons for v in parts))
        return total, reasons or frozenset({f"{SHAPE}{descriptor.base}"})
    if len(tensor) == len(starts):
        for size, length, start in zip(tensor, block.shape[-len(starts) :], starts, strict=False):
            if start.known:
                inside = np.clip(size - start.scalar(), 0, length) - np.clip(-start.scalar(), 0, length)
                total = total * np.maximum(inside, 0) / length
    return total, frozenset()


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


def request(op: Operation, environment: Environment, shapes: Mapping[str, tuple[int, ...]], execution: Execution) -> Request:
    """What a memory operation asks for. What of it is not known is named in `execution`.

    Args:
        op: The operation.
        environment: Of the function that it stands in.
        shapes: Of the tensors behind descriptors that the launch makes, by argument.
        execution: Takes what is not known.
    """
    operands = environment.values(address_operands(op))
    pointer, others = operands[0], operands[1:]
    certain = not any(operand.assumed for operand in operands)
    if "descriptor" in op.name:
        tensor = shapes.get(pointer.base or "")
        block = block_addresses(op, pointer, others, tensor)
        if block is None:
            elements, reasons = block_elements(op, pointer, others, tensor, execution.programs)
            execution.assume(reasons, "a block", op, "the prediction takes it for full, the bound for empty")
            return Request(pointer=pointer, mask=None, shape=_shape(op), masked=True, certain=False, block=elements, starts=tuple(others))
        return Request(pointer=block[0], mask=block[1], shape=block[0].shape, masked=True, certain=certain)
    mask = others[0] if others else None
    if mask is not None and not mask.known:
        execution.assume(mask.reasons, "a mask", op, "the prediction takes all its lanes for active, the bound none")
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

    def count(self, op: Operation, requested: Request, running: Running, execution: Execution) -> None:
        """Add one execution to what was found of an operation.

        What it does where it is only assumed to run, under a mask that is not known, or at an address that hangs on something assumed,
        is no more than assumed; where its address is not known, it still touches something.
        """
        issued, distinct = self._lanes(requested, execution.programs)
        for assumed, some in running.parts() if requested.certain else [(True, running)]:
            part = (id(op), assumed)
            access = _access_of(part, op, requested, execution)
            counts = some.counts
            access.executions += counts
            access.lanes += counts * issued
            access.distinct += counts * distinct
            if access.base != requested.pointer.base:
                access.base = None
            if requested.unlocated:
                access.unknown_extent = access.unlocated = True
                access.unlocated_for |= requested.unlocated_for
            else:  # a mask that binds nowhere is left out
                binding = None if (issued == math.prod(requested.shape)).all() else requested.mask
                _reach(access, requested.pointer, binding, some.active)
                self.places.record(requested.pointer, binding, some, execution.places.setdefault(part, {}))
            if access.contiguous is None and "descriptor" not in op.name:  # the copy engine fetches a block, not threads their lanes
                access.contiguous = contiguous(requested.pointer, requested.shape)
                size = max(round(element_bytes(access_element(op))), 1)
                if access.contiguous is not None and access.contiguous * size < SECTOR_BYTES:
                    access.sector_ratio = sector_ratio(requested.pointer, size)

    def _lanes(self, requested: Request, programs: int) -> tuple[Count, Count]:
        """Lanes that are active, per program, and distinct addresses of them."""
        if requested.block is not None:
            return requested.block, requested.block
        pointer, mask, shape, factors = requested.pointer, requested.mask, requested.shape, values.factors(requested.mask)
        issued = self.remembered.recall(("lanes", shape), lambda: values.lanes(mask, shape, programs), factors)
        if not pointer.known:
            return issued, issued
        distinct = self.remembered.recall(
            ("distinct", shape), lambda: values.distinct(pointer, mask, shape, programs), pointer.varying, factors
        )
        return issued, np.minimum(distinct, issued)


def _access_of(part: Part, op: Operation, requested: Request, execution: Execution) -> Access:
    """What was found of an operation so far; nothing at first."""
    if part not in execution.accesses:
        zero = np.zeros(execution.programs)
        execution.accesses[part] = Access(op, zero.copy(), zero.copy(), zero.copy(), requested.pointer.base, masked=requested.masked)
    return execution.accesses[part]


def _reach(access: Access, pointer: Value, mask: Value | None, active: Active) -> None:
    """Widen where an access reaches by what the programs that are active touch."""
    try:
        reach = values.extent(values.within(pointer) if values.OR in str(pointer.base) else pointer, mask, active)
    except (ValueError, MemoryError):
        access.unknown_extent = True
        return
    if reach is not None:
        access.low = reach[0] if access.low is None else min(access.low, reach[0])
        access.high = reach[1] if access.high is None else max(access.high, reach[1])
