"""Arguments that are numbers beside values of floats: the `s` of `x * s`, of `tl.where(mask, x, s)` or of `x > s`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from advisor.compiled.guesses.origins import Origins, walk
from advisor.compiled.guesses.value_flow import (
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
from advisor.python_source.literals import dotted

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
                others = (*sides[:place], *sides[place + 1 :])
                if any(self._gives_floats(inner) for other in others for inner in walk(other, self._of_the_same_type)):
                    yield side.id

    def _gives_floats(self, node: ast.expr) -> bool:
        """Whether an expression by itself says that its value is of floats."""
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, ast.Div)
        if not isinstance(node, ast.Call) or is_float(node):
            return is_float(node)
        if is_load(node):
            return bool(node.args) and any(map(self._holds_floats, self._origins.roots(node.args[0])))
        if converted(node) is not None:
            return to_float(node)
        if last_name(node) == "dot":
            return not type_given(node).startswith("int")
        return last_name(node) in FLOAT_CALLS or made_of_floats(node)

    def _of_the_same_type(self, node: ast.expr) -> list[ast.expr]:
        """The expressions that give floats only if this one does."""
        if isinstance(node, ast.Name):
            return self._origins.reaching.values(node)
        if isinstance(node, ast.IfExp):
            return [node.body, node.orelse]
        if isinstance(node, ast.Subscript):
            return [node.value]
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
            return [node.operand]
        if not isinstance(node, ast.Call):
            return _sides(node) if isinstance(node, ast.BinOp) else []
        if is_load(node):
            return []
        if (value := converted(node)) is not None:
            return [] if type_given(node).startswith(("int", "uint")) else [value]
        if last_name(node) not in _OF_ONE:
            return _sides(node) or rearranged(node)
        if isinstance(node.func, ast.Attribute) and dotted(node.func.value) not in ("tl", "triton.language"):
            return [node.func.value]  # x.sum()
        return node.args[:1]


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
