"""Imports of what a change took away: `from ops.softmax import softmax_kernel`, where that file defines it no longer or is gone. The file
that says so ends with an ImportError, and everything that it launches with it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from advisor.comparison.kernels.importers import located
from advisor.comparison.kernels.kernel_source import LARGEST_SOURCE_BYTES, parse
from advisor.comparison.kernels.undefined_names import WRITE_GLOBALS
from advisor.comparison.trees.trees import Entry, FileChange, Tree
from advisor.python_source.bindings import bound_by, own_nodes
from advisor.python_source.imports import Import, imports_in
from advisor.python_source.source import SourceFile
from advisor.result.comparison_schema import Failure, Subject
from advisor.result.schema import Finding
from advisor.system.errors import AdvisorError, InputError

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
        entries = head.sized(entries)
    except InputError:  # a partial clone, or git gave up on a large tree: nothing is certain
        return
    for entry in entries:
        source = _parsed(head, entry)
        gone = dict.fromkeys(_in_vain(source, entry.path, lost, before, after)) if source is not None else {}
        if gone:
            yield _failing(entry.path, list(gone), unchanged=before.get(entry.path) == after[entry.path])


def _lost(entry: Entry, base: Tree, head: Tree) -> frozenset[str]:
    """The names that a file which defined kernels no longer defines, as far as that is certain."""
    if entry.kind != "file" or not entry.path.endswith(".py"):
        return frozenset()
    old = _parsed(base, entry)
    if old is None or not old.definitions:
        return frozenset()
    names = _names(old)
    now = head.entries().get(entry.path)
    if now is None:
        package = entry.path.removesuffix(".py") + "/__init__.py"  # which would be imported in its place
        return frozenset() if package in head.entries() else names
    new = _parsed(head, head.sized([now])[0])
    if new is None or any(not star.is_triton for star in new.stars):
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
    return frozenset(name for node in own_nodes(source.tree) for name in bound_by(node))


def _used(source: SourceFile) -> set[str]:
    return {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}


def _parsed(tree: Tree, entry: Entry) -> SourceFile | None:
    try:
        return parse(tree.read(entry), entry.path) if entry.size_bytes <= LARGEST_SOURCE_BYTES else None
    except AdvisorError:
        return None
