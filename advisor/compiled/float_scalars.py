"""Arguments that are numbers beside values of floats: the `s` of `x * s`, of `tl.where(mask, x, s)` or of `x > s`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from advisor.compiled.origins import Origins
from advisor.compiled.value_flow import (
    FLOAT_CALLS,
    converted,
    is_float,
    is_load,
    last_name,
    made_of_floats,
    rearranged,
    to_float,
    type_given,
)

_MIXED = (ast.Add, ast.Sub, ast.Mult)
"""Operations with a number that is what the other operand is; a division says nothing, for sums are divided by counts."""
_ALIKE = frozenset({"where", "maximum", "minimum", "clamp", "fma"})
"""Calls whose operands are of one type, but for the condition of `where`."""
_OF_ONE = frozenset({"sum", "max", "min", "abs", "cumsum", "reduce", "flip", "sort"})
"""Calls that give a value of the type of their first operand."""
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class FloatScalars:
    """Of one kernel.

    Args:
        origins: Of the kernel.
        holds_floats: Whether what is loaded through a parameter are floats.
    """

    def __init__(self, origins: Origins, holds_floats: Callable[[str], bool]) -> None:
        self._origins = origins
        self._holds_floats = holds_floats

    def names(self) -> Iterator[str]:
        """The arguments that stand beside a float somewhere; an argument may come several times."""
        for node in ast.walk(self._origins.node):
            sides = _sides(node)
            for place, side in enumerate(sides):
                if not (isinstance(side, ast.Name) and self._origins.reaching.is_parameter(side)):
                    continue
                if any(self._is_of_floats(other, set()) for other in (*sides[:place], *sides[place + 1 :])):
                    yield side.id

    def _is_of_floats(self, node: ast.expr, seen: set[ast.expr]) -> bool:
        """Whether a value certainly is of floats; `seen` ends loops that assign a name from itself."""
        if node in seen:
            return False
        seen.add(node)
        if isinstance(node, ast.Call):
            return self._call_is_of_floats(node, seen)
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Div):
                return True
            inner = [node.left, node.right] if isinstance(node.op, _MIXED) else []
        elif isinstance(node, ast.Name):
            inner = self._origins.reaching.values(node)
        elif isinstance(node, ast.IfExp):
            inner = [node.body, node.orelse]
        elif isinstance(node, ast.Subscript):
            inner = [node.value]
        elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
            inner = [node.operand]
        else:
            return is_float(node)
        return any(self._is_of_floats(each, seen) for each in inner)

    def _call_is_of_floats(self, node: ast.Call, seen: set[ast.expr]) -> bool:
        name, value = last_name(node), converted(node)
        if is_load(node):
            return bool(node.args) and any(map(self._holds_floats, self._origins.roots(node.args[0])))
        if value is not None:
            kind = type_given(node)
            return to_float(node) or (not kind.startswith(("int", "uint")) and self._is_of_floats(value, seen))
        if name in FLOAT_CALLS or is_float(node) or made_of_floats(node):
            return True
        if name == "dot":
            return not type_given(node).startswith("int")
        if name in _OF_ONE:
            method = isinstance(node.func, ast.Attribute) and not (isinstance(node.func.value, ast.Name) and node.func.value.id == "tl")
            operands = [node.func.value] if method and isinstance(node.func, ast.Attribute) else node.args[:1]
        else:
            operands = _sides(node) or rearranged(node)
        return any(self._is_of_floats(each, seen) for each in operands)


def _sides(node: ast.AST) -> list[ast.expr]:
    """The operands of an operation that are of one type; none: it is something else."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, _MIXED):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign) and isinstance(node.op, _MIXED):
        return [node.target, node.value]
    if isinstance(node, ast.Compare) and all(isinstance(op, _ORDERS) for op in node.ops):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call) and last_name(node) in _ALIKE:
        return node.args[1:3] if last_name(node) == "where" else node.args
    return []
