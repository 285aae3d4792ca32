"""What a decorator is, whatever it is called: other names of `triton.autotune`, a decorator that was kept, `functools.partial`, and
functions of the file that only return one. Read by parsing."""

from __future__ import annotations

import ast
import copy
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
        if isinstance(function, ast.Name) and function.id in self.functions:
            returned = _returned(self.functions[function.id], node)
            return self.meant(returned, depth + 1) if returned is not None else node
        return ast.copy_location(ast.Call(func=function, args=node.args, keywords=node.keywords), node)


def last_name(node: ast.expr) -> str:
    """The last part of the name that is called, or of a name itself."""
    return (dotted(node.func if isinstance(node, ast.Call) else node) or "").rsplit(".", 1)[-1]


def _returned(function: ast.FunctionDef, call: ast.Call) -> ast.Call | None:
    """The call that a function returns which does nothing else, with what it is given in place of its arguments."""
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    returned = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    starred = any(isinstance(each, ast.Starred) for each in call.args) or any(keyword.arg is None for keyword in call.keywords)
    if not isinstance(returned, ast.Call) or starred:
        return None
    asked = function.args
    positional = [argument.arg for argument in (*asked.posonlyargs, *asked.args)]
    named = {str(keyword.arg): keyword.value for keyword in call.keywords}
    names = [*positional, *(argument.arg for argument in asked.kwonlyargs)]
    defaults = dict(zip(positional[len(positional) - len(asked.defaults) :], asked.defaults, strict=True))
    defaults |= {a.arg: value for a, value in zip(asked.kwonlyargs, asked.kw_defaults, strict=True) if value is not None}
    values = {**defaults, **{name: named.pop(name) for name in names if name in named}, **dict(zip(positional, call.args, strict=False))}
    rest = call.args[len(positional) :]
    if set(names) - set(values) or (rest and asked.vararg is None) or (named and asked.kwarg is None):
        return None  # as it stands, the call would fail

    sizes = {name: sum(1 for _ in ast.walk(value)) for name, value in values.items()}
    if sum(sizes.get(each.id, 1) if isinstance(each, ast.Name) else 1 for each in ast.walk(returned)) > MOST_NODES:
        return None

    class Given(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return copy.deepcopy(values.get(node.id, node))

        def visit_Call(self, node: ast.Call) -> ast.AST:
            if asked.vararg is not None:
                stars = (isinstance(each, ast.Starred) and dotted(each.value) == asked.vararg.arg for each in node.args)
                node.args = [a for each, star in zip(node.args, stars, strict=True) for a in (rest if star else [each])]
            if asked.kwarg is not None:
                spread = (k.arg is None and dotted(k.value) == asked.kwarg.arg for k in node.keywords)
                own = [ast.keyword(arg=name, value=value) for name, value in named.items()]
                node.keywords = [k for each, star in zip(node.keywords, spread, strict=True) for k in (own if star else [each])]
            return self.generic_visit(node)

    return ast.fix_missing_locations(ast.copy_location(Given().visit(copy.deepcopy(returned)), call))
