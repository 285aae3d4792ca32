"""What a function says of the shapes of its tensors: `M, K = x.shape`, `torch.empty((M, N))`, `assert x.ndim == 2`. Read by parsing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from advisor.python_source.literals import dotted

MADE = frozenset({"empty", "zeros", "ones", "full", "rand", "randn", "new_empty", "new_zeros", "new_ones", "new_full"})
"""Functions and methods that make a tensor of a shape."""
LIKE = frozenset({"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"})
"""Functions that make a tensor of the shape of another."""
_SAME = frozenset({"contiguous", "clone", "to", "detach", "half", "float", "bfloat16", "cuda"})
MOST_DIMENSIONS = 8
DEEPEST = 6
"""Names of names that are followed."""


@dataclass(frozen=True, slots=True)
class Extent:
    """`x.shape[i]`; `index` counts from the end where it is negative."""

    tensor: str
    index: int


@dataclass(frozen=True, slots=True)
class Stride:
    """`x.stride(i)`."""

    tensor: str
    index: int


def asked_of(node: ast.AST) -> Extent | Stride | None:
    """The extent or stride that an expression asks a tensor for; None: it asks for none."""
    if isinstance(node, ast.Subscript) and (whole := whole_of(node.value)) is not None:  # also x.stride()[0]
        index = _integer(node.slice)
        return None if index is None else Extent(whole[0], index) if whole[1] == "shape" else Stride(whole[0], index)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1 and not node.keywords:
        tensor, index = dotted(node.func.value), _integer(node.args[0])
        if tensor is not None and index is not None and node.func.attr in ("size", "stride"):
            return Extent(tensor, index) if node.func.attr == "size" else Stride(tensor, index)
    return None


def whole_of(node: ast.AST) -> tuple[str, str] | None:
    """Tensor and `shape` or `stride` of `x.shape`, `x.size()` and `x.stride()`; None: it is none of these."""
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        tensor = dotted(node.value)
        return (tensor, "shape") if tensor else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
        tensor = dotted(node.func.value)
        if tensor and node.func.attr in ("size", "stride"):
            return tensor, "shape" if node.func.attr == "size" else "stride"
    return None


@dataclass(slots=True)
class TensorShapes:
    """Shapes of the tensors of one function.

    Attributes:
        extents: Tensor -> every list of extents it is said to have, each an expression or None.
        like: Tensor -> the one it has the shape of.
        unpacked: Name -> the extent or stride that it was unpacked from.
        fewest: Tensor -> the dimensions that it has at least, for it is asked for one of that number.
    """

    extents: dict[str, list[list[ast.expr | None]]] = field(default_factory=dict)
    like: dict[str, str] = field(default_factory=dict)
    unpacked: dict[str, Extent | Stride] = field(default_factory=dict)
    fewest: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, function: ast.FunctionDef | None) -> TensorShapes:
        """Those that a function speaks of."""
        found = cls()
        stored: dict[str, int] = {}
        for node in ast.walk(function) if function is not None else ():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                stored[node.id] = stored.get(node.id, 0) + 1
        for node in ast.walk(function) if function is not None else ():
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                for target, value in pairs(node.targets[0], node.value):
                    found._read(target, value, stored)
            elif isinstance(node, ast.Assert):
                found._asserted(node.test)
            elif (asked := asked_of(node)) is not None:
                least = asked.index + 1 if asked.index >= 0 else -asked.index
                found.fewest[asked.tensor] = max(found.fewest.get(asked.tensor, 0), least)
        return found

    def rank(self, tensor: str) -> int | None:
        """Dimensions; None: not said, or said in two ways."""
        ranks = {len(extents) for extents in self._said(tensor)}
        return ranks.pop() if len(ranks) == 1 else None

    def extent(self, tensor: str, index: int) -> Iterator[ast.expr]:
        """What one extent is said to be."""
        for extents in self._said(tensor):
            if -len(extents) <= index < len(extents):
                said = extents[index]
                if said is not None:
                    yield said

    def root(self, tensor: str) -> str:
        """The tensor whose shape it has, and that has no other's."""
        for _ in range(DEEPEST):
            tensor = self.like.get(tensor, tensor)
        return tensor

    def _said(self, tensor: str) -> Iterator[list[ast.expr | None]]:
        for _ in range(DEEPEST):
            yield from self.extents.get(tensor, ())
            if tensor not in self.like:
                return
            tensor = self.like[tensor]

    def _read(self, target: ast.expr, value: ast.expr, stored: dict[str, int]) -> None:
        whole = whole_of(value)
        if whole is not None and isinstance(target, (ast.Tuple, ast.List)) and all(isinstance(n, ast.Name) for n in target.elts):
            tensor, kind = whole
            names = [n.id for n in target.elts if isinstance(n, ast.Name)]
            for index, name in enumerate(names):
                if stored.get(name) == 1:
                    self.unpacked[name] = Extent(tensor, index) if kind == "shape" else Stride(tensor, index)
            self.extents.setdefault(tensor, []).append(
                [ast.Name(id=name, ctx=ast.Load()) for name in names] if kind == "shape" else [None] * len(names)
            )
        elif isinstance(target, ast.Name) and isinstance(value, ast.Call):
            self._made(target.id, value)

    def _asserted(self, test: ast.expr) -> None:
        """`assert x.ndim == 3`, also as one of several conditions."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            for each in test.values:
                self._asserted(each)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            tensor, rank = _dimensions_of(test.left), _integer(test.comparators[0])
            if tensor is not None and rank is not None and 0 < rank <= MOST_DIMENSIONS:
                self.extents.setdefault(tensor, []).append([None] * rank)

    def _made(self, name: str, call: ast.Call) -> None:
        function = call.func
        last = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
        owner = dotted(function.value) if isinstance(function, ast.Attribute) else None
        if last in LIKE and call.args:
            self._alike(name, dotted(call.args[0]))
        elif last in _SAME:
            self._alike(name, owner)
        elif last in MADE and len(call.args) == 1 and (whole := whole_of(call.args[0])) is not None and whole[1] == "shape":
            self._alike(name, whole[0])
        elif last in ("view", "reshape", *MADE) and (sizes := _sizes(call.args, last)):
            # In `x = x.view(-1, x.shape[-1])` the sizes are asked of what x was before.
            unknown = [_integer(size) == -1 or mentions(size, name) for size in sizes]
            self.extents.setdefault(name, []).append([None if left else size for size, left in zip(sizes, unknown, strict=True)])

    def _alike(self, name: str, other: str | None) -> None:
        if other is not None and other != name:
            self.like[name] = other


def _dimensions_of(node: ast.expr) -> str | None:
    """The tensor of `x.ndim`, `x.dim()` and `len(x.shape)`."""
    if isinstance(node, ast.Call) and dotted(node.func) == "len" and len(node.args) == 1:
        whole = whole_of(node.args[0])
        return whole[0] if whole is not None else None
    if isinstance(node, ast.Call) and not node.args:
        node = node.func
        return dotted(node.value) if isinstance(node, ast.Attribute) and node.attr in ("dim", "ndimension") else None
    return dotted(node.value) if isinstance(node, ast.Attribute) and node.attr == "ndim" else None


def mentions(node: ast.AST, name: str) -> bool:
    """Whether a name is part of an expression."""
    return any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(node))


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is assigned to what: `a, b = x, y` is two assignments."""
    targets, values = (each.elts if isinstance(each, ast.Tuple) else [] for each in (target, value))
    if len(targets) == len(values) > 0 and not any(isinstance(each, ast.Starred) for each in (*targets, *values)):
        yield from zip(targets, values, strict=True)
    else:
        yield target, value


def _sizes(arguments: list[ast.expr], function: str) -> list[ast.expr]:
    """The sizes among the arguments of a function that makes a tensor; none where they are not written out."""
    if arguments and isinstance(arguments[0], (ast.Tuple, ast.List)):
        arguments = arguments[0].elts
    elif "full" in function or (len(arguments) == 1 and _integer(arguments[0]) is None):
        return []  # a name of a whole shape, maybe
    return arguments if len(arguments) <= MOST_DIMENSIONS and not any(isinstance(a, ast.Starred) for a in arguments) else []


def _integer(node: ast.AST) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _integer(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return None
