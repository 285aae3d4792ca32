"""How a file launches a kernel: the constants and options that it passes, and what these are worked out from."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from hashlib import sha256

from advisor.comparison.launching import Launching
from advisor.comparison.local_names import local_names, without_local_names
from advisor.comparison.meaning import meaning
from advisor.configs.bindings import Scope, arguments, bound_by, holds
from advisor.configs.jit_function import JitFunction
from advisor.configs.source import SourceFile
from advisor.schema import LAUNCH_OPTIONS

LONGEST = 80
"""Characters that are shown of an expression."""
SPREAD, TUNING = "**", "@"
"""Among what launches pass: `**options`, and the decorators that another file than the kernel's applies to it."""
Launched = tuple[JitFunction, Sequence[Launching]]
"""A version of a kernel, and the files that launch it."""
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
    for scopes, call in launching.calls:
        assert isinstance(call.func, ast.Subscript)
        positional = () if any(isinstance(each, ast.Starred) for each in call.args) else call.args
        given = [*zip((each.name for each in parameters), positional, strict=False), *((k.arg, k.value) for k in call.keywords if k.arg)]
        values: dict[str, ast.AST] = {name: value for name, value in given if name in tunable}
        bound, local, grid = _bindings(scopes, call), local_names(scopes), call.func.slice
        bindings = bound.get(grid.id, []) if isinstance(grid, ast.Name) else []
        shown = _given(bindings[-1]) if bindings else grid
        spread: list[ast.expr] = [k.value for k in call.keywords if k.arg is None]
        if spread:
            values[SPREAD] = spread[0] if len(spread) == 1 else ast.Tuple(elts=spread, ctx=ast.Load())
        for name, node in [*values.items(), ("grid", shown)]:
            passed.setdefault(name, []).append(_written(node))
        values["grid"] = shown if len(bindings) <= 1 else grid  # of several bindings each counts
        digests = {name: _digest(source, node, scopes, bound, local) for name, node in values.items()}
        if launching.tuning is not None:
            file, layers = launching.tuning
            passed[TUNING] = [" ".join(map(_written, layers))]
            digests[TUNING] = "".join(_digest(file, layer, (), {}, set()) for layer in layers)
        behind.add(tuple(sorted(digests.items())))
    return LaunchMeaning(passed={name: tuple(each) for name, each in passed.items()}, behind=frozenset(behind))


def _given(binding: ast.AST) -> ast.AST:
    """What a statement gives the one name that it binds; else the statement."""
    if isinstance(binding, ast.Assign):
        one = len(binding.targets) == 1 and isinstance(binding.targets[0], ast.Name)
        return binding.value if one else binding
    return binding.value if isinstance(binding, (ast.AnnAssign, ast.NamedExpr)) and binding.value is not None else binding


def _digest(
    source: SourceFile, value: ast.AST, scopes: Sequence[Scope], bound: Mapping[str, Sequence[ast.AST]], local: Set[str]
) -> str:  # fmt: skip
    """A digest of an expression around a launch, and of all that it is worked out from."""
    statements, names = _behind(value, scopes, bound)
    trees = [*without_local_names([value, *statements], local), *(tree for _, tree in meaning(source, names))]
    return sha256("\0".join(trees).encode("utf-8", "surrogatepass")).hexdigest()


def _written(node: ast.AST) -> str:
    try:
        text = ast.unparse(node)
    except RecursionError:  # deeper than Python follows
        return "…"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _bindings(scopes: Sequence[Scope], call: ast.Call) -> dict[str, list[ast.AST]]:
    """What decides the names of the function around a launch: the statements that bind them, and the heads of the blocks these are in.

    What follows a launch decides nothing, but in a loop, or where a function within another launches later than it is defined.
    """
    found: dict[str, list[ast.AST]] = {}
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
            for name in {name for each in ast.walk(node) for name in bound_by(each)}:
                found.setdefault(name, []).append(node)
    return found


def _head(node: ast.stmt) -> Iterator[ast.AST]:
    """What a block says before its statements, and `match` before those of its cases."""
    yield from (each for each in ast.iter_child_nodes(node) if isinstance(each, (ast.expr, ast.withitem)))
    yield from (each for case in getattr(node, "cases", ()) for each in (case.pattern, case.guard) if each is not None)


def _behind(value: ast.AST, scopes: Sequence[Scope], bound: Mapping[str, Sequence[ast.AST]]) -> tuple[list[ast.AST], set[str]]:
    """The syntax trees that decide what an expression around a launch is, in order, and the names among them that are the file's."""
    waiting = set(_names(value))
    seen: set[str] = set()
    deciding: dict[int, ast.AST] = {}
    while waiting:
        seen |= waiting
        fresh = {id(node): node for name in waiting for node in bound.get(name, ())}
        deciding |= fresh
        waiting = {name for node in fresh.values() for name in _names(node)} - seen
    ordered = sorted(deciding.values(), key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
    return ordered, seen - set(bound).union(*(arguments(scope) for scope in scopes))


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
