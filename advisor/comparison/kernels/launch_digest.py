"""How a file launches a kernel: what its launches pass, and a digest of the host code behind them."""

from __future__ import annotations

import ast
import copy
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any, TypeGuard

from advisor.comparison.kernels.kernel_digest import meaning, without_local_names
from advisor.comparison.kernels.kernel_version import Launching
from advisor.python_source.bindings import (
    Function,
    Graph,
    argument_defaults,
    arguments,
    bound_by,
    call_arguments,
    changed_by,
    is_none,
    is_of_itself,
    names_in,
)
from advisor.python_source.imports import MOST_HANDS
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.kernel_forms import grid_of
from advisor.python_source.language import dotted, last_name
from advisor.python_source.module_names import ModuleNames
from advisor.rendering.figures import shortened
from advisor.result.schema import LAUNCH_OPTIONS
from advisor.system import grouped

LONGEST = 80
"""Characters that are shown of an expression."""
MOST_NAMED = 4
"""Functions that are named of the host code that changed."""
ALWAYS = "always"
"""Where a launch is made that is under no condition."""
SPREAD, GRID = "**", "grid"
"""Among what launches pass: `**options`, and the grid."""
_OF_TENSORS = frozenset({"shape", "size", "stride", "numel", "nelement", "dim", "ndim", "dtype", "device", "element_size", "is_contiguous"})
"""Attributes of tensors that a launch is worked out from, whatever the tensors hold and are made of."""
_OF_VALUES = frozenset({"contiguous", "clone", "detach", "cuda", "requires_grad_"})
"""Methods of a tensor that give one of the same shape, type and values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDigest:
    """The launches of a kernel in a file.

    Attributes:
        passed: By option and constant the expressions that the launches pass for it, as they are written; "grid" and `SPREAD` are
            among them.
        assigned: The same with what names are given in place of them, where the function around gives them that alone, and once.
        host: What that is worked out from, by name ("": at the top of the file): statements of the functions around the launches and of
            those of the file that call these, and the functions and constants that they name.
        launching: Names of the functions around the launches.
        spread: What launches pass unnamed, as it is written: `*k.stride()`, `**options`.
        unnamed: Parameters that may be among that.
    """

    passed: Mapping[str, tuple[str, ...]]
    assigned: Mapping[str, tuple[str, ...]]
    host: Mapping[str, tuple[str, ...]]
    launching: frozenset[str]
    spread: frozenset[str]
    unnamed: frozenset[str]


Renamed = Mapping[str, Mapping[str, str]]
"""By function what its arguments are called on the other side."""


def launch_digest(
    function: JitFunction,
    launching: Launching,
    tunable: Set[str],
    renamed: Renamed | None = None,
    *,
    conditions: bool = True,
    apart: Set[str] = frozenset(),
) -> LaunchDigest:
    """What a file's launches of a kernel come down to; `tunable`: the options and constants that are looked at; `conditions`: with
    what is asked where they stand under a condition; `apart`: names of which it does not matter what they are worked out from."""
    renamed = renamed or {}
    passed: dict[str, dict[str, None]] = {}
    assigned: dict[str, dict[str, None]] = {}
    for scopes, call in launching.calls:
        graph = launching.source.module_names
        names = renamed.get(getattr(scopes[0], "name", ""), {}) if scopes else {}
        for name, node in _passed(function, tunable, graph, scopes, call):
            way = _Way.to(graph, call, scopes[0] if scopes else None)
            given = isinstance(node, ast.Name) and any(node.id in arguments(scope) for scope in scopes) and way.enters(node.id)
            whence = node if given or name == SPREAD else _as_given(node, graph, scopes, call)
            passed.setdefault(name, {}).setdefault(written(with_names(node, names)))
            assigned.setdefault(name, {}).setdefault(written(with_names(whence, names)))
    parts = [item for _, call in launching.calls for item in (*call.args, *call.keywords)]
    spread = frozenset(written(item) for item in parts if isinstance(item, ast.Starred) or getattr(item, "arg", "") is None)
    host: dict[str, list[str]] = {}
    around = frozenset(getattr(scopes[0], "name", "") for scopes, _ in launching.calls if scopes)
    for worked_out in _host_code(function, tunable, launching, host, renamed, conditions, apart):
        # All that gives a name something: no part of it is a launch that came or went.
        for name, trees in grouped(meaning(launching.source, worked_out, kernels=False, imports=False)).items():
            host.setdefault(name, []).append("\x1d".join(trees))
    return LaunchDigest(
        passed={name: tuple(texts) for name, texts in passed.items()},
        assigned={name: tuple(texts) for name, texts in assigned.items()},
        host={name: tuple(sorted(set(item))) for name, item in host.items()},
        launching=around,
        spread=spread,
        unnamed=frozenset(name for name in tunable - passed.keys() if spread and (name in LAUNCH_OPTIONS or function.parameter(name))),
    )


def _passed(
    function: JitFunction, tunable: Set[str], graph: Graph, scopes: Sequence[ast.AST], call: ast.Call
) -> Iterator[tuple[str, ast.AST]]:
    """The options, constants and grid that a launch passes; a grid that has a name is what the function around gives that, if once."""
    given, _ = call_arguments(function.node, call)
    spread = [keyword.value for keyword in call.keywords if keyword.arg is None]
    whole = {SPREAD: ast.Dict(keys=[None] * len(spread), values=spread)} if spread else {}  # `{**strides, **options}`
    yield from ((name, value) for name, value in {**given, **whole}.items() if name in tunable)
    if GRID in tunable:
        yield GRID, _returned(_as_given(grid_of(call), graph, scopes, call))


def _returned(node: ast.AST) -> ast.AST:
    """Of a function that returns a name which it gives something once, as grids are written, that; else the node itself."""
    match node:
        case ast.FunctionDef(body=[*_, ast.Assign(targets=[ast.Name(name)], value=value), ast.Return(ast.Name(again))]) if name == again:
            return value
    return node


def _as_given(node: ast.AST, graph: Graph, scopes: Sequence[ast.AST], call: ast.Call) -> ast.AST:
    """An expression, or what the innermost scope that has it gives it, if it is a name that this gives something once on the way to the
    call, also by way of others; the file's own names as they are written, but for constants."""
    way = _Way.to(graph, call, scopes[0] if scopes else None)
    before = way.end
    for _ in range(MOST_HANDS):
        if not isinstance(node, ast.Name):
            break
        every, of_scopes = (
            [value for value in graph.given(within, node.id) if way.leads(value, node.id, before)]
            for within in ([graph.tree, *scopes], scopes)
        )
        arms = sorted((value for value in every if isinstance(value, ast.expr)), key=_position)
        match [graph.conditions(value) for value in arms]:
            case [[*one, (test, True)], [*other, (again, False)]] if of_scopes == every and one == other and test is again:
                return arms[0] if ast.dump(arms[0]) == ast.dump(arms[1]) else ast.IfExp(test, *arms)
        if not every and scopes and (part := _part_of_call(graph, scopes[-1], node.id)) is not None and way.leads(part, node.id, before):
            return part
        if len(every) != 1 or not (isinstance(every[0], ast.Constant) or of_scopes == every):
            break
        node, before = every[0], way.sees(every[0])
    return node


