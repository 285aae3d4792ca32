"""The names of a function that launches a kernel, and what it gives them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Sequence

from advisor.python_source.bindings import argument_defaults, arguments, bound_by, holds, own_nodes
from advisor.python_source.reaching_values import BLOCKS, given, reaching_values


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
    stored = {name for node in ast.walk(function) if node is not function for name in bound_by(node)}
    return {name: default for name, default in argument_defaults(function).items() if name not in stored}


def required(function: ast.FunctionDef | None) -> set[str]:
    """Arguments without a default that a function does not assign anew."""
    if function is None:
        return set()
    stored = {name for node in ast.walk(function) if node is not function for name in bound_by(node)}
    named = {each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    return named - set(argument_defaults(function)) - stored


def assigned(function: ast.FunctionDef | None, call: ast.Call | None = None) -> dict[str, ast.expr]:
    """Names that the function assigns exactly once, with what they are assigned, and others as they are where it makes a call.

    An argument that it assigns under a condition alone has two values: what it is given, and this one.
    """
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
    given_too = arguments(function) - _always_stored(function.body, call)
    once = {name: value for name, value in found.items() if stored[name] == 1 and name not in given_too}
    if call is None or len(once) == len(stored):
        return once
    return {**{name: value for name, value in reaching_values(function, call).items() if name in found and name not in once}, **once}


def _always_stored(body: Sequence[ast.stmt], call: ast.Call | None) -> set[str]:
    """Names that a block binds whatever its conditions are."""
    found: set[str] = set()
    for statement in body:
        if isinstance(statement, (ast.With, ast.AsyncWith)) and call is not None and holds(statement, call):
            found |= _always_stored(statement.body, call)
        elif not isinstance(statement, BLOCKS):
            found |= {name for node in ast.walk(statement) for name in bound_by(node)}
    return found


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
