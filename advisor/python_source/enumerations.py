"""Classes of `enum` whose values are literals."""

from __future__ import annotations

import ast
from typing import Any, TypeGuard

from advisor.python_source.literal_values import Enumeration, Member, plain
from advisor.python_source.literals import Evaluator, NotLiteralError, dotted


def is_enumeration(node: ast.stmt) -> TypeGuard[ast.ClassDef]:
    """Whether a statement is a class of `enum`."""
    return isinstance(node, ast.ClassDef) and any((dotted(base) or "").endswith(("Enum", "IntFlag")) for base in node.bases)


def enumeration(evaluator: Evaluator, node: ast.ClassDef) -> Enumeration:
    """The members of a class of `enum` whose values are literals, or `auto()`: one more than the one before."""
    members: dict[str, Member] = {}
    last: Any = 0
    for statement in node.body:
        if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
            continue
        made = statement.value
        if isinstance(made, ast.Call) and (dotted(made.func) or "").rsplit(".", 1)[-1] == "auto" and isinstance(last, int):
            last += 1
        else:
            try:
                last = plain(evaluator.evaluate(made))
            except NotLiteralError:
                last = None  # nor is what `auto` would count on from it known
                continue
        members[statement.targets[0].id] = Member(last)
    return Enumeration(members)
