"""Which strides of a kernel may be 1, by what the kernel does with them: none that stands beside a range without a stride. By parsing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from advisor.python_source.bindings import arguments, assigned_values
from advisor.python_source.language import dotted, last_name

STRIDE_NAME = re.compile(r"(^|_)strides?($|_|\d)", re.IGNORECASE)
_STRIDES_OF = {"make_block_ptr": 2, "make_tensor_descriptor": 2, "_experimental_make_tensor_descriptor": 2}
"""Functions that are told strides -> which argument these are."""
_SAME_ELEMENTS = frozenset({"to", "multiple_of", "max_contiguous", "max_constancy"})
"""Functions of which an address is what they are given."""


@lru_cache(maxsize=256)
def possible_unit_strides(kernel: ast.FunctionDef, strides: frozenset[str] = frozenset()) -> frozenset[str]:
    """Strides along a range of elements that no other range of the same address goes beside without one.

    A kernel of which the innermost stride is left out, for it is always 1, has such a range beside every stride that it takes:
    `q + rows[:, None] * stride_qm + head * stride_qh + lanes[None, :]`. What is 1 of the strides that are found, it does not say.
    A stride that the kernel takes and does nothing with is found too: it is 1 that nothing need be multiplied with.

    Args:
        kernel: The kernel.
        strides: Names that are strides, besides those that are called so.
    """
    return frozenset(_Addresses(kernel, strides).possible())


class _Addresses:
    """The sums of a kernel, through the names that stand for their parts."""

    def __init__(self, kernel: ast.FunctionDef, strides: frozenset[str]) -> None:
        self.strides = strides
        self.nodes = list(ast.walk(kernel))
        used = {node.id for node in self.nodes if isinstance(node, ast.Name)}
        self.arguments = arguments(kernel)
        self.unused = {name for name in self.arguments - used if name in strides or STRIDE_NAME.search(name)}
        self.sums = [node for node in self.nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)]
        inner = {id(side) for node in self.sums for side in (node.left, node.right)}
        self.sums = [node for node in self.sums if id(node) not in inner]
        self.assigned = assigned_values(kernel)
        made = {value for values in self.assigned.values() for value in values}.difference(self.nodes)  # of `p += offset`
        self.sums += [value for value in made if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)]
        self.ranges: dict[str, bool] = {}  # whether names are ranges of elements, or made of such without strides

    def possible(self) -> set[str]:
        """Strides that may be 1."""
        inner: set[str] = set()
        outer: set[str] = set()
        if not any(map(self._is_stride, self.nodes)):
            return self.unused
        for node in self.nodes:
            if isinstance(node, ast.Call) and isinstance(listed := _told(node), (ast.Tuple, ast.List)):
                one = any(isinstance(element_, ast.Constant) and element_.value == 1 for element_ in listed.elts)
                (outer if one else inner).update(name for element_ in listed.elts for name in self._strides_in(element_))
        for node in self.sums:
            ranged = [self._strides_in(term) for term in self._terms(node) if self._is_range(term)]
            (inner if all(ranged) else outer).update(*ranged)
        return {of for name in inner for of in self._taken(name)} - {of for name in outer for of in self._taken(name)} | self.unused

    def _taken(self, name: str) -> set[str]:
        """The argument that a stride is, also by another name: `stride = stride_in`, `stride = tl.cast(stride_in, tl.int64)`."""
        taken = {inner.id for value in self.assigned.get(name, ()) for inner in ast.walk(value) if isinstance(inner, ast.Name)}
        return taken & self.arguments if name not in self.arguments and taken & self.arguments else {name}

    def _terms(self, total: ast.expr) -> Iterator[ast.expr]:
        """The terms of a sum and of the sums that its terms stand for."""
        left, seen = [total], set[int]()
        while left:
            node = left.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            plain = _without_shape(node)
            value = self._before(plain) if isinstance(plain, ast.Name) else None
            if isinstance(plain, ast.BinOp) and isinstance(plain.op, ast.Add):
                left += [plain.left, plain.right]
            elif value is not None:
                left.append(value)
            else:
                yield plain

    def _before(self, name: ast.Name) -> ast.expr | None:
        """What a name was assigned last in the lines before."""
        before = [value for value in self.assigned.get(name.id, ()) if (value.end_lineno or 0) < name.lineno]
        return max(before, key=lambda value: value.end_lineno or 0, default=None)

    def _is_range(self, node: ast.expr) -> bool:
        """Whether an expression is made of a range of elements; what a strided range points at is none."""
        inside = list(ast.walk(node))
        named = any(isinstance(inner, ast.Name) and self._is_named_range(inner.id) for inner in inside)
        return named or any(isinstance(inner, ast.Call) and last_name(inner) == "arange" for inner in inside)

    def _is_named_range(self, name: str) -> bool:
        if name not in self.ranges:
            self.ranges[name] = False  # while its values are looked at: a loop may add to a range
            values = (value for value in self.assigned.get(name, ()) if not any(map(self._is_stride, ast.walk(value))))
            self.ranges[name] = any(map(self._is_range, values))
        return self.ranges[name]

    def _is_stride(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and (node.id in self.strides or STRIDE_NAME.search(node.id) is not None)

    def _strides_in(self, node: ast.expr) -> set[str]:
        """Strides that an expression goes along; those of an index that it loads are of another tensor."""
        return {inner.id for inner in _not_loaded(node) if isinstance(inner, ast.Name) and self._is_stride(inner)}


def _told(call: ast.Call) -> ast.expr | None:
    """The strides that a call makes a tensor's description with."""
    place = _STRIDES_OF.get(last_name(call))
    if place is None:
        return None
    named = next((k.value for k in call.keywords if k.arg == "strides"), None)
    return named if named is not None else call.args[place] if len(call.args) > place else None


def _without_shape(node: ast.expr) -> ast.expr:
    """What an expression is made of, where it only has another shape or type: `offsets` of `offsets[:, None].to(tl.int64)`."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_ELEMENTS:
            of_module = dotted(node.func.value) in ("tl", "triton.language") and node.args
            node = node.args[0] if of_module else node.func.value
        else:
            return node


def _not_loaded(node: ast.expr) -> Iterator[ast.AST]:
    left: list[ast.AST] = [node]
    while left:
        node_ = left.pop()
        yield node_
        if not (isinstance(node_, ast.Call) and last_name(node_) == "load"):
            left.extend(ast.iter_child_nodes(node_))
