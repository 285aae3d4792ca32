"""What a file imports from others: a file as a whole, a kernel, decorators of one."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from advisor.python_source.imports import MOST_HANDS, Import
from advisor.python_source.source import SourceFile


def imported_file(source: SourceFile, name: str, items: Sequence[Import] | None = None) -> SourceFile | None:
    """The file that a name stands for as a whole: `tools` after `from package import tools` or `import tools`, `package.tools` after
    `import package.tools`; None: none that can be read. `items`: what is imported under its first part, by a function, say."""
    root, _, rest = name.partition(".")
    for item in source.imports_of(root) if items is None else items:
        plain = item.name is None and item.module.split(".")[0] == root  # binds the package alone
        module = name if plain else ".".join(filter(None, (item.module, item.name, rest)))
        found = None if item.is_triton else source.imported(replace(item, module=module, name=None))
        if found is not None:
            return found
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
    return handed_on(source, source.imports_of(name), depth)


def handed_on(source: SourceFile, items: Sequence[Import], depth: int = 0) -> tuple[SourceFile, str] | None:
    """The same as `imported_kernel` of what a file, or a function in it, imports."""
    for item in items:
        other = source.imported(item) if item.name is not None and not item.is_triton else None
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
    for item in source.imports_of(name) if depth < MOST_HANDS else ():
        other = source.imported(item) if item.name is not None and not item.is_triton else None
        found = imported_tuning(other, item.name, depth + 1) if other is not None and item.name is not None else None
        if found is not None:
            return found
    return None
