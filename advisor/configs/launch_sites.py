"""Where a file launches its own kernels, `kernel[grid](...)`: the grid as an expression over the kernel's arguments, read by parsing."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.configs.described import reader
from advisor.configs.functions import FunctionReader
from advisor.configs.literals import NotLiteralError, Symbol
from advisor.configs.source import SourceFile

DEEPEST = 6
"""Names of names that are followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGrid:
    """A grid and where it stands.

    Attributes:
        grid: Programs.
        line: Of the launch.
        text: The grid as it is written.
        constexprs: Constants that the launch passes, as far as they can be worked out.
        options: Options that it passes (num_warps, ...), the same.
    """

    grid: tuple[int, ...]
    line: int
    text: str
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def grid_from_launches(
    source: SourceFile, kernel: str, values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None, options: Sequence[str] = ()
) -> FoundGrid | None:
    """The grid of the first launch in the file whose grid follows from what is known; None: of no launch.

    A name in the grid's expression counts as the argument that it is passed for, as what the function around the launch assigns to it,
    or, where that function has no such name, as the argument of that name.

    Args:
        source: The parsed file.
        kernel: Name of the kernel.
        values: Arguments and constants by name.
        defaults: Those that count where neither `values` nor the launch itself says more.
        options: Names of launch options.
    """
    for function, call in _launches(source, kernel):
        assert isinstance(call.func, ast.Subscript)
        site = _Site(source, kernel, function, call)
        constants, launched = site.constants(values, options)
        try:
            found = site.grid({**(defaults or {}), **constants, **values})
        except NotLiteralError:
            continue
        if found is not None:
            text = ast.unparse(call.func.slice)[:120]
            return FoundGrid(grid=found, line=call.lineno, text=text, constexprs=constants, options=launched)
    return None


def _launches(source: SourceFile, kernel: str) -> Iterator[tuple[ast.FunctionDef | None, ast.Call]]:
    functions = [n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef)]
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Subscript):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id == kernel:
            around = [f for f in functions if f.lineno <= node.lineno <= (f.end_lineno or f.lineno)]
            yield max(around, key=lambda f: f.lineno, default=None), node


class _Site:
    """One launch, and what names around it stand for."""

    def __init__(self, source: SourceFile, kernel: str, function: ast.FunctionDef | None, call: ast.Call) -> None:
        self.source, self.kernel, self.call = source, source.kernel(kernel), call
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        positional = [] if starred else list(zip((p.name for p in self.kernel.parameters), call.args, strict=False))
        self.passed: dict[str, ast.expr] = dict([*positional, *((k.arg, k.value) for k in call.keywords if k.arg)])
        self.assigned = _assigned(function)
        self.own = _own_names(function)

    def constants(self, given: Mapping[str, Any], options: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The constants and options that the launch passes, without those that are given."""
        constants: dict[str, Any] = {}
        launched: dict[str, Any] = {}
        for name, node in self.passed.items():
            parameter = self.kernel.parameter(name)
            found = constants if parameter is not None and parameter.is_constexpr else launched if name in options else None
            if found is None or name in given:
                continue
            with contextlib.suppress(NotLiteralError):
                value = self._reader(given).evaluate(node)
                if isinstance(value, (bool, int, float, str, type(None), Symbol)):
                    found[name] = value
        return constants, launched

    def grid(self, values: Mapping[str, Any]) -> tuple[int, ...] | None:
        """The grid; None: it is none.

        Raises:
            NotLiteralError: It cannot be worked out.
        """
        assert isinstance(self.call.func, ast.Subscript)
        node: ast.expr = self.call.func.slice
        made = self._reader(values)
        for _ in range(DEEPEST):
            if isinstance(node, ast.Name) and node.id in self.assigned:
                node = self.assigned[node.id]
        if isinstance(node, ast.Lambda):
            if len(node.args.args) != 1:
                return None
            made.names[node.args.args[0].arg] = dict(values)
            node = node.body
        found = made.evaluate(node)
        sizes = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        good = 1 <= len(sizes) <= 3 and all(isinstance(n, int) and not isinstance(n, bool) and 0 < n < 2**31 for n in sizes)
        return sizes if good else None

    def _reader(self, values: Mapping[str, Any]) -> FunctionReader:
        made = reader(self.source)
        made.names.update(values)
        for name in self.own:  # a name of the function around is not the kernel's argument of the same name, nor the file's
            made.names[name] = lambda name=name: _unknown(name)
        for name, node in self.assigned.items():
            made.names[name] = lambda node=node: made._visit(node)
        for parameter, node in self.passed.items():
            if isinstance(node, ast.Name) and parameter in values:
                made.names[node.id] = values[parameter]
        return made


def _unknown(name: str) -> Any:
    raise NotLiteralError(f"what {name} is where the kernel is launched is not known")


def _own_names(function: ast.FunctionDef | None) -> set[str]:
    """Arguments of a function, and what it assigns."""
    if function is None:
        return set()
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}


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
