"""What a decorator is, whatever it is called: other names of `triton.autotune`, a decorator that was kept, `functools.partial`."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.python_source.literals import dotted

DEEPEST = 6
"""Names of names that are followed."""

MOST_NODES = 20_000
"""Of the syntax of a decorator, after what a function is given stands in place of its arguments: each may be used many times over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decorators:
    """What names of one file stand for, as far as decorators go.

    Attributes:
        imported: Alias -> the name that is imported under it.
        assigned: All expressions that are assigned to a name at module level.
        functions: Functions of the file.
    """

    imported: Mapping[str, str]
    assigned: Mapping[str, Sequence[ast.expr]]
    functions: Mapping[str, ast.FunctionDef]

    def meant(self, node: ast.expr, depth: int = 0) -> ast.expr:
        """The expression that a decorator stands for: a call of what it is called where it comes from, as far as that can be followed."""
        if depth > DEEPEST:
            return node
        if isinstance(node, ast.Name):
            values = self.assigned.get(node.id, ())
            if len(values) == 1 and node.id not in self.imported:
                return self.meant(values[0], depth + 1)
            return ast.copy_location(ast.Name(id=self.imported.get(node.id, node.id), ctx=ast.Load()), node)
        if not isinstance(node, ast.Call):
            return node
        function = self.meant(node.func, depth + 1)
        if isinstance(function, ast.Call) and last_name(function) == "partial" and function.args:
            named = {keyword.arg for keyword in node.keywords}
            kept = [keyword for keyword in function.keywords if keyword.arg not in named]
            call = ast.Call(func=function.args[0], args=[*function.args[1:], *node.args], keywords=[*kept, *node.keywords])
            return self.meant(ast.copy_location(call, node), depth + 1)
        return ast.copy_location(ast.Call(func=function, args=node.args, keywords=node.keywords), node)


def last_name(node: ast.expr) -> str:
    """The last part of the name that is called, or of a name itself."""
    return (dotted(node.func if isinstance(node, ast.Call) else node) or "").rsplit(".", 1)[-1]
