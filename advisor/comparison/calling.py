"""Files that call a function of another one which launches a kernel, `invoke(x, config)`: what they pass it is as much of the launch as
what the function itself passes on."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from advisor.comparison.callers import passed
from advisor.comparison.launch_meaning import SPREAD, LaunchMeaning, difference, ways, written
from advisor.comparison.launch_steps import digest, followed, surrounding
from advisor.comparison.launching import Launching, launches_elsewhere, own_launches
from advisor.comparison.objects import Function
from advisor.configs.bindings import scopes_around
from advisor.configs.jit_function import JitFunction
from advisor.configs.literals import dotted
from advisor.configs.source import SourceFile


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingFile:
    """A file that calls functions of another one.

    Attributes:
        where: Its path.
        source: The file.
        of: The path of the other one.
        names: What it calls, as it names that, with the function's name in the other one: {"ops.invoke": "invoke"}.
    """

    where: str
    source: SourceFile
    of: str
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingFiles:
    """The files that call functions which launch some kernels; and by path the files of these functions, but for the kernels' own."""

    files: Sequence[CallingFile] = ()
    called: Mapping[str, SourceFile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling:
    """A function that launches a kernel, and a file that calls it.

    Attributes:
        file: The one that calls it.
        function: What it calls.
        handed: The function's arguments that come to the launch.
    """

    file: CallingFile
    function: Function
    handed: frozenset[str]

    def meaning(self) -> LaunchMeaning:
        """What the file's calls come down to, by the function's arguments."""
        source = self.file.source
        shown: dict[str, list[str]] = {}
        behind: Counter[tuple[tuple[str, str], ...]] = Counter()
        around = surrounding(source.tree)
        names = {name for name, called in self.file.names.items() if called == self.function.name}
        for call in calls_of(source.tree):
            if dotted(call.func) not in names:
                continue
            values = dict(_given(self.function, call, self.handed))
            for name, value in values.items():
                shown.setdefault(name, []).append(written(value))
            for path in around.callers.paths((scopes_around(source.scopes, call), call)):
                way = [around.steps.of(*step) for step in path]
                digests = ((name, digest(source, [value], way, around.objects, launch=False)) for name, value in values.items())
                behind[tuple(sorted(digests))] += 1
        return LaunchMeaning(passed={name: tuple(each) for name, each in shown.items()}, behind=behind)


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


def callings(source: SourceFile, kernel: JitFunction, known: CallingFiles, backend: str | None = None) -> list[Calling]:
    """The calls by which files get to the launches of a kernel.

    Args:
        source: The file of the kernel.
        kernel: The kernel.
        known: The files that call functions which may launch it.
        backend: Of the target, where that is known.
    """
    handed: dict[str, list[tuple[Function, set[str]]]] = {}
    for of in {file.of for file in known.files}:
        called = known.called.get(of)
        elsewhere = launches_elsewhere([(of, called.on(backend))]) if called is not None else {}
        found = own_launches(source, kernel.name) if called is None else elsewhere.get((source.path, kernel.name), ())
        handed[of] = [each for launching in found for each in _handed(kernel, launching)]
    return [Calling(file=file, function=function, handed=frozenset(asked))
            for file in known.files for function, asked in handed[file.of] if asked and function.name in file.names.values()]  # fmt: skip


def _handed(kernel: JitFunction, launching: Launching) -> list[tuple[Function, set[str]]]:
    """The functions of a file that lead to its launches of a kernel, each with its arguments that come to them."""
    found: dict[int, tuple[Function, set[str]]] = {}
    top = {id(node) for node in launching.source.tree.body}
    for way in ways(kernel, launching):
        for path in way.paths:
            for each in followed(list(way.values.values()), path):
                if each.function is not None and id(each.function) in top:
                    found.setdefault(id(each.function), (each.function, set()))[1].update(each.asked)
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCall:
    """A file that calls a function which launches a kernel otherwise than it did."""

    where: str
    function: str
    said: str


def changed_calls(old: Sequence[Calling], new: Sequence[Calling]) -> list[ChangedCall]:
    """What changed in how files come to the launches of a kernel; what calls it besides, or no longer does, changes no launch."""
    before = {(each.file.where, each.function.name): each for each in old}
    found = []
    for each in new:
        former = before.get((each.file.where, each.function.name))
        if former is None:
            continue
        said = difference(former.meaning(), each.meaning())
        if said is not None:
            found.append(ChangedCall(where=each.file.where, function=each.function.name, said=said))
    return found
