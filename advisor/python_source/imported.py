"""What a file imports from others: a file as a whole, a kernel."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from advisor.python_source.bindings import is_none, plainly_given
from advisor.python_source.imports import HANDED_ON, MOST_HANDS, Import
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


def function_meant(source: SourceFile, name: str, items: Sequence[Import] | None = None, depth: int = 0) -> tuple[SourceFile, str] | None:
    """The file that defines the function for kernels (`SourceFile.callees`) that another one calls `name`, its own or an imported one, also
    as another name for it (`rounded = up`), and the function's name there; `items`: as of `SourceFile.led`. None: not to be found."""
    for file, there in itertools.chain([(source, name)], source.led(name, items)) if depth <= MOST_HANDS else ():
        meant = file.kernel_meant(there)
        if meant is not None:
            return file, meant
        given = [expression for expression in file.alternatives.get(there, ()) if not is_none(expression)]
        if given:  # besides None, where it cannot be imported
            alone = len(given) == len(file.module_names.statements(there)) == 1
            if not alone and file.backend is not None:  # in a branch for the target
                live = file.module_names.deciding(there, file.evaluator())
                given = [value for node in live for called, value in plainly_given(node) if called == there] or given
                alone = len(given) == 1
            module, _, other_name = (dotted(given[0]) if alone else "").rpartition(".")
            other = imported_file(file, module) if module else file  # power = tools.power
            return function_meant(other, other_name, None, depth + 1) if other is not None and other_name else None
    return None


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
        items = source.module_names.last_imports(name) or ([] if source.module_names.statements(name) else source.imports_of(name))
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
    if any(_is_module(other, dotted(value), leaf) for value in other.alternatives.get(item.name, ())):
        return True  # a shim: whatever the vendor's module is, or triton's own where there is none
    return not imports and not other.module_names.statements(item.name)


def _is_module(source: SourceFile, name: str, leaf: str) -> bool:
    """Whether a dotted name is that of a module of triton's: `triton.language.extra.libdevice`."""
    root, *parts = name.split(".")
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
