"""The files that imports lead to: among those that came with a record, or near the file itself; nothing else is looked for."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from advisor.configs.functions import FunctionReader
from advisor.configs.literals import NotLiteralError
from advisor.configs.source import Import, SourceFile, parse_source, read_source
from advisor.errors import InputError

MOST_HANDS = 4
"""Files through which an import is followed."""


def imported_source(source: SourceFile, item: Import) -> SourceFile | None:
    """The file that an import leads to, among those that came with a record or near the file itself, read for the same target; None: none
    that can be read."""
    recorded = _recorded(source, item)
    path = recorded.path if recorded is not None else _locate(source.path, item)
    try:
        found = recorded or (_read(path, path.stat().st_mtime_ns) if path is not None else None)
    except (InputError, OSError):
        return None
    return found.on(source.backend, source.arch) if found is not None else None


@lru_cache(maxsize=64)
def _read(path: Path, changed_ns: int) -> SourceFile:
    """A file, parsed once for all that asks for it until it changes."""
    del changed_ns
    return read_source(path)


def _followed(source: SourceFile, name: str, holds: Callable[[SourceFile, str], bool], depth: int = 0) -> tuple[SourceFile, str] | None:
    """The file that holds what `source` imports as `name`, also where one hands on what another does, and the name there."""
    for item in source.imports.get(name, ()):
        other = imported_source(source, item) if item.name is not None and not item.is_triton else None
        if other is None or item.name is None:
            continue
        if holds(other, item.name):
            return other, item.name
        handed = _followed(other, item.name, holds, depth + 1) if depth < MOST_HANDS else None
        if handed is not None:
            return handed
    return None


def imported_kernel(source: SourceFile, name: str) -> tuple[SourceFile, str] | None:
    """The file that defines the kernel which `source` imports as `name`, and the kernel's name there; None: not to be found."""
    return _followed(source, name, lambda file, there: there in file.functions)


def imported_value(source: SourceFile, asking: FunctionReader, name: str) -> Any:
    """What another file gives the name that `source` imports as `name`.

    Args:
        source: The file that imports it.
        asking: The reader of what needs it.
        name: The name.

    Raises:
        NotLiteralError: It is not one of a file nearby, or not literal.
    """
    found = _followed(source, name, lambda file, there: there in file.alternatives)
    if found is None or (str(found[0].path), found[1]) in asking.importing:
        raise NotLiteralError(f"{name} is imported in line {source.module_names.statements(name)[0].lineno}")
    return found[0].constant(found[1], asking)


def imported_function(source: SourceFile, name: str) -> tuple[FunctionReader, ast.FunctionDef] | None:
    """The function that `source` imports as `name`, and what its file's names stand for; None: not to be found."""
    for item in source.imports.get(name, ()):
        other = imported_source(source, item) if item.name is not None and not item.is_triton else None
        if other is not None and item.name in other.plain_functions:
            return other.evaluator(), other.plain_functions[item.name]
    return None


def _recorded(source: SourceFile, item: Import) -> SourceFile | None:
    """The file of an import among those that came with a record."""
    parts = item.module.split(".") if item.module else []
    for path, text in source.siblings.items():
        tail = Path(path).with_suffix("").parts
        if parts and (tail[-len(parts) :] == tuple(parts) or tail[-len(parts) - 1 :] == (*parts, "__init__")):
            return replace(parse_source(text, path), siblings=source.siblings, values=source.values)
    return None


def _locate(path: Path, item: Import) -> Path | None:
    """The file of an import beside or above `path`."""
    parts = item.module.split(".") if item.module else []
    folder = path.absolute().parent
    if item.level:
        for _ in range(item.level - 1):
            folder = folder.parent
        starts = [folder]
    else:
        starts = [folder, *list(folder.parents)[:8]]
    for start in starts:
        for candidate in (start.joinpath(*parts).with_suffix(".py") if parts else None, start.joinpath(*parts, "__init__.py")):
            if candidate is not None and candidate.is_file():
                return candidate
    return None
