"""The names of a function that launches a kernel, and what it gives them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Sequence

from advisor.configs.bindings import arguments, bound_by, own_nodes
from advisor.configs.reaching_values import given, reaching_values


def own_names(scopes: Sequence[ast.AST], others: Collection[str] = ()) -> set[str]:
    """Arguments of functions, and what they assign.

    Args:
        scopes: Those around a launch: their names are not the file's.
        others: Names that the file assigns: what a function imports under one of these is its own, too.
    """
    nodes = [node for scope in scopes for node in ast.walk(scope)]
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    named = (n for n in nodes if isinstance(n, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping)))
    stored |= {name for n in nodes if isinstance(n, ast.alias) for name in bound_by(n) if name in others}
    return stored.union(*(arguments(scope) for scope in scopes), *(bound_by(node) for node in named))


def defaults(function: ast.FunctionDef | None) -> dict[str, ast.expr]:
    """Defaults of a function's arguments that it does not assign anew."""
    if function is None:
        return {}
    asked = function.args
    positional = [*asked.posonlyargs, *asked.args]
    pairs = [*zip(positional[len(positional) - len(asked.defaults) :], asked.defaults, strict=True),
             *zip(asked.kwonlyargs, asked.kw_defaults, strict=True)]  # fmt: skip
    stored = {name for node in ast.walk(function) if node is not function for name in bound_by(node)}
    return {argument.arg: default for argument, default in pairs if default is not None and argument.arg not in stored}


def assigned(function: ast.FunctionDef | None, call: ast.Call | None = None) -> dict[str, ast.expr]:
    """Names that the function assigns exactly once, with what they are assigned, and others as they are where it makes a call."""
    if function is None:
        return {}
    found: dict[str, ast.expr] = {}
    for node in own_nodes(function):
        if isinstance(node, ast.stmt):
            found |= dict(given(node))
    inner = [node for node in ast.walk(function) if node is not function]
    stored = Counter(name for node in inner for name in bound_by(node))
    elsewhere = {name for node in inner if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    found = {name: value for name, value in found.items() if name not in elsewhere}
    once = {name: value for name, value in found.items() if stored[name] == 1}
    if call is None or len(once) == len(stored):
        return once
    return {**{name: value for name, value in reaching_values(function, call).items() if name in found and stored[name] > 1}, **once}


def inner_functions(function: ast.FunctionDef | None) -> dict[str, ast.FunctionDef]:
    """Functions that a function defines, under names that it gives nothing else."""
    stored: Counter[str] = Counter()
    found: dict[str, ast.FunctionDef] = {}
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored[node.id] += 1
        elif isinstance(node, ast.FunctionDef) and node is not function:
            stored[node.name] += 1
            found[node.name] = node
    return {name: node for name, node in found.items() if stored[name] == 1}
