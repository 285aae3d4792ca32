"""Names that nothing defines: those that a kernel reads, and those that files import from others which no longer give them."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from advisor.comparison.kernels.importers import located
from advisor.comparison.kernels.kernel_source import parsed
from advisor.comparison.trees.trees import Entry, FileChange, Tree
from advisor.python_source.bindings import arguments
from advisor.python_source.imported import imported_kernel
from advisor.python_source.imports import Import, imports_in
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.kernel_forms import last_name
from advisor.python_source.kernel_names import bound_names
from advisor.python_source.source import SourceFile
from advisor.result.comparison_schema import Failure, Subject
from advisor.result.schema import Finding
from advisor.system.errors import InputError

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
        known = _defined(source, source.module_names.scopes_around(call)) if name == kernel else None
        if known is not None and name not in known:
            return call.lineno
    return None


def _defined(source: SourceFile, scopes: Sequence[ast.AST]) -> set[str] | None:
    """All names that may be defined where a function within scopes reads them; None: that is not known."""
    others: Sequence[SourceFile | None] = [source.imported(star) for star in source.module_names.stars if not star.is_triton]
    graph = source.module_names
    if (source.module_names.stars and len(others) < len(source.module_names.stars)) or None in others:
        return None
    if WRITE_GLOBALS & _used(source):
        return None
    names = {*graph.binders(source.tree), *dir(builtins), *source.values}
    names |= {name for node in graph.nodes if isinstance(node, ast.Global) for name in node.names}
    for scope in scopes:
        names |= {*arguments(scope), *graph.binders(scope)}
    for other in others:
        if other is None or other.module_names.stars:
            return None
        names |= _names(other)
    return names


LARGEST_READ = 400
"""Files that are read for such imports."""


def lost_imports(base: Tree, head: Tree, changes: Sequence[FileChange]) -> Iterator[Subject]:
    """The files of the head that import what a changed kernel file defined and no longer does, as failures.

    Only what is certain: imports among the statements of a file itself, not under `try` or `if`, nor within functions.
    """
    lost = {change.base.path: names for change in changes if change.base is not None and (names := _lost(change.base, base, head))}
    words = {PurePosixPath(path).parent.name if path.endswith("__init__.py") else PurePosixPath(path).stem for path in lost} - {""}
    if not words:
        return
    before, after = base.entries(), head.entries()
    try:
        entries = [after[path] for path in head.mentioning(words) if path in after and after[path].kind == "file"][:LARGEST_READ]
        head.fetch(entries)
    except InputError:  # git gave up on a large tree: nothing is certain
        return
    for entry in entries:
        source = parsed(head, entry)
        gone = dict.fromkeys(_in_vain(source, entry.path, lost, before, after)) if source is not None else {}
        if gone:
            yield _failing(entry.path, list(gone), unchanged=before.get(entry.path) == after[entry.path])


def _lost(entry: Entry, base: Tree, head: Tree) -> frozenset[str]:
    """The names that a file which defined kernels no longer defines, as far as that is certain."""
    if entry.kind != "file" or not entry.path.endswith(".py"):
        return frozenset()
    old = parsed(base, entry)
    if old is None or not old.definitions:
        return frozenset()
    names = _names(old)
    now = head.entries().get(entry.path)
    if now is None:
        package = entry.path.removesuffix(".py") + "/__init__.py"  # which would be imported in its place
        return frozenset() if package in head.entries() else names
    new = parsed(head, now)
    if new is None or any(not star.is_triton for star in new.module_names.stars):
        return frozenset()
    kept = _names(new)
    submodules = {PurePosixPath(path).stem for path in head.entries()} if entry.path.endswith("__init__.py") else set()
    return names - kept - submodules if "__getattr__" not in kept and not WRITE_GLOBALS & _used(new) else frozenset()


def _in_vain(
    source: SourceFile, path: str, lost: Mapping[str, Collection[str]], before: Collection[str], after: Collection[str]
) -> Iterator[tuple[int, str, str]]:
    """The lines that import what is lost, with the name and the path of the file that defined it."""
    for node in source.tree.body:
        for item in imports_in(node) if isinstance(node, ast.ImportFrom) else ():
            target = located(before, path, item)
            if item.name not in lost.get(target or "", ()) or target is None or path == target:
                continue
            if _leads_there(item, target, after, present=located(after, path, item)):
                yield node.lineno, str(item.name), target


def _leads_there(item: Import, target: str, after: Collection[str], *, present: str | None) -> bool:
    """Whether an import that led to `target`, and leads to `present` now, is certain to mean that file, and no other in its place.

    An absolute one is not looked for in the package that the importing file is in. And where the whole package is gone, an installed one
    may have taken its place.
    """
    if present not in (None, target):
        return False
    if item.level:
        return True
    parts = item.module.split(".")
    start = PurePosixPath(target.removesuffix("/__init__.py").removesuffix(".py")).parents[len(parts) - 1]
    in_package = (start / "__init__.py").as_posix() in after
    return not in_package and (present == target or (start / parts[0] / "__init__.py").as_posix() in after)


def _failing(path: str, gone: Sequence[tuple[int, str, str]], *, unchanged: bool) -> Subject:
    line, name, target = gone[0]
    more = f", and {len(gone) - 1} more" if len(gone) > 1 else ""
    reason = f"ImportError as soon as it is imported: line {line} imports {name}, which {target} no longer defines{more}"
    issue = Finding(
        rule="undefined-name",
        severity="error",
        title="What is imported is gone",
        evidence=reason,
        remedy="restore it, or import it from where it lies now",
        scope="kernel",
    )
    notes = ("The file is unchanged; what it imports is gone.",) if unchanged else ()
    return Subject(
        kind="file",
        title=path,
        path=path,
        change="modified",
        new_issues=(issue,),
        notes=notes,
        failures=(Failure(condition="failed", what="", reason=reason),),
    )


def _names(source: SourceFile) -> frozenset[str]:
    return frozenset(source.module_names.binders(source.tree))


def _used(source: SourceFile) -> set[str]:
    return {node.id for node in source.module_names.nodes if isinstance(node, ast.Name)}
