"""Names that a kernel reads and nothing defines: it ends with a NameError where it is first compiled, whatever it is launched with."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.python_source.bindings import arguments, bound_by, own_nodes, scopes_around
from advisor.python_source.decorators import last_name
from advisor.python_source.imported import imported_kernel
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.kernel_names import bound_names
from advisor.python_source.source import SourceFile

MOST_FUNCTIONS = 200
"""Helpers that a kernel is followed to."""
WRITE_GLOBALS = frozenset({"globals", "vars", "locals", "exec", "setattr"})
"""A file that calls one of these may define names that do not stand in it."""
_MAY_BE_LEFT_OUT = (ast.If, ast.IfExp, ast.BoolOp, ast.Raise, ast.FunctionDef, ast.Lambda)
"""What the compiler visits in part or not at all, as constants decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undefined:
    """A name that nothing defines: where it is first read, as `path:line` of a helper's file, or `line 12` of the kernel's own."""

    name: str
    where: str


def undefined_names(source: SourceFile, kernel: JitFunction) -> list[Undefined]:
    """The names that a kernel, or a helper which it always calls, reads and that are neither its own, nor its file's, nor Python's.

    Only what is certain: not what stands in a branch, which constants may leave out, and not in a file that imports all names of one that
    cannot be read, or may define names by other means than statements.
    """
    found: dict[str, Undefined] = {}
    seen: set[tuple[str, str]] = set()
    waiting: list[tuple[SourceFile, ast.FunctionDef]] = [(source, kernel.node)]
    while waiting and len(seen) < MOST_FUNCTIONS:
        file, node = waiting.pop()
        if (str(file.path), node.name) in seen:
            continue
        seen.add((str(file.path), node.name))
        known = _defined(file, file.module_names.place(node).scopes)
        for each in _always_read(node):
            if known is not None and each.id not in known:
                where = f"line {each.lineno}" if file.path == source.path else f"{file.path}:{each.lineno}"
                found.setdefault(each.id, Undefined(name=each.id, where=where))
            helper = imported_kernel(file, each.id)
            if helper is not None:
                waiting.append((helper[0], helper[0].functions[helper[1]].node))
    return list(found.values())


def _always_read(function: ast.FunctionDef) -> Iterator[ast.Name]:
    """The names that a kernel's body reads whatever its constants are: those of other functions first seen where they are called."""
    own = bound_names(function)
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own:
            yield node
        if isinstance(node, (ast.If, ast.IfExp)):
            waiting.append(node.test)  # which is always asked
            if isinstance(node, ast.If) and any(isinstance(inner, ast.Return) for inner in ast.walk(node)):
                return  # what follows may not be reached
        elif isinstance(node, ast.For) and last_name(node.iter) == "static_range":  # which may be of nothing
            waiting.append(node.iter)
        elif isinstance(node, ast.BoolOp):
            waiting.append(node.values[0])
        elif not isinstance(node, _MAY_BE_LEFT_OUT):
            waiting += reversed(list(ast.iter_child_nodes(node)))


def launched_in_vain(source: SourceFile, kernel: str) -> int | None:
    """The first line in which a file launches a kernel that nothing in it defines; None: there is none, or that is not certain."""
    for name, call in source.launches:
        known = _defined(source, scopes_around(source.scopes, call)) if name == kernel else None
        if known is not None and name not in known:
            return call.lineno
    return None


def _defined(source: SourceFile, scopes: Sequence[ast.AST]) -> set[str] | None:
    """All names that may be defined where a function within scopes reads them; None: that is not known."""
    others: Sequence[SourceFile | None] = [source.imported(star) for star in source.stars if not star.is_triton]
    nodes = list(ast.walk(source.tree))
    if (source.stars and len(others) < len(source.stars)) or None in others:
        return None
    if any(isinstance(node, ast.Name) and node.id in WRITE_GLOBALS for node in nodes):
        return None
    names = {name for node in own_nodes(source.tree) for name in bound_by(node)} | set(dir(builtins)) | set(source.values)
    names |= {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    for scope in scopes:
        names |= arguments(scope) | {name for node in own_nodes(scope) for name in bound_by(node)}
    for other in others:
        if other is None or other.stars:
            return None
        names |= {name for node in own_nodes(other.tree) for name in bound_by(node)}
    return names
