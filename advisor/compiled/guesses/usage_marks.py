"""Marks on the parameters of a kernel: what is done with a value is noted under the parameters that the value comes from; and what calls
tell of them: accesses to memory, sizes, types, options, and the helpers that a kernel calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.compiled.guesses.origins import Origins, argument, converted, float_operands, is_float, is_integer, made_pointer
from advisor.python_source.language import dotted, last_name

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


OF_VALUES = ("bits", "narrow_bits", "wide_bits", "bitwise", "real", "addresses")
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


MEMORY_CALLS = frozenset(
    {
        "load",
        "store",
        "atomic_add",
        "atomic_max",
        "atomic_min",
        "atomic_xchg",
        "atomic_cas",
        "atomic_and",
        "atomic_or",
        "atomic_xor",
        "make_block_ptr",
        "make_tensor_descriptor",
        "_experimental_make_tensor_descriptor",
    }
)
TEXTS = {
    "input_precision": "ieee",
    "eviction_policy": "",
    "cache_modifier": "",
    "padding_option": "zero",
    "fp_downcast_rounding": "rtne",
    "sem": "acq_rel",
}
"""Options of operations that take a text, with one that every target knows."""
_MASKS = {"load": 1, "store": 2}
"""Where an operation takes its mask, if not by name."""
_DESCRIPTOR_CALLS = frozenset({"load", "store", "gather", "scatter"})
_SIZES = {
    "arange": slice(None),
    "zeros": slice(1),
    "full": slice(1),
    "zeros_like": slice(1),
    "broadcast_to": slice(1),
    "reshape": slice(1),
}
"""The arguments of an operation that are sizes of a tensor."""
_TYPES = {"zeros": slice(1, None), "cast": slice(1, None), "full": slice(2, 3)}
"""The arguments of an operation that may be a type."""


class CallReader:
    """Reads the calls in one kernel.

    Args:
        marks: What is found is noted there.
        roots: What triton goes by in the file.
        helper: The usage by parameter, in their order, of a kernel of the file that goes by a name; None: none does.
    """

    def __init__(self, marks: Marks, roots: Collection[str], helper: Callable[[str], Mapping[str, Usage] | None]) -> None:
        self.marks = marks
        self.roots = roots
        self.helper = helper

    def note(self, node: ast.Call) -> None:
        """Note what one call tells."""
        for answers in _KINDS:
            if answers(self, node):
                break
        self._conversion(node)
        self._options(node)
        self._types(node)

    # ---------------------------------------------------------------------------- what is called: true, where it is that

    def _access(self, node: ast.Call) -> bool:
        """`tl.load(pointer, mask, other)` and others that take a pointer."""
        if last_name(node) not in MEMORY_CALLS or _root(node) not in self.roots:
            return False
        pointer = argument(node, 0, "pointer", "base")
        if pointer is not None:
            atomic = last_name(node).startswith("atomic")
            for use in self.marks.accessed(pointer):
                use.pointer = True
                use.bits |= atomic and is_integer(argument(node, 1, "val"))
                use.real |= last_name(node) == "load" and is_float(argument(node, 2, "other"))
            self.marks.indices(pointer)
            self.marks.offsets([pointer, *(node.args if last_name(node).startswith("make_") else ())])
        value = argument(node, 1, "value") if last_name(node) == "store" else None
        for made in self.marks.origins.values(value) if isinstance(value, ast.Name) else [value]:
            for kind in made.args if isinstance(made, ast.Call) and converted(made) is not None else ():
                if (type_use := self.marks.parameter(kind)) is not None:
                    type_use.stored = True
        mask = argument(node, _MASKS.get(last_name(node)), "mask")
        if mask is not None:
            for use in self.marks.loaded(mask):
                use.boolean = True
        return True

    def _descriptor(self, node: ast.Call) -> bool:
        """`descriptor.load([row, column])` of a descriptor that is a parameter."""
        use = self.marks.found.get(_root(node))
        if last_name(node) not in _DESCRIPTOR_CALLS or use is None:
            return False
        place = argument(node, 0)
        use.descriptor = len(place.elts) if isinstance(place, (ast.List, ast.Tuple)) else 2
        return True

    def _sizes(self, node: ast.Call) -> bool:
        """`tl.arange(0, BLOCK)` and others that take the sizes of a tensor."""
        if last_name(node) not in _SIZES:
            return False
        for size in node.args[_SIZES[last_name(node)]]:
            self.marks.extent(size)
        return True

    def _unrolled(self, node: ast.Call) -> bool:
        """`tl.static_range(begin, end, step)`: the step is no bound, and a size that is gone through in tiles no number of trips."""
        if last_name(node) != "static_range":
            return False
        step = argument(node, 2, "step")
        tiled = step is not None and not isinstance(step, ast.Constant)
        for use in self.marks.named_in(node.args[:2]):
            use.range_bound |= not tiled
            use.integer |= tiled
        return True

    def _made_of_a_type(self, node: ast.Call) -> bool:
        """`x.to(type)` of a type that is a parameter."""
        if last_name(node) != "to" or (use := self.marks.parameter(argument(node, 0))) is None:
            return False
        use.element_type = True
        return True

    def _helper(self, node: ast.Call) -> bool:
        """Another kernel, which does with its parameters what it does."""
        theirs = self.helper(dotted(node.func))
        if theirs is None:
            return False
        pairs: list[tuple[str, ast.expr]] = list(zip(theirs, node.args, strict=False))
        for name, value in [*pairs, *((k.arg, k.value) for k in node.keywords if k.arg)]:
            if name not in theirs:
                continue
            if theirs[name].pointer:
                self.marks.indices(value)
                self.marks.offsets([value])
                for use in self.marks.accessed(value):
                    use.take_pointer(theirs[name])
            else:
                for use in self.marks.unchanged(value):
                    use.take_values(theirs[name])
            if (handed := self.marks.parameter(value)) is not None:
                handed.take_argument(theirs[name])
        return True

    # ------------------------------------------------------------------------------------------ what any call may tell

    def _conversion(self, node: ast.Call) -> None:
        """What is made a pointer."""
        if (address := made_pointer(node)) is not None:
            origins = self.marks.origins
            for name in set(origins.unchanged(address)).difference(origins.roots(address)):
                self.marks.found[name].addresses = True

    def _options(self, node: ast.Call) -> None:
        """Options that a parameter is given for: a text, or a type."""
        given = [(keyword.arg, keyword.value) for keyword in node.keywords]
        if last_name(node) == "dot":
            given += [("input_precision", value) for value in node.args[3:4]]
        for option, value in given:
            if (use := self.marks.parameter(value)) is not None:
                use.text = option if option in TEXTS else use.text
                use.element_type |= option in ("dtype", "out_dtype")

    def _types(self, node: ast.Call) -> None:
        """Types that a parameter is given for by place."""
        for kind in node.args[_TYPES.get(last_name(node), slice(0))]:
            if (use := self.marks.parameter(kind)) is not None:
                use.element_type = True


_KINDS: tuple[Callable[[CallReader, ast.Call], bool], ...] = (
    CallReader._access,
    CallReader._descriptor,
    CallReader._sizes,
    CallReader._unrolled,
    CallReader._made_of_a_type,
    CallReader._helper,
)
"""What a call may be, in the order in which it is asked: a helper may have any name that none of the others goes by."""


def _root(call: ast.Call) -> str:
    """The first part of the name that is called."""
    return dotted(call.func).partition(".")[0]
