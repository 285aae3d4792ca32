"""What is done with one parameter of a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

OF_VALUES = ("bits", "narrow_bits", "wide_bits", "bitwise", "int8", "real", "addresses")
"""What is done with loaded values, which a helper may be handed as they are, or load itself."""
OF_LOADS = ("index", "counted", "tested")
"""What is done with the values that are loaded through a pointer."""
OF_ARGUMENTS = (
    "extent",
    "range_bound",
    "boolean",
    "optional",
    "element_type",
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
    chosen: bool = False  # one of several that an access may go to, which are of one type
    atomic: bool = False
    descriptor: bool = False
    index: bool = False  # what is loaded through it is used as an index
    counted: bool = False  # what is loaded through it is compared with an index, divided as integers are, or made unsigned
    tested: bool = False  # what is loaded through it decides a branch, or which index is taken, compared with what may be an integer
    real: bool = False  # what is loaded through it, or the argument, takes part in arithmetic of floats
    bits: bool = False  # what is loaded through it is shifted or masked, or an integer is added to it atomically
    int8: bool = False  # it feeds a dot that accumulates in int32
    narrow_bits: bool = False  # by as many bits as values in a byte are taken apart
    wide_bits: bool = False  # to the right by as many bits as a byte has, or more
    bitwise: bool = False  # what is computed from what is loaded through it is shifted or masked
    narrow: str = ""  # the integer type of 8 or 16 bits that it is converted to as it is loaded: `tl.load(p).to(tl.uint8)`
    boolean: bool = False  # it is loaded and used as a mask, or tested as a flag
    optional: bool = False  # it is compared with None
    extent: bool = False  # size of a tl.arange or of a tensor
    element_type: bool = False
    number: bool = False  # in arithmetic with floats
    beside_floats: bool = False  # added to floats, multiplied by or compared with them
    whole: bool = False  # it is compared with an index, or divided as integers are
    compared: list[Any] = field(default_factory=list)
    switch: bool = False  # whether it is above or below a constant is asked: `if cap > 0`
    range_bound: bool = False
    integer: bool = False  # in a bound of a loop
    offset: bool = False  # in an address
    addresses: bool = False  # what is loaded through it is made a pointer
    text: str = ""  # the option of an operation that it is given for, and that takes a text: input_precision
    blocks: list[list[str]] = field(default_factory=list)  # descriptors: parameters in each coordinate it is used at

    @property
    def never_none(self) -> bool:
        """Whether it must be a number: the kernel computes with it, and never asks whether there is one."""
        return (self.extent or self.range_bound or self.integer or self.offset) and not (self.optional or self.boolean)

    def narrow_to(self, kind: str) -> None:
        """Note the narrow type that what is loaded is converted to ("": none); of several, the widest."""
        self.narrow = max(self.narrow, kind, key=lambda each: int(each[1:] or 0))

    def take_values(self, of_helper: Usage) -> None:
        """Note what a helper does with the values that it is handed, or loads itself."""
        self.narrow_to(of_helper.narrow)
        self._take(of_helper, OF_VALUES)

    def take_pointer(self, of_helper: Usage) -> None:
        """Note what a helper does with a pointer that it is handed, and with what it loads through it."""
        self.pointer = True
        self._take(of_helper, OF_LOADS)
        self.take_values(of_helper)

    def take_argument(self, of_helper: Usage) -> None:
        """Note what a helper does with an argument that it is handed as it is."""
        self._take(of_helper, OF_ARGUMENTS)
        self.text = self.text or of_helper.text
        self.blocks = self.blocks or of_helper.blocks
        self.compared.extend(of_helper.compared)

    def _take(self, other: Usage, fields: Iterable[str]) -> None:
        for name in fields:
            setattr(self, name, getattr(self, name) or getattr(other, name))
