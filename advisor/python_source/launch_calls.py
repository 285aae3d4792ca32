"""The calls by which a file launches kernels, its own and those of others, and the scopes around each."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from advisor.python_source import same_name
from advisor.python_source.bindings import Scope, arguments, bound_by, own_nodes, scopes_around
from advisor.python_source.imported import handed_on, imported_file, imported_kernel
from advisor.python_source.imports import Import, imports_in
from advisor.python_source.source import SourceFile


def launches(source: SourceFile, kernel: str) -> Iterator[tuple[list[Scope], ast.Call]]:
    """The scopes around each launch of a kernel, the outermost first, and the call.

    Where a function binds the kernel's name, by an argument or an assignment, it launches something else, as far as is known.
    """
    several = source.definitions.get(kernel, [])
    own = source.kernel(kernel).node if len(several) > 1 else None
    names = source.names_of(kernel)
    scopes = source.scopes
    if source.has_globals:
        names -= _rebound(scopes)
    for name, node in source.launches:
        if name not in names:
            continue
        if own is not None and own not in same_name.visible(source.tree, several, node.lineno):
            continue  # it launches another kernel of the same name
        around = scopes_around(scopes, node)
        if not any(name in _bound(each, source) for each in around):
            yield around, node


def imported_launches(source: SourceFile) -> Iterator[tuple[SourceFile, str, str, list[Scope], ast.Call]]:
    """The launches of kernels that a file imports: the kernel's file, its name there and here, the scopes around the launch, and the call.

    As in `launches`, what a function binds itself is something else, but for what it imports.
    """
    found: dict[str, tuple[SourceFile, str] | None] = {}
    scopes = source.scopes
    rebound = _rebound(scopes)
    for name, node in source.launches:
        root = name.partition(".")[0]
        if root in source.definitions or root in rebound:
            continue
        around = scopes_around(scopes, node)
        inner = next((each for each in reversed(around) if root in _bound(each, source)), None)
        if inner is not None:
            items = _imports_within(inner, root)
            kernel = _imported(source, name, items) if items else None
        else:
            if name not in found:
                found[name] = _imported(source, name)
            kernel = found[name]
        if kernel is not None and kernel[0].path != source.path:
            yield *kernel, name, around, node


def _imports_within(scope: Scope, root: str) -> list[Import]:
    """What a function imports under a name; nothing where it binds that in other ways too."""
    if root in arguments(scope) or any(root in bound_by(node) and not isinstance(node, ast.alias) for node in own_nodes(scope)):
        return []
    return [item for node in own_nodes(scope) for item in imports_in(node) if item.alias == root]


def _imported(source: SourceFile, name: str, items: Sequence[Import] | None = None) -> tuple[SourceFile, str] | None:
    """The file that defines the kernel which another one names so, and the kernel's name there. `items`: what a function imports under the
    name's first part."""
    module, _, kernel = name.rpartition(".")
    if items is not None and not module:
        return handed_on(source, items)
    file = imported_file(source, module, items) if module else source
    return imported_kernel(file, kernel) if file is not None else None


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
