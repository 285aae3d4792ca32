"""Two ways to look at a side that holds many files, a folder and a git revision, behind one protocol.

Symbolic links and submodules are listed as what they are and never followed: what they point to may lie outside the tree, or nowhere.

Where the symbolic links of a tree lead, as far as that lies in the tree. Their text says it: none is followed on a disk.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Literal

from advisor.comparison.trees import git
from advisor.comparison.trees.git import Entry
from advisor.system.errors import InputError

LARGEST_FILE_BYTES = 16 * 1024 * 1024
IGNORED_FOLDERS = frozenset({".git", "__pycache__", ".venv", "node_modules"})


def check_readable(entry: Entry, largest_bytes: int = LARGEST_FILE_BYTES) -> None:
    """Raises InputError unless the entry is a plain file of bearable size."""
    if entry.kind != "file":
        raise InputError(f"{entry.path}: a {entry.kind}", None, "a plain file", "it is not followed")
    if entry.size_bytes > largest_bytes:
        raise InputError(f"{entry.path}: too large", f"{entry.size_bytes:,} bytes", f"at most {largest_bytes:,} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionTree:
    """A commit, read from git's object store."""

    folder: Path
    label: str
    revision: str | None

    def entries(self) -> dict[str, Entry]:
        """Every entry of the commit."""
        return git.entries(self.folder, self.revision or "")

    def fetch(self, entries: Sequence[Entry]) -> None:
        """Read from git by one process."""
        blobs_of(self.folder).fetch(entries)

    def link(self, entry: Entry) -> str:
        """Where a symbolic link leads, as it is written."""
        return blobs_of(self.folder).read(entry.identity).decode("utf-8", "surrogateescape")

    def read(self, entry: Entry) -> bytes:
        """The blob."""
        check_readable(entry)
        return blobs_of(self.folder).read(entry.identity)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderTree:
    """A folder, as it lies on the disk when it is first asked for; only files whose names end in `suffixes` are looked at."""

    folder: Path
    label: str
    revision: str | None = None
    suffixes: tuple[str, ...] = field(default=(".json", ".jsonl", ".py", ".csv", ".toml"))
    _found: dict[str, Entry] = field(default_factory=dict, init=False, compare=False, repr=False)

    def entries(self) -> dict[str, Entry]:
        """Every file below the folder; links to folders are listed, not entered. Looked for once: it is asked for with every file that is
        followed, and every file is read to tell what is in it."""
        if not self._found:
            self._found.update(self._listed())
        return self._found

    def _listed(self) -> dict[str, Entry]:
        listed: dict[str, Entry] = {}
        for where, folders, names in os.walk(self.folder, followlinks=False):
            links = [name for name in folders if (Path(where) / name).is_symlink()]
            folders[:] = sorted(name for name in folders if name not in IGNORED_FOLDERS and name not in links)
            for name in [*names, *links]:
                path = Path(where) / name
                if path.suffix in self.suffixes or path.is_symlink():
                    relative = path.relative_to(self.folder).as_posix()
                    listed[relative] = self._entry(path, relative)
        return listed

    def fetch(self, entries: Sequence[Entry]) -> None:
        """Nothing: files are read from the disk one by one."""

    def _entry(self, path: Path, relative: str) -> Entry:
        if path.is_symlink():
            return Entry(path=relative, kind="symbolic link", identity=str(path.readlink()), size_bytes=0)
        if not path.is_file():
            return Entry(path=relative, kind="other", identity="", size_bytes=0)
        try:
            size = path.stat().st_size
            identity = f"{size} bytes" if size > LARGEST_FILE_BYTES else hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise InputError(f"{relative}: cannot be read", error.strerror) from None
        return Entry(path=relative, kind="file", identity=identity, size_bytes=size)

    def link(self, entry: Entry) -> str:
        """Where a symbolic link leads, as it is written."""
        return entry.identity

    def read(self, entry: Entry) -> bytes:
        """The file's bytes."""
        check_readable(entry)
        try:
            return (self.folder / PurePosixPath(entry.path)).read_bytes()
        except OSError as error:
            raise InputError(f"{entry.path}: cannot be read", error.strerror) from None


def holds(tree: RevisionTree | FolderTree, folder: Path) -> bool:
    """Whether files of a tree lie in a folder of this machine, where the tree is checked out."""
    top = git.top(tree.folder) if isinstance(tree, RevisionTree) else tree.folder
    if top is None:
        return False
    for place, within in ((folder.absolute(), top.absolute()), (_real(folder), _real(top))):
        if place.is_relative_to(within):
            start = "".join(f"{part}/" for part in place.relative_to(within).parts)
            if isinstance(tree, FolderTree) or any(path.startswith(start) for path in tree.entries()):
                return True
    return False


def _real(path: Path) -> Path:
    """A path without links, as far as they lead anywhere."""
    return Path(os.path.realpath(path))


Tree = RevisionTree | FolderTree
"""A side that holds files. What is not on this machine, no plain file, or too large is an `InputError` where it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A path whose content or kind differs between two trees."""

    path: str
    base: Entry | None
    head: Entry | None

    @property
    def word(self) -> Literal["modified", "added", "removed", "type changed"]:
        """What happened to it."""
        if self.base is None:
            return "added"
        return "removed" if self.head is None else "modified" if self.base.kind == self.head.kind else "type changed"


