"""How a generated module imports what is triton's, by whatever way the author's file does."""

from __future__ import annotations

from advisor.python_source.imports import HANDED_ON, Import
from advisor.python_source.source import SourceFile

INDUCTOR_HELPERS = ("torch._inductor.runtime.triton_helpers", "torch._inductor.triton_helpers")
INDUCTOR_NAMES = {"libdevice": "triton.language.extra import libdevice", "math": "triton.language import math"}
"""What TorchInductor's generated kernels take from torch that is triton's own."""


def triton_statement(source: SourceFile, name: str) -> str | None:
    """How a generated module imports a name that is triton's, or of the standard module math; None where it is neither."""
    items = source.imports_of(name)
    if any(item.is_triton for item in items):
        return _triton_import(source, name)
    for item in items:
        if item.module in INDUCTOR_HELPERS and item.name in INDUCTOR_NAMES:
            return f"from {INDUCTOR_NAMES[item.name]} as {name}"
        if item.name in HANDED_ON:
            return f"import {HANDED_ON[item.name]} as {name}"
        if item.module == "math" and item.level == 0:  # the standard one: numbers, and functions of numbers alone
            return f"from math import {item.name} as {name}" if item.name else f"import math as {name}"
    if name in ("tl", "triton") and not items and name not in source.assignments:
        return f"import {HANDED_ON[name]} as {name}"  # imported by the function that the kernel is written in
    return None


def _triton_import(source: SourceFile, name: str) -> str:
    """The imports of a name, alternatives in order, and last where Triton keeps mathematical functions today."""
    items = [i for i in source.imports[name] if i.is_triton]
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
