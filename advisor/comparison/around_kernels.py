"""The functions of plain Python around kernels that a change touches. Of them launches, what these pass, and calls of torch beside them are
compared; what else they do is not, and a comparison names them so that nobody takes its silence for "nothing changed"."""

from __future__ import annotations

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from advisor.comparison.kernels.beside import by_another_name, came_or_went, functions_named, handed_on, launching_functions, of_torch
from advisor.comparison.kernels.importers import ODD, TESTS, Reading, is_source, located
from advisor.comparison.kernels.kernel_digest import undocumented, without_local_names
from advisor.comparison.trees.trees import Entry, FileChange, Tree
from advisor.python_source.bindings import Call, Definition, Function, functions_in, texts_in
from advisor.python_source.language import dotted
from advisor.python_source.source import SourceFile
from advisor.result.comparison_schema import ELSEWISE, WRITES
from advisor.system import grouped
from advisor.system.errors import AdvisorError

LARGEST_CHANGE = 200
"""Python files that are looked through: each takes some 20 ms."""
_CODE = re.compile(r"@triton\.jit|\btl\.(load|store)\(")
"""Code of a kernel within a text."""
KERNELS = re.compile(rb"triton|cutlass|tilelang")
"""Stands in every file that holds kernels, or that imports them from where they lie."""
LANGUAGES = {
    "cute.jit": "CuTe DSL",
    "cute.kernel": "CuTe DSL",
    "T.prim_func": "TileLang",
    "T.macro": "TileLang",
    "tilelang.jit": "TileLang",
}
"""Other languages of kernels, by their decorators; Gluon's are told with their file."""

HELPER = "new, called by kernels"
"""What is said of a function of Triton that nothing launches."""

Sides = tuple[SourceFile | None, SourceFile | None]


@dataclass(frozen=True, slots=True)
class Changed:
    """A function around kernels that a change touches.

    Attributes:
        title: `path::function`, or `path::Class.method`.
        word: "new", `HELPER`, "removed", "written in CuTe DSL" or of another language of kernels, the first and the last together; "": none
            of these.
        calls: Which calls of torch, and of functions that launch, came or went in it, in words; "": none.
        writes: Whether it writes code of kernels as text, which is not compared.
    """

    title: str
    word: str = ""
    calls: str = ""
    writes: bool = False

    def text(self, notes: Collection[str]) -> str:
        """As it is named beside the notes on the change."""
        name = self.title.rpartition("::")[2].rpartition(".")[2]
        noted = any(note.endswith(f", {name} {self.calls}.") for note in notes)
        more = "; ".join(filter(None, (self.word, WRITES * self.writes, "" if noted else self.calls)))
        return f"{self.title} ({more})" if more else self.title


def changed_functions(base: Tree, head: Tree, changed: Iterable[FileChange]) -> tuple[list[Changed], list[str]]:
    """The plain functions around kernels that a change touches: first those that both sides have and that call torch otherwise, then those
    that came and launch no kernel, then the others that differ, then those that went; of each first those of files that name Triton.
    Comments, docstrings, annotations and tests aside. Then what was left out, a sentence.

    Args:
        base, head: The trees.
        changed: Their files that differ; the first `LARGEST_CHANGE` of Python are looked at.
    """
    python = [change for change in changed if change.path.endswith(".py") and not TESTS.search(change.path)]
    files = {change.path: change for change in python[:LARGEST_CHANGE]}
    reading = (Reading(base), Reading(head))
    of_kernels = {path: _sides(reading, change) for path, change in files.items() if _names_kernels(base, head, change)}
    others = {path: _sides(reading, change) for path, change in files.items() if path not in of_kernels}
    imported = {*_imported(of_kernels, [*files])}
    others = {path: sides for path, sides in others.items() if path in imported or any(_imported({path: sides}, [*of_kernels]))}
    parts: tuple[list[Changed], list[Changed], list[Changed]] = ([], [], [])
    for path, sides in [*sorted(of_kernels.items()), *sorted(others.items())]:
        entries = (files[path].base, files[path].head)
        unread = any(entry is not None and side is None for entry, side in zip(entries, sides, strict=True))
        if unread or (None in sides and any(side is not None and side.definitions for side in sides)):
            continue  # it cannot be read, or kernels came or went with it: said elsewhere
        with contextlib.suppress(AdvisorError, *ODD):  # told where the file itself is compared
            for part, of_file in zip(parts, _of_file(path, *sides), strict=True):
                part += of_file
    came, differ, went = parts
    left = len(python) - len(files)
    warnings = [f"{left} changed Python files were not looked through for functions around kernels."] if left > 0 else []
    calling = [item for item in differ if item.calls]
    return [*calling, *came, *(item for item in differ if not item.calls), *went], warnings


def _of_file(path: str, old: SourceFile | None, new: SourceFile | None) -> tuple[list[Changed], list[Changed], list[Changed]]:
    """The functions of a file that came, differ and went."""
    before, after = _functions(old), _functions(new)
    counts = [
        Counter({name: len(items) for name, items in side.module_names.calls.items()}) if side is not None else Counter()
        for side in (old, new)
    ]
    otherwise = {name for name in counts[0] | counts[1] if counts[0][name] != counts[1][name]}
    launchers = _launchers(old, otherwise) | _launchers(new, otherwise)  # of either side: what no longer launches is still called
    calls = [_calls(side, launchers) for side in (old, new)]
    launching, former = _launching(new), old.definitions.keys() if old is not None else ()
    helpers = [{*side.definitions} - {*side.launchable} if side is not None else set[str]() for side in (old, new)]
    came = [Changed(f"{path}::{name}", HELPER) for name in sorted(helpers[1] - helpers[0]) if name not in former]
    fresh = [name for name in _whole(after, before) if name not in launching]
    came += [
        Changed(
            f"{path}::{name}", ", ".join(filter(None, ("new", _language(after.get(name, ()))))), came_or_went(Counter(), calls[1][name])
        )
        for name in fresh
    ]
    both = [name for name in after if name in before and _tree(old, before[name]) != _tree(new, after[name])]
    differ = [
        Changed(f"{path}::{name}", language, "" if language else came_or_went(calls[0][name], calls[1][name]), _writes(after[name]))
        for name, language in ((name, _language(after[name])) for name in both)
    ]
    return came, differ, [Changed(f"{path}::{name}", "removed") for name in _whole(before, after)]


