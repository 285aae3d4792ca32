"""Which files a change reaches by imports, and what a file's kernels import: kernels take helpers, constants and configurations from
other files, which are read from the tree as `advisor.python_source.imported` finds them on a disk."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath

from advisor.comparison.kernels.kernel_digest import leads
from advisor.comparison.kernels.kernel_source import LARGEST_SOURCE_BYTES, ODD, parse, parsed
from advisor.comparison.trees.trees import Entry, FileChange, Tree, check_readable
from advisor.python_source.imports import MOST_HANDS, Import, places
from advisor.python_source.launch_sites import imported_launches
from advisor.python_source.module_names import ModuleNames
from advisor.python_source.source import SourceFile
from advisor.system.errors import AdvisorError, InputError

LARGEST_IMPORTED = 40
"""Files that are read for what one file imports."""
LARGEST_IMPORTERS = 400
"""Unchanged files that are read to see whether they import a changed one; the nearest to it first."""
KEPT_PLACES = 65_536
"""Of modules, as a folder's files may find them: each file that leads to another asks for those that it imports anew."""


def located(paths: Container[str], path: str, item: Import) -> str | None:
    """The path of a tree that an import of the file `path` leads to; None: none in the tree."""
    return next((place for place in _places(path.rpartition("/")[0], item.module, item.level) if place in paths), None)


