"""How a file launches a kernel: the constants and options that it passes, and what these are worked out from."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor.comparison.kernels.launch_steps import Step, digest, parts, surrounding
from advisor.comparison.kernels.launching import Launching
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.launch_forms import grid_of
from advisor.result.schema import LAUNCH_OPTIONS

LONGEST = 80
"""Characters that are shown of an expression."""
MOST_CAUSES = 3
"""Pieces that are named of what a launch comes from."""
BEHIND = "comes from"
"""Ends a difference that does not show in the launch itself."""
SPREAD, TUNING = "**", "@"
"""Among what launches pass: `**options`, and the decorators that another file than the kernel's applies to it."""
Launched = tuple[JitFunction, Sequence[Launching]]
"""A version of a kernel, and the files that launch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchMeaning:
    """The launches of a kernel in a file.

    Attributes:
        passed: By option and constant, the expressions that the launches pass for it, as they are written; "grid", `SPREAD` and `TUNING`
            are among them.
        behind: Of each launch, by the same, digests of the syntax trees of these expressions with all that they are worked out from,
            whatever a function calls its own variables; as often as a launch of them is come to.
    """

    passed: Mapping[str, tuple[str, ...]]
    behind: Counter[tuple[tuple[str, str], ...]]

    def digests(self, name: str) -> set[str]:
        """Of what the launches pass for an option or constant."""
        return {digest for launch in self.behind for each, digest in launch if each == name}


Parts = Iterable[tuple[ast.AST | str, str]]
"""What launches come down to, piece by piece (`parts`)."""


def launch_parts(function: JitFunction, launching: Launching) -> Iterator[tuple[ast.AST | str, str]]:
    """What a file's launches of a kernel come down to, piece by piece."""
    objects = surrounding(launching.source.tree).objects
    if launching.tuning is not None:
        yield from parts(*launching.tuning, [])
    for each in ways(function, launching):
        for path in each.paths:
            yield from parts(launching.source, list(each.values.values()), path, objects)


def cause(old: Parts, new: Parts) -> str:
    """Which pieces differ, in words: statements as they are written, functions and constants of files by name; empty: none by its text."""
    sides: list[tuple[dict[str, None], set[tuple[str, str]]]] = []
    for side in (old, new):
        statements: dict[str, None] = {}
        named: set[tuple[str, str]] = set()
        for piece, tree in side:
            if isinstance(piece, str):
                named.add((piece, tree))
            else:
                statements.setdefault(written(piece))
        sides.append((statements, named))
    (before, old_named), (after, new_named) = sides
    gone, came = ([each for each in one if each not in other] for one, other in ((before, after), (after, before)))
    if len(gone) != len(came):
        gone, came = [", ".join(gone[:MOST_CAUSES])], [", ".join(came[:MOST_CAUSES])]
    said = [f"{one or 'nothing'} → {other or 'nothing'}" for one, other in zip(gone, came, strict=True)]
    said += sorted({name for name, _ in old_named ^ new_named})
    return ", ".join(said[:MOST_CAUSES]) + (", …" if len(said) > MOST_CAUSES else "")


