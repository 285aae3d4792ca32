"""Files that call a function of another one which launches a kernel, `invoke(x, config)`: what they pass it is as much of the launch as
what the function itself passes on."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from advisor.comparison.kernels.callers import defaults, is_applied, passed
from advisor.comparison.kernels.launch_digest import BEHIND, SPREAD, LaunchMeaning, cause, difference, ways, written
from advisor.comparison.kernels.launch_steps import Step, digest, followed, parts, surrounding
from advisor.comparison.kernels.launching import launches_elsewhere, own_launches
from advisor.comparison.kernels.objects import Function, methods_of
from advisor.comparison.trees import git
from advisor.python_source.bindings import scopes_around
from advisor.python_source.imported import MOST_HANDS
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.source import SourceFile


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingFile:
    """A file that calls functions of another one.

    Attributes:
        where: Its path.
        source: The file.
        whole: Reads the file with all that it imports.
        of: The path of the other one.
        names: What it calls, as it names that, with the function's name in the other one: {"ops.invoke": "invoke"}.
        compared: Whether what it passes may have changed; else it hands on what others pass.
    """

    where: str
    source: SourceFile
    whole: Callable[[], SourceFile]
    of: str
    names: Mapping[str, str]
    compared: bool = True

    def ways(
        self, known: str, function: Function, handed: Iterable[str]
    ) -> Iterator[tuple[ast.Call, dict[str, ast.expr], Sequence[Sequence[Step]]]]:
        """Each of its calls of a function that is `known` so, what that gives some arguments, and the calls by which one gets there within
        the file."""
        around = surrounding(self.source.tree)
        for name in (name for name, called in self.names.items() if called == known):
            for call in around.calls.get(name, ()):
                paths = around.callers.paths((scopes_around(self.source.scopes, call), call))
                yield call, dict(_given(function, call, handed)), [[around.steps.of(*step) for step in path] for path in paths]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingFiles:
    """The files that call functions which lead to launches of some kernels; and by path the files of these functions, but for the kernels'
    own."""

    files: Sequence[CallingFile] = ()
    called: Mapping[str, SourceFile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling:
    """A function that launches a kernel, and a file that calls it.

    Attributes:
        file: The one that calls it.
        name: That of what it calls: `Softmax.forward` where that is a method.
        function: What it calls.
        defining: The file of that.
        handed: The function's arguments that come to the launch.
    """

    file: CallingFile
    name: str
    function: Function
    defining: SourceFile
    handed: frozenset[str]

    def meanings(self) -> tuple[LaunchMeaning, LaunchMeaning]:
        """What the file's calls come down to, by the function's arguments: by all, and without those that are left to their defaults."""
        source = self.file.whole()
        shown: tuple[dict[str, list[str]], dict[str, list[str]]] = ({}, {})
        behind: tuple[Counter[tuple[tuple[str, str], ...]], ...] = (Counter(), Counter())
        objects = surrounding(self.file.source.tree).objects
        for call, values, paths in self.file.ways(self.name, self.function, self.handed):
            left = [(each.arg or "", each.value) for each in defaults(self.function, call, self.handed)]
            for name, value in values.items():
                for each in shown:
                    each.setdefault(name, []).append(written(value))
            for name, value in left:
                shown[0].setdefault(name, []).append(written(value))
            by_default = [(name, digest(self.defining, [value], [])) for name, value in left]
            for path in paths:
                given = [(name, digest(source, [value], path, objects, launch=False)) for name, value in values.items()]
                behind[0][tuple(sorted([*by_default, *given]))] += 1
                behind[1][tuple(sorted(given))] += 1
        whole, alone = (
            LaunchMeaning(passed={name: tuple(each) for name, each in passed.items()}, behind=counted)
            for passed, counted in zip(shown, behind, strict=True)
        )
        return whole, alone

    def parts(self) -> Iterator[tuple[ast.AST | str, str]]:
        """The same, piece by piece."""
        source = self.file.whole()
        objects = surrounding(self.file.source.tree).objects
        for call, values, paths in self.file.ways(self.name, self.function, self.handed):
            left = list(defaults(self.function, call, self.handed))
            yield from ((each, ast.dump(each)) for each in left)
            yield from parts(self.defining, [each.value for each in left], [])
            for path in paths:
                yield from parts(source, list(values.values()), path, objects, launch=False)


def _given(function: Function, call: ast.Call, handed: Iterable[str]) -> Iterator[tuple[str, ast.expr]]:
    """What a call gives those of a function's arguments; `**options` under `SPREAD`."""
    spread = [keyword.value for keyword in call.keywords if keyword.arg is None]
    for name in sorted(handed):
        found = [value for value in passed(function, call, name) if value not in spread]
        if found:
            yield name, found[0]
    if spread:
        yield SPREAD, spread[0]


def calls_of(tree: ast.AST) -> Iterator[ast.Call]:
    """The calls of a file."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def named_functions(node: ast.stmt) -> Iterator[tuple[str, Function]]:
    """What other files may call of a statement of a file: a function, or by `apply` what a `torch.autograd.Function` does."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name, node
    elif isinstance(node, ast.ClassDef):
        yield from ((f"{node.name}.forward", method) for method in methods_of(node) if is_applied(method))


