"""The files that imports lead to: among those that came with a record, near the file itself, or TorchInductor's own in the installed torch;
nothing else is looked for."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import util
from pathlib import Path
from typing import Any

from advisor.python_source.functions import FunctionReader
from advisor.python_source.imports import Import
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile, parse_source, read_source
from advisor.system.errors import InputError

MOST_HANDS = 4
"""Files through which an import is followed."""
MOST_ABOVE = 8
"""Folders above a file in which what it imports is looked for."""
INDUCTOR = "torch._inductor"
"""What generated kernels call is defined there (`triton_helpers`), and in no file near them."""


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


def imported_file(source: SourceFile, name: str, items: Sequence[Import] | None = None) -> SourceFile | None:
    """The file that a name stands for as a whole: `tools` after `from package import tools` or `import tools`, `package.tools` after
    `import package.tools`; None: none that can be read. `items`: what is imported under its first part, by a function, say."""
    root, _, rest = name.partition(".")
    for item in imports_of(source, root) if items is None else items:
        plain = item.name is None and item.module.split(".")[0] == root  # binds the package alone
        module = name if plain else ".".join(filter(None, (item.module, item.name, rest)))
        found = None if item.is_triton else imported_source(source, replace(item, module=module, name=None))
        if found is not None:
            return found
    return None


def imports_of(source: SourceFile, name: str, depth: int = 0) -> list[Import]:
    """Where a file imports a name from; several where there are alternatives. Of the modules all of whose names it imports
    (`from module import *`), the last that has the name and can be read counts."""
    if name in source.imports or source.module_names.statements(name) or depth > MOST_HANDS:
        return source.imports.get(name, [])
    for star in source.stars:
        other = imported_source(source, star)
        if other is not None and _gives(other, name, depth):
            return [replace(star, alias=name, name=name)]
    return []


def _gives(source: SourceFile, name: str, depth: int) -> bool:
    """Whether a name is among all that a file gives."""
    listed = source.alternatives.get("__all__", [])
    try:
        public = name in ast.literal_eval(listed[-1]) if listed else not name.startswith("_")
    except (ValueError, TypeError):  # put together in some other way: what is asked for by name is taken to be in it
        public = True
    return public and bool(source.module_names.statements(name) or imports_of(source, name, depth + 1))


def _followed(source: SourceFile, name: str, depth: int = 0) -> tuple[SourceFile, str] | None:
    """The file that assigns what `source` imports as `name`, also where one hands on what another does, and the name there."""
    for item in imports_of(source, name):
        other = imported_source(source, item) if item.name is not None and not item.is_triton else None
        if other is None or item.name is None:
            continue
        if item.name in other.alternatives:
            return other, item.name
        handed = _followed(other, item.name, depth + 1) if depth < MOST_HANDS else None
        if handed is not None:
            return handed
    return None


def imported_kernel(source: SourceFile, name: str, depth: int = 0) -> tuple[SourceFile, str] | None:
    """The file that defines the kernel which `source` imports as `name`, or gives that name too (`rounded = up`), and the kernel's name
    there; None: not to be found."""
    meant = source.kernel_meant(name)
    if meant is not None:
        return (source, meant) if meant in source.functions else None
    if depth > MOST_HANDS:
        return None
    given = [each for each in source.alternatives.get(name, ()) if not (isinstance(each, ast.Constant) and each.value is None)]
    if given:  # besides None, where it cannot be imported
        match given if len(given) == len(source.module_names.statements(name)) == 1 else ():
            case [ast.Name(id=other_name)]:
                return imported_kernel(source, other_name, depth + 1)
            case [ast.Attribute(value=ast.Name(id=module), attr=other_name)]:  # power = tools.power
                file = imported_file(source, module)
                return imported_kernel(file, other_name, depth + 1) if file is not None else None
            case [ast.Call()] if (applied := source.applied_by(name)) is not None:  # tuned = triton.autotune(...)(power)
                return imported_kernel(source, applied[1], depth + 1)
        return None
    return handed_on(source, imports_of(source, name), depth)


def handed_on(source: SourceFile, items: Sequence[Import], depth: int = 0) -> tuple[SourceFile, str] | None:
    """The same as `imported_kernel` of what a file, or a function in it, imports."""
    for item in items:
        other = imported_source(source, item) if item.name is not None and not item.is_triton else None
        found = imported_kernel(other, item.name, depth + 1) if other is not None and item.name is not None else None
        if found is not None:
            return found
    return None


def imported_tuning(source: SourceFile, name: str, depth: int = 0) -> tuple[SourceFile, list[ast.expr]] | None:
    """The file that applies decorators to a kernel where it gives that a name of its own, `tuned = triton.autotune(...)(kernel)`, which
    `source` is or imports it from, and these; None: none does."""
    applied = source.applied_by(name)
    if applied is not None:
        return (source, applied[0]) if applied[0] else imported_tuning(source, applied[1], depth + 1) if depth < MOST_HANDS else None
    for item in imports_of(source, name) if depth < MOST_HANDS else ():
        other = imported_source(source, item) if item.name is not None and not item.is_triton else None
        found = imported_tuning(other, item.name, depth + 1) if other is not None and item.name is not None else None
        if found is not None:
            return found
    return None


def imported_value(source: SourceFile, asking: FunctionReader, name: str) -> Any:
    """What another file gives the name that `source` imports as `name`.

    Args:
        source: The file that imports it.
        asking: The reader of what needs it.
        name: The name.

    Raises:
        NotLiteralError: It is not one of a file nearby, or not literal.
    """
    found = _followed(source, name)
    if found is None or (str(found[0].path), found[1]) in asking.inquiry.importing:
        statements = source.module_names.statements(name)
        where = f"imported in line {statements[0].lineno}" if statements else "not a literal of the file"
        raise NotLiteralError(f"{name} is {where}")
    return found[0].constant(found[1], asking)


def imported_function(source: SourceFile, asking: FunctionReader, name: str) -> tuple[FunctionReader, ast.FunctionDef] | None:
    """The function that `source` imports as `name`, and a reader of its file for the one that asks; None: not to be found."""
    for item in imports_of(source, name):
        other = imported_source(source, item) if item.name is not None and not item.is_triton else None
        if other is not None and item.name in other.plain_functions:
            return other.evaluator(inquiry=asking.inquiry), other.plain_functions[item.name]
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
        starts = [folder, *list(folder.parents)[:MOST_ABOVE]]
    for start in starts:
        for candidate in (start.joinpath(*parts).with_suffix(".py") if parts else None, start.joinpath(*parts, "__init__.py")):
            if candidate is not None and candidate.is_file():
                return candidate
    return _of_inductor(parts) if not item.level and item.module.startswith(f"{INDUCTOR}.") else None


def _of_inductor(parts: list[str]) -> Path | None:
    """A file of TorchInductor's, where torch is installed; torch is not imported."""
    with contextlib.suppress(ValueError):  # a module without a place stands in for it
        spec = util.find_spec(parts[0])
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            candidate = Path(folder).joinpath(*parts[1:]).with_suffix(".py")
            if candidate.is_file():
                return candidate
    return None
