"""One memory operation of a kernel, counted: lanes it issues, distinct ones, where it reaches, elements in a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from advisor.compiled import values
from advisor.compiled.execution import Access, Active, Count
from advisor.compiled.ir import Operation
from advisor.compiled.slicing import address_operands
from advisor.compiled.values import Value, contiguous

if TYPE_CHECKING:
    from advisor.compiled.evaluate import Evaluator


def count_access(evaluator: Evaluator, op: Operation, environment: Mapping[str, Value], active: Active, times: Count) -> None:
    """Add what a memory operation does in the programs that are active, `times` each, to what was found of it."""
    pointer = evaluator.value(environment, op.operands[0])
    tensor = next((t for t in op.types if t.shape), op.types[0] if op.types else None)
    shape = tensor.shape if tensor is not None else ()
    mask: Value | None = None
    if "descriptor" in op.name:
        issued = _descriptor_lanes(evaluator, op, environment, pointer)
        fresh, masked = issued, True
    else:
        names = address_operands(op)
        mask = evaluator.value(environment, names[1]) if len(names) > 1 else None
        masked = mask is not None
        issued = _lanes(evaluator, mask, shape)
        fresh = _distinct(evaluator, pointer, mask, shape) if pointer.known else issued
    access = evaluator.result.accesses.get(id(op))
    if access is None:
        zero = np.zeros(evaluator.programs)
        access = Access(op, zero.copy(), zero.copy(), zero.copy(), pointer.base, masked=masked)
        evaluator.result.accesses[id(op)] = access
    count = np.where(active, times, 0.0)
    access.executions += count
    access.lanes += count * issued
    access.distinct += count * np.minimum(fresh, issued)
    if mask is not None and not mask.known:
        access.mask_reasons |= mask.reasons
        evaluator.unknown(mask.reasons, "a mask", op, "all its lanes are assumed active")
    if access.base != pointer.base:
        access.base = None
    if "descriptor" in op.name:
        access.unknown_extent = True
        return
    if not pointer.known or not pointer.parts:
        access.unknown_extent = True
    else:
        _reach(access, pointer, None if (issued == _elements(shape)).all() else mask, active)
    if access.contiguous is None:
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
    key = (0, *shape, *(id(p) for p in (mask.parts if mask is not None else ())))
    if key not in evaluator.memory:
        evaluator.memory[key] = values.lanes(mask, shape, evaluator.programs)
        evaluator.kept.append(mask)
    return evaluator.memory[key]


def _distinct(evaluator: Evaluator, pointer: Value, mask: Value | None, shape: tuple[int, ...]) -> Count:
    varying = tuple(id(p) for p in pointer.parts if any(n > 1 for n in p.shape[1:]))
    key = (1, *shape, -1, *varying, -1, *(id(p) for p in (mask.parts if mask is not None else ())))
    if key not in evaluator.memory:
        evaluator.memory[key] = values.distinct(pointer, mask, shape, evaluator.programs)
        evaluator.kept.append((pointer, mask))
    return evaluator.memory[key]


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
            evaluator.unknown(frozenset({f"the shape of descriptor {pointer.base}"}), "a block", op, "it is assumed full")
        return total
    extent = block.shape[-len(starts) :] if starts else ()
    for size, length, name in zip(sizes, extent, starts, strict=False):
        start = evaluator.value(environment, name)
        if start.known:
            inside = np.clip(size - start.scalar(), 0, length) - np.clip(-start.scalar(), 0, length)
            total = total * np.maximum(inside, 0) / length
    return total
