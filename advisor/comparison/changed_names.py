"""Which names of a file a change touches: who imports none of them is not touched by it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

ALL = "*"
"""Among changed names: any may have changed."""

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def changed_names(base: ast.Module | None, head: ast.Module | None) -> frozenset[str]:
    """Names of a module whose statements differ between two versions, or use names whose do; None: a version that cannot be read."""
    if base is None or head is None:
        return frozenset({ALL})
    before, after = _statements(base), _statements(head)
    names = {name for name in {*before, *after} if _dumps(before, name) != _dumps(after, name)}
    return touched(head, names) | touched(base, names)


def touched(tree: ast.Module, names: Collection[str]) -> frozenset[str]:
    """`names`, and those of a module whose statements use them, also by way of others.

    What classes use does not count: no kernel is made of their methods, and half a serving stack hangs together by them.
    """
    uses = {
        name: {each.id for node in nodes if not isinstance(node, ast.ClassDef) for each in ast.walk(node) if isinstance(each, ast.Name)}
        for name, nodes in _statements(tree).items()
    }
    found = set(names)
    while more := {name for name, used in uses.items() if name not in found and used & found}:
        found |= more
    return frozenset(found)


def _dumps(statements: Mapping[str, list[ast.stmt]], name: str) -> list[str]:
    return [ast.dump(node) for node in statements.get(name, ())]


def _statements(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """The statements at module level that give each name its value, or may change it."""
    found: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        for name in _given(node):
            found.setdefault(name, []).append(node)
    return found


def _given(statement: ast.stmt) -> set[str]:
    names: set[str] = set()
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _DEFINITIONS):
            names.add(node.name)
            continue
        if isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Expr) or isinstance(getattr(node, "ctx", None), ast.Store):
            # `CONFIGS.append(...)`, `kernel.configs = ...`
            names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        waiting += ast.iter_child_nodes(node)
    return names