def _part_of_call(graph: Graph, scope: ast.AST, name: str) -> ast.expr | None:
    """What a function gives a name alone, and once, as one of several that a call returns: `sizes(x)[0]`; None: it does not."""
    binders = graph.binders(scope).get(name, ())
    statement = graph.parent(graph.parent(binders[0])) if len(binders) == 1 else None
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return None
    parts = (pair.value for pair in _pairs(statement) if isinstance(target := pair.targets[0], ast.Name) and target.id == name)
    return next((ast.copy_location(part, statement) for part in parts), None)


def _unnamed(node: ast.AST, graph: Graph, scopes: Sequence[ast.AST], call: ast.Call) -> ast.AST:
    """What a name is given in its place, where the names within that are the same at the call: to name a value first changes nothing.
    What a condition chooses stays a name."""
    value = _as_given(node, graph, scopes, call)
    if isinstance(value, ast.IfExp) or not scopes or scopes[-1] not in graph.above(value):
        return node
    way = _Way.to(graph, call, scopes[0] if scopes else None)
    between = (other for name in names_in(value) for scope in scopes for other in graph.binders(scope).get(name, ()))
    moved = any(_position(other) >= _position(value) and way.leads(other, getattr(other, "id", "")) for other in between)
    return node if moved else value


Position = tuple[float, float]
"""Line and column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """What is run on the way to a call.

    Attributes:
        end: Where it ends: at the call, but within a loop, where an earlier trip has run what follows, nowhere.
        aside: The nodes of arms that are not on it: in `if decoding: … else: call` those of the `if`, and those that end with a return.
        assigned: Names and where it surely gives them something, whatever they were before.
        loops: First and last lines of loops.
    """

    end: Position
    aside: Set[int] = frozenset()
    assigned: Sequence[tuple[str, Position]] = ()
    loops: Sequence[tuple[int, int]] = ()

    @classmethod
    @lru_cache(maxsize=64)
    def to(cls, graph: Graph, call: ast.Call, around: ast.AST | None) -> _Way:
        if any(isinstance(outer, ast.For | ast.While) for outer in graph.above(call)):
            return cls(end=(math.inf, math.inf))
        inside = list(ast.walk(around)) if around is not None else []
        leading = [block for outer, field in graph.blocks(call) if isinstance(block := getattr(outer, field), list)]
        loops = [node for node in inside if isinstance(node, ast.For | ast.While)]
        return cls(
            end=(call.end_lineno or call.lineno, math.inf),
            aside=frozenset(id(inner) for inner in inside if graph.excludes(inner, call)),
            assigned=[(name, _position(statement)) for block in leading for statement in block for name in _given_by(statement)],
            loops=[(loop.lineno, loop.end_lineno or loop.lineno) for loop in loops],
        )

    def leads(self, node: ast.AST, name: str, before: Position | None = None) -> bool:
        """Whether what a node gives a name is what this is at a place; None: at the end."""
        before = before or self.end
        last = max((place for other, place in self.assigned if other == name and place < before), default=(0, 0))
        return id(node) not in self.aside and last <= _position(node) <= before

    def enters(self, name: str, before: Position | None = None) -> bool:
        """Whether a name may still be at a place what it is where the function begins: an argument, given by whoever calls it."""
        return not any(other == name and place < (before or self.end) for other, place in self.assigned)

    def sees(self, node: ast.AST) -> Position:
        """Up to where what a node reads may have been given something: in a loop by an earlier trip."""
        line, column = _position(node)
        return max(((last, math.inf) for first, last in self.loops if first <= line <= last), default=(line, column))


def _given_by(statement: ast.AST) -> list[str]:
    """The names that a statement gives something, whatever they were: by an assignment, or as a function's."""
    if isinstance(statement, ast.FunctionDef):
        return [statement.name]
    return [target.id for target in statement.targets if isinstance(target, ast.Name)] if isinstance(statement, ast.Assign) else []


