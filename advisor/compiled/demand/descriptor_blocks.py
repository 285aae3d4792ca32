"""The block of a tensor that a descriptor is used at: its addresses, or at least how much of it lies inside the tensor."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from advisor.compiled.ir import values
from advisor.compiled.ir.contents import SHAPE
from advisor.compiled.ir.execution import Count
from advisor.compiled.ir.ir import Operation
from advisor.compiled.ir.values import Value

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
    found: dict[str, int | bool] = {}
    for place, (name, kind) in enumerate(zip(arguments, kinds, strict=True)):
        shape = shapes.get(name[1:])
        if shape is None or not kind.startswith(("!tt.ptr", "!tt.tensordesc")):
            continue
        numbers = (*shape, *(math.prod(shape[axis + 1 :]) for axis in range(len(shape))))
        numbers *= 2 if kind.startswith("!tt.ptr") else 1
        for part, text in zip(arguments[place + 1 :], kinds[place + 1 :], strict=True):
            if not numbers:
                break
            found[part[1:]] = False if text == "i1" else numbers[0]
            numbers = numbers if text == "i1" else numbers[1:]
    return found


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
    block = next((found.group(1) for kind in op.types if (found := _SHAPE.search(kind.text))), "")
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
