"""One graph of a file: what stands around each node, which scopes have names of their own, and what binds these; and what names of a
function stand for where it makes a call. All that asks what a name may be asks here, or `module_names`, which follows values."""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

from advisor.python_source.imports import Import
from advisor.python_source.literal_values import Limits, Symbol, TorchType, plain
from advisor.system import grouped

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""What has names of its own that code within it sees: classes have not."""
Call = ast.Call
Expression = ast.expr
"""These two are handed to those who ask a graph where they stand, and who read nothing of them."""

_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
_BLOCKS = ("body", "orelse", "finalbody")
BRANCHES = (ast.If, ast.Try, ast.ExceptHandler, ast.With)
"""What statements at module level stand in besides the module."""


class Graph:
    """What stands where in a file, worked out once and kept with the file.

    Attributes:
        tree: The file.
        nodes: All its nodes, in the order of `ast.walk`.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes = tuple(ast.walk(tree))
        self._binders: dict[ast.AST, dict[str, list[ast.AST]]] = {}

    @cached_property
    def _around(self) -> dict[ast.AST, tuple[ast.AST, str]]:
        """The node around each, and the field of it that it stands in."""
        parents: dict[ast.AST, tuple[ast.AST, str]] = {}
        for node in self.nodes:
            for field, value in ast.iter_fields(node):
                parents |= {item: (node, field) for item in (value if isinstance(value, list) else [value]) if isinstance(item, ast.AST)}
        return parents

    @cached_property
    def scopes(self) -> list[Scope]:
        """What has names of its own, the outermost first."""
        return [node for node in self.nodes if isinstance(node, SCOPES)]

    @cached_property
    def calls(self) -> dict[str, list[ast.Call]]:
        """The calls of the file by the last part of what they name: of `chunk.forward(x)`, "forward"."""
        by_name = grouped(
            (node.func.id if isinstance(node.func, ast.Name) else node.func.attr, node)
            for node in self.nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
        )
        return by_name

    @cached_property
    def module_level(self) -> tuple[ast.AST, ...]:
        """The file and its statements at module level, also those under `if`, `try` and `with`."""
        return tuple(statements_within(self.tree, (ast.Module, *BRANCHES)))

    def parent(self, node: ast.AST) -> ast.AST:
        """The node around another one."""
        return self._around[node][0]

    def above(self, node: ast.AST) -> list[ast.AST]:
        """The nodes around another one, the file first; none around one that is no part of the file."""
        nodes: list[ast.AST] = []
        while node in self._around:
            node = self.parent(node)
            nodes.append(node)
        return nodes[::-1]

    def scopes_around(self, node: ast.AST) -> list[Scope]:
        """The scopes that an expression is in, the outermost first."""
        return [outer for outer in self.above(node) if isinstance(outer, SCOPES)]

    def blocks(self, node: ast.AST) -> list[tuple[ast.AST, str]]:
        """The blocks of statements around a node, the file's own first: each by what it belongs to, and the field there."""
        chain = [*self.above(node)[1:], node]
        return [self._around[outer] for outer in chain if self._around.get(outer, (None, ""))[1] in _BLOCKS]

    def conditions(self, node: ast.AST) -> list[tuple[ast.expr, bool]]:
        """The conditions that a node stands under, the outermost first, each with what it has to be."""
        around = [self._around[outer] for outer in [*self.above(node)[1:], node]]
        return [(outer.test, field == "body") for outer, field in around if isinstance(outer, ast.If | ast.IfExp) and field != "test"]

    def giving(self, name: ast.AST) -> str:
        """What gives a name that is bound something, as it is written; of what gives several names something, which part."""
        around = self.parent(name)
        statement = self.parent(around) if isinstance(around, ast.Tuple | ast.List) else None
        if isinstance(statement, ast.Assign) and isinstance(around, ast.Tuple | ast.List) and name in around.elts:
            return f"{ast.unparse(statement.value)}[{around.elts.index(name)}]"  # type: ignore[arg-type]
        return ast.unparse(around)

    def after_error(self, node: ast.AST) -> str:
        """The error, as it is written, after which alone a node runs, `except Exception:`, under no condition besides; "": it may run
        without one."""
        inner = next((it for it in reversed(self.above(node)) if isinstance(it, ast.If | ast.IfExp | ast.ExceptHandler)), None)
        if not isinstance(inner, ast.ExceptHandler):
            return ""
        return ast.unparse(inner.type) if inner.type is not None else "an error"

    def apart(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether two nodes stand in arms of a condition, cases of a `match`, or a `try` and its handlers, of which one runs."""
        around, *nodes = self._parting(one, other)
        if isinstance(around, ast.Match):
            return all(isinstance(node, ast.match_case) for node in nodes)
        fields = {self._around[node][1] for node in nodes}
        arms = "test" not in fields if isinstance(around, ast.If) else isinstance(around, ast.Try) and "handlers" in fields
        return arms and len(fields) > 1

    def excludes(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether a run of the function around two nodes makes one of them alone: they stand apart, or one in an arm that leaves
        it before the other."""
        _, *nodes = self._parting(one, other)
        first = min(nodes, key=lambda node: getattr(node, "lineno", 0), default=None)
        blocks = self.blocks(one if nodes and first is nodes[0] else other) if isinstance(first, ast.If) else []
        inside = (getattr(*block) for block in itertools.dropwhile(lambda block: block[0] is not first, blocks))
        leaves = any(isinstance(block, list) and isinstance(block[-1], ast.Return | ast.Raise) for block in inside)
        return leaves or self.apart(one, other)

    def _parting(self, one: ast.AST, other: ast.AST) -> tuple[ast.AST, ...]:
        """The innermost node around two others, and the two within it that these are, or stand in; the node alone where one holds the
        other."""
        chains = [[*self.above(node), node] for node in (one, other)]
        pair = next((pair for pair in zip(*chains, strict=False) if pair[0] is not pair[1]), ())
        return (self.parent(pair[0]), *pair) if pair else (one,)

    def binders(self, scope: ast.AST) -> dict[str, list[ast.AST]]:
        """The nodes of a scope, or of the file, that bind each of its names, arguments apart; not those of scopes within it."""
        if scope not in self._binders:
            by_name = self._binders[scope] = {}
            for node in own_nodes(scope):
                for name in bound_by(node):
                    by_name.setdefault(name, []).append(node)
        return self._binders[scope]

    def given(self, scopes: Sequence[ast.AST], name: str) -> list[ast.AST]:
        """All that the innermost of some scopes that binds a name gives it: expressions, and functions; none where it binds it in
        other ways too."""
        scope = next((item for item in reversed(scopes) if name in arguments(item) or name in self.binders(item)), None)
        bound = self.binders(scope).get(name, []) if scope is not None else []
        values = [node if isinstance(node, ast.FunctionDef) else dict(plainly_given(self._assigning(node))).get(name) for node in bound]
        return [value for value in values if value is not None] if None not in values else []

    def _assigning(self, target: ast.AST) -> ast.AST:
        """What stands around a name that is bound: of `a, b = 1, 2` the whole assignment."""
        node = self.parent(target)
        while isinstance(node, ast.Tuple | ast.List):
            node = self.parent(node)
        return node


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


def imports_in(node: ast.AST) -> Iterator[Import]:
    """What one statement imports by name; nothing where it is no import."""
    if isinstance(node, ast.Import):
        for item in node.names:
            if item.asname:
                yield Import(alias=item.asname, module=item.name, name=None)
            else:
                yield Import(alias=item.name.split(".")[0], module=item.name, name=None)
    elif isinstance(node, ast.ImportFrom):
        for item in node.names:
            if item.name != "*":
                yield Import(alias=item.asname or item.name, module=node.module or "", name=item.name, level=node.level)


def innermost_function(scopes: Sequence[ast.AST]) -> ast.FunctionDef | None:
    """The innermost function of some scopes, the outermost first; None: there is none."""
    return next((scope for scope in reversed(scopes) if isinstance(scope, ast.FunctionDef)), None)


def arguments(scope: ast.AST) -> set[str]:
    """Arguments of a function."""
    signature = scope.args if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) else None
    return {node.arg for node in ast.walk(signature) if isinstance(node, ast.arg)} if signature is not None else set()


