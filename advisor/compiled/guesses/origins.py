"""Where the values in a kernel come from: the parameters that they are loaded through, that addresses start from, or that they are
multiples of; an expression is followed through the names it was assigned to."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from advisor.compiled.guesses.value_flow import converted, is_bitcast, is_load, parts, rearranged
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.language import dotted, last_name

_COUNTS = frozenset({"program_id", "num_programs", "arange", "cdiv"})
_KEEPS = frozenset(
    {"sum", "max", "min", "abs", "cumsum", "reduce", "flip", "sort", "maximum", "minimum", "where", "clamp", "fma"}
    | {"multiple_of", "max_contiguous"}
)
"""Calls that give a value of the type of their operands."""
_Roots = dict[str, list[str] | None]


class Origins:
    """Of one kernel. All that answers with names gives parameters."""

    def __init__(self, function: JitFunction) -> None:
        self.node = function.node
        self.parameters = frozenset(parameter.name for parameter in function.parameters)
        self._assigned = _assigned(self.node)
        self.counters = {n.target.id for n in ast.walk(self.node) if isinstance(n, ast.For) and isinstance(n.target, ast.Name)}

    def values(self, name: ast.Name) -> list[ast.expr]:
        """What a name is given anywhere in the kernel."""
        return self._assigned.get(name.id, [])

    def is_parameter(self, node: ast.AST) -> bool:
        """Whether an expression is one of the kernel's parameters."""
        return isinstance(node, ast.Name) and node.id in self.parameters

    def roots(self, node: ast.expr) -> list[str]:
        """Parameters that an address expression starts from."""
        return self._roots(node, {})

    def _roots(self, node: ast.expr, done: _Roots) -> list[str]:
        """`done`: what names were found to start from; None: they are being followed, as in a loop that moves a pointer."""
        if isinstance(node, ast.Name):
            if node.id not in done:
                done[node.id] = None
                done[node.id] = self._roots_of_name(node, done)
            return done[node.id] or []
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            if roots := self._roots(node.left, done):
                return roots
            followed = {name for name, roots in done.items() if roots is None}
            moved = any(isinstance(n, ast.Name) and n.id in followed for n in ast.walk(node.left))  # p = p + offset
            return [] if moved else self._roots(node.right, done)
        if isinstance(node, ast.Call):
            return self._roots_of_call(node, done)
        if isinstance(node, (ast.Subscript, ast.Attribute, ast.Starred)):
            return self._roots(node.value, done)
        if isinstance(node, ast.IfExp):
            return [*self._roots(node.body, done), *self._roots(node.orelse, done)]
        return []

    def _roots_of_name(self, node: ast.Name, done: _Roots) -> list[str]:
        roots = [node.id] if node.id in self.parameters else []
        for value in self.values(node):
            if not is_load(value):
                roots += self._roots(value, done)
        return list(dict.fromkeys(roots))

    def _roots_of_call(self, node: ast.Call, done: _Roots) -> list[str]:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "broadcast_to", "reshape", "trans", "permute"):
            return self._roots(node.func.value, done)
        name = last_name(node)
        if name == "where" and len(node.args) > 2:  # of a pointer and a pointer: `where(mask, 0, n)` is an offset
            first = self._roots(node.args[1], done)
            return [*first, *self._roots(node.args[2], done)] if first else []
        if name in ("make_block_ptr", "advance", "broadcast_to", "cast", "multiple_of", "max_contiguous"):
            given = _first(node, "base", "input")
            return self._roots(given, done) if given is not None else []
        return []

    def of_one_type(self, node: ast.expr) -> list[ast.expr]:
        """The expressions that decide of which type of numbers a value is."""
        match node:
            case ast.Name():
                return self.values(node)
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult()):
                return [node.left, node.right]
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                return [node.operand]
            case ast.IfExp():
                return [node.body, node.orelse]
            case ast.Subscript():
                return [node.value]
            case ast.Call() if not is_load(node) and converted(node) is None:
                if last_name(node) not in _KEEPS:
                    return rearranged(node)
                method = isinstance(node.func, ast.Attribute) and dotted(node.func.value) not in ("tl", "triton.language")
                return [*([node.func.value] if method else ()), *node.args]  # type: ignore[attr-defined]
        return []

    def unchanged(self, node: ast.expr) -> Iterator[str]:
        """Parameters through which a value is loaded that is what was loaded, or bits of it: no arithmetic was done on it.

        Also those that the value itself is: of a helper, which may be handed what was loaded.
        """
        for inner in walk(node, self.passed_on):
            yield from self._loaded_through(inner, handed=True)

    def passed_on(self, node: ast.expr) -> list[ast.expr]:
        """The values that a value is without arithmetic on them."""
        if isinstance(node, ast.Call) and not is_load(node):
            value = converted(node)
            return rearranged(node) if value is None or is_bitcast(node) else [value]  # a bitcast: bits of any type
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.LShift, ast.RShift, ast.BitAnd)):
            return [node.left]
        if isinstance(node, ast.Subscript):
            return [node.value]
        return self.values(node) if isinstance(node, ast.Name) else []

    def loaded(self, node: ast.expr, *, handed: bool = False) -> Iterator[str]:
        """Parameters through which it is loaded what a value is made of; with `handed` also those that are part of it themselves."""
        for inner in self.inside(node):
            yield from self._loaded_through(inner, handed=handed)

    def _loaded_through(self, node: ast.expr, *, handed: bool) -> Iterator[str]:
        if isinstance(node, ast.Call) and is_load(node):
            pointer = _first(node, "pointer")
            yield from self.roots(pointer) if pointer is not None else ()
        elif handed and isinstance(node, ast.Name) and self.is_parameter(node):
            yield node.id

    def inside(self, node: ast.expr) -> Iterator[ast.expr]:
        """What a value is made of, also before it was assigned to names."""
        return walk(node, lambda inner: self.values(inner) if isinstance(inner, ast.Name) else parts(inner))

    def counts(self, node: ast.expr) -> bool:
        """Whether a value is made of a program's number, a range, or what a loop counts."""
        return any(
            (isinstance(inner, ast.Call) and last_name(inner) in _COUNTS) or (isinstance(inner, ast.Name) and inner.id in self.counters)
            for inner in self.inside(node)
        )


