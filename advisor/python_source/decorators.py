"""What a decorator is, whatever it is called: other names of `triton.autotune`, a decorator that was kept, `functools.partial`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from advisor.python_source.imports import module_level
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


_Blocks = tuple[int, ...]  # ids of the blocks around a statement, the file's own first


def layers_of(node: ast.expr, is_jit: Callable[[str], bool] = lambda name: False) -> tuple[list[ast.expr], str] | None:
    """Decorators, the outermost first, and the name of the function that they are applied to; None: this is not what it is."""
    found: list[ast.expr] = []
    while isinstance(node, ast.Call):
        if len(node.args) != 1 or (node.keywords and not is_jit(dotted(node.func) or "")):
            return None
        # triton.jit(f, noinline=True) is triton.jit(noinline=True)(f)
        found.append(ast.copy_location(ast.Call(func=node.func, args=[], keywords=node.keywords), node) if node.keywords else node.func)
        node = node.args[0]
    return (found, node.id) if isinstance(node, ast.Name) else None


def made_of(kernel: str, assigned: Mapping[str, Sequence[ast.expr]]) -> set[str]:
    """A kernel's name, and those that a file gives what it makes of it, also by way of others.

    Args:
        kernel: The name.
        assigned: All expressions that are assigned to each name of the file.
    """
    found = {kernel}
    sources = {name: {layers[1] for value in values if (layers := layers_of(value)) is not None} for name, values in assigned.items()}
    while more := {name for name, made in sources.items() if name not in found and made & found}:
        found |= more
    return found


def is_redefined(tree: ast.Module, name: str, line: int) -> bool:
    """Whether a file defines or assigns a name below a line: what was made of it there was made of another function."""
    later = [node for node in module_level(tree) if node.lineno > line]
    if any(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name for node in later):
        return True
    targets = (target for node in later if isinstance(node, ast.Assign) for target in node.targets)
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for each in targets for n in ast.walk(each))
