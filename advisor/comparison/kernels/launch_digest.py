"""How a file launches a kernel: what its launches pass, and a digest of the host code behind them."""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeGuard

from advisor.comparison.kernels.kernel_digest import arguments_changed, meaning, own_tree, without_local_names
from advisor.comparison.kernels.kernel_version import KernelVersion, Launching
from advisor.compiled.launches.provenance import named
from advisor.python_source.bindings import (
    Function,
    Graph,
    argument_defaults,
    arguments,
    bound_by,
    call_arguments,
    changed_by,
    is_of_itself,
)
from advisor.python_source.imports import MOST_HANDS
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.kernel_forms import grid_of
from advisor.python_source.language import dotted, last_name
from advisor.rendering.figures import shortened
from advisor.result.schema import LAUNCH_OPTIONS
from advisor.system import grouped
from advisor.system.resources import phrase

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
    function: JitFunction, launching: Launching, tunable: Set[str], renamed: Renamed | None = None, *, conditions: bool = True
) -> LaunchDigest:
    """What a file's launches of a kernel come down to; `tunable`: the options and constants that are looked at; `conditions`: with
    what is asked where they stand under a condition."""
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
            passed.setdefault(name, {}).setdefault(written(_with_names(node, names)))
            assigned.setdefault(name, {}).setdefault(written(_with_names(whence, names)))
    parts = [item for _, call in launching.calls for item in (*call.args, *call.keywords)]
    spread = frozenset(written(item) for item in parts if isinstance(item, ast.Starred) or getattr(item, "arg", "") is None)
    host: dict[str, list[str]] = {}
    around = frozenset(getattr(scopes[0], "name", "") for scopes, _ in launching.calls if scopes)
    for worked_out in _host_code(function, tunable, launching, host, renamed, conditions):
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
        yield GRID, _as_given(grid_of(call), graph, scopes, call)


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
                return ast.IfExp(test, *arms)
        if len(every) != 1 or not (isinstance(every[0], ast.Constant) or of_scopes == every):
            break
        node, before = every[0], way.sees(every[0])
    return node


def _unnamed(node: ast.AST, graph: Graph, scopes: Sequence[ast.AST], call: ast.Call) -> ast.AST:
    """What a name is given in its place, where the names within that are the same at the call: to name a value first changes nothing.
    What a condition chooses stays a name."""
    value = _as_given(node, graph, scopes, call)
    if isinstance(value, ast.IfExp) or not scopes or scopes[-1] not in graph.above(value):
        return node
    way = _Way.to(graph, call, scopes[0] if scopes else None)
    between = (other for name in _values(value) for scope in scopes for other in graph.binders(scope).get(name, ()))
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
            assigned=[
                (target.id, _position(statement))
                for block in leading
                for statement in block
                if isinstance(statement, ast.Assign)
                for target in statement.targets
                if isinstance(target, ast.Name)
            ],
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


def _position(node: ast.AST) -> Position:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _host_code(
    function: JitFunction, tunable: Set[str], launching: Launching, host: dict[str, list[str]], renamed: Renamed, conditions: bool
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
        names, entering, statements = _feeding(graph, around, call, nodes, conditions)
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
        left = [] if calls else [ast.keyword(name, defaults[name]) for name in sorted(wanted & defaults.keys())]
        yield {name for default in left for name in _values(default)}
        handed = {node.value.id for node in nodes if isinstance(node, ast.keyword) and isinstance(node.value, ast.Name)} & arguments(around)
        if not (left or statements) and len(nodes) == len(handed):  # by a function around the launcher: all of it as it came
            continue
        called = renamed.get(around.name, {})
        local = _local_names(around) | (names & arguments(around) - entering)  # an argument's name, given something else
        trees = without_local_names([_with_names(node, called) for node in (*nodes, *left, *statements)], local)
        host.setdefault(around.name, []).append("\x1e".join(trees))


def _given(function: Function, call: ast.Call, wanted: set[str], renamed: Mapping[str, str]) -> list[ast.AST]:
    """What a call gives some arguments of a function, and their defaults where it does not."""
    first = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)][:1]
    given, spread = call_arguments(function, call, int(first in (["self"], ["cls"], ["ctx"]) and isinstance(call.func, ast.Attribute)))
    known = {**argument_defaults(function), **given}
    return [*(ast.keyword(called, known[name]) for called, name in sorted((renamed.get(n, n), n) for n in known if n in wanted)), *spread]


