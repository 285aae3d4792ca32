"""How a file launches a kernel: the constants and options that it passes, and what these are worked out from."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from hashlib import sha256

from advisor.comparison.callers import Callers
from advisor.comparison.callers import passed as passed_for
from advisor.comparison.launching import Launching
from advisor.comparison.local_names import local_names, without_local_names
from advisor.comparison.meaning import meaning
from advisor.configs.bindings import Scope, arguments, bound_by, holds
from advisor.configs.changes import CHANGING, changed_by
from advisor.configs.jit_function import JitFunction
from advisor.configs.launch_forms import grid_of
from advisor.configs.source import SourceFile
from advisor.schema import LAUNCH_OPTIONS

LONGEST = 80
"""Characters that are shown of an expression."""
SPREAD, TUNING = "**", "@"
"""Among what launches pass: `**options`, and the decorators that another file than the kernel's applies to it."""
Launched = tuple[JitFunction, Sequence[Launching]]
"""A version of a kernel, and the files that launch it."""
_OF_DICTIONARIES = CHANGING | {"get", "copy", "items", "keys", "values"}
_BLOCKS = (ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Try, ast.Match)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchMeaning:
    """The distinct launches of a kernel in a file.

    Attributes:
        passed: By option and constant, the expressions that the launches pass for it, as they are written; "grid", `SPREAD` and `TUNING`
            are among them.
        behind: Of each launch, by the same, digests of the syntax trees of these expressions with all that they are worked out from,
            whatever a function calls its own variables.
    """

    passed: Mapping[str, tuple[str, ...]]
    behind: frozenset[tuple[tuple[str, str], ...]]

    def digests(self, name: str) -> set[str]:
        """Of what the launches pass for an option or constant."""
        return {digest for launch in self.behind for each, digest in launch if each == name}


def launch_meaning(function: JitFunction, launching: Launching) -> LaunchMeaning:
    """What a file's launches of a kernel come down to."""
    parameters, source = function.parameters, launching.source
    tunable = {*(each.name for each in parameters if each.is_constexpr), *LAUNCH_OPTIONS}
    passed: dict[str, list[str]] = {}
    behind: set[tuple[tuple[str, str], ...]] = set()
    callers, steps = Callers(source.tree), _Steps()
    for scopes, call in launching.calls:
        positional = () if any(isinstance(each, ast.Starred) for each in call.args) else call.args
        given = [*zip((each.name for each in parameters), positional, strict=False), *((k.arg, k.value) for k in call.keywords if k.arg)]
        values: dict[str, ast.AST] = {name: value for name, value in given if name in tunable}
        paths = [[steps.of(*step) for step in path] for path in callers.paths((scopes, call))]
        bound, grid = paths[0][0].bound, grid_of(call)
        bindings = bound.get(grid.id, []) if isinstance(grid, ast.Name) else []
        shown = _given(bindings[-1]) if bindings else grid
        spread: list[ast.expr] = [k.value for k in call.keywords if k.arg is None]
        if spread:
            values[SPREAD] = spread[0] if len(spread) == 1 else ast.Tuple(elts=spread, ctx=ast.Load())
        for name, node in [*values.items(), ("grid", shown)]:
            passed.setdefault(name, []).append(_written(node))
        values["grid"] = shown if len(bindings) <= 1 else grid  # of several bindings each counts
        tuning: dict[str, str] = {}
        if launching.tuning is not None:
            file, layers = launching.tuning
            passed[TUNING] = [" ".join(map(_written, layers))]
            tuning[TUNING] = _digest(file, layers, [])
        for path in paths:
            behind.add(tuple(sorted([*tuning.items(), *((name, _digest(source, [node], path)) for name, node in values.items())])))
    return LaunchMeaning(passed={name: tuple(each) for name, each in passed.items()}, behind=frozenset(behind))


