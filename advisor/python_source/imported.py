"""What a file imports from others: a file as a whole, a kernel."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from advisor.python_source.bindings import is_none
from advisor.python_source.imports import HANDED_ON, MOST_HANDS, Import, imports_in
from advisor.python_source.language import dotted
from advisor.python_source.source import SourceFile


def imported_file(source: SourceFile, name: str) -> SourceFile | None:
    """The file that a name stands for as a whole: `tools` after `from package import tools` or `import tools`, `package.tools` after
    `import package.tools`; None: none that can be read."""
    root, _, rest = name.partition(".")
    for imported in source.imports_of(root):
        plain = imported.name is None and imported.module.split(".")[0] == root  # binds the package alone
        module = name if plain else ".".join(filter(None, (imported.module, imported.name, rest)))
        file = None if imported.is_triton else source.imported(replace(imported, module=module, name=None))
        if file is not None:
            return file
    return None


def imported_kernel(source: SourceFile, name: str, depth: int = 0) -> tuple[SourceFile, str] | None:
    """The file that defines the kernel which `source` imports as `name`, or gives that name too (`rounded = up`), and the kernel's name
    there; None: not to be found."""
    meant = source.kernel_meant(name)
    if meant is not None:
        return (source, meant) if meant in source.functions else None
    if depth > MOST_HANDS:
        return None
    given = [expression for expression in source.alternatives.get(name, ()) if not is_none(expression)]
    if given:  # besides None, where it cannot be imported
        match given if len(given) == len(source.module_names.statements(name)) == 1 else ():
            case [ast.Name(id=other_name)]:
                return imported_kernel(source, other_name, depth + 1)
            case [ast.Attribute(value=ast.Name(id=module), attr=other_name)]:  # power = tools.power
                file = imported_file(source, module)
                return imported_kernel(file, other_name, depth + 1) if file is not None else None
        return None
    kernels = (imported_kernel(other, there, depth + 1) for other, there in source.named_imports(source.imports_of(name)))
    return next((kernel for kernel in kernels if kernel is not None), None)


INDUCTOR_HELPERS = ("torch._inductor.runtime.triton_helpers", "torch._inductor.triton_helpers")
INDUCTOR_NAMES = {"libdevice": "triton.language.extra import libdevice", "math": "triton.language import math"}
"""What TorchInductor's generated kernels take from torch that is triton's own."""


def triton_statement(source: SourceFile, name: str, items: Sequence[Import] | None = None, alias: str = "") -> str | None:
    """How a generated module imports a name that is triton's, or of the standard module math; None where it is neither.

    Args:
        source: The file that imports it.
        name: What the file calls it.
        items: Its imports, where they are not those of the module.
        alias: What the generated module calls it; empty: the same.
    """
    if items is None:
        items = _last_bound(source, name)
    alias = alias or name
    if any(item.is_triton for item in items):
        return _triton_import([replace(item, alias=alias) for item in items if item.is_triton])
    for item in items:
        if item.module in INDUCTOR_HELPERS and item.name in INDUCTOR_NAMES:
            return f"from {INDUCTOR_NAMES[item.name]} as {alias}"
        if item.name in HANDED_ON and _hands_on(source, item):
            return f"import {HANDED_ON[item.name]} as {alias}"
        if item.module == "math" and item.level == 0:  # the standard one: numbers, and functions of numbers alone
            return f"from math import {item.name} as {alias}" if item.name else f"import math as {alias}"
    if name in ("tl", "triton") and not items and not source.module_names.statements(name):
        return f"import {HANDED_ON[name]} as {alias}"  # imported by the function that the kernel is written in
    return None


def _last_bound(source: SourceFile, name: str) -> Sequence[Import]:
    """The imports that a name may come from: of all at module level none before the last statement that binds it whatever happens."""
    imports = list(source.imports_of(name))
    for statement in reversed(source.module_names.statements(name)):
        match statement:
            case ast.Import() | ast.ImportFrom() if imported_here := [
                imported for imported in imports_in(statement) if imported.alias == name
            ]:
                return (
                    imports[len(imports) - 1 - imports[::-1].index(imported_here[-1]) :] if imported_here[-1] in imports else imported_here
                )
            case ast.Assign(targets=[ast.Name(id=bound)]) | ast.FunctionDef(name=bound) | ast.ClassDef(name=bound) if bound == name:
                return []
    return imports


def _hands_on(source: SourceFile, item: Import, depth: int = 0) -> bool:
    """Whether an import under one of triton's usual names brings triton's module, followed as far as files are nearby.

    What cannot be read is taken at its name: the generated module imports triton's own in its place.
    """
    assert item.name is not None
    other = source.imported(item)
    if other is None or depth > MOST_HANDS:
        return True
    imports = other.imports_of(item.name)
    leaf = HANDED_ON[item.name].rsplit(".", 1)[-1]
    if any(i.is_triton and (i.name or i.module).rsplit(".", 1)[-1] == leaf for i in imports):
        return True
    if any(not i.is_triton and i.name in HANDED_ON and _hands_on(other, i, depth + 1) for i in imports):
        return True
    if any(_names_module(other, value, leaf) for value in other.alternatives.get(item.name, ())):
        return True  # a shim: whatever the vendor's module is, or triton's own where there is none
    return not imports and not other.module_names.statements(item.name)


def _names_module(source: SourceFile, value: ast.expr, leaf: str) -> bool:
    """Whether an expression is a module of triton's by its name: `triton.language.extra.libdevice`."""
    root, *parts = dotted(value).split(".")
    return bool(parts) and parts[-1] == leaf and (root == "triton" or root in source.module_names.triton_roots)


def _triton_import(items: Sequence[Import]) -> str:
    """The imports of a name, alternatives in order, and last where Triton keeps mathematical functions today."""
    name = items[0].alias
    moved = [
        Import(alias=name, module="triton.language.extra.libdevice", name=i.name)
        for i in items
        if i.name and (i.module.startswith("triton.language.math") or "libdevice" in i.module)
    ]
    # The module itself of a vendor whose Triton is another: triton's own chooses by the target.
    moved += [Import(alias=name, module="triton.language.extra", name="libdevice") for i in items if i.name == "libdevice"]
    return "\n".join(_guarded(i) for i in [*items, *moved[:1]])


def _guarded(item: Import) -> str:
    """An import that leaves the name alone where it fails, and where an alternative before it succeeded."""
    if item.name is None:
        text = f"import {item.module} as {item.alias}" if item.alias != item.module.split(".")[0] else f"import {item.module}"
    else:
        text = f"from {item.module} import {item.name} as {item.alias}"
    return f"if {item.alias!r} not in globals():\n try:\n  {text}\n except ImportError:\n  pass"
