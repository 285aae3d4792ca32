"""Marks on the parameters of a kernel: what is done with a value is noted under the parameters that the value comes from."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.compiled.guesses.origins import Origins, float_operands

_BYTE_SHIFTS = (3, 4, 7)
"""Distances at which a byte is taken apart: two values of 4 bits, and the fields of an fp8 number."""


class Marks:
    """Usage by parameter, of one kernel."""

    def __init__(self, by_parameter: Mapping[str, Usage], origins: Origins) -> None:
        self.found = by_parameter
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

    def loaded(self, node: ast.expr, *, handed: bool = False) -> Iterator[Usage]:
        """The parameters that it is loaded through what a value is made of (`Origins.loaded`)."""
        return (self.found[name] for name in self.origins.loaded(node, handed=handed))

    def unchanged(self, node: ast.expr) -> Iterator[Usage]:
        """The parameters that a value is loaded through on which no arithmetic was done (`Origins.unchanged`)."""
        return (self.found[name] for name in self.origins.unchanged(node))

    def accessed(self, address: ast.expr) -> list[Usage]:
        """The parameters that an access may go to."""
        return [self.found[name] for name in self.origins.roots(address)]

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
                for use in self.named_in([inner] if inner.id in self.found else self.origins.values(inner)):
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
        """Mark the tensors whose loaded values are used as numbers in an address, a loop bound or an index."""
        for use in self.loaded(node):
            use.index = True

    def offsets(self, addresses: Iterable[ast.expr]) -> None:
        """Mark the arguments that an address is worked out with."""
        for address in addresses:
            for inner in self.origins.inside(address):
                if (use := self.parameter(inner)) is not None:
                    use.offset = True

    def decides(self, node: ast.Compare) -> None:
        """Mark the tensors whose loaded values decide: integers, unless it turns out that they are floats."""
        for side in (node.left, *node.comparators) if not float_operands(node) else ():
            for use in self.loaded(side):
                use.tested = True

    def counted(self, node: ast.Compare) -> None:
        """Mark the arguments that are compared with an index."""
        sides = [node.left, *node.comparators]
        if any(self.origins.counts(side) for side in sides):
            for use in self.named_in(sides):
                use.whole = True


OF_VALUES = ("bits", "narrow_bits", "wide_bits", "bitwise", "real", "addresses", "adapted")
"""What is done with loaded values, which a helper may be handed as they are, or load itself."""
OF_ARGUMENTS = (
    "extent",
    "items",
    "range_bound",
    "boolean",
    "optional",
    "element_type",
    "stored",
    "descriptor",
    "number",
    "beside_floats",
    "integer",
    "offset",
    "whole",
    "switch",
)
"""What is done with an argument itself."""


@dataclass(slots=True)
class Usage:
    """What is done with one parameter."""

    pointer: bool = False
    descriptor: int = 0  # dimensions of the tensor that it describes
    index: bool = False  # what is loaded through it is used as an index
    tested: bool = False  # what is loaded through it decides a branch, compared with what may be an integer
    real: bool = False  # what is loaded through it, or the argument, takes part in arithmetic of floats
    bits: bool = False  # what is loaded through it is shifted or masked, or an integer is added to it atomically
    narrow_bits: bool = False  # by as many bits as values in a byte are taken apart
    wide_bits: bool = False  # to the right by as many bits as a byte has, or more
    bitwise: bool = False  # what is computed from what is loaded through it is shifted or masked
    boolean: bool = False  # it is loaded and used as a mask, or tested as a flag
    optional: bool = False  # it is compared with None
    extent: bool = False  # size of a tl.arange or of a tensor
    items: int = 0  # of the tuple that it is, as far as its items are counted or named by number
    element_type: bool = False
    stored: bool = False  # it is the type that a value is converted to just before it is stored
    number: bool = False  # in arithmetic with floats
    beside_floats: bool = False  # added to floats, multiplied by or compared with them
    whole: bool = False  # it is compared with an index, or divided as integers are
    compared: list[Any] = field(default_factory=list)
    switch: bool = False  # whether it is above or below a constant is asked: `if cap > 0`
    range_bound: bool = False
    integer: bool = False  # in a bound of a loop
    offset: bool = False  # in an address
    addresses: bool = False  # what is loaded through it is made a pointer
    adapted: bool = False  # what is loaded, or stored, is of any type: it is converted to another, or was limited to it
    written: str = ""  # the type of integers, or of floats of 8 bits, that is stored through it: i8
    text: str = ""  # the option of an operation that it is given for, and that takes a text: input_precision

    @property
    def never_none(self) -> bool:
        """Whether it must be a number: the kernel computes with it, and never asks whether there is one."""
        return (self.extent or self.range_bound or self.integer or self.offset) and not (self.optional or self.boolean)

    @property
    def takes_text(self) -> bool:
        """Whether it is a text: the option of an operation, or compared with one."""
        return bool(self.text) or any(isinstance(constant, str) for constant in self.compared)

    def take_values(self, of_helper: Usage) -> None:
        """Note what a helper does with the values that it is handed, or loads itself."""
        self._take(of_helper, OF_VALUES)

    def take_pointer(self, of_helper: Usage) -> None:
        """Note what a helper does with a pointer that it is handed, and with what it loads through it."""
        self.pointer = True
        self._take(of_helper, ("index", "tested"))
        self.take_values(of_helper)

    def take_argument(self, of_helper: Usage) -> None:
        """Note what a helper does with an argument that it is handed as it is."""
        self._take(of_helper, OF_ARGUMENTS)
        self.text = self.text or of_helper.text
        self.compared.extend(of_helper.compared)

    def _take(self, other: Usage, fields: Iterable[str]) -> None:
        for name in fields:
            setattr(self, name, getattr(self, name) or getattr(other, name))


TEXTS = {
    "input_precision": "ieee",
    "eviction_policy": "",
    "cache_modifier": "",
    "padding_option": "zero",
    "fp_downcast_rounding": "rtne",
    "sem": "acq_rel",
}
"""Options of operations that take a text, with one that every target knows."""
