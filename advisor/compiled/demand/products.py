"""The matrix products of a function: which loads their operands come from, and which stores their results end in."""

from __future__ import annotations

import re
from dataclasses import dataclass

from advisor.compiled.ir.arithmetic import CASTS, constant
from advisor.compiled.ir.ir import Block, Function, Operation
from advisor.compiled.ir.slicing import for_parts

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
    found = {}
    for op in dots:
        assert names is not None
        plain = op.name == "tt.dot"  # operands of a scaled product may be packed
        left, right = (names.source(name) if plain else None for name in op.operands[:2])
        found[id(op)] = Product(left=left, right=right, rows=names.ends(op.results[0], 0), columns=names.ends(op.results[0], 1))
    return found


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
            return next((found for each in op.operands if (found := self.source(each)) is not None), None)
        if op.name == "tt.trans":
            found = self.source(op.operands[0])
            return found[::-1] if found is not None else None
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
        found: set[Side] = set()
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
                    if op.operands.count(place[0]) > 1 or value != place[0] or not block:
                        return None
                    found.add((id(op), place[1]))
                    continue
                onward = _onward(op, owner, *place)
                if onward is None:
                    return None
                waiting.extend(onward)
        return frozenset(found)


def _onward(op: Operation, owner: Operation | None, name: str, axis: int) -> list[tuple[str, int]] | None:
    """The values, and their dimension, that a place along a dimension of an operand alone decides; None where it decides more."""
    at = [i for i, each in enumerate(op.operands) if each == name]
    if op.name == "scf.yield" and owner is not None and owner.name in ("scf.for", "scf.if"):
        carried = [n for n, _ in for_parts(owner)[4]] if owner.name == "scf.for" else []
        return [(each, axis) for i in at for each in (*carried[i : i + 1], *owner.results[i : i + 1])]
    if op.name == "scf.for":
        parts = for_parts(op)
        if name in parts[1:4]:
            return None
        starts = [i for i, (_, start) in enumerate(parts[4]) if start == name]
        return [(each, axis) for i in starts for each in (parts[4][i][0], *op.results[i : i + 1])]
    if op.name == "tt.dot":
        rank = len(op.types[0].shape)
        kept = all(i >= 2 or axis == (rank - 2, rank - 1)[i] or axis < rank - 2 for i in at)
        return [(op.results[0], axis)] if kept else None
    if op.name in ("tt.reduce", "tt.scan", "tt.expand_dims"):
        along = int(op.attribute("axis") or 0)
        if op.name == "tt.expand_dims":
            return [(op.results[0], axis + (axis >= along))]
        moved = axis - (axis > along) if op.name == "tt.reduce" else axis
        return None if axis == along else [(each, moved) for each in op.results]
    if op.name == "tt.trans":
        order = re.search(r"array<i32: ([\d, ]+)>", op.text)
        return [(op.results[0], [int(n) for n in order.group(1).split(",")].index(axis))] if order else None
    if op.name == "tt.broadcast":
        return [(op.results[0], axis)] if op.types[0].shape[axis] == op.types[-1].shape[axis] else None
    return [(each, axis) for each in op.results] if op.name in _SAME or op.name.startswith(("arith.", "math.")) else None
