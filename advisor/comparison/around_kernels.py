"""The functions of plain Python around kernels that a change touches. Of them launches, what these pass, and calls are compared as they are
written; what else they do is not, and a comparison names them so that nobody takes its silence for "nothing changed"."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.comparison.kernels.beside import calls_changed
from advisor.comparison.kernels.importers import ODD, TESTS, Reading, is_source
from advisor.comparison.kernels.kernel_digest import helpers_renamed, leads, meaning, undocumented, without_local_names
from advisor.comparison.trees.trees import Entry, FileChange, Tree
from advisor.python_source.bindings import Call, Definition, Function, functions_in, names_in, texts_in
from advisor.python_source.language import dotted
from advisor.python_source.module_names import ModuleNames
from advisor.python_source.source import SourceFile
from advisor.result.comparison_schema import ELSEWISE, WRITES
from advisor.system import grouped
from advisor.system.errors import AdvisorError

LARGEST_CHANGE = 200
"""Python files that are looked through: each takes some 20 ms."""
HANDS = 3
"""Calls from what is around a kernel to what launches it: of a layer's `forward`, a function, and its operator's `forward`, say."""
_CODE = re.compile(r"@triton\.jit|\btl\.(load|store)\(")
"""Code of a kernel within a text."""
LANGUAGES = {
    "cute.jit": "CuTe DSL",
    "cute.kernel": "CuTe DSL",
    "T.prim_func": "TileLang",
    "T.macro": "TileLang",
    "tilelang.jit": "TileLang",
}
"""Other languages of kernels, by their decorators; Gluon's are told with their file."""

HELPER, DECORATED = "new, a helper of kernels", "its decorators are given something else, which is not compared"
"""What is said of functions of Triton that nothing launches."""

Sides = tuple[SourceFile | None, SourceFile | None]


@dataclass(frozen=True, slots=True)
class Changed:
    """A function around kernels that a change touches.

    Attributes:
        title: `path::function`, or `path::Class.method`.
        word: "new", `HELPER`, "removed", "moved from PATH", "written in CuTe DSL" or of another language of kernels, the first and the last
            together; "": none of these.
        calls: Which calls came or went in it, in words (`calls_changed`); "": none.
        writes: Whether it writes code of kernels as text, which is not compared.
        launches: Whether it launches kernels itself.
    """

    title: str
    word: str = ""
    calls: str = ""
    writes: bool = False
    launches: bool = False

    @property
    def text(self) -> str:
        """As it is named: `path::function (new): now calls …`."""
        more = "; ".join(filter(None, (self.word, WRITES * self.writes)))
        return f"{self.title}{f' ({more})' * bool(more)}{f': {self.calls}' * bool(self.calls)}"


Place = tuple[str, str]
"""A file, and a function of it by its name with its class."""
Version = tuple[SourceFile, list[Function]]
"""A file that was read, and the functions of one name in it."""


