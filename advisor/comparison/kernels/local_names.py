"""Syntax trees around a launch, whatever a function calls its own variables: to rename one changes nothing that runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence, Set

from advisor.python_source.bindings import Scope, arguments, bound_by


def local_names(scopes: Sequence[Scope]) -> set[str]:
    """The names that the functions around a launch, and those within them, give nothing but values of their own.

    Not among them: arguments of the functions around, which are how others call these, and what is imported, caught, matched, or declared
    global.
    """
    nodes = [node for scope in scopes[:1] for node in ast.walk(scope)]
    kinds = (ast.Name, ast.FunctionDef, ast.AsyncFunctionDef)
    bound = {name for node in nodes if isinstance(node, kinds) and node not in scopes for name in bound_by(node)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    others = {name for node in nodes if not isinstance(node, kinds) for name in bound_by(node)}
    return bound - others.union(*(arguments(scope) for scope in scopes))


def without_local_names(trees: Iterable[ast.AST], local: Set[str]) -> list[str]:
    """Trees as texts in which local names are numbers, in the order in which the names come up: two that are alike differ in no more than
    these names."""
    numbers: dict[str, str] = {}
    return ["\x1f".join(_parts(tree, local, numbers)) for tree in trees]


def _is_constant(annotation: object) -> bool:
    """Whether an annotation is one that triton goes by: `tl.constexpr`."""
    nodes = ast.walk(annotation) if isinstance(annotation, ast.AST) else ()
    return any("constexpr" in (getattr(node, "attr", ""), getattr(node, "id", "")) for node in nodes)


def _parts(tree: ast.AST, local: Set[str], numbers: dict[str, str]) -> Iterator[str]:
    """The kinds and values of a tree's nodes, each before what is within it: with the lengths of lists that says the whole tree, but for
    what annotations tell a reader alone."""
    waiting: list[object] = [tree]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.AnnAssign) and each.value is not None and not _is_constant(each.annotation):
            each = ast.Assign(targets=[each.target], value=each.value)
        if isinstance(each, ast.AST):
            yield type(each).__name__
            fields = [
                (name, value)
                for name, value in ast.iter_fields(each)
                if name not in ("type_comment", "kind") and not (name in ("annotation", "returns") and not _is_constant(value))
            ]
            named = {"id", "arg"} if isinstance(each, ast.Name | ast.arg) else {"name"} if isinstance(each, kinds) else ()
            waiting += reversed(
                [
                    numbers.setdefault(value, f"local {len(numbers)}") if name in named and value in local else value
                    for name, value in fields
                ]
            )
        elif isinstance(each, list):
            yield f"{len(each)} in a list"
            waiting += reversed(each)
        else:
            yield repr(each)
