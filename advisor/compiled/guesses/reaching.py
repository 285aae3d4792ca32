"""Which values a name may stand for where it is used: those of the assignments that reach the use, not of all that the kernel has."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

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