def _with_names(node: ast.AST, names: Mapping[str, str]) -> ast.AST:
    """A tree with other names in place of some."""
    if not names:
        return node
    node = copy.deepcopy(node)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            inner.id = names.get(inner.id, inner.id)
    return node


def _renamed(old: Graph, new: Graph) -> dict[str, dict[str, str]]:
    """By function what its arguments are called now, where it has as many as before: by their places, callers give them the same."""
    sides = [{scope.name: scope.args for scope in graph.scopes if isinstance(scope, Function)} for graph in (old, new)]
    renamed = {}
    for function in sides[0].keys() & sides[1].keys():
        before, after = ([item.arg for item in (*side[function].posonlyargs, *side[function].args)] for side in sides)
        if before != after and len(before) == len(after):
            renamed[function] = {a: b for a, b in zip(before, after, strict=True) if a not in after and b not in before}
    return renamed


def _feeding(
    graph: Graph, around: ast.AST | None, call: ast.Call, nodes: Sequence[ast.AST], conditions: bool
) -> tuple[set[str], set[str], list[ast.AST]]:
    """Names that parts of a call are worked out from, those of them that may be what they are where the function around begins, and its
    statements by which they are, in order: those on the way to the call, and in a loop those after it; what `if` around the call asks if
    there are to be `conditions`."""
    above = {id(outer) for outer in graph.above(call) if isinstance(outer, ast.If) and not conditions}
    way, inside = _Way.to(graph, call, around), list(ast.walk(around)) if around is not None else []
    kept = way.aside | {id(target) for node in inside if _keeps_tensor(node) for target in node.targets}
    bound = [(node, *part) for node in sorted(inside[1:], key=_position) if id(node) not in above for part in _parts(node, kept)]
    feeding: set[int] = set()
    waiting = [(name, way.end) for node in nodes for name in _values(node)]
    seen = set(waiting)
    while waiting:
        name, before = waiting.pop()
        fresh = [
            (node, part) for node, part, stored in bound if name in stored and way.leads(node, name, before) and id(part) not in feeding
        ]
        feeding |= {id(part) for _, part in fresh}
        waiting += {(value, way.sees(node)) for node, part in fresh for value in _values(part)} - seen
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
    """`m, n = x.shape`, or `m, n = x.shape[0], y.shape[0]`, as one statement for each name; none: it is no such statement."""
    target, value = node.targets[0], node.value
    if not isinstance(target, ast.Tuple) or any(isinstance(item, ast.Starred) for item in target.elts):
        return []
    values: list[ast.expr] = [ast.Subscript(value, ast.Constant(index), ast.Load()) for index, _ in enumerate(target.elts)]
    if isinstance(value, ast.Tuple):
        if len(value.elts) != len(target.elts):
            return []
        values = value.elts
    pairs = zip(target.elts, values, strict=True)
    return [ast.copy_location(ast.Assign(targets=[name], value=part), node) for name, part in pairs]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedLaunch:
    """A file that launches a kernel otherwise than it did, or than the file did that it was launched in before.

    Attributes:
        old, new: Its launches.
        words: What changed.
        names: Options and constants that both take, and "grid", for which other expressions are passed, or that hang on code that changed.
        code: Whether other code changed too that what is passed is worked out from.
    """

    old: Launching
    new: Launching
    words: str
    names: frozenset[str]
    code: bool


