"""The calls by which a file launches one of its kernels, `kernel[grid](...)`, and the scopes around each."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from advisor.configs import same_name
from advisor.configs.bindings import SCOPES, Scope, arguments, bound_by, holds, own_nodes
from advisor.configs.literals import dotted
from advisor.configs.source import SourceFile

_WRAPPERS = ("wrap_triton", "capture_triton")
"""Functions of torch that hand a kernel on for `torch.compile`: `wrap_triton(kernel)[grid](...)`."""


def launches(source: SourceFile, kernel: str) -> Iterator[tuple[list[Scope], ast.Call]]:
    """The scopes around each launch of a kernel, the outermost first, and the call.

    Where a function binds the kernel's name, by an argument or an assignment, it launches something else, as far as is known.
    """
    nodes = list(ast.walk(source.tree))
    scopes = [node for node in nodes if isinstance(node, SCOPES)]
    several = source.definitions.get(kernel, [])
    own = source.kernel(kernel).node if len(several) > 1 else None
    names = source.names_of(kernel)
    if any(isinstance(node, ast.Global) for node in nodes):
        names -= _rebound(scopes)
    for node in nodes:
        name = _launched(node.func.value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript) else None
        if not isinstance(node, ast.Call) or name not in names:
            continue
        if own is not None and own not in same_name.visible(source.tree, several, node.lineno):
            continue  # it launches another kernel of the same name
        around = [each for each in scopes if each.lineno <= node.lineno <= (each.end_lineno or each.lineno) and holds(each, node)]
        if not any(name in _bound(each, source) for each in around):
            yield around, node


def _launched(node: ast.expr) -> str | None:
    """The name that is launched."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and (dotted(node.func) or "").rsplit(".", 1)[-1] in _WRAPPERS:
        node = node.args[0]
    return node.id if isinstance(node, ast.Name) else None


def _bound(scope: Scope, source: SourceFile) -> set[str]:
    """Names that a scope binds to something else than kernels that it defines: what it declares global it only may."""
    kernels = {id(node) for nodes in source.definitions.values() for node in nodes}
    nodes = (node for node in own_nodes(scope) if id(node) not in kernels and not isinstance(node, (ast.Global, ast.Nonlocal)))
    return arguments(scope) | {name for node in nodes for name in bound_by(node)}


def _rebound(scopes: list[Scope]) -> set[str]:
    """Names of the file that some function assigns, `global kernel; kernel = other`: what they stand for depends on which ran."""
    found: set[str] = set()
    for scope in scopes:
        declared = {name for node in own_nodes(scope) if isinstance(node, ast.Global) for name in node.names}
        if declared:
            found |= declared & {n.id for n in own_nodes(scope) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return found
