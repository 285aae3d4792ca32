"""What the calls in a kernel tell of its parameters: accesses to memory, sizes, types, options, and the helpers that it calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from advisor.compiled.guesses.usage_marks import Marks, Usage
from advisor.compiled.guesses.value_flow import is_float, is_integer, made_pointer
from advisor.python_source.language import dotted

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Called:
    """A call and its name, "" where it has none."""

    node: ast.Call
    name: str

    @property
    def last(self) -> str:
        """The last part of the name, also of a method of an expression: `to` of `tl.load(p).to(tl.int32)`."""
        if self.name:
            return self.name.rsplit(".", 1)[-1]
        return self.node.func.attr if isinstance(self.node.func, ast.Attribute) else ""

    @property
    def root(self) -> str:
        return self.name.split(".")[0]

    @property
    def keywords(self) -> dict[str, ast.expr]:
        return {k.arg: k.value for k in self.node.keywords if k.arg}

    def argument(self, place: int | None, *names: str) -> ast.expr | None:
        """The argument at a place, or by one of its names; None: it is not given."""
        if place is not None and place < len(self.node.args):
            return self.node.args[place]
        keywords = self.keywords
        return next((keywords[name] for name in names if name in keywords), None)


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
        called = _Called(node=node, name=dotted(node.func))
        self._product(called)
        for answers in _KINDS:
            if answers(self, called):
                break
        self._conversion(node)
        self._options(called)
        self._types(called)

    # ---------------------------------------------------------------------------- what is called: true, where it is that

    def _access(self, called: _Called) -> bool:
        """`tl.load(pointer, mask, other)` and others that take a pointer."""
        if called.last not in MEMORY_CALLS or called.root not in self.roots:
            return False
        pointer = called.argument(0, "pointer", "base")
        if pointer is not None:
            atomic = called.last.startswith("atomic")
            for use in self.marks.accessed(pointer):
                use.pointer = True
                use.bits |= atomic and is_integer(called.argument(1, "val"))
                use.real |= called.last == "load" and is_float(called.argument(2, "other"))
            self.marks.indices(pointer)
            self.marks.offsets([pointer, *(called.node.args if called.last.startswith("make_") else ())])
        mask = called.argument(_MASKS.get(called.last), "mask")
        if mask is not None:
            for use in self.marks.loaded(mask):
                use.boolean = True
        return True

    def _descriptor(self, called: _Called) -> bool:
        """`descriptor.load([row, column])` of a descriptor that is a parameter."""
        use = self.marks.found.get(called.root)
        if called.last not in _DESCRIPTOR_CALLS or use is None:
            return False
        place = called.argument(0)
        use.descriptor = len(place.elts) if isinstance(place, (ast.List, ast.Tuple)) else 2
        return True

    def _sizes(self, called: _Called) -> bool:
        """`tl.arange(0, BLOCK)` and others that take the sizes of a tensor."""
        if called.last not in _SIZES:
            return False
        for size in called.node.args[_SIZES[called.last]]:
            self.marks.extent(size)
        return True

    def _unrolled(self, called: _Called) -> bool:
        """`tl.static_range(begin, end, step)`: the step is no bound, and a size that is gone through in tiles no number of trips."""
        if called.last != "static_range":
            return False
        step = called.argument(2, "step")
        tiled = step is not None and not isinstance(step, ast.Constant)
        for use in self.marks.named_in(called.node.args[:2]):
            use.range_bound |= not tiled
            use.integer |= tiled
        return True

    def _made_of_a_type(self, called: _Called) -> bool:
        """`x.to(type)` of a type that is a parameter."""
        if called.last != "to" or (use := self.marks.parameter(called.argument(0))) is None:
            return False
        use.element_type = True
        return True

    def _helper(self, called: _Called) -> bool:
        """Another kernel, which does with its parameters what it does."""
        theirs = self.helper(called.name)
        if theirs is None:
            return False
        pairs: list[tuple[str, ast.expr]] = list(zip(theirs, called.node.args, strict=False))
        for name, value in [*pairs, *((k.arg, k.value) for k in called.node.keywords if k.arg)]:
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

    def _product(self, called: _Called) -> None:
        """`tl.dot(a, b)`: what it multiplies are floats."""
        for operand in called.node.args[:2] if called.last == "dot" else ():
            for use in self.marks.unchanged(operand):
                use.real = True

    def _conversion(self, node: ast.Call) -> None:
        """What is made a pointer."""
        if (address := made_pointer(node)) is not None:
            origins = self.marks.origins
            for name in set(origins.unchanged(address)).difference(origins.roots(address)):
                self.marks.found[name].addresses = True

    def _options(self, called: _Called) -> None:
        """Options that a parameter is given for: a text, or a type."""
        given = [*called.keywords.items()]
        if called.last == "dot":
            given += [("input_precision", argument) for argument in called.node.args[3:4]]
        for option, value in given:
            if (use := self.marks.parameter(value)) is not None:
                use.text = option if option in TEXTS else use.text
                use.element_type |= option in ("dtype", "out_dtype")

    def _types(self, called: _Called) -> None:
        """Types that a parameter is given for by place."""
        for argument in called.node.args[_TYPES.get(called.last, slice(0))]:
            if (use := self.marks.parameter(argument)) is not None:
                use.element_type = True


_KINDS: tuple[Callable[[CallReader, _Called], bool], ...] = (
    CallReader._access,
    CallReader._descriptor,
    CallReader._sizes,
    CallReader._unrolled,
    CallReader._made_of_a_type,
    CallReader._helper,
)
"""What a call may be, in the order in which it is asked: a helper may have any name that none of the others goes by."""