def walk(node: ast.expr, behind: Callable[[ast.expr], list[ast.expr]]) -> Iterator[ast.expr]:
    """An expression and all that lies behind it, each once; loops that assign a name from itself end."""
    waiting, seen = [node], set[ast.expr]()
    while waiting:
        inner = waiting.pop()
        if inner not in seen:
            seen.add(inner)
            yield inner
            waiting += behind(inner)


def _first(node: ast.Call, *names: str) -> ast.expr | None:
    """The first argument of a call, which it may give by one of its names."""
    if node.args:
        return node.args[0]
    return next((keyword.value for keyword in node.keywords if keyword.arg in names), None)


def _assigned(kernel: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    """By name, the values of all its assignments, wherever they stand: which of them reach a use changes too few guesses."""
    values_by_name: dict[str, list[ast.expr]] = {}
    for node in ast.walk(kernel):
        match node:
            case ast.Assign(targets=targets, value=value):
                pairs: list[tuple[ast.expr, ast.expr]] = [(target, value) for target in targets]
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                pairs = [(target, value)]
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                pairs = [(target, ast.copy_location(ast.BinOp(left=ast.Name(id=name, ctx=ast.Load()), op=op, right=value), node))]
            case _:
                continue
        for place, given in pairs:
            if isinstance(place, ast.Name):
                values_by_name.setdefault(place.id, []).append(given)
            elif isinstance(place, ast.Tuple) and isinstance(given, ast.Tuple):
                pairs += zip(place.elts, given.elts, strict=False)
    return values_by_name
