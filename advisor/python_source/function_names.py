"""The names of a function that launches a kernel, and what it gives them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from advisor.python_source.bindings import SCOPES, argument_defaults, arguments, bound_by, holds, own_nodes
from advisor.python_source.tensor_shapes import pairs


def own_names(scopes: Sequence[ast.AST], others: Collection[str] = ()) -> set[str]:
    """Arguments of functions, and what they assign.

    Args:
        scopes: Those around a launch: their names are not the file's.
        others: Names that the file assigns: what a function imports under one of these is its own, too.
    """
    nodes = [node for scope in scopes for node in ast.walk(scope)]
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    named = (n for n in nodes if isinstance(n, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping)))
    stored |= {name for n in nodes if isinstance(n, ast.alias) for name in bound_by(n) if name in others}
    return stored.union(*(arguments(scope) for scope in scopes), *(bound_by(node) for node in named))


def defaults(function: ast.FunctionDef | None) -> dict[str, ast.expr]:
    """Defaults of a function's arguments that it does not assign anew."""
    if function is None:
        return {}
    stored = {name for node in ast.walk(function) if node is not function for name in bound_by(node)}
    return {name: default for name, default in argument_defaults(function).items() if name not in stored}


def required(function: ast.FunctionDef | None) -> set[str]:
    """Arguments without a default that a function does not assign anew."""
    if function is None:
        return set()
    stored = {name for node in ast.walk(function) if node is not function for name in bound_by(node)}
    named = {each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    return named - set(argument_defaults(function)) - stored


def assigned(function: ast.FunctionDef | None, call: ast.Call | None = None) -> dict[str, ast.expr]:
    """Names that the function assigns exactly once, with what they are assigned, and others as they are where it makes a call.

    An argument that it assigns under a condition alone has two values: what it is given, and this one.
    """
    if function is None:
        return {}
    found: dict[str, ast.expr] = {}
    for node in own_nodes(function):
        if isinstance(node, ast.stmt):
            found |= dict(given(node))
    inner = [node for node in ast.walk(function) if node is not function]
    stored = Counter(name for node in inner for name in bound_by(node))
    elsewhere = {name for node in inner if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    found = {name: value for name, value in found.items() if name not in elsewhere}
    given_too = arguments(function) - _always_stored(function.body, call)
    once = {name: value for name, value in found.items() if stored[name] == 1 and name not in given_too}
    if call is None or len(once) == len(stored):
        return once
    return {**{name: value for name, value in reaching_values(function, call).items() if name in found and name not in once}, **once}


def _always_stored(body: Sequence[ast.stmt], call: ast.Call | None) -> set[str]:
    """Names that a block binds whatever its conditions are."""
    found: set[str] = set()
    for statement in body:
        if isinstance(statement, (ast.With, ast.AsyncWith)) and call is not None and holds(statement, call):
            found |= _always_stored(statement.body, call)
        elif not isinstance(statement, BLOCKS):
            found |= {name for node in ast.walk(statement) for name in bound_by(node)}
    return found


def inner_functions(function: ast.FunctionDef | None) -> dict[str, ast.FunctionDef]:
    """Functions that a function defines, under names that it gives nothing else."""
    stored: Counter[str] = Counter()
    found: dict[str, ast.FunctionDef] = {}
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored[node.id] += 1
        elif isinstance(node, ast.FunctionDef) and node is not function:
            stored[node.name] += 1
            found[node.name] = node
    return {name: node for name, node in found.items() if stored[name] == 1}


_Names = dict[str, ast.expr | None]  # None: one of several values, and not known which
_Position = tuple[int, int]
MOST_NODES = 500
"""Of the syntax of one value: with every condition its parts may be used twice."""
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith, ast.Match)


def given(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Names that a plain assignment gives expressions: also `BLOCK, num_warps = settings(n)`, of which each is one item."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None:
        yield statement.target.id, statement.value
    if not isinstance(statement, ast.Assign):
        return
    for target, value in (pair for each in statement.targets for pair in pairs(each, statement.value)):
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            for number, item in enumerate(target.elts):
                if isinstance(item, ast.Starred):
                    break  # it takes as many as are left: what comes after it is not known
                if isinstance(item, ast.Name):
                    part = ast.Subscript(value=value, slice=ast.Constant(value=number), ctx=ast.Load())
                    yield item.id, ast.copy_location(part, value)


def reaching_values(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr]:
    """Expressions for names that a function assigns more than once, as they are where it makes a call; those are left out that may be
    something else, or of which an older value is used before the call.

    Branches that return or raise do not reach it. Of others, what both assign depends on the condition: `a if condition else b`. What an
    argument is before it is assigned is its default.
    """
    if any(isinstance(node, SCOPES) and node is not function and holds(node, call) for node in ast.walk(function)):
        return {}  # a function within it runs whenever it is called
    reader = _Reader(call)
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg):
            reader.stores[argument.arg] = [_start(argument)]
    try:
        reader.follow(function.body, dict(argument_defaults(function)))
    except RecursionError:  # hundreds of `elif`
        return {}
    return {name: value for name, value in (reader.found or {}).items() if value is not None and reader.is_settled(name, value)}


class _Reader:
    def __init__(self, call: ast.Call) -> None:
        self.call = call
        self.found: _Names | None = None
        self.stores: dict[str, list[_Position]] = {}
        self.loads: dict[str, list[_Position]] = {}

    def follow(self, body: Sequence[ast.stmt], names: _Names) -> _Names | None:
        """What names stand for after a block; None: the block is left, or the call made."""
        for statement in body:
            if isinstance(statement, (ast.Return, ast.Raise, ast.Break, ast.Continue)) and not self._holds(statement):
                return None
            after = self._block(statement, names) if isinstance(statement, BLOCKS) else self._plain(statement, names)
            if after is None:
                return None
            names = after
        return names

    def _plain(self, statement: ast.stmt, names: _Names) -> _Names | None:
        if self._holds(statement):
            self.found = names
            return None
        self._note(statement)
        return {**names, **dict.fromkeys(_stored(statement)), **dict(given(statement))}

    def _block(self, statement: ast.stmt, names: _Names) -> _Names | None:
        if isinstance(statement, (ast.With, ast.AsyncWith)) and self._holds(statement):
            for part in (each for item in statement.items for each in (item.context_expr, item.optional_vars) if each is not None):
                self._note(part)
                names = {**names, **dict.fromkeys(_stored(part))}
            return self.follow(statement.body, names)
        if isinstance(statement, ast.If):
            return self._branches(statement, names)
        self._note(statement)
        names = {**names, **dict.fromkeys(_stored(statement))}  # loops, exceptions, `with suppress(...)`: any of it may have run, or not
        if self._holds(statement):
            self.found = names
            return None
        return names

    def _branches(self, statement: ast.If, names: _Names) -> _Names | None:
        test = _with_values(statement.test, names)
        self._note(test)
        names = {**names, **dict.fromkeys(_stored(test))}
        arms = [arm for arm in (statement.body, statement.orelse) if any(self._holds(each) for each in arm)]
        if arms:
            return self.follow(arms[0], names)
        first, second = (self._arm(arm, names) for arm in (statement.body, statement.orelse))
        if first is None or second is None:
            return first if second is None else second
        return {name: _either(test, first.get(name), second.get(name)) for name in {**first, **second}}

    def _arm(self, body: Sequence[ast.stmt], names: _Names) -> _Names | None:
        before = [{name: list(each) for name, each in noted.items()} for noted in (self.stores, self.loads)]
        after = self.follow(body, names)
        if after is None:  # nothing of it reaches the call
            self.stores, self.loads = before
        return after

    def is_settled(self, name: str, value: ast.expr) -> bool:
        """Whether nothing uses an older value of a name, and its value uses none that was changed later."""
        last = max(self.stores[name])
        if any(min(self.stores[name]) <= position < last for position in self.loads.get(name, ())):
            return False
        used = [(n.id, _start(n)) for n in ast.walk(value) if isinstance(n, ast.Name)]
        return all(max(self.stores.get(each, [position])) <= position for each, position in used)

    def _holds(self, statement: ast.stmt) -> bool:
        return holds(statement, self.call)

    def _note(self, part: ast.stmt | ast.expr) -> None:
        """Note where names are used, and where they have got what a statement gives them: at its end."""
        end = (part.end_lineno or part.lineno, part.end_col_offset or part.col_offset)
        for name in _stored(part):
            self.stores.setdefault(name, []).append(end)
        for node in ast.walk(part):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.loads.setdefault(node.id, []).append(_start(node))


def _either(test: ast.expr, first: ast.expr | None, second: ast.expr | None) -> ast.expr | None:
    if first is second or first is None or second is None:
        return first if first is second else None
    if sum(1 for value in (test, first, second) for _ in ast.walk(value)) > MOST_NODES:
        return None
    return ast.copy_location(ast.IfExp(test=test, body=first, orelse=second), test)


def _with_values(test: ast.expr, names: _Names) -> ast.expr:
    """A condition that asks of a name whether it is None, `if block is None: block = 64`, with what the name is there in its place."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], (ast.Is, ast.IsNot)) or not isinstance(test.left, ast.Name):
        return test
    value = names.get(test.left.id)
    return ast.copy_location(ast.Compare(left=value, ops=test.ops, comparators=test.comparators), test) if value is not None else test


def _stored(part: ast.AST) -> set[str]:
    """Names that a statement may bind, whatever to."""
    return {name for node in ast.walk(part) for name in bound_by(node)}


def _start(node: ast.expr | ast.arg) -> _Position:
    return node.lineno, node.col_offset
