"""One memory operation of a kernel, counted: lanes it issues, distinct ones, where it reaches, elements in a row."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from advisor.compiled import values
from advisor.compiled.execution import Access, Active, Count
from advisor.compiled.ir import Operation
from advisor.compiled.places import record
from advisor.compiled.slicing import address_operands
from advisor.compiled.values import Value, contiguous

if TYPE_CHECKING:
    from advisor.compiled.evaluate import Evaluator


def count_access(evaluator: Evaluator, op: Operation, environment: Mapping[str, Value], active: Active, times: Count) -> None:
    """Add what a memory operation does in the programs that are active, `times` each, to what was found of it.

    What it does where it is only assumed to run, under a mask that is not known, or at an address that hangs on something assumed,
    is no more than assumed; where its address is not known, it still touches something.
    """
    names = address_operands(op)
    pointer = evaluator.value(environment, op.operands[0])
    tensor = next((t for t in op.types if t.shape), op.types[0] if op.types else None)
    shape = tensor.shape if tensor is not None else ()
    mask: Value | None = None
    descriptor = "descriptor" in op.name
    tile = _tile(evaluator, op, environment, pointer) if descriptor else None
    if descriptor and tile is None:
        issued = _descriptor_lanes(evaluator, op, environment, pointer)
        fresh, masked = issued, True
    else:
        if tile is not None:
            pointer, mask = tile
            shape, masked = pointer.shape, True
        else:
            mask = evaluator.value(environment, names[1]) if len(names) > 1 else None
            masked = mask is not None
        issued = _lanes(evaluator, mask, shape)
        fresh = _distinct(evaluator, pointer, mask, shape) if pointer.known else issued
    if mask is not None and not mask.known:
        evaluator.unknown(mask.reasons, "a mask", op, "the prediction takes all its lanes for active, the bound none")
    if not descriptor or tile is not None:
        evaluator.padding.accessed(evaluator, op, mask, shape, active)
    unlocated = not pointer.known or not pointer.parts or (descriptor and tile is None)
    certain = (mask is None or mask.known) and not (descriptor and tile is None)
    certain &= not any(evaluator.value(environment, name).assumed for name in names)
    for assumed, members in evaluator.parts(active) if certain else [(True, active)]:
        part = (id(op), assumed)
        access = evaluator.result.accesses.get(part)
        if access is None:
            zero = np.zeros(evaluator.programs)
            access = Access(op, zero.copy(), zero.copy(), zero.copy(), pointer.base, masked=masked)
            evaluator.result.accesses[part] = access
        count = np.where(members, times, 0.0)
        access.executions += count
        access.lanes += count * issued
        access.distinct += count * np.minimum(fresh, issued)
        if access.base != pointer.base:
            access.base = None
        if unlocated:
            access.unknown_extent = access.unlocated = True
        else:
            binding = None if (issued == _elements(shape)).all() else mask
            _reach(access, pointer, binding, members)
            record(evaluator, part, pointer, binding, members)
        if access.contiguous is None and not descriptor:  # the copy engine fetches a block, not threads their lanes
            access.contiguous = contiguous(pointer, shape)


def _elements(shape: tuple[int, ...]) -> float:
    return float(np.prod(shape)) if shape else 1.0


def _reach(access: Access, pointer: Value, mask: Value | None, active: Active) -> None:
    """Widen where an access reaches by what the programs that are active touch; a mask that binds nowhere is left out."""
    try:
        reach = values.extent(pointer, mask, active)
    except (ValueError, MemoryError):
        access.unknown_extent = True
        return
    if reach is not None:
        access.low = reach[0] if access.low is None else min(access.low, reach[0])
        access.high = reach[1] if access.high is None else max(access.high, reach[1])


def _lanes(evaluator: Evaluator, mask: Value | None, shape: tuple[int, ...]) -> Count:
    return evaluator.remembered.recall(("lanes", shape), lambda: values.lanes(mask, shape, evaluator.programs), values.factors(mask))


def _distinct(evaluator: Evaluator, pointer: Value, mask: Value | None, shape: tuple[int, ...]) -> Count:
    return evaluator.remembered.recall(
        ("distinct", shape), lambda: values.distinct(pointer, mask, shape, evaluator.programs), pointer.varying, values.factors(mask)
    )


_TILES = frozenset({"tt.descriptor_load", "tt.descriptor_store", "tt.descriptor_reduce"})
_BLOCK = re.compile(r"tensordesc<(?:tensor<)?((?:\d+x)+)")


def _tile(evaluator: Evaluator, op: Operation, environment: Mapping[str, Value], pointer: Value) -> tuple[Value, Value | None] | None:
    """Addresses of the block that a descriptor is used at, and which of its lanes lie inside the tensor.

    None where something of it is not known.
    """
    block = next((found.group(1) for kind in op.types if (found := _BLOCK.search(kind.text))), "")
    shape = tuple(int(n) for n in block.split("x")[:-1])
    layout = pointer.layout or _row_major(evaluator.inputs.shapes.get(pointer.base or ""))
    if layout is None or op.name not in _TILES:
        return None
    sizes, strides = layout
    starts = [evaluator.value(environment, name) for name in address_operands(op)[1:]]
    if not len(shape) == len(sizes) == len(strides) == len(starts) or not all(v.known for v in (pointer, *sizes, *strides, *starts)):
        return None
    offset, inside = values.with_shape(pointer, shape), []
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


def _row_major(shape: tuple[int, ...] | None) -> tuple[tuple[Value, ...], tuple[Value, ...]] | None:
    """Sizes and strides of a descriptor from the host. How far apart its rows are is not said; which elements are the same is."""
    if shape is None:
        return None
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return tuple(values.number(int(n)) for n in shape), tuple(values.number(int(n)) for n in strides)


def _descriptor_lanes(evaluator: Evaluator, op: Operation, environment: Mapping[str, Value], pointer: Value) -> Count:
    """Elements of a descriptor's block that lie inside its tensor."""
    block = op.result if op.result is not None else next((t for t in reversed(op.types) if t.shape), None)
    if block is None:
        return np.ones(evaluator.programs)
    sizes = evaluator.inputs.shapes.get(pointer.base or "")
    starts = address_operands(op)[1:]
    total = np.full(evaluator.programs, float(block.elements))
    if sizes is None or len(sizes) != len(starts):
        if sizes is None:
            parts = (*pointer.layout[0], *pointer.layout[1], *(evaluator.value(environment, n) for n in starts)) if pointer.layout else ()
            reasons = frozenset[str]().union(*(v.reasons for v in parts)) or {f"the shape of descriptor {pointer.base}"}
            evaluator.unknown(frozenset(reasons), "a block", op, "the prediction takes it for full, the bound for empty")
        return total
    extent = block.shape[-len(starts) :] if starts else ()
    for size, length, name in zip(sizes, extent, starts, strict=False):
        start = evaluator.value(environment, name)
        if start.known:
            inside = np.clip(size - start.scalar(), 0, length) - np.clip(-start.scalar(), 0, length)
            total = total * np.maximum(inside, 0) / length
    return total
