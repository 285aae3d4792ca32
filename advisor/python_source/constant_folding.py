"""What a kernel asks of modules outside triton while it compiles (`torch.version.hip is not None`, `torch.finfo(torch.float32).max`),
answered for the target and written in its place as a literal, for what is compiled imports none of them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from advisor.python_source.functions import FunctionReader
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.target_questions import Present

_CONVERTED = frozenset({"bool", "float", "int", "str"})
"""Functions of Python's that an expression may be given to and still be answered."""
Answer = tuple[ast.expr, str]
"""An expression of a kernel, and the literal that stands in its place."""


def answers(node: ast.FunctionDef, reader: FunctionReader, bound: set[str]) -> tuple[list[Answer], dict[str, str]]:
    """The expressions of a kernel's body that are answered.

    Args:
        node: The kernel.
        reader: Reads what its file's names stand for.
        bound: Names of its own, which are nobody else's.

    Returns:
        The answers, none within another, and by name why an expression with it is not answered.
    """
    outside = {alias for alias, full in reader.surroundings.modules.items() if full.split(".")[0] in ("torch", "numpy")} - bound
    triton = {alias for alias, full in reader.surroundings.modules.items() if full.split(".")[0] == "triton"} - bound
    inside = [n for each in node.body for n in ast.walk(each)]
    names = [n for n in inside if isinstance(n, ast.Name)]
    targets = [n for n in inside if isinstance(n, ast.Attribute) and n.attr == "get_current_target"]
    asking = _around(node, [*targets, *(n for n in names if n.id in outside)])
    other = _around(node, [n for n in names if n.id not in outside | triton | _CONVERTED - bound]) if asking else set()
    found: list[Answer] = []
    reasons: dict[str, str] = {}
    waiting: list[tuple[Any, bool]] = [(each, False) for each in reversed(node.body)]
    while waiting:
        inner, tested = waiting.pop()
        if id(inner) not in asking:
            continue
        if isinstance(inner, ast.expr) and id(inner) not in other:
            text, why = _answer(inner, reader, tested)
            for name in {n.id for n in ast.walk(inner) if isinstance(n, ast.Name)} & outside if why else ():
                reasons.setdefault(name, why)  # of the whole expression, which comes before its parts
            if text is not None:
                found.append((inner, text))
                continue
        waiting += reversed(list(_parts(inner, tested)))
    return found, reasons


def _answer(node: ast.expr, reader: FunctionReader, tested: bool) -> tuple[str | None, str]:
    """The literal that an expression is; or None and why."""
    asked = ast.unparse(node)[:60]
    try:
        value = reader.evaluate(node)
    except NotLiteralError as error:
        return None, f"{asked} ({error})"
    why = f"{asked}, of which only that it is there is known" if isinstance(value, Present) else ""
    return _literal(value, tested), why


def _around(node: ast.AST, inner: Iterable[ast.AST]) -> set[int]:
    """Ids of nodes, and of all that they are part of; each is visited once, however deep the expressions."""
    above = {id(child): each for each in ast.walk(node) for child in ast.iter_child_nodes(each)}
    found: set[int] = set()
    for each in inner:
        at: ast.AST | None = each
        while at is not None and id(at) not in found:
            found.add(id(at))
            at = above.get(id(at))
    return found


def _parts(node: ast.AST, tested: bool) -> Iterator[tuple[Any, bool]]:
    """What a node consists of, and whether of each only counts if it is true."""
    for name, value in ast.iter_fields(node):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield part, name == "test" or (tested and isinstance(node, ast.BoolOp)) or isinstance(getattr(node, "op", None), ast.Not)


def _literal(value: Any, tested: bool) -> str | None:
    """A value as Python writes it; None: it is no plain one."""
    if isinstance(value, Present):
        return "True" if tested else None
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float({str(value)!r})"
    return repr(value) if value is None or isinstance(value, (bool, int, float, str)) else None


def written(lines: Sequence[str], first: int, given: Sequence[Answer]) -> list[str]:
    """Lines of a file, from its line `first` on, with the answers in place of what they answer; every line stays where it is."""
    out = list(lines)
    for node, text in sorted(given, key=lambda each: (each[0].lineno, each[0].col_offset), reverse=True):
        start, end = node.lineno - first, (node.end_lineno or node.lineno) - first
        before = out[start].encode()[: node.col_offset].decode()
        after = out[end].encode()[node.end_col_offset :].decode()
        if start == end:
            out[start] = f"{before}({text}){after}"
        else:
            out[start : end + 1] = [f"{before}({text}", *[""] * (end - start - 1), f"){after}"]
    return out


def replaced(node: ast.stmt, given: Sequence[Answer]) -> ast.stmt:
    """A copy of a statement with the answers in place of what they answer."""
    return copy.deepcopy(node, {id(asked): ast.parse(text, mode="eval").body for asked, text in given})
