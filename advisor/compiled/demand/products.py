"""The matrix products of a function: where operands come from and results go, and what of their tiles holds nothing of the problem.

Where a tile is larger than its problem, loads leave lanes out, which are zero then, and stores leave out what was computed of them.
The configuration pays for that padding; a bound does not, for another kernel need not compute it. Two things tell: the masks of the loads
that a product's operands come from, in each execution, and those of all stores that its rows and columns end in, over the whole program.
Where neither can be told, nothing counts as padding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.compiler.kernel import CompiledKernel
from advisor.compiled.demand.costs import TENSOR_TYPES
from advisor.compiled.ir import values
from advisor.compiled.ir.arithmetic import CASTS, constant
from advisor.compiled.ir.execution import Active, Count, Execution, Padded, Remembered, Running
from advisor.compiled.ir.ir import Block, Function, Operation
from advisor.compiled.ir.slicing import for_parts
from advisor.compiled.ir.values import Value

Side = tuple[int, int]
"""A memory operation (its `id`) and a dimension of what it loads or stores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Where a product's operands come from and where its result goes.

    Attributes:
        left: The dimensions of the load that rows and depth of the left operand are, unchanged but for casts and factors; None: none is.
        right: The same of depth and columns of the right one.
        rows: The dimensions of stores that rows of the result end in; None: they are needed for something else too.
        columns: The same of its columns.
    """

    left: tuple[Side, Side] | None
    right: tuple[Side, Side] | None
    rows: frozenset[Side] | None
    columns: frozenset[Side] | None


def products(function: Function) -> dict[int, Product]:
    """The products of a function, by the `id` of their operations."""
    dots = [op for op in function.walk() if op.name in ("tt.dot", "tt.dot_scaled") and all(len(t.shape) == 2 for t in op.types[:2])]
    names = Names(function.blocks) if dots else None
    by_operation = {}
    for op in dots:
        assert names is not None
        plain = op.name == "tt.dot"  # operands of a scaled product may be packed
        left, right = (names.source(name) if plain else None for name in op.operands[:2])
        by_operation[id(op)] = Product(left=left, right=right, rows=names.ends(op.results[0], 0), columns=names.ends(op.results[0], 1))
    return by_operation


_SAME = frozenset(
    {
        "tt.fp_to_fp",
        "tt.bitcast",
        "tt.clampf",
        "tt.extern_elementwise",
        "tt.precise_sqrt",
        "tt.precise_divf",
        "tt.mulhiui",
        "tt.elementwise_inline_asm",
    }
)
"""Operations, beside those of `arith` and `math`, that give in each place what they make of that place of their operands."""


class Names:
    """Who makes and who takes each value of a function. A name may stand for several values: then whatever any of them does counts."""

    def __init__(self, blocks: list[Block]) -> None:
        self.makers: dict[str, list[Operation | None]] = {}  # None: an argument of a region
        self.takers: dict[str, list[tuple[Operation, Operation | None]]] = {}  # with the operation that they stand in
        self._visit(blocks, None)

    def _visit(self, blocks: list[Block], owner: Operation | None) -> None:
        for block in blocks:
            for name in block.arguments:
                self.makers.setdefault(name, []).append(None)
            for op in block.operations:
                for name in op.results:
                    self.makers.setdefault(name, []).append(op)
                for name in dict.fromkeys(op.operands):
                    self.takers.setdefault(name, []).append((op, owner))
                for _, passed in op.successors:
                    for name in passed:
                        self.takers.setdefault(name, []).append((op, owner))
                if op.name == "scf.for":
                    for name, _ in for_parts(op)[4]:
                        self.makers.setdefault(name, []).append(None)
                for region in op.regions:
                    self._visit(region, op)

    def maker(self, name: str) -> Operation | None:
        """The operation that makes a value; None: an argument of a region, or one of several."""
        makers = self.makers.get(name, ())
        return makers[0] if len(makers) == 1 else None

    def source(self, name: str) -> tuple[Side, Side] | None:
        """The load whose lanes a tile's are, 0 where they are masked off, and the dimensions of it that the tile's are; None: none is."""
        op = self.maker(name)
        if op is None:
            return None
        if op.name in CASTS or op.name == "arith.mulf":
            return next((origin for operand in op.operands if (origin := self.source(operand)) is not None), None)
        if op.name == "tt.trans":
            origin = self.source(op.operands[0])
            return origin[::-1] if origin is not None else None
        if op.name == "tt.descriptor_load" and op.result is not None and op.types[0].shape == op.result.shape:
            return (id(op), 0), (id(op), 1)
        return ((id(op), 0), (id(op), 1)) if op.name == "tt.load" and self._zero(op.operands[2:]) else None

    def _zero(self, other: list[str]) -> bool:
        """Whether what a load gives in place of lanes that are masked off is 0, or nobody asks."""
        op = self.maker(other[0]) if other else None
        if op is None or op.name != "arith.constant":
            return not other
        value = constant(op)
        return value.known and not value.array().any()

    def ends(self, name: str, axis: int) -> frozenset[Side] | None:
        """The stores that a dimension of a value ends in, and the dimensions it is of what they store; None: not in stores alone."""
        sides: set[Side] = set()
        seen, waiting = set(), [(name, axis)]
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            for op, owner in self.takers.get(place[0], ()):
                if op.name in ("tt.store", "tt.descriptor_store", "tt.descriptor_reduce", "tt.atomic_rmw"):
                    value = op.operands[-1 if "descriptor" in op.name else 1]
                    block = "descriptor" not in op.name or len(op.types[0].shape) == len(op.types[-1].shape)
                    there = "descriptor" in op.name or place[1] < len(op.types[0].shape)  # else another value of the same name
                    if op.operands.count(place[0]) > 1 or value != place[0] or not block or not there:
                        return None
                    sides.add((id(op), place[1]))
                    continue
                onward = _onward(op, owner, *place)
                if onward is None:
                    return None
                waiting.extend(onward)
        return frozenset(sides)


def _onward(op: Operation, owner: Operation | None, name: str, axis: int) -> list[tuple[str, int]] | None:
    """The values, and their dimension, that a place along a dimension of an operand alone decides; None where it decides more."""
    at = [i for i, operand in enumerate(op.operands) if operand == name]
    if op.name == "scf.yield" and owner is not None and owner.name in ("scf.for", "scf.if"):
        carried = [n for n, _ in for_parts(owner)[4]] if owner.name == "scf.for" else []
        return [(result, axis) for i in at for result in (*carried[i : i + 1], *owner.results[i : i + 1])]
    if op.name == "scf.for":
        parts = for_parts(op)
        if name in parts[1:4]:
            return None
        starts = [i for i, (_, start) in enumerate(parts[4]) if start == name]
        return [(part, axis) for i in starts for part in (parts[4][i][0], *op.results[i : i + 1])]
    if op.name == "tt.dot":
        rank = len(op.types[0].shape)
        axes_remain = all(i >= 2 or axis == (rank - 2, rank - 1)[i] or axis < rank - 2 for i in at)
        return [(op.results[0], axis)] if axes_remain else None
    if op.name in ("tt.reduce", "tt.scan", "tt.expand_dims"):
        along = int(op.attribute("axis") or 0)
        if op.name == "tt.expand_dims":
            return [(op.results[0], axis + (axis >= along))]
        moved = axis - (axis > along) if op.name == "tt.reduce" else axis
        return None if axis == along else [(result, moved) for result in op.results]
    if op.name == "tt.trans":
        order = re.search(r"array<i32: ([\d, ]+)>", op.text)
        axes = [int(n) for n in order.group(1).split(",")] if order else []
        return [(op.results[0], axes.index(axis))] if axis in axes else None  # regions beside each other may name values alike
    if op.name == "tt.broadcast":
        return [(op.results[0], axis)] if op.types[0].shape[axis:][:1] == op.types[-1].shape[axis:][:1] else None
    return [(result, axis) for result in op.results] if op.name in _SAME or op.name.startswith(("arith.", "math.")) else None


@dataclass(slots=True)
class Padding:
    """The products of a module by the `id` of their operations, and the masks that tell how much of each is padding.

    Attributes:
        masks: Of the last execution of each load that operands come from.
        loads: These loads, by `id`.
        stores: The stores that results end in, by `id`, and the dimensions of them that do.
    """

    products: Mapping[int, Product]
    remembered: Remembered
    masks: dict[int, Value | None] = field(default_factory=dict)
    loads: frozenset[int] = field(init=False)
    stores: Mapping[int, tuple[int, ...]] = field(init=False)

    def __post_init__(self) -> None:
        products = self.products.values()
        self.loads = frozenset(side[0] for p in products for operand in (p.left, p.right) for side in operand or ())
        stores: dict[int, set[int]] = {}
        for operation, axis in (side for p in products for sides in (p.rows, p.columns) for side in sides or ()):
            stores.setdefault(operation, set()).add(axis)
        self.stores = {operation: tuple(sorted(axes)) for operation, axes in stores.items()}

    def accessed(self, op: Operation, mask: Value | None, shape: tuple[int, ...], active: Active, execution: Execution) -> None:
        """Note the mask of a load or store that a product has to do with."""
        key = id(op)
        if key in self.loads:
            before = self.masks.get(key)
            self.masks[key] = mask if mask is None or before is None else values.select_programs(active, mask, before)
        for axis in self.stores.get(key, ()):
            used = self._along(mask, axis, shape) & active[:, None]
            before_used = execution.stored.get((key, axis))
            execution.stored[(key, axis)] = used if before_used is None else before_used | used

    def execute(self, op: Operation, running: Running, execution: Execution) -> None:
        """Count a product: all of it, and of that what its operands leave. Other operations are none."""
        product = self.products.get(id(op))
        if product is None:
            return
        filled = self._filled(op, product)
        for assumed, some in running.parts():
            part = (id(op), assumed)
            if part not in execution.products:
                zero = np.zeros(execution.programs)
                execution.products[part] = Padded(op, *(zero.copy() for _ in range(5)))
            padded, counts = execution.products[part], some.counts
            padded.executions += counts
            for item, share in zip((padded.filled, padded.deep, padded.left, padded.right), filled, strict=True):
                item += counts * share

    def _filled(self, op: Operation, product: Product) -> tuple[Count, Count, Count, Count]:
        """Of one execution the share of the product, of its depth and of both operands that these leave, per program."""
        masks = [self.masks.get(operand[0][0]) if operand else None for operand in (product.left, product.right)]

        def shares() -> tuple[Count, Count, Count, Count]:
            (height, depth), (_, width) = op.types[0].shape, op.types[1].shape  # the right operand's may be packed: another depth
            rows, left_depth = self._edges(product.left, masks[0], (height, depth))
            right_depth, columns = self._edges(product.right, masks[1], (depth, width))
            deep, high, wide = (left_depth & right_depth).mean(axis=1), rows.mean(axis=1), columns.mean(axis=1)
            return high * deep * wide, deep, high * deep, deep * wide

        return self.remembered.recall(("filled", id(op)), shares, *(values.factors(mask) for mask in masks))

    def _edges(
        self, operand: tuple[Side, Side] | None, mask: Value | None, shape: tuple[int, int]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Where along both dimensions of an operand its load leaves anything; all of it where it comes from none."""
        if operand is None:
            return np.ones((1, shape[0]), bool), np.ones((1, shape[1]), bool)
        (_, first), (_, second) = operand
        as_loaded = shape if first < second else shape[::-1]
        return self._along(mask, first, as_loaded), self._along(mask, second, as_loaded)

    def _along(self, mask: Value | None, axis: int, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        return self.remembered.recall(("along", axis, shape), lambda: values.along(mask, axis, shape), values.factors(mask))

    def finish(self, execution: Execution) -> None:
        """Leave out of what was counted the rows and columns that no store keeps; where none was seen, all are."""
        for (key, _), padded in execution.products.items():
            results = []
            for sides in (self.products[key].rows, self.products[key].columns):
                used = [execution.stored[side] for side in sides or () if side in execution.stored]
                share = np.logical_or.reduce(used).mean(axis=1) if used else np.ones(1)
                results.append(np.where(share > 0, share, 1.0))
            high, wide = results
            padded.filled = np.minimum(padded.filled, padded.deep * high * wide)
            padded.left, padded.right = np.minimum(padded.left, padded.deep * high), np.minimum(padded.right, padded.deep * wide)


_SCALED = re.compile(r"\b(tt\.dot_scaled|ttng\.\w*mma_scaled|\w+\.scaled_(mfma|wmma)\w*)\b")
_PLAIN = re.compile(r"\b(?:tt\.dot|ttng\.warp_group_dot|ttng\.tc_gen5_mma) .*?<(?:\d+x)+(\w+)")


def scales_blocks(compiled: CompiledKernel) -> bool:
    """Whether a product of the kernel runs on an instruction that scales its blocks."""
    return bool(_SCALED.search(compiled.ttgir))


def unpacked_type(compiled: CompiledKernel) -> str | None:
    """The type in which products of scaled blocks run after they were unpacked; None where they were not, or there are none."""
    if "tt.dot_scaled" not in compiled.ttir or not compiled.ttgir or scales_blocks(compiled):
        return None
    types = {TENSOR_TYPES.get(match.group(1)) for line in compiled.ttgir.splitlines() if (match := _PLAIN.search(line))}
    return types.pop() if len(types) == 1 else None