def _position(node: ast.AST) -> Position:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _host_code(
    function: JitFunction,
    tunable: Set[str],
    launching: Launching,
    host: dict[str, list[str]],
    renamed: Renamed,
    conditions: bool,
    apart: Set[str],
) -> Iterator[set[str]]:
    """Note what the functions around the launches do to work out what they pass, and what those of the file do that call these functions,
    also by way of others.

    Yields:
        Names that this is worked out from.
    """
    graph = launching.source.module_names
    waiting = [
        (
            scopes[0] if scopes else None,
            call,
            [_unnamed(node, graph, scopes, call) for _, node in _passed(function, tunable, graph, scopes, call)],
        )
        for scopes, call in launching.calls
    ]
    done: set[tuple[int, str]] = set()
    while waiting:
        around, call, nodes = waiting.pop()
        names, entering, statements = _feeding(graph, around, call, nodes, conditions, apart)
        yield names - _local_names(around) - arguments(around) if isinstance(around, Function) else names
        if not isinstance(around, Function):
            host.setdefault("", []).append("\x1e".join(without_local_names([*nodes, *statements], frozenset())))
            continue
        wanted = {name for name in entering & arguments(around) if (id(around), name) not in done}
        done |= {(id(around), name) for name in wanted}
        calling = graph.calls.get(around.name, ()) if wanted else ()
        pairs = ((next((outer for outer in graph.above(item) if isinstance(outer, Function)), None), item) for item in calling)
        calls = [(caller, item) for caller, item in pairs if caller not in (None, around)]
        waiting += [(caller, item, _given(around, item, wanted, renamed.get(around.name, {}))) for caller, item in calls]
        defaults = argument_defaults(around)
        values = {name for name in wanted & defaults.keys() if not is_none(defaults[name])}  # one of None is as good as none
        left = [] if calls else [ast.keyword(name, defaults[name]) for name in sorted(values)]
        yield {name for default in left for name in _values(default)}
        handed = {node.value.id for node in nodes if isinstance(node, ast.keyword) and isinstance(node.value, ast.Name)} & arguments(around)
        if not (left or statements) and len(nodes) == len(handed):  # by a function around the launcher: all of it as it came
            continue
        called = renamed.get(around.name, {})
        local = _local_names(around) | (names & arguments(around) - entering)  # an argument's name, given something else
        trees = without_local_names([with_names(node, called) for node in (*nodes, *left, *statements)], local)
        host.setdefault(around.name, []).append("\x1e".join(trees))


