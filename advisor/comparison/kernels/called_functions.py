"""Which files of a tree call functions of others that launch kernels: `from ops import invoke`, by whatever files hand it on; and
functions that launch nothing themselves, but call others which do."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from advisor.comparison.kernels.callers import APPLY, called, is_applied
from advisor.comparison.kernels.calling import calls_of, named_functions
from advisor.comparison.kernels.changed_names import ALL, touched
from advisor.comparison.kernels.importers import located, taken
from advisor.comparison.kernels.kernel_digest import behind, leads
from advisor.comparison.kernels.kernel_source import LARGEST_SOURCE_BYTES, parse
from advisor.comparison.kernels.launch_steps import followed, surrounding
from advisor.comparison.kernels.local_names import without_local_names
from advisor.comparison.kernels.objects import methods_of
from advisor.comparison.trees import git
from advisor.comparison.trees.trees import Tree
from advisor.python_source.bindings import argument_defaults, bound_by, scopes_around
from advisor.python_source.imported import MOST_HANDS
from advisor.python_source.imports import Import
from advisor.python_source.literals import dotted
from advisor.python_source.source import SourceFile
from advisor.system.errors import AdvisorError, InputError

LAUNCH = re.compile(rb"\]\s*\(|\.run\s*\(")
"""Stands in every file that launches a kernel, and in few others: only in these are launches looked for."""

Place = tuple[str, str]
"""The path of a file, and the name of a function at module level there."""

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A file that calls functions of another one which lead to launches: the paths of both, and the functions' names by what it calls
    them."""

    caller: str
    called: str
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outline:
    """What is kept of a file: parsed, it takes some fifty times as much memory.

    Attributes:
        calls: What each function or class at module level calls, as the file names that; of classes, what their methods do.
        classes: Those of them that are classes.
        launching: Those within which something is launched.
        imports: Imports by alias, at module level and within functions.
        outer: The same at module level alone: what other files can take from it.
        stars: Imports of all names of a module.
        defaults: Functions some of whose arguments have defaults, each with these as text and the names in them.
    """

    calls: Mapping[str, frozenset[str]]
    classes: frozenset[str]
    launching: frozenset[str]
    imports: Mapping[str, tuple[Import, ...]]
    outer: Mapping[str, tuple[Import, ...]]
    stars: tuple[Import, ...]
    defaults: Mapping[str, tuple[str, frozenset[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Function:
    """A function, with those of its file that it calls: whether one of them launches something, and the functions of other files that they
    call, by what they are called; several where imports have alternatives."""

    launches: bool
    calls: Mapping[str, tuple[Place, ...]]


@dataclass(kw_only=True)
class Changed:
    """What changed between two trees, and what is known of their files: most are the same in both.

    Attributes:
        base, head: The trees.
        names: By path, names that may mean something else now.
    """

    base: Tree
    head: Tree
    names: Mapping[str, frozenset[str]]
    _outlines: dict[tuple[str, str], _Outline | None] = field(default_factory=dict)  # by path and identity
    _calls: dict[str, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)

    def outline(self, tree: Tree, path: str) -> _Outline | None:
        """What is kept of a file; None: it is not there, or cannot be read."""
        entry = tree.entries().get(path)
        if entry is None:
            return None
        key = (path, entry.identity)
        if key not in self._outlines:
            source = _source(tree, path)
            self._outlines[key] = _outline(source, read(tree, path)) if source is not None else None
        return self._outlines[key]

    def calls(self, path: str) -> tuple[frozenset[str], frozenset[str]]:
        """What a file calls of others, as it names that, and gives something else now; and the rest that may be something else now."""
        if path not in self._calls:
            trees = [tree for tree in (self.base, self.head) if path in tree.entries()]
            if len({tree.entries()[path].identity for tree in trees}) == 1 and len(trees) == 2:
                trees = trees[:1]
                whole = False
            else:
                whole = len(trees) == 1  # there is nothing to compare it with
            sides = [self._given(tree, path) for tree in trees]
            called = frozenset(name for side in sides for name in side.texts)
            changed = {name for name in called if whole or len({side.texts.get(name) for side in sides}) > 1}
            changed |= {name for side in sides for name in side.depending}
            fresh = frozenset(name for side in sides for name in side.fresh)
            self._calls[path] = frozenset(changed), frozenset(each for each in called - changed if {each.partition(".")[0], ALL} & fresh)
        return self._calls[path]

    def _given(self, tree: Tree, path: str) -> _Given:
        source, outline = _source(tree, path), self.outline(tree, path)
        if source is None or outline is None:
            return _Given(texts={}, depending=frozenset(), fresh=frozenset())
        imported = taken(source, path, self.names, {*self.base.entries(), *self.head.entries()})[1]
        fresh = self.names.get(path, frozenset()) | touched(source.module_names, imported)
        return _given(source, frozenset(name for name in _calls_behind(source.tree, fresh) if _may_be_imported(outline, name)), fresh)

    def other_defaults(self, place: Place) -> bool:
        """Whether a function may have other defaults now."""
        path, function = place
        found = [outline.defaults.get(function) for tree in (self.base, self.head) if (outline := self.outline(tree, path)) is not None]
        fresh = self.names.get(path, frozenset())
        return len(set(found)) > 1 or any(each is not None and fresh & each[1] for each in found)


@dataclass(kw_only=True)
class CalledFunctions:
    """Looks through the files of a tree; what it learns of one serves for all that call its functions."""

    tree: Tree
    changed: Changed
    _functions: dict[Place, _Function] = field(default_factory=dict)
    _fetched: set[str] = field(default_factory=set)

    def of(self, path: str) -> dict[str, list[Link]]:
        """What a file calls of others that launches kernels, and may now be called otherwise.

        Returns:
            By the path of a file that launches something, the calls that lead there: first those of the file itself.
        """
        outline = self._outline(path)
        given, others = self.changed.calls(path)
        if outline is None or not (given or others):
            return {}
        self._fetch({path})
        own = {name: tuple(self._places(path, outline, name)) for name in sorted(given | others)}
        own = {name: places for name, places in own.items() if name in given or any(map(self.changed.other_defaults, places))}
        functions = self._followed({place for places in own.values() for place in places})
        leading = {place for place, function in functions.items() if function.launches}
        ends = {end for end, _ in leading}
        while more := {place for place, function in functions.items() if place not in leading and leading & _called(function)}:
            leading |= more
        links = [*_links(path, own, leading)]
        for other in sorted({each for each, _ in leading} - {path}):
            calls = [functions[place].calls for place in sorted(leading) if place[0] == other]
            links += _links(other, {name: places for each in calls for name, places in each.items()}, leading)
        return {end: found for end in sorted(ends) if (found := _leading_to(end, links)) and found[0].caller == path}

    def _followed(self, places: Set[Place]) -> dict[Place, _Function]:
        """Functions, and those that they call, file after file."""
        found: dict[Place, _Function] = {}
        for _ in range(MOST_HANDS + 1):
            if not places:
                break
            self._fetch({path for path, _ in places})
            newest = {place: self._function(place) for place in sorted(places)}
            found |= newest
            places = {place for function in newest.values() for place in _called(function)} - found.keys()
        return found

    def _function(self, place: Place) -> _Function:
        if place not in self._functions:
            path, name = place
            outline = self._outline(path)
            assert outline is not None  # it defines the function
            names = {name}
            while more := {each.partition(".")[0] for name in names for each in outline.calls.get(name, ())} & outline.calls.keys() - names:
                names |= more
            called = {each for name in names for each in outline.calls[name]}
            calls = {each: places for each in sorted(called) if (places := tuple(self._places(path, outline, each)))}
            self._functions[place] = _Function(launches=bool(names & outline.launching), calls=calls)
        return self._functions[place]

    def _places(self, path: str, outline: _Outline, name: str, depth: int = 0) -> Iterator[Place]:
        """Where a function may be defined which a file names so, as far as that is another file; `depth`: files that handed it on."""
        root, _, rest = name.partition(".")
        if root in outline.calls:
            return
        stars = () if root in outline.imports else tuple(replace(star, alias=root, name=root) for star in outline.stars)
        for item in (*(outline.imports if depth == 0 else outline.outer).get(root, ()), *stars):
            for led, function in _functions(item, rest):
                target = located(self.tree.entries(), path, led)
                data = read(self.tree, target) if target is not None and target != path else None
                words = (function.partition(".")[0].encode("utf-8", "surrogatepass"), b"import *")
                if target is None or data is None or not any(word in data for word in words):
                    continue
                other = self._outline(target)
                if other is not None and function in other.calls:
                    if function not in other.classes:
                        yield target, function
                elif other is not None and depth < MOST_HANDS:
                    yield from self._places(target, other, function.replace(".forward", f".{APPLY}"), depth + 1)

    def _outline(self, path: str) -> _Outline | None:
        return self.changed.outline(self.tree, path)

    def _fetch(self, paths: Set[str]) -> None:
        """Read at once what files import, which many processes of git would take long for."""
        entries = self.tree.entries()
        fresh = paths - self._fetched
        self._fetched |= fresh
        outlines = {path: outline for path in fresh if (outline := self._outline(path)) is not None}
        items = {(path, item) for path, outline in outlines.items() for each in outline.imports.values() for item in each}
        found = {located(entries, path, led) for path, item in items for led, _ in leads(item, ())}
        with contextlib.suppress(InputError):  # told where one of them is read
            self.tree.fetch([entries[path] for path in sorted(filter(None, found))])


def read(tree: Tree, path: str) -> bytes | None:
    """The content of a file; None: it is none, or too large."""
    entry = tree.entries()[path]
    if entry.kind != "file":
        return None
    entry = tree.sized([entry])[0]
    return tree.read(entry) if entry.size_bytes <= LARGEST_SOURCE_BYTES else None


def _source(tree: Tree, path: str) -> SourceFile | None:
    try:
        return parse(read(tree, path), path)
    except git.PartialCloneError:
        raise
    except AdvisorError:
        return None


def _called(function: _Function) -> set[Place]:
    return {place for places in function.calls.values() for place in places}


def _links(path: str, calls: Mapping[str, Sequence[Place]], leading: Set[Place]) -> Iterator[Link]:
    """The calls of a file that lead to launches, by the file of what is called: of alternatives, the first."""
    found: dict[str, dict[str, str]] = {}
    for name, places in calls.items():
        place = next((each for each in places if each in leading), None)
        if place is not None:
            found.setdefault(place[0], {})[name] = place[1]
    yield from (Link(caller=path, called=called, names=names) for called, names in found.items())


def _leading_to(end: str, links: Sequence[Link]) -> list[Link]:
    """Those of some links by which one gets to a file."""
    files = {end}
    while more := {link.caller for link in links if link.called in files} - files:
        files |= more
    return [link for link in links if link.called in files]


def _calls_behind(tree: ast.Module, names: Set[str]) -> frozenset[str]:
    """What is called, as the file names that, by statements in which one of some names stands, and by the functions and classes that these
    use, and so on."""
    used = [{each.id for each in ast.walk(node) if isinstance(each, ast.Name)} | set(bound_by(node)) for node in tree.body]
    named = {node.name: place for place, node in enumerate(tree.body) if isinstance(node, _NAMED)}
    places = {place for place, uses in enumerate(used) if ALL in names or uses & names}
    while more := {named[name] for place in places for name in used[place] & named.keys()} - places:
        places |= more
    return frozenset(name for place in places for call in calls_of(tree.body[place]) if (name := dotted(called(call))) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What a file gives functions of others.

    Attributes:
        texts: By what it calls them, the syntax trees that decide it, as far as the file itself tells.
        depending: Functions to which it gives something that depends on what changed elsewhere.
        fresh: Its names that may mean something else now.
    """

    texts: Mapping[str, tuple[str, ...]]
    depending: Set[str]
    fresh: Set[str]


def _given(source: SourceFile, called: Set[str], fresh: frozenset[str]) -> _Given:
    around = surrounding(source.tree)
    texts: dict[str, list[str]] = {name: [] for name in called}
    depending = set(called) if ALL in fresh else set()
    for name, call in ((each, call) for each in sorted(called) for call in around.calls.get(each, ())):
        if name in depending:
            continue
        values = [*call.args, *(each.value for each in call.keywords)]
        named = [each.arg for each in call.keywords]
        for path in around.callers.paths((scopes_around(source.scopes, call), call)):
            text = [str(named)]
            for each in followed(values, [around.steps.of(*step) for step in path], launch=False):
                trees, asked = around.objects.behind(each.function, [*each.values, *each.statements])
                text += without_local_names([*each.values, *each.statements, *trees], each.local)
                inner, imports = behind(source, {*each.names, *asked})
                text += (ast.dump(tree) for _, tree in inner)
                if fresh & {*(known for known, _ in inner), *(item.alias for item in imports)}:
                    depending.add(name)
            texts[name].append("\0".join(text))
    return _Given(texts={name: tuple(sorted(each)) for name, each in texts.items()}, depending=depending, fresh=fresh)


def _may_be_imported(outline: _Outline, name: str) -> bool:
    """Whether something that a file calls may be another file's."""
    root = name.partition(".")[0]
    return root in outline.imports or (bool(outline.stars) and root not in outline.calls)


def _functions(item: Import, rest: str) -> list[tuple[Import, str]]:
    """The modules that a name may be in which begins with an import, and the function's name there."""
    parts = rest.split(".") if rest else []
    if parts[-1:] == [APPLY]:  # of a `torch.autograd.Function`, or a function of that name
        applied = [(led, f"{name}.forward") for led, name in _functions(item, ".".join(parts[:-1]))]
    else:
        applied = []
    if item.name is not None and not parts:
        return [(item, item.name)]
    if not parts:
        return []
    plain = item.name is None and item.alias == item.module.split(".")[0] and "." in item.module  # import a.b: names begin with a
    whole = ".".join([item.alias, *parts[:-1]]) if plain else ".".join(filter(None, (item.module, item.name, *parts[:-1])))
    return [*applied, (replace(item, module=whole, name=None), parts[-1])]


def _outline(source: SourceFile, data: bytes | None) -> _Outline:
    launches = {id(call) for _, call in source.launches} if _may_launch(data) else set[int]()
    calls: dict[str, set[str]] = {}
    launching: set[str] = set()
    defaults: dict[str, tuple[str, frozenset[str]]] = {}
    for node in source.tree.body:
        for name, named_function in named_functions(node):
            if not (left := argument_defaults(named_function)):
                continue
            named = frozenset(each.id for value in left.values() for each in ast.walk(value) if isinstance(each, ast.Name))
            defaults[name] = ", ".join(f"{argument}={ast.dump(value)}" for argument, value in sorted(left.items())), named
        for function in methods_of(node) if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                name = node.name if isinstance(node, ast.ClassDef) else function.name
                inner = list(calls_of(function))
                for each in (name, f"{name}.forward") if isinstance(node, ast.ClassDef) and is_applied(function) else (name,):
                    launching |= {each} if any(id(call) in launches for call in inner) else set()
                    calls.setdefault(each, set()).update(text for call in inner if (text := dotted(called(call))) is not None)
    outer, inner_imports = ({alias: tuple(items) for alias, items in each.items()} for each in (source.imports, source.inner_imports))
    return _Outline(
        calls={name: frozenset(each) for name, each in calls.items()},
        launching=frozenset(launching),
        outer=outer,
        classes=frozenset(node.name for node in source.tree.body if isinstance(node, ast.ClassDef)),
        imports={alias: (*outer.get(alias, ()), *inner_imports.get(alias, ())) for alias in (*outer, *inner_imports)},
        stars=source.stars,
        defaults=defaults,
    )


def _may_launch(data: bytes | None) -> bool:
    return data is not None and b"triton" in data and (b"jit" in data or LAUNCH.search(data) is not None)
