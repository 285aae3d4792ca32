"""Launches that spread a dictionary which the function around them writes out, `options = {"BLOCK": 64}` and `kernel[grid](**options)`:
read as if each of its items were passed by name, the grid of `kernel.run(**options)` included."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from advisor.python_source.bindings import bound_by, own_nodes
from advisor.python_source.function_names import assigned
from advisor.python_source.launch_forms import may_launch


def with_spread(tree: ast.Module) -> ast.Module:
    """The tree, its launches with the items of such dictionaries in place of these."""
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        for call in own_nodes(function):
            if isinstance(call, ast.Call) and may_launch(call) and any(each.arg is None for each in call.keywords):
                _spread(function, call)
    return tree


def _spread(function: ast.FunctionDef, call: ast.Call) -> None:
    given = assigned(function)
    keywords: list[ast.keyword] = []
    for keyword in call.keywords:
        value = keyword.value
        if keyword.arg is None and isinstance(value, ast.Name) and _stays(function, value.id, given.get(value.id), call):
            value = given[value.id]
        items = list(_items(value)) if keyword.arg is None else []
        keywords += items or [keyword]
    names = [each.arg for each in keywords if each.arg is not None]
    if len(set(names)) == len(names):  # else the call fails
        call.keywords = keywords


def _items(value: ast.expr) -> Iterator[ast.keyword]:
    """What a dictionary passes that is written out with names for keys; nothing, where it is not."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict" and not value.args:
        items = value.keywords
    elif isinstance(value, ast.Dict):
        names = [key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None for key in value.keys]
        items = [ast.copy_location(ast.keyword(arg=name, value=item), item) for name, item in zip(names, value.values, strict=True)]
    else:
        return
    if all(each.arg is not None for each in items):
        yield from items


def _stays(function: ast.FunctionDef, name: str, value: ast.expr | None, call: ast.Call) -> bool:
    """Whether a name is, where a call is made, what its one assignment before gave it: nothing but items of it is asked for, and what these
    are made of is given nothing else after that."""
    if value is None or _start(value) > _start(call):
        return False
    nodes = list(ast.walk(function))
    reads = {id(node.value) for node in nodes if isinstance(node, ast.keyword) and node.arg is None}
    reads |= {id(node.value) for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)}
    used = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    later = (each for node in nodes if hasattr(node, "lineno") and _start(node) > _start(value) for each in bound_by(node))
    loads = (node for node in nodes if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load))
    return all(id(node) in reads for node in loads) and used.isdisjoint(later)


def _start(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