def _given(function: Function, call: ast.Call, wanted: set[str], renamed: Mapping[str, str]) -> list[ast.AST]:
    """What a call gives some arguments of a function, and their defaults where it does not."""
    first = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)][:1]
    given, spread = call_arguments(function, call, int(first in (["self"], ["cls"], ["ctx"]) and isinstance(call.func, ast.Attribute)))
    known = {**argument_defaults(function), **given}
    return [*(ast.keyword(called, known[name]) for called, name in sorted((renamed.get(n, n), n) for n in known if n in wanted)), *spread]


def with_names(node: ast.AST, names: Mapping[str, str]) -> Any:
    """A tree with other names in place of some, also of attributes (".rows")."""
    if not names:
        return node
    node = copy.deepcopy(node)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            inner.id = names.get(inner.id, inner.id)
        elif isinstance(inner, ast.Attribute):
            inner.attr = names.get(f".{inner.attr}", f".{inner.attr}")[1:]
    return node


@lru_cache(maxsize=4)
def renamed_names(old: ModuleNames, new: ModuleNames) -> Renamed:
    """By function of a file what its arguments, and attributes that it reads or sets (".rows"), are called now."""
    sides = [{scope.name: scope for scope in graph.scopes if isinstance(scope, Function)} for graph in (old, new)]
    renamed = {}
    for name in sides[0].keys() & sides[1].keys():
        passed = [arguments(side[name]) for side in sides]
        names = names_changed(old, new, sides[0][name], sides[1][name]).items()
        renamed[name] = {was: now for was, now in names if was[0] == "." or (was in passed[0] and now in passed[1])}
    return renamed


@lru_cache(maxsize=256)
def names_changed(old: ModuleNames, new: ModuleNames, one: Function, other: Function) -> dict[str, str]:
    """What the arguments and other names of a function's own are called in its new version, and attributes of its object
    that its old file alone has (".rows"): of names that stand where those of the new version stand that the old one has not."""
    before, after = ([name for _, name in sorted(_placed(function))] for function in (one, other))
    attributes = [{f".{node.attr}" for node in graph.nodes if isinstance(node, ast.Attribute)} for graph in (old, new)]
    belonging = [
        {name for name in tokens if name[0] == "."} | _local_names(function) | arguments(function)
        for tokens, function in ((before, one), (after, other))
    ]
    gone = (belonging[0] - attributes[1]).intersection(before).difference(after)
    came = (belonging[1] - attributes[0]).intersection(after).difference(before)
    counts: Counter[tuple[str, str]] = Counter()
    for word, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if gone and came else ():
        if word == "replace" and b - a == d - c:
            pairs = zip(before[a:b], after[c:d], strict=True)
            counts.update((was, now) for was, now in pairs if was in gone and now in came and (was[0] == ".") == (now[0] == "."))
    names: dict[str, str] = {}
    for (was, now), _ in counts.most_common():
        if was not in names and now not in names.values():
            names[was] = now
    return names