@lru_cache(maxsize=KEPT_PLACES)
def _places(folder: str, module: str, level: int) -> tuple[str, ...]:
    """Where a file of a folder may find a module, in order."""
    return tuple(map(str, places(PurePosixPath(folder), module, level)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Unchanged files that import changed ones, also by way of others, each with one that it comes from; the names that may mean something
    else now, of these and of changed files; and what was left out."""

    changes: dict[FileChange, str] = field(default_factory=dict)
    names: dict[str, frozenset[str]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def reached(base: Tree, head: Tree, changes: Sequence[FileChange]) -> Reached:
    """The unchanged Python files of two trees that import what changed, name by name."""
    before, after = base.entries(), head.entries()
    paths = {*before, *after}
    source_of = {change.path: change.path for change in changes if change.path.endswith(".py")}
    newest = {change.path: _changed(change, base, head) for change in changes if change.path in source_of}
    touching = dict(newest)
    found: dict[str, str] = {}
    left_out = []
    sources: dict[str, SourceFile | None] = {}
    unread = set[str]()
    for _ in range(MOST_HANDS + 1):
        newest = {path: names for path, names in newest.items() if names}
        if not newest:
            break
        try:
            mentioning = _candidates(head, after, newest)
        except InputError as error:  # git gave up on a large tree
            left_out.append(f"Not all unchanged files that import a changed one were looked for: {error}")
            break
        candidates = [path for path in mentioning if path not in source_of and before.get(path) == after[path]]
        folders = {folder for path in newest for folder in PurePosixPath(path).parents}
        candidates.sort(key=lambda path: (-_shared(path, folders), path))
        fresh = [after[path] for path in candidates if path not in sources and after[path].kind == "file"]
        room = LARGEST_IMPORTERS - len(sources)
        unread |= {entry.path for entry in fresh[room:]}
        head.fetch(fresh[:room])
        sources |= {entry.path: parsed(head, entry) for entry in fresh[:room]}
        came: dict[str, frozenset[str]] = {}
        for path in candidates:
            source = sources.get(path)
            via, names = taken(source, path, newest, paths) if source is not None else ("", frozenset())
            if names and source is not None:
                found[path] = source_of[path] = source_of[via]
                came[path] = touched(source.module_names, names)
        newest = came
        touching |= came
    if unread:
        left_out.append(f"{len(unread)} files that may import a changed one were not read: more than {LARGEST_IMPORTERS} mention one.")
    importing = {FileChange(path=path, base=before[path], head=after[path]): by for path, by in found.items()}
    return Reached(changes=importing, names=touching, left_out=tuple(left_out))


def _changed(change: FileChange, base: Tree, head: Tree) -> frozenset[str]:
    """The names of a changed file that may mean something else now."""
    versions: list[ModuleNames | None] = []
    for tree, entry in ((base, change.base), (head, change.head)):
        source = parsed(tree, entry) if entry is not None else None
        versions.append(source.module_names if source is not None else None)
    return changed_names(*versions)


def _candidates(tree: Tree, entries: dict[str, Entry], targets: Mapping[str, frozenset[str]]) -> list[str]:
    """Files that may import a changed name of a target: the module's name and that of what changed stand in them (or an import of all
    names), or they lie in the package whose `__init__` the target is."""
    words = set[str]()
    packages = set[PurePosixPath]()
    for path in map(PurePosixPath, targets):
        package = path.name == "__init__.py"
        words.add(path.parent.name if package else path.stem)
        packages |= {path.parent} if package else set()
    asked = frozenset[str]().union(*targets.values())
    naming = None if ALL in asked else {*tree.mentioning(asked), *tree.mentioning({"import *"})}
    near = (path for path in entries if packages & set(list(PurePosixPath(path).parents)[:2])) if packages else ()
    found = dict.fromkeys([*(path for path in tree.mentioning(words - {""}) if path in entries), *near])
    return [path for path in found if path.endswith(".py") and (naming is None or path in naming)]


def taken(source: SourceFile, path: str, targets: Mapping[str, frozenset[str]], paths: Container[str]) -> tuple[str, frozenset[str]]:
    """The first target of which a file imports changed names, and its own names for them; neither: it imports none."""
    attributes = mentioned(source.module_names)[1]
    vias, names = set[str](), set[str]()
    named = (
        item for imports in (source.module_names.imports, source.module_names.inner_imports) for items in imports.values() for item in items
    )
    for item in [*named, *source.module_names.stars]:
        for led, wanted in leads(item, attributes.get(item.alias, ())):
            target = located(paths, path, led)
            changed = targets.get(target, frozenset()) if target is not None else frozenset[str]()
            if not changed or target is None:
                continue
            names_taken = changed if item.name == "*" else {item.alias} if ALL in changed or wanted & changed else set[str]()
            if names_taken:
                vias.add(target)
                names |= names_taken
    return min(vias, default=""), frozenset(names)


@lru_cache(maxsize=64)
def mentioned(graph: ModuleNames) -> tuple[Set[str], Mapping[str, Set[str]]]:
    """The names in a file, and what is asked of each, at any depth: {"package": {"helpers", "scale"}} of `package.helpers.scale`."""
    names: set[str] = set()
    found: dict[str, set[str]] = {}
    for node in graph.nodes:
        if isinstance(node, ast.Name):
            names.add(node.id)
        asked, root = set[str](), node
        while isinstance(root, ast.Attribute):
            asked.add(root.attr)
            root = root.value
        if asked and isinstance(root, ast.Name):
            found.setdefault(root.id, set()).update(asked)
    return names, found


def _shared(path: str, folders: Container[PurePosixPath]) -> int:
    """How deep the innermost folder of a path is that is among others."""
    return next((len(folder.parts) for folder in PurePosixPath(path).parents if folder in folders), 0)


ALL = "*"
"""Among changed names: any may have changed."""


def changed_names(base: ModuleNames | None, head: ModuleNames | None) -> frozenset[str]:
    """Names of a module whose statements differ between two versions, or use names whose do; None: a version that cannot be read."""
    if base is None or head is None:
        return frozenset({ALL})
    before, after = base.all_statements(), head.all_statements()
    names = {name for name in {*before, *after} if _dumps(before.get(name, ())) != _dumps(after.get(name, ()))}
    return touched(head, names) | touched(base, names)


def touched(module: ModuleNames, names: Collection[str]) -> frozenset[str]:
    """`names`, and those of a module whose statements use them, also by way of others.

    What methods use does not count: no kernel is made of them, and half a serving stack hangs together by them.
    """
    uses = {name: {used for node in nodes for used in _used(node)} for name, nodes in module.all_statements().items()}
    found = set(names)
    while more := {name for name, used in uses.items() if name not in found and used & found}:
        found |= more
    return frozenset(found)


def _dumps(statements: Sequence[ast.stmt]) -> list[str]:
    return [ast.dump(node) for node in statements]


def _used(statement: ast.stmt) -> Iterator[str]:
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            yield node.id
        inner = ast.iter_child_nodes(node)
        methods = isinstance(node, ast.ClassDef)
        waiting += [each for each in inner if not (methods and isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))]


LARGEST_LAUNCHERS = 1_000
"""Files of a tree that are looked through for launches: each takes some 20 ms."""
LAUNCH = re.compile(rb"\]\s*\(|\.run\s*\(")
"""What stands in every file that launches something: `kernel[grid](`, `kernel.run(`."""

Launchers = Mapping[str, Sequence[Entry]]
"""By the path of a file that defines kernels: the files that launch some of them, among those that were looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedElsewhere:
    """Launches by other files than the kernels' own, of both trees; and what was left out."""

    base: Launchers = field(default_factory=dict)
    head: Launchers = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def unchanged(self, base: Tree, head: Tree, known: Iterable[FileChange]) -> list[FileChange]:
        """The files whose kernels these launch, that are not among those which are looked at anyway."""
        before, after = base.entries(), head.entries()
        looked_at = {each.path for change in known for each in (change.base, change.head) if each is not None}
        paths = sorted({*self.base, *self.head} - looked_at)
        return [FileChange(path=path, base=before.get(path), head=after.get(path)) for path in paths]


def launched_elsewhere(base: Tree, head: Tree, changed: Sequence[FileChange]) -> LaunchedElsewhere:
    """Of files that changed, or that import what did: the kernels of others that they launch.

    Args:
        base, head: The trees.
        changed: The files.
    """
    sides: list[dict[str, list[Entry]]] = []
    left_out = 0
    for tree, entries in ((base, [change.base for change in changed]), (head, [change.head for change in changed])):
        sources = [each for each in entries if each is not None and _is_source(each)]
        left_out = max(left_out, len(sources) - LARGEST_LAUNCHERS)
        sides.append(_launchers(tree, sources[:LARGEST_LAUNCHERS]))
    told = f"{left_out} files were not looked through for launches of other files' kernels: there are more than {LARGEST_LAUNCHERS:,}."
    return LaunchedElsewhere(base=sides[0], head=sides[1], left_out=(told,) if left_out > 0 else ())


def _is_source(entry: Entry) -> bool:
    return entry.kind == "file" and entry.path.endswith(".py") and entry.size_bytes <= LARGEST_SOURCE_BYTES


def _launchers(tree: Tree, entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    reading = Reading(tree)
    for entry in entries:
        for path in _launched_by(reading, entry) if LAUNCH.search(tree.read(entry)) else ():
            found.setdefault(path, []).append(entry)
    return found


def _launched_by(reading: Reading, entry: Entry) -> list[str]:
    """The paths of the files whose kernels a file launches."""
    try:
        found = dict.fromkeys(file.path.as_posix() for file, *_ in imported_launches(reading.file(entry)))
    except (AdvisorError, *ODD):  # told where the file itself is compared
        return []
    return [path for path in found if path in reading.tree.entries()]


class Reading:
    """Reads files of one tree, and what they import from others of it, as far as that is asked for.

    Attributes:
        left_out: Whether files that they import were left out: there are more than `LARGEST_IMPORTED` for each that is read.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree, self.left_out = tree, False
        self._room, self._known = 0, set[str]()
        self._kept = lru_cache(maxsize=64)(self._read)

    def file(self, entry: Entry) -> SourceFile:
        """A file.

        Raises:
            InputError: It cannot be read, or is not Python.
        """
        check_readable(entry, LARGEST_SOURCE_BYTES)
        self._room += LARGEST_IMPORTED
        return parse(self.tree.read(entry), entry.path).given(find=self._imported)

    def _read(self, entry: Entry) -> SourceFile | None:
        source = parsed(self.tree, entry)
        return source.given(find=self._imported) if source is not None else None

    def _imported(self, path: Path, item: Import) -> SourceFile | None:
        entries = self.tree.entries()
        entry = entries.get(located(entries, path.as_posix(), item) or "")
        if entry is None or entry.kind != "file":
            return None
        if entry.path not in self._known and len(self._known) >= self._room:
            self.left_out = True
            return None
        self._known.add(entry.path)
        return self._kept(entry)
