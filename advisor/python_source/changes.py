"""Lists, dictionaries and other objects that code changes in place, by the names that it has for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from advisor.python_source.literal_values import Symbol, plain

CHANGING = frozenset(
    {"append", "extend", "insert", "pop", "popitem", "remove", "clear", "sort", "reverse", "update", "setdefault", "add", "discard"}
)
"""Methods of lists, dictionaries and sets that change them."""


def changed_by(node: ast.AST) -> Iterator[str]:
    """Names whose objects one node of a syntax tree may change, without what nodes within it do."""
    if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
        yield from _root(node)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
        yield from _root(node.func.value)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):  # what takes a list may change it: random.shuffle(configs)
        yield from (each.id for each in (*node.value.args, *(k.value for k in node.value.keywords if k.arg)) if isinstance(each, ast.Name))


def changed_names(scope: ast.AST | None) -> set[str]:
    """Names whose objects a function may change somewhere in it, also by a second name: `part = sizes[0]; part[1] = 2`."""
    if scope is None:
        return set()
    found: set[str] = set()
    shared: list[set[str]] = []
    for node in ast.walk(scope):
        found |= set(changed_by(node))
        for target, value in _given(node):
            shared.append({n.id for n in ast.walk(target) if isinstance(n, ast.Name)} | set(_sources(value)))
    while more := {name for names in shared if names & found for name in names} - found:
        found |= more
    return found


def is_fixed(value: Any) -> bool:
    """Whether a value cannot be changed in place."""
    value = plain(value)
    if isinstance(value, tuple):
        return all(is_fixed(each) for each in value)
    return value is None or isinstance(value, (bool, int, float, str, Symbol))


def _given(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets, and the values that these or parts of them are."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield node.target, node.iter
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, node.context_expr


def _sources(value: ast.expr) -> Iterator[str]:
    """Names whose objects may be, or be part of, what an expression gives; what a method is given counts as not handed back."""
    waiting: list[ast.AST] = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            waiting.append(node.func.value)
        else:
            waiting += ast.iter_child_nodes(node)


def _root(node: ast.expr) -> Iterator[str]:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
