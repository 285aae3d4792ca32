"""Padding of matrix products: rows and columns of a tile that hold nothing of the problem.

Where a tile is larger than its problem, loads leave lanes out, which are zero then, and stores leave out what was computed of them.
The configuration pays for that; a bound does not, for another kernel need not compute it. Two things tell: the masks of the loads that
a product's operands come from, in each execution, and those of all stores that its rows and columns end in, over the whole program.
Where neither can be told, nothing counts as padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.demand.products import Product, Side
from advisor.compiled.ir import values
from advisor.compiled.ir.execution import Active, Count, Execution, Padded, Running
from advisor.compiled.ir.ir import Operation
from advisor.compiled.ir.remembered import Remembered
from advisor.compiled.ir.values import Value


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

    def accessed(self, op: Operation, mask: Value | None, shape: tuple[int, ...], active: Active, found: Execution) -> None:
        """Note the mask of a load or store that a product has to do with."""
        key = id(op)
        if key in self.loads:
            before = self.masks.get(key)
            self.masks[key] = mask if mask is None or before is None else values.select_programs(active, mask, before)
        for axis in self.stores.get(key, ()):
            used = self._along(mask, axis, shape) & active[:, None]
            before_used = found.stored.get((key, axis))
            found.stored[(key, axis)] = used if before_used is None else before_used | used

    def execute(self, op: Operation, running: Running, found: Execution) -> None:
        """Count a product: all of it, and of that what its operands leave. Other operations are none."""
        product = self.products.get(id(op))
        if product is None:
            return
        filled = self._filled(op, product)
        for assumed, some in running.parts():
            part = (id(op), assumed)
            if part not in found.products:
                zero = np.zeros(found.programs)
                found.products[part] = Padded(op, *(zero.copy() for _ in range(5)))
            padded, counts = found.products[part], some.counts
            padded.executions += counts
            for each, share in zip((padded.filled, padded.deep, padded.left, padded.right), filled, strict=True):
                each += counts * share

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

    def finish(self, found: Execution) -> None:
        """Leave out of what was counted the rows and columns that no store keeps; where none was seen, all are."""
        for (key, _), padded in found.products.items():
            kept = []
            for sides in (self.products[key].rows, self.products[key].columns):
                used = [found.stored[side] for side in sides or () if side in found.stored]
                share = np.logical_or.reduce(used).mean(axis=1) if used else np.ones(1)
                kept.append(np.where(share > 0, share, 1.0))
            high, wide = kept
            padded.filled = np.minimum(padded.filled, padded.deep * high * wide)
            padded.left, padded.right = np.minimum(padded.left, padded.deep * high), np.minimum(padded.right, padded.deep * wide)