@lru_cache(maxsize=4)
def changed_launches(old: KernelVersion, new: KernelVersion) -> tuple[ChangedLaunch, ...]:
    """What changed in how a kernel is launched.

    Files are compared with what they were. Where one no longer launches the kernel and one does that did not, the launch moved; what
    launches it besides, a test or a benchmark, say, or no longer does, changes no launch.
    """
    before, after = ({item.where: item for item in version.launching} for version in (old, new))
    pairs = [(before[where], launching) for where, launching in after.items() if where in before]
    lost, gained = ([one[where] for where in one if where not in other] for one, other in ((before, after), (after, before)))
    if len(lost) == len(gained) == 1:
        pairs.append((lost[0], gained[0]))
    if not pairs:
        return ()
    former, function = old.function, new.function
    tunable = {*former.constants, *function.constants}
    alone = {name for name in tunable if not (former.parameter(name) and function.parameter(name))}
    tunable |= {*LAUNCH_OPTIONS, SPREAD, GRID}  # what is a constant on one side alone is passed by both
    out = []
    for one, other in pairs:
        renamed = _renamed(one.source.module_names, other.source.module_names)
        digests = launch_digest(former, one, tunable, renamed), launch_digest(function, other, tunable)
        hangs = partial(_alone_differs, former, function, one, other, renamed)
        if (differing := _differing(*digests, hangs)) is not None:
            names, code = differing
            one_sided = digests[0].host.keys() ^ digests[1].host.keys()  # by one side alone: what both files have did not change for that
            texts = [{name: _trees(side, name) for name in code} for side in (one, other)]
            same = {name for name in code if texts[0][name] == texts[1][name] or name in one_sided}
            code = [name for name in code if name not in same or not texts[0][name] or not texts[1][name]] or ([] if names else code)
            both = sorted(digests[0].passed.keys() & digests[1].passed.keys())
            hanging = list(filter(hangs, both)) if not names and SPREAD not in both else []
            words = _in_words(*digests, names, code, hanging)
            if names and (otherwise := [name for name in both if name not in names and _rebound(one, name) != _rebound(other, name)]):
                words += f", and {named(otherwise)}, worked out otherwise"
            if not names:  # else the values that it passes changed
                digests = (
                    launch_digest(former, one, tunable, renamed, conditions=False),
                    launch_digest(function, other, tunable, conditions=False),
                )
                where = [_where(side) for side in (one, other)]
                if _differing(*digests) is None and where[0] != where[1]:
                    words, code, hanging = f"it is made {where[0]} → {where[1]}", [], []
                elif _differing(*digests) is None and where[1] != ALWAYS:
                    within = f" in {_listed(code)}" if code else ""
                    words, code, hanging = f"it is made {where[1]}, which is worked out otherwise than before{within}", [], []
            both_take = frozenset(names or hanging) - alone
            out.append(ChangedLaunch(old=one, new=other, words=words, names=both_take, code=bool(code) and not hanging))
    return tuple(out)


def _rebound(launching: Launching, name: str) -> list[tuple[str, ...]]:
    """The statements, each under its conditions, that give something to a name which launches of a file pass as it is, where their
    function has several: what one alone gives it is passed in its place."""
    graph, out = launching.source.module_names, []
    for scopes, call in launching.calls:
        passed = any(item.arg == name and written(item.value) == name for item in call.keywords)
        nodes = graph.binders(scopes[-1]).get(name, ()) if passed and scopes else ()
        tests = [[written(test) for test, _ in graph.conditions(node)] for node in nodes if len(nodes) > 1]
        out += [(*test, written(graph.parent(node))) for test, node in zip(tests, nodes, strict=False)]
    return out


def _alone_differs(former: JitFunction, function: JitFunction, one: Launching, other: Launching, renamed: Renamed, name: str) -> bool:
    """Whether what launches pass for one name changed, whatever else they pass."""
    return _differing(launch_digest(former, one, {name}, renamed), launch_digest(function, other, {name})) is not None


