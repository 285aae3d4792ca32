"""Which files a change reaches by imports, and what a file's kernels import: kernels take helpers, constants and configurations from
other files, which are read from the tree as `advisor.configs.imported` finds them on a disk."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from advisor.comparison import git
from advisor.comparison.kernels import LARGEST_SOURCE_BYTES, parse
from advisor.comparison.meaning import behind, leads
from advisor.comparison.trees import Entry, FileChange, Tree, sized
from advisor.configs.imported import MOST_ABOVE, MOST_HANDS
from advisor.configs.imports import Import
from advisor.configs.source import SourceFile
from advisor.errors import AdvisorError, InputError

LARGEST_IMPORTED = 40
"""Files that are read for what one file imports."""
LARGEST_IMPORTERS = 400
"""Unchanged files that are read to see whether they import a changed one; the nearest to it first."""


def located(paths: Container[str], path: str, item: Import) -> str | None:
    """The path of a tree that an import of the file `path` leads to; None: none in the tree."""
    parts = item.module.split(".") if item.module else []
    folder = PurePosixPath(path).parent
    starts = [folder, *list(folder.parents)[:MOST_ABOVE]]
    if item.level:
        starts = starts[item.level - 1 : item.level]
    for start in starts:
        whole = start.joinpath(*parts)
        for candidate in (f"{whole}.py" if parts else None, str(whole / "__init__.py")):
            if candidate is not None and candidate in paths:
                return candidate
    return None


def imported_files(tree: Tree, source: SourceFile, path: str, write: Callable[[Entry, bytes], None]) -> bool:
    """Hand every file that is needed for what a file imports to `write`, those that its kernels need first.

    Returns:
        Whether some that its kernels need were left out: there are more than `LARGEST_IMPORTED`.
    """
    entries = tree.entries()
    everything = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    known: dict[str, SourceFile | None] = {path: source}
    done: set[tuple[str, str]] = set()
    left_out = []
    for names in (frozenset(source.definitions), frozenset({*everything, *source.imports})):
        waiting = [(path, names)]
        left_out.append(False)
        while waiting:
            here, asked = waiting.pop(0)
            fresh = {name for name in asked if (here, name) not in done}
            done |= {(here, name) for name in fresh}
            file = known[here]
            _, imports = behind(file, fresh) if file is not None else ([], {})
            for led, wanted in (each for item, attributes in imports.items() for each in leads(item, attributes)):
                target = located(entries, here, led)
                if target is None or entries[target].kind != "file":
                    continue
                if target not in known:
                    if len(known) > LARGEST_IMPORTED:
                        left_out[-1] = True
                        continue
                    known[target] = None
                    entry = tree.sized([entries[target]])[0]
                    if entry.size_bytes <= LARGEST_SOURCE_BYTES:
                        data = tree.read(entry)
                        write(entry, data)
                        known[target] = _parsed(data, target)
                waiting.append((target, wanted))
    return left_out[0]


def _parsed(data: bytes, path: str) -> SourceFile | None:
    try:
        return parse(data, path)
    except AdvisorError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Unchanged files that import changed ones, also by way of others, each with one that it comes from; and what was left out."""

    changes: dict[FileChange, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def reached(base: Tree, head: Tree, changes: Sequence[FileChange]) -> Reached:
    """The unchanged Python files of two trees that import what changed."""
    before, after = base.entries(), head.entries()
    paths = {*before, *after}
    source_of = {change.path: change.path for change in changes if change.path.endswith(".py")}
    found: dict[str, str] = {}
    left_out = []
    imports: dict[str, set[str]] = {}
    unread = set[str]()
    newest = set(source_of)
    for _ in range(MOST_HANDS + 1):
        try:
            mentioning = _candidates(head, after, newest)
        except InputError as error:  # a partial clone, or git gave up on a large tree
            why = "a partial clone may lack them (clone without --filter)" if isinstance(error, git.PartialCloneError) else error
            left_out.append(f"Not all unchanged files that import a changed one were looked for: {why}")
            break
        candidates = [path for path in mentioning if path not in source_of and before.get(path) == after[path]]
        folders = {folder for path in newest for folder in PurePosixPath(path).parents}
        candidates.sort(key=lambda path: (-_shared(path, folders), path))
        fresh = [after[path] for path in candidates if path not in imports and after[path].kind == "file"]
        room = LARGEST_IMPORTERS - len(imports)
        unread |= {entry.path for entry in fresh[room:]}
        for entry in head.sized(fresh[:room]):
            imports[entry.path] = _imports(head, entry, paths) if entry.size_bytes <= LARGEST_SOURCE_BYTES else set()
        came = {path: sorted(imports[path] & newest)[0] for path in candidates if imports.get(path, set()) & newest}
        for path, via in came.items():
            found[path] = source_of[path] = source_of[via]
        newest = set(came)
        if not newest:
            break
    if unread:
        left_out.append(f"{len(unread)} files that may import a changed one were not read: more than {LARGEST_IMPORTERS} mention one.")
    importing = sized([FileChange(path=path, base=before[path], head=after[path]) for path in found], base, head)
    return Reached(changes={change: found[change.path] for change in importing}, left_out=tuple(left_out))


def _candidates(tree: Tree, entries: dict[str, Entry], targets: Iterable[str]) -> list[str]:
    """Files that may import one of the targets: the module's name stands in them, or they lie in the package whose `__init__` it is."""
    words = set[str]()
    packages = set[PurePosixPath]()
    for path in map(PurePosixPath, targets):
        package = path.name == "__init__.py"
        words.add(path.parent.name if package else path.stem)
        packages |= {path.parent} if package else set()
    found = dict.fromkeys(path for path in tree.mentioning(words - {""}) if path in entries)
    near = (path for path in entries if packages & set(list(PurePosixPath(path).parents)[:2])) if packages else ()
    return [path for path in {**found, **dict.fromkeys(near)} if path.endswith(".py")]


def _shared(path: str, folders: Container[PurePosixPath]) -> int:
    """How deep the innermost folder of a path is that is among others."""
    return next((len(folder.parts) for folder in PurePosixPath(path).parents if folder in folders), 0)


def _imports(tree: Tree, entry: Entry, paths: Container[str]) -> set[str]:
    """The files of a tree that a file imports."""
    source = _parsed(tree.read(entry), entry.path)
    items = [*(item for items in source.imports.values() for item in items), *source.stars] if source is not None else []
    return {found for item in items for led, _ in leads(item, ()) if (found := located(paths, entry.path, led)) is not None}
