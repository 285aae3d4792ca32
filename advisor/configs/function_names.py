"""The names of a function that launches a kernel, and what it gives them."""

from __future__ import annotations

import ast
from collections import Counter

from advisor.configs.reaching_values import given, reaching_values


def own_names(function: ast.FunctionDef | None) -> set[str]:
    """Arguments of a function, and what it assigns."""
    if function is None:
        return set()
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}


def defaults(function: ast.FunctionDef | None) -> dict[str, ast.expr]:
    """Defaults of a function's arguments that it does not assign anew."""
    if function is None:
        return {}
    asked = function.args
    positional = [*asked.posonlyargs, *asked.args]
    pairs = [*zip(positional[len(positional) - len(asked.defaults) :], asked.defaults, strict=True),
             *zip(asked.kwonlyargs, asked.kw_defaults, strict=True)]  # fmt: skip
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return {argument.arg: default for argument, default in pairs if default is not None and argument.arg not in stored}


def assigned(function: ast.FunctionDef | None, call: ast.Call | None = None) -> dict[str, ast.expr]:
    """Names that the function assigns exactly once, with what they are assigned, and others as they are where it makes a call."""
    found: dict[str, ast.expr] = {}
    stored: Counter[str] = Counter()
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored[node.id] += 1
        elif isinstance(node, ast.stmt):
            found |= dict(given(node))
    once = {name: value for name, value in found.items() if stored[name] == 1}
    if function is None or call is None or len(once) == len(stored):
        return once
    return {**{name: value for name, value in reaching_values(function, call).items() if stored[name] > 1}, **once}


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