def _placed(function: Function) -> Iterator[tuple[Position, str]]:
    """The names, arguments and attributes of its object (".rows" of `ctx.rows`) that stand in a function, each with where it ends."""
    called = {node.func for node in ast.walk(function) if isinstance(node, ast.Call)}
    for node in ast.walk(function):
        end = getattr(node, "end_lineno", 0) or 0, getattr(node, "end_col_offset", 0) or 0
        if isinstance(node, ast.Name | ast.arg):
            yield end, node.id if isinstance(node, ast.Name) else node.arg
        elif isinstance(node, ast.Attribute) and node not in called and dotted(node.value) in ("self", "cls", "ctx"):
            yield end, f".{node.attr}"


def _feeding(
    graph: Graph, around: ast.AST | None, call: ast.Call, nodes: Sequence[ast.AST], conditions: bool, apart: Set[str]
) -> tuple[set[str], set[str], list[ast.AST]]:
    """Names that parts of a call are worked out from, those of them that may be what they are where the function around begins, and its
    statements by which they are, in order: those on the way to the call, and in a loop those after it; what `if` around the call asks if
    there are to be `conditions`."""
    above = {id(outer) for outer in graph.above(call) if isinstance(outer, ast.If) and not conditions}
    way, inside = _Way.to(graph, call, around), list(ast.walk(around)) if around is not None else []
    kept = way.aside | {id(target) for node in inside if _keeps_tensor(node) for target in node.targets}
    bound = [(node, *part) for node in sorted(inside[1:], key=_position) if id(node) not in above for part in _parts(node, kept)]
    feeding: set[int] = set()
    waiting = [(name, way.end) for node in nodes for name in _values(node) if name not in apart]
    seen = set(waiting)
    while waiting:
        name, before = waiting.pop()
        fresh = [
            (node, part) for node, part, stored in bound if name in stored and way.leads(node, name, before) and id(part) not in feeding
        ]
        feeding |= {id(part) for _, part in fresh}
        waiting += {(value, way.sees(node)) for node, part in fresh for value in _values(part) if value not in apart} - seen
        seen |= set(waiting)
    entering = {name for name, before in seen if way.enters(name, before)}
    return {name for name, _ in seen}, entering, [part for _, part, _ in bound if id(part) in feeding]


def _stored(node: ast.AST) -> Iterator[str]:
    """Names that one node binds, or changes the objects of; what a call is given counts as not changed by it."""
    yield from bound_by(node)
    yield from changed_by(node) if not isinstance(node, ast.Expr) else ()


def _keeps_tensor(node: ast.AST) -> TypeGuard[ast.Assign]:
    """Whether a statement gives a tensor its own values, `x = x.contiguous()`: a launch is what it was."""
    return isinstance(node, ast.Assign) and is_of_itself(node) and last_name(node.value) in _OF_VALUES


def _parts(node: ast.AST, kept: Set[int]) -> Iterator[tuple[ast.AST, set[str]]]:
    """What one node gives names by itself, and these names: a statement, or for names that are bound within a block what the block asks;
    `kept` are nodes that bind nothing that counts."""
    part = within = node
    if isinstance(node, ast.Assign) and (pairs := _pairs(node)):
        yield from (item for pair in pairs for item in _parts(pair, kept))
        return
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp):  # what `if` and `else` would give
        arms = [ast.copy_location(ast.Assign(targets=node.targets, value=arm), node) for arm in (node.value.body, node.value.orelse)]
        yield node.value.test, {name for target in node.targets for inner in ast.walk(target) for name in _stored(inner)}
        yield from (item for arm in arms for item in _parts(arm, kept))
        return
    if isinstance(node, ast.If | ast.While):
        part = node.test
    elif isinstance(node, ast.Match):
        part = ast.Match(subject=node.subject, cases=[ast.match_case(case.pattern, case.guard, []) for case in node.cases])
    elif isinstance(node, ast.For):
        part = within = ast.Assign(targets=[node.target], value=node.iter)
    elif not isinstance(node, _BINDING):
        return
    yield part, {name for inner in ast.walk(within) if id(inner) not in kept for name in _stored(inner)}