def _trees(launching: Launching, name: str) -> list[str]:
    """What stands for a name at the top of a file; of a method, or of a function within another, its code."""
    graph = launching.source.module_names
    nodes = graph.statements(name) or [scope for scope in graph.scopes if isinstance(scope, Function) and scope.name == name]
    return list(map(ast.dump, nodes))


def _where(launching: Launching) -> str:
    """Under which conditions a file launches a kernel, in words: as they are written."""
    graph = launching.source.module_names
    tests = [[(written(test), wanted) for test, wanted in graph.conditions(call)] for _, call in launching.calls]
    every = [" and ".join(text if wanted else f"not ({text})" for text, wanted in each_call) for each_call in tests]
    return f"where {' or '.join(dict.fromkeys(shortened(text, LONGEST) for text in every))}" if all(every) else ALWAYS


def _differing(
    old: LaunchDigest, new: LaunchDigest, hangs: Callable[[str], bool] = lambda name: True
) -> tuple[list[str], list[str]] | None:
    """The names for which launches pass other expressions that `hangs` holds of, and the functions whose code changed besides; None:
    nothing changed, but for names of functions and of what they work out."""
    gone, came = old.host.keys() - new.host.keys(), new.host.keys() - old.host.keys()
    both = old.host.keys() & new.host.keys()
    elsewhere = [sorted(host[name] for name in names) for host, names in ((old.host, gone), (new.host, came))]
    if elsewhere[0] == elsewhere[1] and all(old.host[name] == new.host[name] for name in both):
        return None
    differ = {name for name in both if not _only_more(old.host[name], new.host[name])}
    if gone and came and not _only_more(*({host[name] for name in names} for host, names in ((old.host, gone), (new.host, came)))):
        differ |= gone | came
    names = [name for name in dict.fromkeys([*old.passed, *new.passed]) if len({*map(frozenset, _texts(old, new, name))}) > 1]
    if old.spread != new.spread:  # what one side names, the other may have there
        names = [name for name in names if name not in old.unnamed | new.unnamed]
    names = list(filter(hangs, names))
    if not names and not differ:
        return None
    return names, sorted(((differ | gone | came) if not names else differ - old.launching - new.launching) - {""})


def _in_words(old: LaunchDigest, new: LaunchDigest, names: Sequence[str], code: Sequence[str], hanging: Sequence[str]) -> str:
    parts = [" → ".join(_apart(name, *_texts(old, new, name))) for name in names]
    if code:
        what = [f"the {name}" if name == GRID else name for name in hanging]
        parts.append(f"the code of {_listed(code)}" + (f", on which {named(what)} depend" + "s" * (len(what) == 1)) * bool(what))
    return ", and ".join(parts or ["the code around it"])


def _only_more(one: Iterable[Any], other: Iterable[Any]) -> bool:
    """Whether there is nothing but launches more or less: those of a test, say, which pass what others pass."""
    return set(one) <= set(other) or set(other) <= set(one)


def _texts(old: LaunchDigest, new: LaunchDigest, name: str) -> list[tuple[str, ...]]:
    """What the launches of two sides pass for a name: what its names are given, but as it is written where that is not known of both."""
    values = [side.assigned.get(name, ()) for side in (old, new)]
    written = [side.passed.get(name, ()) for side in (old, new)]
    unknown = any(text.isidentifier() and text in texts for side, texts in zip(values, written, strict=True) for text in side)
    return written if unknown and written[0] == written[1] else values


