"""What a function says of the shapes of its tensors: `M, K = x.shape`, `torch.empty((M, N))`. Read by parsing."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from advisor.python_source.bindings import is_none, pairs, stores
from advisor.python_source.language import dotted, last_name

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
        if tensor and index is not None and node.func.attr in ("size", "stride"):
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
    def of(cls, function: ast.FunctionDef) -> TensorShapes:
        """Those that a function speaks of."""
        found = cls()
        stored = stores(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                for target, value in pairs(node.targets[0], node.value):
                    found._read(target, value, stored)
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

    def _read(self, target: ast.expr, value: ast.expr, stored: Mapping[str, int]) -> None:
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

    def _made(self, name: str, call: ast.Call) -> None:
        function = call.func
        last = last_name(call)
        owner = dotted(function.value) if isinstance(function, ast.Attribute) else ""
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

    def _alike(self, name: str, other: str) -> None:
        if other and other != name:
            self.like[name] = other


def mentions(node: ast.AST, name: str) -> bool:
    """Whether a name is part of an expression."""
    return any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(node))


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


_KEPT = frozenset(
    {
        "clone",
        "contiguous",
        "cuda",
        "detach",
        "expand",
        "expand_as",
        "fill_",
        "flatten",
        "flip",
        "mT",
        "movedim",
        "narrow",
        "permute",
        "repeat",
        "reshape",
        "reshape_as",
        "select",
        "squeeze",
        "swapaxes",
        "t",
        "T",
        "transpose",
        "unflatten",
        "unsqueeze",
        "view_as",
        "zero_",
    }
)
"""Methods and attributes of a tensor that give one of the same type."""
MOST_STEPS = 20
"""Names and methods that are followed: `x = x.view(-1)` goes round in a circle."""
_OTHER_NAMES = {"long": "int64", "short": "int16", "double": "float64"}


def element_type(node: ast.expr, assigned: Mapping[str, ast.expr], unpacked: Mapping[str, Extent | Stride], depth: int = 0) -> str | None:
    """The type of the elements of a tensor, `int32` of `torch.tensor(rows, dtype=torch.int32)`; None: not said, or it is no tensor.

    Args:
        node: The tensor.
        assigned: What names stand for.
        unpacked: Names of extents and strides.
        depth: How many steps it was followed.
    """
    follow: ast.expr | None = None
    if isinstance(node, ast.Name):
        follow = assigned.get(node.id)
    elif isinstance(node, ast.IfExp):  # y if wanted else None: where there is none, there is no type
        arms = [each for each in (node.body, node.orelse) if not is_none(each)]
        follow = arms[0] if len(arms) == 1 else None
    elif isinstance(node, ast.Subscript):
        follow = node.value if isinstance(node.value, ast.Name | ast.Attribute | ast.Call) else None
    elif isinstance(node, ast.Attribute):
        follow = node.value if node.attr in _KEPT else None
    elif isinstance(node, ast.Call):
        if any(keyword.arg == "dtype" for keyword in node.keywords):
            return _made(node)
        last = last_name(node)
        if last in LIKE and node.args:
            follow = node.args[0]
        elif isinstance(node.func, ast.Attribute):
            kept = node.func.attr in _KEPT or node.func.attr.startswith("new_") or _reshapes(node, unpacked)
            follow = node.func.value if kept else None
    return element_type(follow, assigned, unpacked, depth + 1) if follow is not None and depth < MOST_STEPS else None


def _made(call: ast.Call) -> str | None:
    function = dotted(call.func)
    kind = next((dotted(each.value) for each in call.keywords if each.arg == "dtype"), "")
    made = last_name(call) in MADE | LIKE or function in ("torch.tensor", "torch.arange", "torch.as_tensor")
    name = kind.removeprefix("torch.")
    return _OTHER_NAMES.get(name, name) if made and kind.startswith("torch.") else None


def _reshapes(call: ast.Call, unpacked: Mapping[str, Extent | Stride]) -> bool:
    """Whether `x.view(...)` is asked for a shape: `x.view(kind)` reads the same bytes as another type."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "view" or call.keywords or not call.args:
        return False
    first = call.args[0]
    sizes = isinstance(first, ast.Constant | ast.UnaryOp | ast.BinOp | ast.Tuple | ast.List | ast.Starred)
    known = isinstance(first, ast.Name) and first.id in unpacked
    return len(call.args) > 1 or sizes or known or asked_of(first) is not None or whole_of(first) is not None
