"""What type the elements of a tensor have, by the call that makes it: `torch.empty(n, dtype=torch.int32).view(-1, 4)`. Read by parsing."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from advisor.python_source.literals import dotted
from advisor.python_source.tensor_shapes import LIKE, MADE, Extent, Stride, asked_of, whole_of

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
        arms = [each for each in (node.body, node.orelse) if not (isinstance(each, ast.Constant) and each.value is None)]
        follow = arms[0] if len(arms) == 1 else None
    elif isinstance(node, ast.Subscript):
        follow = node.value if isinstance(node.value, ast.Name | ast.Attribute | ast.Call) else None
    elif isinstance(node, ast.Attribute):
        follow = node.value if node.attr in _KEPT else None
    elif isinstance(node, ast.Call):
        if any(keyword.arg == "dtype" for keyword in node.keywords):
            return _made(node)
        last = (dotted(node.func) or "").rsplit(".", 1)[-1]
        if last in LIKE and node.args:
            follow = node.args[0]
        elif isinstance(node.func, ast.Attribute):
            kept = node.func.attr in _KEPT or node.func.attr.startswith("new_") or _reshapes(node, unpacked)
            follow = node.func.value if kept else None
    return element_type(follow, assigned, unpacked, depth + 1) if follow is not None and depth < MOST_STEPS else None


def _made(call: ast.Call) -> str | None:
    function = dotted(call.func) or ""
    last = call.func.attr if isinstance(call.func, ast.Attribute) else function
    kind = next((dotted(each.value) or "" for each in call.keywords if each.arg == "dtype"), "")
    made = last in MADE | LIKE or function in ("torch.tensor", "torch.arange", "torch.as_tensor")
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
