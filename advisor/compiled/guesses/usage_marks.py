"""Marks on the parameters of a kernel: what is done with a value is noted under the parameters that the value comes from."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from advisor.compiled.guesses.origins import Origins
from advisor.compiled.guesses.parameter_usage import Usage
from advisor.compiled.guesses.value_flow import float_operands, is_float, is_integer, last_name

_BYTE_SHIFTS = (3, 4, 7)
"""Distances at which a byte is taken apart: two values of 4 bits, and the fields of an fp8 number."""
_ORDERS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class Marks:
    """Usage by parameter, of one kernel."""

    def __init__(self, found: Mapping[str, Usage], origins: Origins) -> None:
        self.found = found
        self.origins = origins

    def parameter(self, node: ast.AST | None) -> Usage | None:
        """The parameter that an expression is; None: it is something else."""
        return self.found.get(node.id) if isinstance(node, ast.Name) else None

    def named_in(self, nodes: Iterable[ast.AST]) -> Iterator[Usage]:
        """The parameters that are named in expressions."""
        for node in nodes:
            for inner in ast.walk(node):
                if (use := self.parameter(inner)) is not None:
                    yield use

    def loaded(self, node: ast.expr, *, handed: bool = False, **what: bool) -> Iterator[Usage]:
        """The parameters that it is loaded through what a value is made of (`Origins.loaded`)."""
        return (self.found[name] for name in self.origins.loaded(node, handed=handed, **what))

    def unchanged(self, node: ast.expr) -> Iterator[Usage]:
        """The parameters that a value is loaded through on which no arithmetic was done (`Origins.unchanged`)."""
        return (self.found[name] for name in self.origins.unchanged(node))

    def accessed(self, address: ast.expr) -> list[Usage]:
        """The parameters that an access may go to: of several, each is marked as one that it may."""
        names = self.origins.roots(address)
        for name in names:
            self.found[name].chosen |= len(set(names)) > 1
        return [self.found[name] for name in names]

    def flag(self, node: ast.expr) -> None:
        """Mark a parameter that is tested as a flag, as it is or by `not`."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node = node.operand
        if (use := self.parameter(node)) is not None:
            use.boolean = True

    def extent(self, size: ast.expr) -> None:
        """Mark the parameters that a size of a tensor is made of, by name or behind one name."""
        for inner in ast.walk(size):
            if isinstance(inner, ast.Name):
                for use in self.named_in([inner] if inner.id in self.found else self.origins.reaching.values(inner)):
                    use.extent = True

    def bits(self, node: ast.expr) -> None:
        """Mark the tensors whose loaded values are taken apart, as packed numbers are."""
        for use in self.loaded(node, handed=True):
            use.bitwise = True
        for use in self.unchanged(node):
            use.bits = True

    def shifted(self, node: ast.expr, direction: ast.operator, distance: ast.expr) -> None:
        """Mark the tensors whose loaded values are taken apart by a shift."""
        self.bits(node)
        by = distance.value if isinstance(distance, ast.Constant) else None
        for use in self.unchanged(node):
            use.narrow_bits |= by in _BYTE_SHIFTS
            use.wide_bits |= isinstance(direction, ast.RShift) and isinstance(by, int) and by >= 8

    def indices(self, node: ast.expr) -> None:
        """Mark the tensors whose loaded values are used as numbers in an address, a loop bound or an index.

        What only chooses among indices may be anything that can be compared: it is a number where it is compared with one.
        """
        for use in self.loaded(node):
            use.index = True
        for inner in self.origins.inside(node):
            if isinstance(inner, ast.Call) and last_name(inner) == "where" and inner.args:
                for each in self.origins.inside(inner.args[0]):
                    if isinstance(each, ast.Compare) and any(is_integer(side) for side in (each.left, *each.comparators)):
                        self.decides(each)

    def offsets(self, addresses: Iterable[ast.expr]) -> None:
        """Mark the arguments that an address is worked out with."""
        for address in addresses:
            for inner in self.origins.inside(address, rounded=False):
                if (use := self.parameter(inner)) is not None:
                    use.offset = True

    def decides(self, node: ast.Compare) -> None:
        """Mark the tensors whose loaded values decide: integers, unless it turns out that they are floats."""
        for side in _compared(node):
            for use in self.loaded(side, reductions=False):
                use.tested = True

    def counted(self, node: ast.Compare) -> None:
        """Mark the tensors whose loaded values are compared with an index, and the arguments that are."""
        sides = _compared(node)
        if any(self.origins.counts(side) for side in sides):
            for use in self.named_in(sides):
                use.whole = True
            for side in sides:
                for use in self.loaded(side, bits=False):  # a digit of a number says nothing of its type
                    use.counted = True


def _compared(node: ast.Compare) -> list[ast.expr]:
    """The sides of a comparison of numbers that may be integers; none: it is of floats, or of something else."""
    sides = [node.left, *node.comparators]
    orders = all(isinstance(op, _ORDERS) for op in node.ops)
    return sides if orders and not any(is_float(side) or float_operands(side) for side in sides) else []
