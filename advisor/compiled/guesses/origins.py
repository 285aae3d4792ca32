"""Where the values in a kernel come from: the parameters that they are loaded through, that addresses start from, or that they are
multiples of; an expression is followed through the names it was assigned to."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

from advisor.compiled.guesses.value_flow import converted, is_bitcast, is_load, last_name, parts, rearranged
from advisor.python_source.jit_function import JitFunction

_COUNTS = frozenset({"program_id", "num_programs", "arange", "cdiv"})
_Roots = dict[ast.Name, list[str] | None]


class Origins:
    """Of one kernel. All that answers with names gives parameters."""

    def __init__(
        self, function: JitFunction, parameters: frozenset[str], address_of: Callable[[ast.Call], tuple[bool, ast.expr | None]]
    ) -> None:
        """`address_of` says of a call whether it is of a helper that is known, and which of its arguments is that helper's pointer."""
        self.node = function.node
        self.parameters = parameters
        self.address_of = address_of
        self.reaching = Reaching(self.node, parameters)
        self.assigned = self.reaching.assigned
        self.counters = {n.target.id for n in ast.walk(self.node) if isinstance(n, ast.For) and isinstance(n.target, ast.Name)}

    def roots(self, node: ast.expr) -> list[str]:
        """Parameters that an address expression starts from."""
        return self._roots(node, {})

    def _roots(self, node: ast.expr, done: _Roots) -> list[str]:
        """`done`: what names were found to start from; None: they are being followed, as in a loop that moves a pointer."""
        if isinstance(node, ast.Name):
            if node not in done:
                done[node] = None
                done[node] = self._roots_of_name(node, done)
            return done[node] or []
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            if found := self._roots(node.left, done):
                return found
            followed = {name.id for name, found in done.items() if found is None}
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
        found = [node.id] if node.id in self.parameters else []
        for values in (self.reaching.values(node), self.assigned.get(node.id, ())):  # all, where a call is not known that gave it
            for value in values:
                if not is_load(value):
                    found += self._roots(value, done)
            if found:
                break
        return list(dict.fromkeys(found))

    def _roots_of_call(self, node: ast.Call, done: _Roots) -> list[str]:
        known, address = self.address_of(node)
        if known:
            return [] if address is None else self._roots(address, done)
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
        return self.reaching.values(node) if isinstance(node, ast.Name) else []

    def loaded(self, node: ast.expr, *, handed: bool = False, **what: bool) -> Iterator[str]:
        """Parameters through which it is loaded what a value is made of; with `handed` also those that are part of it themselves."""
        for inner in self.inside(node, **what):
            yield from self._loaded_through(inner, handed=handed)

    def _loaded_through(self, node: ast.expr, *, handed: bool) -> Iterator[str]:
        if isinstance(node, ast.Call) and is_load(node):
            pointer = _first(node, "pointer")
            yield from self.roots(pointer) if pointer is not None else ()
        elif handed and isinstance(node, ast.Name) and self.reaching.is_parameter(node):
            yield node.id

    def inside(self, node: ast.expr, **what: bool) -> Iterator[ast.expr]:
        """What a value is made of, also before it was assigned to names; `what` counts is for `parts`."""
        return walk(node, lambda inner: self.reaching.values(inner) if isinstance(inner, ast.Name) else parts(inner, **what))

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


Values = dict[ast.expr, None]
"""An ordered set; nodes of a syntax tree are told apart by identity."""


class Reaching:
    """Of one function. Conditions are not decided: both sides of a branch reach what follows it, and a loop's body reaches itself."""

    def __init__(self, function: ast.FunctionDef, parameters: Iterable[str]) -> None:
        self.assigned: dict[str, list[ast.expr]] = {}
        """By name, the values of all its assignments."""
        self._own = {name: ast.Name(id=name, ctx=ast.Load()) for name in parameters}
        """What stands for a parameter's own value."""
        self._sums: dict[ast.AugAssign, ast.expr] = {}
        self._uses: dict[ast.AST, Values] = {}
        self._block(function.body, {name: {own: None} for name, own in self._own.items()})

    def values(self, use: ast.Name) -> list[ast.expr]:
        """The values that may stand there; all that the name is ever given where it is no use of the function's own."""
        found = self._uses.get(use)
        return list(self.assigned.get(use.id, ())) if found is None else [v for v in found if v is not self._own.get(use.id)]

    def is_parameter(self, use: ast.Name) -> bool:
        """Whether what the function is given by that name may stand there."""
        own = self._own.get(use.id)
        return own is not None and (use not in self._uses or own in self._uses[use])

    def _block(self, body: Sequence[ast.stmt], names: dict[str, Values]) -> None:
        """Walk statements in order; `names` holds what each name may stand for, before them and then behind them."""
        for statement in body:
            if isinstance(statement, ast.If):
                self._expression(statement.test, names)
                other = dict(names)
                self._block(statement.body, names)
                self._block(statement.orelse, other)
                _join(names, other)
            elif isinstance(statement, (ast.For, ast.While)):
                for _ in range(2):  # what the body assigns reaches its beginning; a third time adds nothing
                    before = dict(names)
                    self._expression(statement.iter if isinstance(statement, ast.For) else statement.test, names)
                    if isinstance(statement, ast.For):
                        self._bind(statement.target, None, names)
                    self._block(statement.body, names)
                    _join(names, before)
                self._block(statement.orelse, names)
            else:
                self._plain(statement, names)

    def _plain(self, statement: ast.stmt, names: dict[str, Values]) -> None:
        if isinstance(statement, ast.AugAssign):
            self._expression(statement.value, names)
            if isinstance(statement.target, ast.Name):
                if statement not in self._sums:
                    before = ast.Name(id=statement.target.id, ctx=ast.Load())
                    sum_ = ast.BinOp(left=before, op=statement.op, right=statement.value)
                    self._sums[statement] = ast.copy_location(sum_, statement)
                total = self._sums[statement]
                assert isinstance(total, ast.BinOp)
                for use in (statement.target, total.left):
                    self._use(use, names)
                self._bind(statement.target, total, names)
            return
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            self._expression(statement.value, names)
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                self._bind(target, statement.value, names)
            return
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.stmt):
                self._block([child], names)
            else:
                self._expression(child, names)

    def _expression(self, node: ast.AST, names: dict[str, Values]) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                self._use(inner, names)
        for inner in ast.walk(node):
            if isinstance(inner, ast.NamedExpr):
                self._bind(inner.target, inner.value, names)

    def _use(self, node: ast.AST, names: dict[str, Values]) -> None:
        if isinstance(node, ast.Name):
            self._uses.setdefault(node, {}).update(names.get(node.id, {}))

    def _bind(self, target: ast.expr, value: ast.expr | None, names: dict[str, Values]) -> None:
        """Give a name a value; None: one that is not followed."""
        if isinstance(target, ast.Name):
            names[target.id] = {} if value is None else {value: None}
            if value is not None and value not in self.assigned.setdefault(target.id, []):
                self.assigned[target.id].append(value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else None
            made_of = set() if value is None else {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
            for i, inner in enumerate(target.elts):
                # `p, q = step(p, q)` gives what is still p, for all that is known.
                if parts is not None or not (isinstance(inner, ast.Name) and inner.id in made_of):
                    self._bind(inner, parts[i] if parts is not None else None, names)


def _join(names: dict[str, Values], other: dict[str, Values]) -> None:
    for name, values in other.items():
        names[name] = {**names.get(name, {}), **values}