def changed_functions(base: Tree, head: Tree, changed: Iterable[FileChange]) -> tuple[list[Changed], list[str]]:
    """The plain functions around kernels that a change touches: first those that both sides have and that make other calls, of these those
    that launch, then those that came, then the others that differ, then those that went. Comments, docstrings, annotations and tests
    aside. Then what was left out, a sentence.

    Args:
        base, head: The trees.
        changed: Their files that differ; the first `LARGEST_CHANGE` of Python are looked at.
    """
    python = [change for change in changed if change.path.endswith(".py") and not TESTS.search(change.path)]
    files = {change.path: change for change in python[:LARGEST_CHANGE]}
    reading = (Reading(base), Reading(head))
    read = {path: _sides(reading, change) for path, change in sorted(files.items())}
    near = _near(side for sides in read.values() for side in sides if side is not None)
    versions: tuple[dict[Place, Version], dict[Place, Version]] = ({}, {})
    came: list[Changed] = []
    for path, sides in read.items():
        entries = (files[path].base, files[path].head)
        if any(entry is not None and side is None for entry, side in zip(entries, sides, strict=True)):
            continue  # it cannot be read
        with contextlib.suppress(AdvisorError, *ODD):  # told where the file itself is compared
            for side, functions in zip(sides, versions, strict=True):
                functions |= {
                    (path, name): (side, nodes)
                    for name, nodes in _functions(side).items()
                    if side is not None and ((path, name) in near or _language(nodes) or _writes(nodes))
                }
            if sides[0] is not None and sides[1] is not None:
                helpers = [{*side.definitions} - {*side.launchable} for side in sides if side is not None]
                former = helpers_renamed(sides[0], sides[1])
                fresh_helpers = sorted(helpers[1] - helpers[0] - sides[0].definitions.keys())
                words = [f"was {former[name]}" if name in former else HELPER for name in fresh_helpers]
                came += [Changed(f"{path}::{name}", word) for name, word in zip(fresh_helpers, words, strict=True)]
                came += _decorated_otherwise(path, sides[0], sides[1], helpers[0] & helpers[1])
    before, after = versions
    places = _places(before, after)
    fresh, gone = _whole(after, {*before, *places}), _whole(before, {*after, *places.values()})
    for path, name in fresh:
        with contextlib.suppress(AdvisorError, *ODD):
            methods = [place for place in after if place[0] == path and place[1].startswith(f"{name}.")]  # of a class
            texts = {place: calls_changed(None, (after[place][0].module_names, after[place][1][-1])) for place in methods or [(path, name)]}
            language = _language(after[path, name][1]) if not methods else ""
            named = {place: text for place, text in texts.items() if text} if methods else texts
            came += [Changed("::".join(place), ", ".join(filter(None, ("new", language))), text) for place, text in named.items()]
            came += [Changed(f"{path}::{name}", "new")] if not named else []
    differ = []
    for place, was in places.items():
        with contextlib.suppress(AdvisorError, *ODD):
            (old, old_nodes), (new, nodes) = before[was], after[place]
            moved = f"moved from {was[0]}" if was[0] != place[0] else f"was {was[1]}" if was != place else ""
            if not moved and _tree(old, old_nodes, launches=True) == _tree(new, nodes, launches=True):
                continue
            language = _language(nodes)
            pairs = zip(old_nodes, nodes, strict=True) if len(old_nodes) == len(nodes) else [(old_nodes[-1], nodes[-1])]
            of_pairs = [calls_changed((old.module_names, one), (new.module_names, other)) for one, other in pairs]
            calls = "" if language else "; defined again, it ".join(dict.fromkeys(filter(None, of_pairs)))
            if moved or calls or _tree(old, old_nodes) != _tree(new, nodes):
                launches = any(nodes[-1] in new.module_names.above(call) for _, call in new.module_names.launches)
                differ.append(Changed("::".join(place), ", ".join(filter(None, (moved, language))), calls, _writes(nodes), launches))
    left = len(python) - len(files)
    warnings = [f"{left} changed Python files were not looked through for functions around kernels."] if left > 0 else []
    went = [Changed(f"{path}::{name}", "removed") for path, name in gone]
    calling = sorted((item for item in differ if item.calls), key=lambda item: not item.launches)
    return [*calling, *sorted(came, key=lambda item: not item.calls), *(item for item in differ if not item.calls), *went], warnings


def _decorated_otherwise(path: str, old: SourceFile, new: SourceFile, names: Iterable[str]) -> Iterator[Changed]:
    """Those of some functions of Triton whose decorators are given something else, also by names of the file: libraries make kernels of
    them."""

    def decorators(source: SourceFile, name: str) -> tuple[Any, ...]:
        every = source.definitions[name][-1].decorator_list
        inside = [item for item in every if not dotted(getattr(item, "func", item)).endswith("jit")]
        behind = meaning(source, names_in(*inside) - source.module_names.triton_roots, kernels=False, imports=False)
        return without_local_names(inside, set()), behind

    differ = (name for name in sorted(names) if decorators(old, name) != decorators(new, name))
    yield from (Changed(f"{path}::{name}", DECORATED) for name in differ)


def _places(before: dict[Place, Version], after: dict[Place, Version]) -> dict[Place, Place]:
    """Where functions of the head lay in the base: in the same file, or in the one that alone has lost one of the name; of several that
    gained one the first that is written as it was."""
    lost, gained = (
        grouped((name, path) for path, name in one if (path, name) not in other) for one, other in ((before, after), (after, before))
    )
    moved: dict[Place, Place] = {}
    alone = ([place for place in one if place not in other] for one, other in ((before, after), (after, before)))
    codes = [grouped((_code(side, place), place) for place in places) for side, places in zip((before, after), alone, strict=True)]
    for code in codes[0].keys() & codes[1]:  # by another name in the same file
        if code[1] and len(codes[0][code]) == len(codes[1][code]) == 1:
            moved[codes[1][code][0]] = codes[0][code][0]
    for name in sorted(lost.keys() & gained):
        was = _code(before, (lost[name][0], name))[1]
        same = [path for path in gained[name] if len(gained[name]) == 1 or _code(after, (path, name))[1] == was]
        moved |= {(path, name): (lost[name][0], name) for path in same[:1] if len(lost[name]) == 1}
    return {place: place if place in before else moved[place] for place in after if place in before or place in moved}


def _code(versions: dict[Place, Version], place: Place) -> tuple[str, str]:
    """The file of a function, and what that does, whatever it is called; "": it cannot be followed."""
    with contextlib.suppress(AdvisorError, *ODD):
        return place[0], _tree(*versions[place], launches=True, named=False)
    return place[0], ""


