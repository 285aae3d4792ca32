"""How a file launches a kernel: the constants and options that it passes, and what these are worked out from."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from hashlib import sha256

from advisor.comparison.meaning import meaning
from advisor.configs.bindings import Scope, arguments, bound_by, holds
from advisor.configs.launch_calls import launches
from advisor.configs.source import SourceFile
from advisor.schema import LAUNCH_OPTIONS

LONGEST = 80
"""Characters that are shown of an expression."""
_BLOCKS = (ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Try, ast.Match)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchMeaning:
    """The distinct launches of a kernel in its file.

    Attributes:
        passed: By option and constant, the expressions that the launches pass for it, as they are written.
        behind: Of each launch, digests of the syntax trees of its constants and options, and of its grid, with all that they are worked
            out from.
    """

    passed: Mapping[str, tuple[str, ...]]
    behind: frozenset[tuple[str, str]]


def launch_meaning(source: SourceFile, kernel: str) -> LaunchMeaning | None:
    """How the file launches one of its kernels; None: it does not, or which of several of the name is meant is not known."""
    if kernel not in source.functions:
        return None
    parameters = source.kernel(kernel).parameters
    tunable = {*(each.name for each in parameters if each.is_constexpr), *LAUNCH_OPTIONS}
    passed: dict[str, list[str]] = {}
    behind: set[tuple[str, str]] = set()
    found = list(launches(source, kernel))
    for scopes, call in found:
        positional = () if any(isinstance(each, ast.Starred) for each in call.args) else call.args
        given = [*zip((each.name for each in parameters), positional, strict=False), *((k.arg, k.value) for k in call.keywords if k.arg)]
        values = {name: value for name, value in given if name in tunable}
        bound = _bindings(scopes, call)
        grid = call.func.slice if isinstance(call.func, ast.Subscript) else call.func
        bindings = bound.get(grid.id, []) if isinstance(grid, ast.Name) else []
        shown = _given(bindings[-1]) if bindings else grid
        for name, node in [*values.items(), ("grid", shown)]:
            passed.setdefault(name, []).append(_written(node))
        grids = {"grid": shown if len(bindings) <= 1 else grid}  # of several bindings each counts
        behind.add((_digest(source, values, scopes, bound), _digest(source, grids, scopes, bound)))
    return LaunchMeaning(passed={name: tuple(each) for name, each in passed.items()}, behind=frozenset(behind)) if found else None


def _given(binding: ast.AST) -> ast.AST:
    """What a statement gives the one name that it binds; else the statement."""
    if isinstance(binding, ast.Assign):
        one = len(binding.targets) == 1 and isinstance(binding.targets[0], ast.Name)
        return binding.value if one else binding
    return binding.value if isinstance(binding, (ast.AnnAssign, ast.NamedExpr)) and binding.value is not None else binding


def _digest(source: SourceFile, values: Mapping[str, ast.AST], scopes: Sequence[Scope], bound: Mapping[str, Sequence[ast.AST]]) -> str:
    """A digest of expressions around a launch, and of all that they are worked out from."""
    statements, names = _behind(list(values.values()), scopes, bound)
    trees = [*(f"{name}={ast.dump(value)}" for name, value in sorted(values.items())), *statements]
    trees += [tree for _, tree in meaning(source, names)]
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
            for name in {name for each in ast.walk(node) for name in bound_by(each)}:
                found.setdefault(name, []).extend(_head(node))
        elif isinstance(node, (ast.stmt, ast.NamedExpr)):
            for name in {name for each in ast.walk(node) for name in bound_by(each)}:
                found.setdefault(name, []).append(node)
    return found


def _head(node: ast.stmt) -> Iterator[ast.AST]:
    """What a block says before its statements."""
    return (each for each in ast.iter_child_nodes(node) if isinstance(each, (ast.expr, ast.withitem)))


def _behind(values: Sequence[ast.AST], scopes: Sequence[Scope], bound: Mapping[str, Sequence[ast.AST]]) -> tuple[list[str], set[str]]:
    """The syntax trees that decide what expressions around a launch are, in order, and the names among them that are the file's."""
    waiting = {name for value in values for name in _names(value)}
    seen: set[str] = set()
    deciding: dict[int, ast.AST] = {}
    while waiting:
        seen |= waiting
        fresh = {id(node): node for name in waiting for node in bound.get(name, ())}
        deciding |= fresh
        waiting = {name for node in fresh.values() for name in _names(node)} - seen
    ordered = sorted(deciding.values(), key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
    return [ast.dump(node) for node in ordered], seen - set(bound).union(*(arguments(scope) for scope in scopes))


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def changed_launch(old: LaunchMeaning | None, new: LaunchMeaning | None) -> str | None:
    """What changed in how a kernel is launched, in words; None: nothing, or one side does not launch it in its file."""
    if old is None or new is None or old.behind == new.behind:
        return None
    names = [name for name in dict.fromkeys([*old.passed, *new.passed]) if set(old.passed.get(name, ())) != set(new.passed.get(name, ()))]
    if names:
        return ", ".join(f"{_text(name, old)} → {_text(name, new)}" for name in names)
    if _only_more(old.behind, new.behind):  # a test or a benchmark, say, that passes what others pass
        return None
    of_grid = _only_more(*({constants for constants, _ in side.behind} for side in (old, new)))
    return f"what {', '.join(f'{name}={values[0]}' for name, values in new.passed.items() if (name == 'grid') == of_grid)} comes from"


def _only_more(one: Set[object], other: Set[object]) -> bool:
    return one <= other or other <= one


def _text(name: str, launch: LaunchMeaning) -> str:
    values = dict.fromkeys(launch.passed.get(name, ()))
    return f"{name}={' or '.join(values)}" if values else f"no {name}"