def _apart(name: str, old: Sequence[str], new: Sequence[str]) -> tuple[str, str]:
    """What two sides pass for a name, in words; where those are the same up to where they are cut off, from where they part."""
    texts = _text(name, old), _text(name, new)
    if texts[0] != texts[1] or len(old) != 1 or len(new) != 1:
        return texts
    same = next((place for place, (a, b) in enumerate(zip(old[0], new[0], strict=False)) if a != b), min(len(old[0]), len(new[0])))
    start = old[0].rfind(" ", 0, same) + 1
    return tuple(f"{name}=…{shortened(text[start:], LONGEST)}" for text in (old[0], new[0]))  # type: ignore[return-value]


def _text(name: str, passed: Sequence[str]) -> str:
    values = " or ".join(shortened(text.strip("{}") if name == SPREAD else text, LONGEST) for text in passed)
    return (values or "nothing") if name == SPREAD else f"{name}={values}" if values else f"no {name}"


SAME = "The kernel is the same; its launch"
"""Begins the note on a launch that changed where the kernel did not."""


def launch_notes(changed: Sequence[ChangedLaunch], same: bool) -> list[str]:
    """How launches of a kernel changed, `same`: while it did not."""
    how = SAME if same else "The launch"
    alike = grouped((launch.words, launch.new.where or "its file") for launch in changed)
    return [f"{how} in {_listed(files)} changed: {words}." for words, files in alike.items()]


def _listed(names: Sequence[str]) -> str:
    """The first of some names."""
    return f"{', '.join(names[:MOST_NAMED])}{', …' if len(names) > MOST_NAMED else ''}"


def changed_by_hand(old: KernelVersion | None, new: KernelVersion | None) -> list[str]:
    """What changed beside the body: the arguments, the key by which a kernel is tuned anew, and what prunes its list."""
    if old is None or new is None:
        return []
    notes = list(arguments_changed(old.function, new.function, bool(old.launching and new.launching)))
    keys = [side.function.autotune.key if side.function.autotune is not None else None for side in (old, new)]
    if keys[0] is not None and keys[1] is not None and set(keys[0]) != set(keys[1]):
        less = ", ".join(name for name in keys[0] if name not in keys[1])
        less = less if set(keys[1]) < set(keys[0]) <= {parameter.name for parameter in new.function.parameters} else ""
        consequence = f" Calls that differ in {less} alone run with one configuration now, that of the first of them." if less else ""
        notes.append(f"The key of its autotuning changed: {', '.join(keys[0]) or 'none'} → {', '.join(keys[1]) or 'none'}.{consequence}")
    heuristics = [side.function.heuristics.keys() for side in (old, new)]
    for word, names in (("gives", heuristics[1] - heuristics[0]), ("no longer gives", heuristics[0] - heuristics[1])):
        notes += [f"@triton.heuristics {word} {', '.join(sorted(names))}."] if names else []
    others = [_decorators(side.function) for side in (old, new)]
    for word, names in (("It is now decorated with", others[1] - others[0]), ("It is no longer decorated with", others[0] - others[1])):
        notes += [f"{word} {', '.join(sorted(names))}."] if names else []
    pruning = [side.function.autotune.prunes if side.function.autotune is not None else "" for side in (old, new)]
    if pruning[0] != pruning[1]:
        notes.append(f"What prunes its configurations changed: {pruning[0] or 'nothing'} → {pruning[1] or 'nothing'}.")
    return notes


def _decorators(function: JitFunction) -> set[str]:
    """The names of a kernel's decorators, but for Triton's own."""
    names = {dotted(getattr(item, "func", item)) for item in function.node.decorator_list}
    return {name for name in names if name.rpartition(".")[2] not in ("jit", "autotune", "heuristics")} - {""}


def unread_body(old: KernelVersion | None, new: KernelVersion | None, differ: bool) -> list[str]:
    """That no prediction tells of a body that changed, alone or beside the configurations (`differ`: of those that are compared)."""
    if old is None or new is None:
        return []
    alone = old.named == new.named and not differ
    return [phrase("answer.body")] if alone or own_tree(old.function.node) != own_tree(new.function.node) else []