def _language(functions: Sequence[Function]) -> str:
    """That functions are kernels of another language, or hold some, in words; "": of none of `LANGUAGES`."""
    inside = (inner for node in functions for inner in functions_in(node))
    decorators = (dotted(getattr(item, "func", item)) for node in inside for item in node.decorator_list)
    return next((f"{ELSEWISE} {LANGUAGES[name]}" for name in decorators if name in LANGUAGES), "")


def _launchers(source: SourceFile | None, names: Collection[str]) -> set[str]:
    """Those of some functions that a file calls which launch kernels."""
    if source is None:
        return set()
    here = launching_functions(source)
    return {name for name in names if name in here or any(there in launching_functions(file) for file, there in source.led(name))}


def _calls(source: SourceFile | None, launchers: Collection[str]) -> dict[str, Counter[str]]:
    """The calls of torch in each function of a file, by its name with its class, and of `launchers`; of calls of which one run makes one,
    one."""
    calls: dict[str, dict[str, list[Call]]] = defaultdict(lambda: defaultdict(list))
    if source is not None:
        graph = source.module_names
        for name, call in ((name, call) for name, items in graph.calls.items() for call in items):
            outer = [item for item in graph.above(call) if isinstance(item, Definition)]
            around = next((item for item in outer if isinstance(item, Function)), None)
            if around is not None and call not in around.decorator_list and not handed_on(graph, around, call):
                texts = [text for text in (of_torch(graph, name, call), *by_another_name(graph, around, name, call)) if text]
                texts += functions_named(graph, around, name, call, launchers)
                for text in texts:
                    calls[".".join(item.name for item in outer[: outer.index(around) + 1])][text].append(call)

    def at_once(made: Sequence[Call]) -> int:
        return max(sum(not graph.excludes(one, other) for other in made) for one in made)

    counts = {function: Counter({text: at_once(made) for text, made in texts.items()}) for function, texts in calls.items()}
    return defaultdict(Counter, counts)


def _writes(functions: Sequence[Function]) -> bool:
    """Whether functions hold code of kernels as text: `code.writeline("@triton.jit")`."""
    return any(_CODE.search(text) for node in functions for text in texts_in(node))


def _names_kernels(base: Tree, head: Tree, change: FileChange) -> bool:
    sides = ((base, change.base), (head, change.head))
    return any(entry is not None and is_source(entry) and KERNELS.search(tree.read(entry)) for tree, entry in sides)


def _sides(reading: tuple[Reading, Reading], change: FileChange) -> Sides:
    def side(of: Reading, entry: Entry | None) -> SourceFile | None:
        with contextlib.suppress(AdvisorError):
            return of.file(entry) if entry is not None and is_source(entry) else None
        return None

    return side(reading[0], change.base), side(reading[1], change.head)


def _imported(files: dict[str, Sides], paths: Sequence[str]) -> Iterator[str]:
    """Which of some paths the heads of files import."""
    for path, (_, new) in files.items():
        with contextlib.suppress(AdvisorError, *ODD):
            imports = [item for items in new.module_names.imports.values() for item in items] if new is not None else []
            yield from (place for item in imports if (place := located(paths, path, item)) is not None)


def _functions(source: SourceFile | None) -> dict[str, list[Function]]:
    """The functions that stand in no other one, by their names with their classes; those of Triton aside."""
    if source is None:
        return {}
    graph = source.module_names
    functions = []
    for node in (item for item in graph.nodes if isinstance(item, Function)):
        above = [item for item in graph.above(node) if isinstance(item, Definition)]
        if any(isinstance(item, Function) for item in above) or node in source.definitions.get(node.name, ()):
            continue
        if any(dotted(getattr(item, "func", item)).endswith("jit") for item in node.decorator_list) and not _language([node]):
            continue  # Gluon's, or of a compiler of the host's
        functions.append((".".join([*(item.name for item in above), node.name]), node))
    return grouped(functions)


def _tree(source: SourceFile | None, functions: Sequence[Function]) -> str:
    """What functions of one name do, but for their launches of kernels, which are compared as such."""
    graph = source.module_names if source is not None else None
    launches = [call for _, call in graph.launches if not set(functions).isdisjoint(graph.above(call))] if graph is not None else []
    whole = "\x1d".join(without_local_names([undocumented(node) for node in functions], set()))
    for text in without_local_names(launches, set()):
        whole = whole.replace(text, "launch")
    return whole


def _whole(one: Iterable[str], other: Collection[str]) -> list[str]:
    """The functions that one side alone has; of a class that it alone has, the class."""
    classes = {name.rpartition(".")[0] for name in other}
    names = dict.fromkeys(
        name if name.rpartition(".")[0] in classes else name.rpartition(".")[0] or name for name in one if name not in other
    )
    return [*names]


def _launching(source: SourceFile | None) -> set[str]:
    """The functions, and classes, that launch kernels."""
    if source is None:
        return set()
    graph = source.module_names
    names = set()
    for _, call in graph.launches:
        outer = [item.name for item in graph.above(call) if isinstance(item, Definition)]
        names |= {".".join(outer[:count]) for count in range(1, len(outer) + 1)}
    return names