def launch_meaning(function: JitFunction, launching: Launching) -> LaunchMeaning:
    """What a file's launches of a kernel come down to."""
    source = launching.source
    passed: dict[str, list[str]] = {}
    behind: Counter[tuple[tuple[str, str], ...]] = Counter()
    objects = surrounding(source.tree).objects
    for each in ways(function, launching):
        for name, node in each.shown.items():
            passed.setdefault(name, []).append(written(node))
        tuning: dict[str, str] = {}
        if launching.tuning is not None:
            file, layers = launching.tuning
            passed[TUNING] = [" ".join(map(written, layers))]
            tuning[TUNING] = digest(file, layers, [])
        for path in each.paths:
            digests = ((name, digest(source, [node], path, objects)) for name, node in each.values.items())
            behind[tuple(sorted([*tuning.items(), *digests]))] += 1
    return LaunchMeaning(passed={name: tuple(each) for name, each in passed.items()}, behind=behind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """One launch: what it passes by option and constant, "grid" and `SPREAD` among them, how that is shown, and the calls that lead to it,
    on each way."""

    values: Mapping[str, ast.AST]
    shown: Mapping[str, ast.AST]
    paths: Sequence[Sequence[Step]]


def ways(function: JitFunction, launching: Launching) -> Iterator[Ways]:
    """The launches of a kernel in a file."""
    parameters = function.parameters
    tunable = {*(each.name for each in parameters if each.is_constexpr), *LAUNCH_OPTIONS}
    around = surrounding(launching.source.tree)
    for scopes, call in launching.calls:
        positional = () if any(isinstance(each, ast.Starred) for each in call.args) else call.args
        given = [*zip((each.name for each in parameters), positional, strict=False), *((k.arg, k.value) for k in call.keywords if k.arg)]
        values: dict[str, ast.AST] = {name: value for name, value in given if name in tunable}
        paths = [[around.steps.of(*step) for step in path] for path in around.callers.paths((scopes, call))]
        bound, grid = paths[0][0].bound, grid_of(call)
        bindings = bound.get(grid.id, []) if isinstance(grid, ast.Name) else []
        shown = _given(bindings[-1]) if bindings else grid
        spread: list[ast.expr] = [k.value for k in call.keywords if k.arg is None]
        if spread:
            values[SPREAD] = spread[0] if len(spread) == 1 else ast.Tuple(elts=spread, ctx=ast.Load())
        one = shown if len(bindings) <= 1 else grid  # of several bindings each counts
        yield Ways(values={**values, "grid": one}, shown={**values, "grid": shown}, paths=paths)


def _given(binding: ast.AST) -> ast.AST:
    """What a statement gives the one name that it binds; else the statement."""
    if isinstance(binding, ast.Assign):
        one = len(binding.targets) == 1 and isinstance(binding.targets[0], ast.Name)
        return binding.value if one else binding
    return binding.value if isinstance(binding, (ast.AnnAssign, ast.NamedExpr)) and binding.value is not None else binding


def written(node: ast.AST) -> str:
    """An expression as it is shown; of a function, as grids are, what it returns."""
    if isinstance(node, ast.FunctionDef) and isinstance(last := node.body[-1], ast.Return) and last.value is not None:
        node = last.value
    try:
        text = " ".join(ast.unparse(node).split())
    except RecursionError:  # deeper than Python follows
        return "…"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedLaunch:
    """A file that launches a kernel otherwise than it did, or than the file did that it was launched in before; and the change in words;
    `behind`: what that comes from, where the launch itself does not show it."""

    old: Launching
    new: Launching
    said: str
    behind: str = ""


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
    meanings = ((one, other, difference(launch_meaning(old[0], one), launch_meaning(new[0], other))) for one, other in pairs)
    known: dict[str, str] = {}  # where one change reaches many files, the first is looked into
    found = []
    for one, other, said in meanings:
        if said is None:
            continue
        if BEHIND in said and said not in known:
            known[said] = cause(launch_parts(old[0], one), launch_parts(new[0], other))
        found.append(ChangedLaunch(old=one, new=other, said=said, behind=known.get(said, "")))
    return found


def difference(old: LaunchMeaning, new: LaunchMeaning) -> str | None:
    """What changed in how a file launches a kernel, in words; None: nothing."""
    if old.behind.keys() == new.behind.keys():
        return None
    names = [name for name in dict.fromkeys([*old.passed, *new.passed]) if old.digests(name) != new.digests(name)]
    rewritten = [name for name in names if set(old.passed.get(name, ())) != set(new.passed.get(name, ()))]
    if not rewritten and _only_more(old.behind, new.behind):  # a test or a benchmark, say, that passes what others pass
        return None
    said = ", ".join(f"{_text(name, old.passed.get(name, ()))} → {_text(name, new.passed.get(name, ()))}" for name in rewritten)
    rest = [name for name in names or new.passed if name not in rewritten]
    rest = [name for name in rest if name != "grid"] or ([] if rewritten else rest)  # the grid depends on constants more often than not
    behind = f"what {', '.join(_text(name, new.passed[name][:1]) for name in rest)} {BEHIND}" if rest else ""
    return ", and ".join(filter(None, (said, behind)))


def _only_more(one: Counter[tuple[tuple[str, str], ...]], other: Counter[tuple[tuple[str, str], ...]]) -> bool:
    return one <= other or other <= one


def _text(name: str, passed: Sequence[str]) -> str:
    values = " or ".join(dict.fromkeys(passed))
    if name in (SPREAD, TUNING):
        return f"{name if name == SPREAD else ''}{values}" if values else f"no {'**options' if name == SPREAD else 'autotuning'}"
    return f"{name}={values}" if values else f"no {name}"