def changes(base: Tree, head: Tree) -> tuple[FileChange, ...]:
    """The paths that differ, sorted."""
    before, after = base.entries(), head.entries()
    out = []
    for path in sorted({*before, *after}):
        one, other = before.get(path), after.get(path)
        if one is None or other is None or (one.kind, one.identity) != (other.kind, other.identity):
            out.append(FileChange(path=path, base=one, head=other))
    return tuple(out)


MOST_KEPT_BYTES = 128_000_000
"""Of all files together; past it, what is kept is dropped and begun anew."""


class Blobs:
    """The blobs of a repository, by identity. What is behind an identity never changes, so that nothing here becomes stale."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._contents: dict[str, bytes] = {}

    def read(self, identity: str) -> bytes:
        """The content of one."""
        if identity not in self._contents:
            self._keep([identity])
        return self._contents[identity]

    def fetch(self, entries: Sequence[Entry]) -> None:
        """Read at once what will be asked for, as far as there is room to keep it."""
        room, wanted = MOST_KEPT_BYTES, []
        for entry in entries:
            room -= entry.size_bytes
            if entry.kind == "file" and entry.size_bytes and room > 0 and entry.identity not in self._contents:
                wanted.append(entry.identity)
        if wanted:
            self._keep(wanted)

    def _keep(self, identities: Sequence[str]) -> None:
        contents = git.blobs(self._folder, identities)
        if sum(map(len, (*self._contents.values(), *contents.values()))) > MOST_KEPT_BYTES:
            self._contents.clear()
        self._contents |= contents


@lru_cache(maxsize=2)
def blobs_of(folder: Path) -> Blobs:
    """Those of a repository, shared by both sides: most of what they hold is the same."""
    return Blobs(folder)


MOST_LINKS = 40
"""On the way to one file, as Linux has it."""
LONGEST_LINK_BYTES = 4_096
SHOWN = (".py", ".json")
"""What the names of files end in that are compared."""


def changes_behind_links(base: Tree, head: Tree, changed: tuple[FileChange, ...]) -> tuple[FileChange, ...]:
    """The changes, with those of files that a link leads to, or a submodule takes the place of: what stands in the head is then that link,
    or that submodule. Where a link of the head leads to what the base has, nothing changed; and to what is compared under its own name, a
    file was merely moved there."""
    odd = {path: entry for path, entry in head.entries().items() if entry.kind in ("symbolic link", "submodule")}
    if not odd and not any(change.base is not None and change.base.kind == "symbolic link" for change in changed):
        return changed
    differing = {change.path for change in changed}
    behind: list[FileChange] = []
    for change in changed:
        above = next((odd[str(folder)] for folder in PurePosixPath(change.path).parents if str(folder) in odd), None)
        if change.head is None and change.base is not None and above is not None:
            reached = reached_file(head, change.path)
            if reached is not None and reached.identity == change.base.identity:
                continue
            if reached is None or reached.path not in differing:
                change = FileChange(path=change.path, base=change.base, head=replace(above, path=change.path))
        behind.append(change)
        behind += _behind_a_folder(base, head, change)
    behind += _behind_a_file(base, head, [path for path in odd if path not in differing])
    return tuple(sorted(behind, key=lambda change: change.path))


def _behind_a_folder(base: Tree, head: Tree, change: FileChange) -> Iterator[FileChange]:
    """The files of the folder that a link of the base leads to, where it leads to others now."""
    if change.base is None or change.base.kind != "symbolic link" or change.head is None or change.head.kind == "file":
        return
    place = reached_path(base, change.path)
    for entry in [] if place is None else [item for item in base.entries().values() if item.path.startswith(f"{place}/")]:
        path = change.path + entry.path.removeprefix(place or "")
        reached = reached_file(head, path)
        if entry.kind == "file" and path.endswith(SHOWN) and (reached is None or reached.identity != entry.identity):
            yield FileChange(path=path, base=replace(entry, path=path), head=replace(change.head, path=path))


def _behind_a_file(base: Tree, head: Tree, links: list[str]) -> Iterator[FileChange]:
    """Links that stay as they are and lead to other contents, which are not compared under a name of their own."""
    for path in links:
        old, new = reached_file(base, path), reached_file(head, path)
        same_kind = new is not None and new.path.endswith(PurePosixPath(path).suffix) and (old is None or old.path == new.path)
        if path.endswith(SHOWN) and old != new and not same_kind:
            yield FileChange(path=path, base=base.entries()[path], head=head.entries()[path])


def reached_file(tree: Tree, path: str) -> Entry | None:
    """The file that a path of a tree comes to; None: it comes to none of the tree."""
    entry = tree.entries().get(reached_path(tree, path) or "")
    return entry if entry is not None and entry.kind == "file" else None


def reached_path(tree: Tree, path: str) -> str | None:
    """What a path comes to once every link on the way is followed; None: out of the tree, or nowhere."""
    waiting, reached, links = path.split("/")[::-1], list[str](), 0
    while waiting:
        part = waiting.pop()
        if part == ".." and not reached:
            return None
        if part == "..":
            reached.pop()
        elif part not in ("", "."):
            reached.append(part)
        entry = tree.entries().get("/".join(reached))
        if entry is not None and entry.kind == "symbolic link":
            links += 1
            text = tree.link(entry) if links <= MOST_LINKS and entry.size_bytes <= LONGEST_LINK_BYTES else "/"
            if text.startswith("/"):
                return None
            reached.pop()
            waiting += text.split("/")[::-1]
    return "/".join(reached)
