"""Where a file launches its own kernels, `kernel[grid](...)`: the grid as an expression over the kernel's arguments, read by parsing."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from advisor.configs.described import reader
from advisor.configs.literals import NotLiteralError
from advisor.configs.source import SourceFile

DEEPEST = 6
"""Names of names that are followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGrid:
    """A grid and where it stands."""

    grid: tuple[int, ...]
    line: int
    text: str


def grid_from_launches(source: SourceFile, kernel: str, values: Mapping[str, Any]) -> FoundGrid | None:
    """The grid of the first launch in the file whose grid follows from `values` (arguments and constants by name); None: of no launch.

    A name in the grid's expression counts as the argument that it is passed for, as the argument of that name, or as what the
    function around the launch assigns to it.
    """
    for function, call in _launches(source, kernel):
        assert isinstance(call.func, ast.Subscript)
        try:
            found = _grid(source, kernel, function, call, values)
        except NotLiteralError:
            continue
        if found is not None:
            return FoundGrid(grid=found, line=call.lineno, text=ast.unparse(call.func.slice)[:120])
    return None


def _launches(source: SourceFile, kernel: str) -> Iterator[tuple[ast.FunctionDef | None, ast.Call]]:
    functions = [n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef)]
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Subscript):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id == kernel:
            around = [f for f in functions if f.lineno <= node.lineno <= (f.end_lineno or f.lineno)]
            yield max(around, key=lambda f: f.lineno, default=None), node


def _grid(
    source: SourceFile, kernel: str, function: ast.FunctionDef | None, call: ast.Call, values: Mapping[str, Any]
) -> tuple[int, ...] | None:
    assert isinstance(call.func, ast.Subscript)
    names: dict[str, Any] = dict(values)
    parameters = [p.name for p in source.kernel(kernel).parameters]
    passed = [*zip(parameters, call.args, strict=False), *((k.arg, k.value) for k in call.keywords if k.arg)]
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        passed = [pair for pair in passed if pair[0] in {k.arg for k in call.keywords}]
    for parameter, value in passed:
        if isinstance(value, ast.Name) and parameter in values:
            names[value.id] = values[parameter]
    assigned = _assigned(function)
    node: ast.expr = call.func.slice
    for _ in range(DEEPEST):
        if isinstance(node, ast.Name) and node.id in assigned and node.id not in names:
            node = assigned[node.id]
    if isinstance(node, ast.Lambda):
        if len(node.args.args) != 1:
            return None
        names[node.args.args[0].arg] = dict(values)
        node = node.body
    made = reader(source)
    for name, value in assigned.items():
        made.names.setdefault(name, lambda value=value: made._visit(value))
    made.names.update(names)
    found = made.evaluate(node)
    sizes = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    good = 1 <= len(sizes) <= 3 and all(isinstance(n, int) and not isinstance(n, bool) and 0 < n < 2**31 for n in sizes)
    return sizes if good else None


def _assigned(function: ast.FunctionDef | None) -> dict[str, ast.expr]:
    """Names that the function assigns exactly once, outside of tuples."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.FunctionDef) and node is not function and _returns(node) is not None:
            value = _returns(node)
            assert value is not None
            found.setdefault(node.name, []).append(ast.Lambda(args=node.args, body=value))  # def grid(meta): return (...)
        elif isinstance(node, (ast.AugAssign, ast.For)) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).extend([ast.Constant(value=None)] * 2)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _returns(function: ast.FunctionDef) -> ast.expr | None:
    """What a function returns that does nothing else."""
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
