"""Decorators that a file applies to functions further down, `kernel = triton.jit(kernel)`: its tree as if they were written above them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from advisor.python_source.imports import module_level
from advisor.python_source.literals import dotted

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
