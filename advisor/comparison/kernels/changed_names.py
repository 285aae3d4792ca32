"""Which names of a file a change touches: who imports none of them is not touched by it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from advisor.python_source.module_names import ModuleNames

ALL = "*"
"""Among changed names: any may have changed."""


def changed_names(base: ModuleNames | None, head: ModuleNames | None) -> frozenset[str]:
    """Names of a module whose statements differ between two versions, or use names whose do; None: a version that cannot be read."""
    if base is None or head is None:
        return frozenset({ALL})
    before, after = base.all_statements(), head.all_statements()
    names = {name for name in {*before, *after} if _dumps(before.get(name, ())) != _dumps(after.get(name, ()))}
    return touched(head, names) | touched(base, names)


def touched(module: ModuleNames, names: Collection[str]) -> frozenset[str]:
    """`names`, and those of a module whose statements use them, also by way of others.

    What methods use does not count: no kernel is made of them, and half a serving stack hangs together by them.
    """
    uses = {name: {used for node in nodes for used in _used(node)} for name, nodes in module.all_statements().items()}
    found = set(names)
    while more := {name for name, used in uses.items() if name not in found and used & found}:
        found |= more
    return frozenset(found)


def _dumps(statements: Sequence[ast.stmt]) -> list[str]:
    return [ast.dump(node) for node in statements]


def _used(statement: ast.stmt) -> Iterator[str]:
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            yield node.id
        inner = ast.iter_child_nodes(node)
        methods = isinstance(node, ast.ClassDef)
        waiting += [each for each in inner if not (methods and isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))]
