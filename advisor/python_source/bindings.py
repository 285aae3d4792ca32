"""Names that code binds, and the scopes that they belong to."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from advisor.python_source.literal_values import Symbol, plain

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""What has names of its own that code within it sees: classes have not."""

_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def bound_by(node: ast.AST) -> Iterator[str]:
    """Names that one node of a syntax tree may bind or unbind, without those that nodes within it do."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).split(".")[0]
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name is not None:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest is not None:
        yield node.rest
    elif isinstance(node, (ast.Global, ast.Nonlocal)):  # other functions may, while this one runs
        yield from node.names


def arguments(scope: ast.AST) -> set[str]:
    """Arguments of a function."""
    asked = scope.args if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) else None
    return {each.arg for each in ast.walk(asked) if isinstance(each, ast.arg)} if asked is not None else set()


def argument_defaults(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> dict[str, ast.expr]:
    """What arguments of a function are where a call does not give them."""
    asked = function.args
    positional = [*asked.posonlyargs, *asked.args]
    pairs = [
        *zip(positional[len(positional) - len(asked.defaults) :], asked.defaults, strict=True),
        *zip(asked.kwonlyargs, asked.kw_defaults, strict=True),
    ]
    return {argument.arg: default for argument, default in pairs if default is not None}


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of functions and classes within it."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _INNER):
            waiting += ast.iter_child_nodes(node)


def scopes_around(scopes: Iterable[Scope], node: ast.expr) -> list[Scope]:
    """Those of a file's scopes that an expression is in, in their order."""
    return [each for each in scopes if each.lineno <= node.lineno <= (each.end_lineno or each.lineno) and holds(each, node)]


def statements_within(tree: ast.AST) -> Iterator[ast.AST]:
    """A tree and the statements within it, at any depth, as they stand in the file: of its nodes a small part, where functions and
    classes are looked for."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        inner = [each for part in ("body", "handlers", "cases", "orelse", "finalbody") for each in getattr(node, part, ())]
        waiting += reversed(inner)


@lru_cache(maxsize=4)
def nodes_of_file(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a file, in the order of `ast.walk`: kept for a moment, for what looks through a file does so several times."""
    return tuple(ast.walk(tree))


def holds(outer: ast.AST, inner: ast.AST) -> bool:
    """Whether a node of a syntax tree is another one or within it."""
    return any(node is inner for node in ast.walk(outer))


CHANGING = frozenset(
    {"append", "extend", "insert", "pop", "popitem", "remove", "clear", "sort", "reverse", "update", "setdefault", "add", "discard"}
)
"""Methods of lists, dictionaries and sets that change them."""


def changed_by(node: ast.AST) -> Iterator[str]:
    """Names whose objects one node of a syntax tree may change, without what nodes within it do."""
    if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
        yield from _root(node)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
        yield from _root(node.func.value)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):  # what takes a list may change it: random.shuffle(configs)
        yield from (each.id for each in (*node.value.args, *(k.value for k in node.value.keywords if k.arg)) if isinstance(each, ast.Name))


def changed_names(scope: ast.AST | None) -> set[str]:
    """Names whose objects a function may change somewhere in it, also by a second name: `part = sizes[0]; part[1] = 2`."""
    if scope is None:
        return set()
    found: set[str] = set()
    shared: list[set[str]] = []
    for node in ast.walk(scope):
        found |= set(changed_by(node))
        for target, value in _given(node):
            shared.append({n.id for n in ast.walk(target) if isinstance(n, ast.Name)} | set(_sources(value)))
    while more := {name for names in shared if names & found for name in names} - found:
        found |= more
    return found


def is_fixed(value: Any) -> bool:
    """Whether a value cannot be changed in place."""
    value = plain(value)
    if isinstance(value, tuple):
        return all(is_fixed(each) for each in value)
    return value is None or isinstance(value, (bool, int, float, str, Symbol))


def _given(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets, and the values that these or parts of them are."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield node.target, node.iter
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, node.context_expr


def _sources(value: ast.expr) -> Iterator[str]:
    """Names whose objects may be, or be part of, what an expression gives; what a method is given counts as not handed back."""
    waiting: list[ast.AST] = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            waiting.append(node.func.value)
        else:
            waiting += ast.iter_child_nodes(node)


def _root(node: ast.expr) -> Iterator[str]:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