def _pairs(node: ast.Assign) -> list[ast.Assign]:
    """`m, n = x.shape`, `m, *rest = x.shape`, or `m, n = x.shape[0], y.shape[0]`, as one statement for each name; none: it is no such
    statement."""
    target, value = node.targets[0], node.value
    if not isinstance(target, ast.Tuple):
        return []
    starred = [index for index, item in enumerate(target.elts) if isinstance(item, ast.Starred)]
    places: list[ast.expr] = [
        ast.Constant(index) if not starred or index < starred[0] else ast.Constant(index - len(target.elts))
        for index in range(len(target.elts))
    ]
    for index in starred:
        places[index] = ast.Slice(ast.Constant(index), ast.Constant(index + 1 - len(target.elts)))
    values: list[ast.expr] = [ast.Subscript(value, place, ast.Load()) for place in places]
    if isinstance(value, ast.Tuple) and starred:
        return []
    if isinstance(value, ast.Tuple):
        if len(value.elts) != len(target.elts):
            return []
        values = value.elts
    names = [item.value if isinstance(item, ast.Starred) else item for item in target.elts]
    return [ast.copy_location(ast.Assign(targets=[name], value=part), node) for name, part in zip(names, values, strict=True)]


_BINDING = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr | ast.Expr | ast.withitem | ast.FunctionDef


def _values(tree: ast.AST) -> Iterator[str]:
    """Names that a tree reads, but for tensors of which only a size, a type or the like is asked."""
    tensors = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in _OF_TENSORS}
    added_to = {id(node.target) for node in ast.walk(tree) if isinstance(node, ast.AugAssign)}
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in tensors)
    yield from (node.id for node in names if isinstance(node.ctx, ast.Load) or id(node) in added_to)


def _local_names(function: Function) -> set[str]:
    """The names that a function, and those within it, give nothing but values of their own: neither its arguments, which are how others
    call it, nor what is imported, caught, or declared global."""
    nodes = [node for node in ast.walk(function) if node is not function]
    bound = {name for node in nodes if isinstance(node, ast.Name | ast.FunctionDef) for name in bound_by(node)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    others = {name for node in nodes if not isinstance(node, ast.Name | ast.FunctionDef) for name in bound_by(node)}
    return bound - others - arguments(function)


def written(node: ast.AST) -> str:
    """An expression as it is written; of a function, as grids are, what it returns."""
    if isinstance(node, ast.FunctionDef) and isinstance(last := node.body[-1], ast.Return) and last.value is not None:
        node = last.value
    try:
        return " ".join(ast.unparse(node).split())
    except RecursionError:  # deeper than Python follows
        return "…"


def parted(one: str, other: str) -> tuple[str, str]:
    """Two texts as they are shown: each up to where it is cut off, where they are the same up to there from where they part."""
    texts = shortened(one, LONGEST), shortened(other, LONGEST)
    if texts[0] != texts[1]:
        return texts
    same = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = one.rfind(" ", 0, same) + 1
    return f"…{shortened(one[start:], LONGEST)}", f"…{shortened(other[start:], LONGEST)}"


def host_trees(launching: Launching, name: str) -> list[str]:
    """What stands for a name at the top of a file; of a method, or of a function within another, its code."""
    graph = launching.source.module_names
    nodes = graph.statements(name) or [scope for scope in graph.scopes if isinstance(scope, Function) and scope.name == name]
    return list(map(ast.dump, nodes))