def _given(binding: ast.AST) -> ast.AST:
    """What a statement gives the one name that it binds; else the statement."""
    if isinstance(binding, ast.Assign):
        one = len(binding.targets) == 1 and isinstance(binding.targets[0], ast.Name)
        return binding.value if one else binding
    return binding.value if isinstance(binding, (ast.AnnAssign, ast.NamedExpr)) and binding.value is not None else binding


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A call on the way to a launch, or that itself, and what decides the names of the function around it.

    Attributes:
        bound: The statements that bind each name, and the heads of the blocks these are in.
        changing: Those that change what it stands for in place: `config["num_warps"] = 8`.
        local: Names that are nothing but its own.
    """

    scopes: Sequence[Scope]
    call: ast.Call
    bound: Mapping[str, Sequence[ast.AST]]
    changing: Mapping[str, Sequence[ast.AST]]
    local: Set[str]


class _Steps(dict[int, _Step]):
    """Steps by call: many ways to the launches of a file have some in common."""

    def of(self, scopes: Sequence[Scope], call: ast.Call) -> _Step:
        if id(call) not in self:
            bound, changing = _bindings(scopes, call)
            self[id(call)] = _Step(scopes=scopes, call=call, bound=bound, changing=changing, local=local_names(scopes))
        return self[id(call)]


def _digest(source: SourceFile, values: Sequence[ast.AST], path: Sequence[_Step]) -> str:
    """A digest of expressions around a launch, and of all that they are worked out from, also by the functions of the file that lead there
    on one way."""
    trees: list[str] = []
    for step, caller in itertools.zip_longest(path, path[1:]):
        statements, names, asked = _behind(values, step, _names if step is path[0] else _passed_on)
        trees += [*without_local_names([*values, *statements], step.local), *(tree for _, tree in meaning(source, names))]
        function = step.scopes[0] if step.scopes else None
        if caller is None or not asked or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
        values = [value for name in sorted(asked) for value in passed_for(function, caller.call, name)]
    if not path:
        trees += [*map(ast.dump, values), *(tree for _, tree in meaning(source, {name for value in values for name in _names(value)}))]
    return sha256("\0".join(trees).encode("utf-8", "surrogatepass")).hexdigest()


def _written(node: ast.AST) -> str:
    try:
        text = ast.unparse(node)
    except RecursionError:  # deeper than Python follows
        return "…"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _bindings(scopes: Sequence[Scope], call: ast.Call) -> tuple[dict[str, list[ast.AST]], dict[str, list[ast.AST]]]:
    """What decides the names of the function around a call: the statements that bind them, and the heads of the blocks these are in; and
    those that change what they stand for.

    What follows a launch decides nothing, but in a loop, or where a function within another launches later than it is defined.
    """
    found: dict[str, list[ast.AST]] = {}
    changing: dict[str, list[ast.AST]] = {}
    inside = [each for scope in scopes[:1] for each in ast.walk(scope) if each is not scope]
    again = len(scopes) > 1 or any(isinstance(each, (ast.For, ast.AsyncFor, ast.While)) and holds(each, call) for each in inside)
    for node in inside:
        if not again and getattr(node, "lineno", 0) > (call.end_lineno or call.lineno):
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, _BLOCKS):
            for name in {name for each in ast.walk(node) if not isinstance(each, ast.alias) for name in bound_by(each)}:
                found.setdefault(name, []).extend(_head(node))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            continue  # followed to the file that it comes from, as an import of the module
        elif isinstance(node, (ast.stmt, ast.NamedExpr)):
            nodes = list(ast.walk(node))
            for name in {name for each in nodes for name in bound_by(each)}:
                found.setdefault(name, []).append(node)
            for name in {name for each in nodes if isinstance(each, (ast.Subscript, ast.Call)) for name in changed_by(each)}:
                changing.setdefault(name, []).append(node)
    return found, changing


def _head(node: ast.stmt) -> Iterator[ast.AST]:
    """What a block says before its statements, and `match` before those of its cases."""
    yield from (each for each in ast.iter_child_nodes(node) if isinstance(each, (ast.expr, ast.withitem)))
    yield from (each for case in getattr(node, "cases", ()) for each in (case.pattern, case.guard) if each is not None)


def _behind(
    values: Sequence[ast.AST], step: _Step, named: Callable[[ast.AST], Iterator[str]]
) -> tuple[list[ast.AST], set[str], set[str]]:  # fmt: skip
    """The syntax trees that decide what expressions around a call are, in order, and the names among them that are the file's, and that are
    arguments of the function around, such as are passed on.

    Not among these are tensors, of which a shape is asked: who calls the function makes them of much that has no part in the launch.
    `named`: the names in a tree that are followed.
    """
    waiting = {name for value in values for name in named(value)}
    seen: set[str] = set()
    deciding: dict[int, ast.AST] = {}
    while waiting:
        seen |= waiting
        fresh = {id(node): node for name in waiting for node in (*step.bound.get(name, ()), *step.changing.get(name, ()))}
        deciding |= fresh
        waiting = {name for node in fresh.values() for name in named(node)} - seen
    ordered = sorted(deciding.values(), key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
    own = set(step.bound).union(*(arguments(scope) for scope in step.scopes))
    asked = {name for tree in (*values, *ordered) for name in _passed_on(tree)}
    return ordered, seen - own, asked & arguments(step.scopes[0]) if step.scopes else set()


def _passed_on(tree: ast.AST) -> Iterator[str]:
    """Names in a tree that stand for themselves, and those of dictionaries: `config`, `config["num_warps"]`, `config.get("num_warps")`."""
    nodes = list(ast.walk(tree))
    asked_of = {id(each.value) for each in nodes if isinstance(each, ast.Attribute) and each.attr not in _OF_DICTIONARIES}
    yield from (each.id for each in nodes if isinstance(each, ast.Name) and id(each) not in asked_of)


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedLaunch:
    """A file that launches a kernel otherwise than it did, or than the file did that it was launched in before; and the change in words."""

    old: Launching
    new: Launching
    said: str


def changed_launches(old: Launched, new: Launched) -> list[ChangedLaunch]:
    """What changed in how a kernel is launched.

    Files are compared with what they were. Where one no longer launches the kernel and one does that did not, the launch moved; what
    launches it besides, a test or a benchmark, say, or no longer does, changes no launch.
    """
    before, after = ({each.where: each for each in found} for _, found in (old, new))
    pairs = [(before[where], launching) for where, launching in after.items() if where in before]
    lost, gained = ([one[where] for where in one if where not in other] for one, other in ((before, after), (after, before)))
    if len(lost) == len(gained) == 1:
        pairs.append((lost[0], gained[0]))
    meanings = ((one, other, _changed(launch_meaning(old[0], one), launch_meaning(new[0], other))) for one, other in pairs)
    return [ChangedLaunch(old=one, new=other, said=said) for one, other, said in meanings if said is not None]


def _changed(old: LaunchMeaning, new: LaunchMeaning) -> str | None:
    """What changed in how a file launches a kernel, in words; None: nothing."""
    if old.behind == new.behind:
        return None
    names = [name for name in dict.fromkeys([*old.passed, *new.passed]) if old.digests(name) != new.digests(name)]
    written = [name for name in names if set(old.passed.get(name, ())) != set(new.passed.get(name, ()))]
    if not written and _only_more(old.behind, new.behind):  # a test or a benchmark, say, that passes what others pass
        return None
    said = ", ".join(f"{_text(name, old.passed.get(name, ()))} → {_text(name, new.passed.get(name, ()))}" for name in written)
    rest = [name for name in names or new.passed if name not in written]
    rest = [name for name in rest if name != "grid"] or ([] if written else rest)  # the grid depends on constants more often than not
    behind = f"what {', '.join(_text(name, new.passed[name][:1]) for name in rest)} comes from" if rest else ""
    return ", and ".join(filter(None, (said, behind)))


def _only_more(one: Set[object], other: Set[object]) -> bool:
    return one <= other or other <= one


def _text(name: str, passed: Sequence[str]) -> str:
    values = " or ".join(dict.fromkeys(passed))
    if name in (SPREAD, TUNING):
        return f"{name if name == SPREAD else ''}{values}" if values else f"no {'**options' if name == SPREAD else 'autotuning'}"
    return f"{name}={values}" if values else f"no {name}"