def callings(source: SourceFile, kernel: JitFunction, known: CallingFiles, backend: str | None = None) -> list[Calling]:
    """The calls by which files get to the launches of a kernel.

    Args:
        source: The file of the kernel.
        kernel: The kernel.
        known: The files that call functions which may launch it.
        backend: Of the target, where that is known.
    """
    handed: dict[str, Handed] = {}
    for of in {file.of for file in known.files}:
        called = known.called.get(of)
        elsewhere = launches_elsewhere([(of, called.on(backend))]) if called is not None else {}
        found = own_launches(source, kernel.name) if called is None else elsewhere.get((source.path, kernel.name), ())
        ways_there = [(list(way.values.values()), way.paths) for launching in found for way in ways(kernel, launching)]
        handed[of] = _handed(called or source, ways_there)
    for _ in range(MOST_HANDS):
        grown = False
        for file in known.files:
            for name, (function, asked) in list(handed[file.of].items()) if file.where in handed else ():
                ways_there = [(list(values.values()), paths) for _, values, paths in file.ways(name, function, asked)]
                grown |= _unite(handed[file.where], _handed(file.source, ways_there, launch=False))
        if not grown:
            break
    return [
        Calling(file=file, name=name, function=function, defining=known.called.get(file.of, source), handed=frozenset(asked))
        for file in known.files
        if file.compared
        for name, (function, asked) in handed[file.of].items()
        if asked and name in file.names.values()
    ]


Handed = dict[str, tuple[Function, set[str]]]
"""The functions of a file that lead to launches of a kernel, by name, each with its arguments that come to them."""


def _handed(source: SourceFile, ways_there: Iterable[tuple[Sequence[ast.AST], Sequence[Sequence[Step]]]], *, launch: bool = True) -> Handed:
    """Those that follow from expressions and the calls by which one gets to where they stand: launches (`launch`), or calls of what leads
    to them in other files."""
    found: Handed = {}
    top = {id(function): name for node in source.tree.body for name, function in named_functions(node)}
    for values, paths in ways_there:
        for path in paths:
            for each in followed(values, path, launch=launch):
                if each.function is not None and id(each.function) in top:
                    found.setdefault(top[id(each.function)], (each.function, set()))[1].update(each.asked)
    return found


def _unite(known: Handed, more: Handed) -> bool:
    """Add what more is known of a file's functions; whether there was any."""
    before = sum(len(asked) for _, asked in known.values())
    for name, (function, asked) in more.items():
        known.setdefault(name, (function, set()))[1].update(asked)
    return sum(len(asked) for _, asked in known.values()) > before


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCall:
    """A file that calls a function which launches a kernel otherwise than it did; `behind`: what that comes from, where the call itself
    does not show it."""

    where: str
    function: str
    said: str
    behind: str = ""


def _paired(old: Sequence[Calling], new: Sequence[Calling]) -> Iterator[tuple[Calling, Calling]]:
    """The calls of a file and what they were: of the same file, of one of its name that lies elsewhere now, or of a function that was
    called something else and is given the same."""
    before, after = ({(each.file.where, each.name): each for each in side} for side in (old, new))
    yield from ((before[key], each) for key, each in after.items() if key in before)
    lost, gained = ([each for key, each in one.items() if key not in other] for one, other in ((before, after), (after, before)))
    alike = (lambda each: (PurePosixPath(each.file.where).name, each.name), lambda each: (each.file.where, each.handed))
    for of in alike:
        for each in list(gained):
            mates, rivals = ([one for one in side if of(one) == of(each)] for side in (lost, gained))
            if len(mates) == len(rivals) == 1:
                yield mates[0], each
                lost.remove(mates[0])
                gained.remove(each)


def changed_calls(old: Sequence[Calling], new: Sequence[Calling], told: Collection[str]) -> list[ChangedCall]:
    """What changed in how files come to the launches of a kernel; what calls it besides, or no longer does, changes no launch.

    Another default of what a file calls is told with that file, where it has part in a launch of its own (`told`: the files of which that
    is said already).
    """
    found: list[ChangedCall] = []
    by_default: list[tuple[str, ChangedCall]] = []
    known_causes: dict[str, str] = {}  # where one change reaches many files, the first is looked into
    for former, each in _paired(old, new):
        try:
            (old_whole, old_alone), (new_whole, new_alone) = former.meanings(), each.meanings()
        except git.PartialCloneError:
            continue  # what they import besides is not here
        said = difference(old_whole, new_whole)
        if said is None:
            continue
        if BEHIND in said and said not in known_causes:
            known_causes[said] = cause(former.parts(), each.parts())
        call = ChangedCall(where=each.file.where, function=each.name, said=said, behind=known_causes.get(said, ""))
        if difference(old_alone, new_alone) is not None:
            found.append(call)
        else:
            by_default.append((each.file.of, call))
    known = {*told, *(each.where for each in found)}
    return [*found, *(call for of, call in by_default if of not in known)]
