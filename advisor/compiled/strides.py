"""Strides that nobody gave: what stands for them, for a real call passes 1 for one of a tensor's and multiples of 16 for the others.

Compiled without either, loads are narrower than any call's, nothing is copied asynchronously, and registers spill that never would.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence

from advisor.configs.launch_sites import passed_at_launches
from advisor.configs.source import JitFunction, SourceFile

_NAME = re.compile(r"(^|_)strides?($|_|\d)", re.IGNORECASE)
INTEGERS = ("i32", "i64", "u32", "u64")


def unknown_strides(signature: Mapping[str, str], known: Collection[str]) -> tuple[str, ...]:
    """Arguments that are strides by their names, and whose values are not given."""
    return tuple(name for name, kind in signature.items() if kind in INTEGERS and _NAME.search(name) and name not in known)


def unit_strides(source: SourceFile, function: JitFunction, unknown: Sequence[str], given: Mapping[str, object]) -> tuple[str, ...]:
    """Of the strides that are not given those that are 1 where tensors are contiguous: of each tensor the last.

    What is a tensor's, and in which order, is taken from where the file launches the kernel (`x.stride(-1)`), and else from the names
    (`stride_am, stride_ak`).
    """
    groups: dict[str, list[tuple[int, str]]] = {}
    for name, node in next(iter(passed_at_launches(source, function.name)), {}).items():
        if (of := _stride_of(node)) is not None:
            groups.setdefault(f"launch {of[0]}", []).append((of[1], name))
    if not any(name in unknown for each in groups.values() for _, name in each):
        groups = {}
        for number, name in enumerate(p.name for p in function.parameters if _NAME.search(p.name)):
            groups.setdefault(_tensor(name), []).append((number, name))
    found = []
    for group in groups.values():
        last, name = max(group, key=lambda each: each[0] % 64)  # -1 is the last
        if last and name in unknown and len(group) > 1 and not any(given.get(other) == 1 for _, other in group):
            found.append(name)
    return tuple(name for name in unknown if name in found)


def assumption(unit: Sequence[str], others: Sequence[str]) -> str:
    """What is taken for strides that are not given, in words."""
    parts = [f"{', '.join(unit)} = 1"] * bool(unit) + [f"{', '.join(others)} multiples of 16"] * bool(others)
    return f"{' and '.join(parts)}, as of contiguous tensors (how accesses lie in memory is not judged)"


def _stride_of(node: ast.expr) -> tuple[str, int] | None:
    """Tensor and dimension of `x.stride(1)` and `x.stride()[1]`."""
    index: ast.expr | None = None
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call) and not node.value.args:
        index, node = node.slice, node.value
    elif isinstance(node, ast.Call) and len(node.args) == 1:
        index = node.args[0]
    if index is None or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "stride":
        return None
    try:
        dimension = ast.literal_eval(index)
    except ValueError:
        return None
    return (ast.unparse(node.func.value), dimension) if isinstance(dimension, int) else None


def _tensor(name: str) -> str:
    """The tensor's part of a stride's name: `a` of `stride_am`, `x` of `x_stride_0` and `stride_x_row`."""
    rest = [part for part in re.split(r"_?strides?_?", name, flags=re.IGNORECASE) if part]
    text = rest[0] if rest else ""
    if len(rest) == 1 and "_" in text:
        return text.rsplit("_", 1)[0]
    return text if len(rest) > 1 else text[:-1]
