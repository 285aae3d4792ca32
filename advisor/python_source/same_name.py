"""Which of several kernels of one name is meant, named by what it stands in (`outer.kernel`) or by its line (`kernel:12`)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

_LINE = re.compile(r"(?P<name>.+):(?P<line>\d{1,9})")
_OWNERS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def names(tree: ast.Module, nodes: Sequence[ast.FunctionDef]) -> list[str]:
    """A name for each of several kernels of one name that none of the others has."""
    qualified = [_qualified(tree, node) for node in nodes]
    return [text if qualified.count(text) == 1 else f"{node.name}:{node.lineno}" for text, node in zip(qualified, nodes, strict=True)]


def plain_name(text: str) -> str:
    """The kernel's own name in `kernel`, `outer.kernel` or `kernel:12`."""
    found = _LINE.fullmatch(text)
    return (found["name"] if found else text).rsplit(".", 1)[-1]


def matching(tree: ast.Module, nodes: Sequence[ast.FunctionDef], text: str) -> list[ast.FunctionDef]:
    """Those of several kernels of one name that `text` names: by any line from the first decorator on, or by what they stand in."""
    found = _LINE.fullmatch(text)
    asked, line = (found["name"], int(found["line"])) if found else (text, None)
    return [
        node
        for node in nodes
        if f".{_qualified(tree, node)}".endswith(f".{asked}") and (line is None or _first_line(node) <= line <= _last_line(node))
    ]


def nearest(tree: ast.Module, wanted: ast.FunctionDef, nodes: Sequence[ast.FunctionDef]) -> ast.FunctionDef | None:
    """Of several kernels of one name the one in the same branch or function as `wanted`, or the next around; None: none, or several."""
    inner = _blocks_to(tree, wanted)[1:]  # in the file's own block the file decides
    for _, block in reversed(inner):
        within = [node for node in nodes if any(node is each for statement in block for each in ast.walk(statement))]
        if within:
            return within[0] if len(within) == 1 else None
    return None


def visible(tree: ast.Module, nodes: Sequence[ast.FunctionDef], line: int) -> list[ast.FunctionDef]:
    """Those of several kernels of one name that the name can stand for in a line: of the innermost function around it that has any."""
    depths: dict[int, list[ast.FunctionDef]] = {}
    for node in nodes:
        owners = [owner for owner, _ in _blocks_to(tree, node) if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef))]
        if not owners or _first_line(owners[-1]) <= line <= _last_line(owners[-1]):
            depths.setdefault(len(owners), []).append(node)
    return depths[max(depths)] if depths else []


def _qualified(tree: ast.Module, node: ast.FunctionDef) -> str:
    owners = dict.fromkeys(owner for owner, _ in _blocks_to(tree, node) if isinstance(owner, _OWNERS))
    return ".".join([*(owner.name for owner in owners), node.name])


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min(each.lineno for each in (node, *node.decorator_list))


def _last_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return node.end_lineno or node.lineno


def _blocks_to(tree: ast.Module, node: ast.FunctionDef) -> list[tuple[ast.AST, Sequence[ast.stmt]]]:
    """The blocks around a function with what they belong to, the file's own first."""
    found: list[tuple[ast.AST, Sequence[ast.stmt]]] = [(tree, tree.body)]
    while True:
        around = next((s for s in found[-1][1] if s.lineno <= node.lineno <= (s.end_lineno or s.lineno) and s is not node), None)
        inner = next((b for b in _blocks(around) if b[1] and _holds(b[1], node)), None) if around is not None else None
        if inner is None:
            return found
        found.append(inner)


def _blocks(statement: ast.stmt) -> Iterator[tuple[ast.AST, Sequence[ast.stmt]]]:
    for part in ("body", "orelse", "finalbody"):
        yield statement, getattr(statement, part, ())
    for handler in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield handler, handler.body


def _holds(block: Sequence[ast.stmt], node: ast.FunctionDef) -> bool:
    return block[0].lineno <= node.lineno <= (block[-1].end_lineno or block[-1].lineno)
