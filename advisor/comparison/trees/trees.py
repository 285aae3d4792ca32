"""Two ways to look at a side that holds many files, a folder and a git revision, behind one protocol.

Symbolic links and submodules are listed as what they are and never followed: what they point to may lie outside the tree, or nowhere.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
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
        if self.head is None:
            return "removed"
        return "modified" if self.base.kind == self.head.kind else "type changed"


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