def _language(functions: Sequence[Function]) -> str:
    """That functions are kernels of another language, or hold some, in words; "": of none of `LANGUAGES`."""
    inside = (inner for node in functions for inner in functions_in(node))
    decorators = (dotted(getattr(item, "func", item)) for node in inside for item in node.decorator_list)
    return next((f"{ELSEWISE} {LANGUAGES[name]}" for name in decorators if name in LANGUAGES), "")


def _writes(functions: Sequence[Function]) -> bool:
    """Whether functions hold code of kernels as text: `code.writeline("@triton.jit")`."""
    return any(_CODE.search(text) for node in functions for text in texts_in(node))


def _sides(reading: tuple[Reading, Reading], change: FileChange) -> Sides:
    def side(of: Reading, entry: Entry | None) -> SourceFile | None:
        with contextlib.suppress(AdvisorError):
            return of.file(entry) if entry is not None and is_source(entry) else None
        return None

    return side(reading[0], change.base), side(reading[1], change.head)


def _near(sources: Iterable[SourceFile]) -> set[Place]:
    """The functions of files, and of those that these import something from which they call, that launch kernels, those that call these,
    `HANDS` times removed, and those that launching ones call; and the classes of these."""
    launching, launchers = set[Place](), set[Place]()
    calling: dict[Place, set[Place]] = {}
    for source in sources:
        with contextlib.suppress(AdvisorError, *ODD):
            graph = source.module_names
            imports = {**graph.inner_imports, **graph.imports}
            roots = {dotted(call.func).partition(".")[0] for calls in graph.calls.values() for call in calls}
            led = {name: [*source.led(name, imports.get(name))] for name in roots if name in imports or graph.stars}
            launching |= {(source.path.as_posix(), name) for name, nodes in _functions(source).items() if _language(nodes)}
            leading = {name: [led_to for item in imports[name] for led_to, _ in leads(item, ())] for name in roots & imports.keys()}
            modules = {name: [other for item in items if (other := source.imported(item))] for name, items in leading.items()}
            read = [source, *(file for items in led.values() for file, _ in items), *itertools.chain(*modules.values())]
            for file in {file.path: file for file in read[::-1]}.values():
                path = file.path.as_posix()
                launches = [_around(file.module_names, call) for _, call in file.module_names.launches]
                launching |= {(path, name) for names in launches for name in names}
                launchers |= {(path, name) for names in launches for name in names[-1:]}
                launching |= {(path, name) for name, nodes in file.definitions.items() if len(nodes[0].decorator_list) > 1}
                of_file = {
                    name: {(other.path.as_posix(), there) for other, there in items} for name, items in led.items() if file is source
                }
                for call in itertools.chain(*file.module_names.calls.values()):
                    root, *rest = dotted(call.func).split(".")
                    of_module = modules.get(root, ()) if rest and file is source else ()
                    for name in _around(file.module_names, call):
                        of_class = f"{name.partition('.')[0]}.{rest[0]}" if root in ("self", "cls") and rest else ""
                        meant = {(path, of_class)} if of_class else of_file.get(root) or {(path, root)}
                        calling.setdefault((path, name), set()).update(meant, ((other.path.as_posix(), rest[-1]) for other in of_module))
    near = {*launching}
    for _ in range(HANDS):
        near |= {place for place, called in calling.items() if not called.isdisjoint(near)}
    return near.union(*(calling.get(place, ()) for place in launchers))


def _around(graph: ModuleNames, node: Call) -> list[str]:
    """The class that a call stands in, and last the function, by its name with that."""
    above = [item for item in graph.above(node) if isinstance(item, Definition)]
    classes = [item.name for item in itertools.takewhile(lambda item: not isinstance(item, Function), above)]
    functions = [item.name for item in above if isinstance(item, Function)][:1]
    return [".".join(names) for names in (classes, [*classes, *functions]) if names]


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


def _tree(source: SourceFile | None, functions: Sequence[Function], *, launches: bool = False, named: bool = True) -> str:
    """What functions of one name do, but for what their launches of kernels pass, which is compared as such; with that if there is to be
    `launches`, and whatever they are called if they are not `named`."""
    names = set() if named else {node.name for node in functions}
    whole = "\x1d".join(without_local_names([undocumented(node) for node in functions], names))
    made = source.module_names.launches if source is not None and not launches else ()
    inside = [
        (kernel, call) for kernel, call in made if source is not None and not set(functions).isdisjoint(source.module_names.above(call))
    ]
    for (kernel, _), text in zip(inside, without_local_names([call for _, call in inside], set()), strict=True):
        whole = whole.replace(text, f"launch of {kernel}")
    return whole


def _whole(one: Iterable[Place], other: Collection[Place]) -> list[Place]:
    """The functions of one side that are not among others; of a class of which the others have none, the class."""
    classes = {(path, name.rpartition(".")[0]) for path, name in other}
    alone = ((path, name, name.rpartition(".")[0]) for path, name in one if (path, name) not in other)
    return [*dict.fromkeys((path, name if (path, around) in classes else around or name) for path, name, around in alone)]
