"""Strides that nobody gave: what stands for them, for a real call passes 1 for one of a tensor's and multiples of 16 for the others.

Compiled without either, loads are narrower than any call's, nothing is copied asynchronously, and registers spill that never would.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from advisor.configs.literals import dotted
from advisor.configs.source import JitFunction

_NAME = re.compile(r"(^|_)strides?($|_|\d)", re.IGNORECASE)
INTEGERS = ("i32", "i64", "u32", "u64")


def unknown_strides(signature: Mapping[str, str], known: Collection[str]) -> tuple[str, ...]:
    """Arguments that are strides by their names, and whose values are not given."""
    return tuple(name for name, kind in signature.items() if kind in INTEGERS and _NAME.search(name) and name not in known)


def unit_strides(function: JitFunction, unknown: Sequence[str], given: Mapping[str, object]) -> tuple[str, ...]:
    """Of the strides that are not given those that are 1 where tensors are contiguous: of each tensor the last, by the names
    (`stride_am, stride_ak`).

    Not every kernel takes the last: one that a program's number is multiplied with (the stride of heads), or that stands beside a range
    without a stride, is another.
    """
    possible = _along_ranges(function.node)
    groups: dict[str, list[str]] = {}
    for parameter in function.parameters:
        if _NAME.search(parameter.name):
            groups.setdefault(_tensor(parameter.name), []).append(parameter.name)
    last = {group[-1] for group in groups.values() if len(group) > 1 and not any(given.get(other) == 1 for other in group)}
    return tuple(name for name in unknown if name in last & possible)


def assumption(unit: Sequence[str], others: Sequence[str]) -> str:
    """What is taken for strides that are not given, in words."""
    parts = [f"{', '.join(unit)} = 1"] * bool(unit) + [f"{', '.join(others)} multiples of 16"] * bool(others)
    return f"{' and '.join(parts)}, as of contiguous tensors (how accesses lie in memory is not judged)"


def _tensor(name: str) -> str:
    """The tensor's part of a stride's name: `a` of `stride_am`, `x` of `x_stride_0` and `stride_x_row`."""
    rest = [part for part in re.split(r"_?strides?_?", name, flags=re.IGNORECASE) if part]
    text = rest[0] if rest else ""
    if len(rest) == 1 and "_" in text:
        return text.rsplit("_", 1)[0]
    return text if len(rest) > 1 else text[:-1]


def _along_ranges(kernel: ast.FunctionDef) -> set[str]:
    """Strides along a range of elements, where no other range of the same address goes without one: one of them may be 1."""
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(kernel):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node.value)
    found: set[str] = set()
    for node in ast.walk(kernel):
        if isinstance(node, ast.Call) and (dotted(node.func) or "").rsplit(".", 1)[-1] in _WITH_STRIDES:
            listed = next((k.value for k in node.keywords if k.arg == "strides"), node.args[2] if len(node.args) > 2 else None)
            if isinstance(listed, (ast.Tuple, ast.List)) and listed.elts and isinstance(listed.elts[-1], ast.Name):
                found.add(listed.elts[-1].id)
    sums = [node for node in ast.walk(kernel) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)]
    inner = {id(side) for node in sums for side in (node.left, node.right)}
    others: set[str] = set()
    for node in sums:
        if id(node) in inner:
            continue
        terms = [(_strides_in(term), _has_range(term, assigned)) for term in _terms(node)]
        names = {name for strides, a_range in terms if a_range for name in strides}
        if any(a_range and not strides for strides, a_range in terms):
            others |= names
        else:
            found |= names
    return found - others


_WITH_STRIDES = frozenset({"make_block_ptr", "make_tensor_descriptor", "_experimental_make_tensor_descriptor"})


def _terms(node: ast.expr) -> Iterator[ast.expr]:
    """The terms of a sum."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _terms(node.left)
        yield from _terms(node.right)
    else:
        yield node


def _strides_in(term: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(term) if isinstance(n, ast.Name) and _NAME.search(n.id)}


def _has_range(node: ast.expr, assigned: Mapping[str, Sequence[ast.expr]], seen: frozenset[str] = frozenset()) -> bool:
    """Whether an expression is a range of elements, through what its names are assigned; what a range only points at is none."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and (dotted(inner.func) or "").endswith("arange"):
            return True
        if isinstance(inner, ast.Name) and inner.id not in seen and inner.id in assigned:
            values = [v for v in assigned[inner.id] if not any(_strides_in(t) for t in ast.walk(v) if isinstance(t, ast.expr))]
            if any(_has_range(value, assigned, seen | {inner.id}) for value in values):
                return True
    return False