def names_in(*trees: ast.AST) -> set[str]:
    """The names that stand in some trees, read or stored."""
    return {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}


def returns_a_value(function: ast.AST) -> bool:
    """Whether a function returns something other than None: a helper of kernels, and no kernel."""
    returns = (node.value for node in own_nodes(function) if isinstance(node, ast.Return))
    return any(value is not None and not is_none(value) for value in returns)


def argument_defaults(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> dict[str, ast.expr]:
    """What arguments of a function are where a call does not give them."""
    signature = function.args
    positional = [*signature.posonlyargs, *signature.args]
    pairs = [
        *zip(positional[len(positional) - len(signature.defaults) :], signature.defaults, strict=True),
        *zip(signature.kwonlyargs, signature.kw_defaults, strict=True),
    ]
    return {argument.arg: default for argument, default in pairs if default is not None}


def call_arguments(function: Function, call: ast.Call, skipped: int = 0) -> tuple[dict[str, ast.expr], list[ast.expr]]:
    """What a call gives the arguments of a function by name, the first `skipped` of them aside, and what it spreads over others."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)][skipped:]
    by_place = laid_out(call)
    plain = list(itertools.takewhile(lambda item: not isinstance(item, ast.Starred), by_place))
    spread = [*by_place[len(plain) :], *(keyword.value for keyword in call.keywords if keyword.arg is None)]
    return {**dict(zip(names, plain, strict=False)), **{k.arg: k.value for k in call.keywords if k.arg is not None}}, spread


def laid_out(call: ast.Call) -> list[ast.expr]:
    """What a call gives arguments by their place, with the items of a tuple that it spreads: `*(x.stride(0), x.stride(1))`, also where
    there is something else that cannot be spread, `*(a, b) if a is not None else 0`."""
    out: list[ast.expr] = []
    for item in call.args:
        value = item.value if isinstance(item, ast.Starred) else None
        arms = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        listed = [arm.elts for arm in arms if isinstance(arm, ast.Tuple | ast.List)]
        out += listed[0] if len(listed) == 1 and not any(isinstance(part, ast.Starred) for part in listed[0]) else [item]
    return out


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of functions and classes within it."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _INNER):
            waiting += ast.iter_child_nodes(node)


def statements_within(tree: ast.AST, entering: tuple[type[ast.AST], ...] = (ast.AST,)) -> Iterator[ast.AST]:
    """A tree and the statements within it, at any depth, as they stand in the file: of its nodes a small part, where functions and
    classes are looked for. Those within others than `entering` are left out."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        parts = ("body", "handlers", "cases", "orelse", "finalbody") if isinstance(node, entering) else ()
        waiting += reversed([item for part in parts for item in getattr(node, part, ())])


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
    elif isinstance(node, ast.AugAssign):  # of a list
        yield from _root(node.target)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not isinstance(node.value.func, ast.Subscript):
        # What takes a list may change it, random.shuffle(configs), but for kernels.
        yield from (
            argument.id
            for argument in (*node.value.args, *(k.value for k in node.value.keywords if k.arg))
            if isinstance(argument, ast.Name)
        )


def changed_names(scope: ast.AST | None) -> set[str]:
    """Names whose objects a function may change somewhere in it, also by a second name: `part = sizes[0]; part[1] = 2`; but not where it
    asks for another vendor's device: `if x.device.type == "xpu":`."""
    if scope is None:
        return set()
    changed: set[str] = set()
    shared: list[set[str]] = []
    waiting: list[ast.AST] = [scope]
    for node in waiting:  # which grows
        match node:
            case ast.If(test=ast.Compare(left=ast.Attribute(attr="type"), ops=[ast.Eq()], comparators=[ast.Constant(value=str(kind))])) if (
                kind != "cuda"
            ):
                waiting += node.orelse
                continue
        waiting += ast.iter_child_nodes(node)
        changed |= set(changed_by(node))
        for target, value in _given(node):
            shared.append(names_in(target) | set(_sources(value)))
    while more := {name for names in shared if names & changed for name in names} - changed:
        changed |= more
    return changed


def is_none(node: ast.expr) -> bool:
    """Whether an expression is `None` as it is written."""
    return isinstance(node, ast.Constant) and node.value is None


def is_fixed(value: Any) -> bool:
    """Whether a value cannot be changed in place."""
    value = plain(value)
    if isinstance(value, tuple):
        return all(is_fixed(part_value) for part_value in value)
    return value is None or isinstance(value, (bool, int, float, str, Symbol, TorchType, Limits))


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


def own_names(scopes: Sequence[ast.AST], others: Collection[str] = ()) -> set[str]:
    """Arguments of functions, and what they assign.

    Args:
        scopes: Those around a launch: their names are not the file's.
        others: Names that the file assigns: what a function imports under one of these is its own, too.
    """
    bound = [(node, name) for scope in scopes for node in ast.walk(scope) for name in bound_by(node)]
    kept = (ast.Name, ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping)
    stored = {name for node, name in bound if isinstance(node, kept) or (isinstance(node, ast.alias) and name in others)}
    return stored.union(*(arguments(scope) for scope in scopes))


@lru_cache(maxsize=64)
def stores(function: Function | ast.Module) -> Counter[str]:
    """In how many places a function, and those within it, bind each name, arguments apart."""
    return Counter(name for node in ast.walk(function) if node is not function for name in bound_by(node))


@lru_cache(maxsize=64)
def other_values(function: Function) -> frozenset[str]:
    """Names that a function, and those within it, give something else than a method of what they are: `x = x.contiguous()` is x, as far
    as it is asked whether that is None."""
    kept = Counter(
        node.targets[0].id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and len(node.targets) == 1 and is_of_itself(node)
    )
    return frozenset(stores(function) - kept)


def is_of_itself(node: ast.Assign) -> bool:
    """Whether a statement gives a name what a method of it gives: `x = x.contiguous()`."""
    function = node.value.func if isinstance(node.value, ast.Call) else None
    owner = function.value if isinstance(function, ast.Attribute) else None
    return isinstance(owner, ast.Name) and isinstance(node.targets[0], ast.Name) and owner.id == node.targets[0].id


def functions_in(function: Function) -> list[Function]:
    """The function, and those that it defines."""
    return [node for node in ast.walk(function) if isinstance(node, Function)]


def texts_in(function: Function) -> list[str]:
    """The texts that stand in a function, but for those that stand by themselves, as its docstring."""
    alone = {id(node.value) for node in ast.walk(function) if isinstance(node, ast.Expr)}
    nodes = (node for node in ast.walk(function) if isinstance(node, ast.Constant) and id(node) not in alone)
    return [node.value for node in nodes if isinstance(node.value, str)]


def returns_before(scope: ast.AST, node: ast.AST) -> list[ast.expr]:
    """The conditions under which a function returns before a node: `if n < 64: return …`, within `with`, `try` and what holds the node."""
    waiting = [*scope.body] if isinstance(scope, Function) else []
    leaving = []
    for item in waiting:  # which grows
        if isinstance(item, ast.With | ast.Try) or (isinstance(item, ast.If) and holds(item, node)):
            waiting += [inner for part in ("body", "orelse", "finalbody") for inner in getattr(item, part, ())]
        elif isinstance(item, ast.If) and isinstance(item.body[-1], ast.Return) and (item.end_lineno or 0) < getattr(node, "lineno", 0):
            leaving.append(item.test)
    return leaving


def required(function: Function) -> set[str]:
    """Arguments without a default that a function does not assign anew."""
    named = {argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    return named - argument_defaults(function).keys() - other_values(function)


def shared_names(function: ast.AST) -> frozenset[str]:
    """Names that a function, or one within it, shares with others, which may give them something else."""
    return frozenset(name for node in ast.walk(function) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names)


BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith, ast.Match)


def plainly_given(statement: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names that a plain assignment gives expressions."""
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets if isinstance(statement, ast.Assign) else []
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    for target, part in (pair for item in targets if value is not None for pair in pairs(item, value)):
        if isinstance(target, ast.Name):
            yield target.id, part


def assigned_values(function: ast.AST) -> dict[str, list[ast.expr]]:
    """By name, the values of all assignments in a function, wherever they stand: of `x += y` the sum."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        given = [(node.target.id, node.value)] if isinstance(node, ast.NamedExpr) else list(plainly_given(node))
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            before = ast.copy_location(ast.Name(id=node.target.id, ctx=ast.Load()), node.target)
            given = [(before.id, ast.copy_location(ast.BinOp(left=before, op=node.op, right=node.value), node))]
        for name, value in given:
            values.setdefault(name, []).append(value)
    return values


def names_stored(part: ast.AST) -> set[str]:
    """Names that a statement may bind, whatever to."""
    return {name for node in ast.walk(part) for name in bound_by(node)}


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is assigned to what: `a, b = x, y` is two assignments."""
    targets, values = (item.elts if isinstance(item, ast.Tuple) else [] for item in (target, value))
    if len(targets) == len(values) > 0 and not any(isinstance(item, ast.Starred) for item in (*targets, *values)):
        yield from zip(targets, values, strict=True)
    else:
        yield target, value


def keys_read(function: ast.FunctionDef | None) -> set[Any] | None:
    """Keys of its first argument that a function names; None where it does anything else with that."""
    if function is None or not function.args.args:
        return None
    nodes, first = list(ast.walk(function)), function.args.args[0].arg
    subscripts = [node for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == first]
    keys = [node.slice.value for node in subscripts if isinstance(node.slice, ast.Constant)]
    return set(keys) if len(keys) == sum(isinstance(node, ast.Name) and node.id == first for node in nodes) else None
