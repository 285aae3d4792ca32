"""What the files of a tree import from others: kernels take helpers, constants and configurations from them, and are launched by them.
They are read from the tree as `advisor.python_source.imported` finds them on a disk.

Files that may hold kernels: parsed, never imported.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import unicodedata
import warnings
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath

from advisor.comparison.trees.trees import Entry, FileChange, Tree, check_readable
from advisor.python_source import syntax
from advisor.python_source.imports import Import, places
from advisor.python_source.launch_sites import imported_launches, launches
from advisor.python_source.source import SourceFile, parse_source, source_text
from advisor.result.comparison_schema import Failure, Subject
from advisor.result.schema import Finding
from advisor.system import grouped
from advisor.system.errors import AdvisorError, InputError

LARGEST_SOURCE_BYTES = 1_000_000
"""No kernel file is that long, and parsing takes some fifty times its size in memory."""

KEPT_FILES = 64
"""Files that are kept parsed, those that were asked for last."""

ODD = (TypeError, ValueError, KeyError, IndexError, AttributeError, ZeroDivisionError, OverflowError, RecursionError, MemoryError)
"""What a hostile or half-written file can make the parsing of literals raise, besides our own errors."""


def mentions_triton(data: bytes | None) -> bool:
    """Whether a file can hold a kernel; cheap, before parsing."""
    if data is not None and not (data.isascii() and b"coding" not in data):  # in the encoding that it declares, and names as NFKC has them
        with contextlib.suppress(InputError):
            data = unicodedata.normalize("NFKC", source_text(data, "")).encode(errors="replace")
    return data is not None and b"triton" in data and b"jit" in data


@lru_cache(maxsize=KEPT_FILES)
def parse(data: bytes, path: str) -> SourceFile:
    """The file, parsed, and kept: whoever gets it reads it, and changes nothing of it.

    Raises:
        InputError: It is too large, or is not Python.
    """
    if len(data) > LARGEST_SOURCE_BYTES:
        raise InputError(f"{path}: too large to be parsed", f"{len(data):,} bytes", f"at most {LARGEST_SOURCE_BYTES:,} bytes")
    return parse_source(source_text(data, path), path)


def parsed(tree: Tree, entry: Entry, *, kernels: bool = False) -> SourceFile | None:
    """A file of a tree, parsed; None: it is no file, too large, or not Python, or can hold no kernel where `kernels` are asked for."""
    try:
        data = tree.read(entry) if entry.kind == "file" and entry.size_bytes <= LARGEST_SOURCE_BYTES else None
        return parse(data, entry.path) if data is not None and (not kernels or mentions_triton(data)) else None
    except AdvisorError:
        return None


def is_kernel_source(data: bytes) -> bool:
    """Whether a file can hold a kernel, and can be parsed."""
    return mentions_triton(data) and refused(data) is None


def unreadable(change: FileChange, reason: str) -> Subject:
    """A file that cannot be read, and could or is new: whatever launches with it is not known, and that gates."""
    issue = Finding(
        rule="unreadable",
        severity="error",
        title="The file can no longer be read" if change.base is not None else "The file cannot be read",
        evidence=reason,
        remedy="put a file in its place that can be; where its syntax is that of a newer Python, compare with that one",
        scope="kernel" if change.path.endswith(".py") else "table",
    )
    failure = Failure(condition="failed", what="", reason=reason)
    return Subject(kind="file", title=change.path, path=change.path, change=change.word, new_issues=(issue,), failures=(failure,))


def refused(data: bytes) -> str | None:
    """Why Python refuses a file, or we cannot read it; None: neither. As bytes, for the file may say its own encoding."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            syntax.parse(data)
        source_text(data, "the file")
    except InputError as error:
        return str(error)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        return f"{where}{error.msg}, says Python {sys.version_info.major}.{sys.version_info.minor}"
    except ValueError as error:
        return str(error)
    return None


LARGEST_IMPORTED = 40
"""Files that are read for what one file imports."""
KEPT_PLACES = 65_536
"""Of modules, as a folder's files may find them: each file that leads to another asks for those that it imports anew."""


def located(paths: Container[str], path: str, item: Import) -> str | None:
    """The path of a tree that an import of the file `path` leads to; None: none in the tree."""
    return next((place for place in _places(path.rpartition("/")[0], item.module, item.level) if place in paths), None)


@lru_cache(maxsize=KEPT_PLACES)
def _places(folder: str, module: str, level: int) -> tuple[str, ...]:
    """Where a file of a folder may find a module, in order."""
    return tuple(map(str, places(PurePosixPath(folder), module, level)))


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
        looked_at = {side.path for change in known for side in (change.base, change.head) if side is not None}
        paths = sorted({*self.base, *self.head} - looked_at)
        return [FileChange(path=path, base=before.get(path), head=after.get(path)) for path in paths]


def launched_elsewhere(base: Tree, head: Tree, changed: Sequence[FileChange]) -> LaunchedElsewhere:
    """Of files that changed: the kernels of others that they launch.

    Args:
        base, head: The trees.
        changed: The files.
    """
    sides: list[Launchers] = []
    left_out = 0
    for tree, entries in ((base, [change.base for change in changed]), (head, [change.head for change in changed])):
        sources = [entry for entry in entries if entry is not None and is_source(entry)]
        left_out = max(left_out, len(sources) - LARGEST_LAUNCHERS)
        sides.append(_launchers(tree, sources[:LARGEST_LAUNCHERS]))
    warning = f"{left_out} files were not looked through for launches of other files' kernels: there are more than {LARGEST_LAUNCHERS:,}."
    return LaunchedElsewhere(base=sides[0], head=sides[1], left_out=(warning,) if left_out > 0 else ())


def is_source(entry: Entry) -> bool:
    return entry.kind == "file" and entry.path.endswith(".py") and entry.size_bytes <= LARGEST_SOURCE_BYTES


def _launchers(tree: Tree, entries: Sequence[Entry]) -> Launchers:
    reading = Reading(tree)
    return grouped((path, entry) for entry in entries if LAUNCH.search(tree.read(entry)) for path in _launched_by(reading, entry))


def _launched_by(reading: Reading, entry: Entry) -> list[str]:
    """The paths of the files whose kernels a file launches."""
    try:
        files = dict.fromkeys(file.path.as_posix() for file, *_ in imported_launches(reading.file(entry)))
    except (AdvisorError, *ODD):  # told where the file itself is compared
        return []
    return [path for path in files if path in reading.tree.entries()]


LARGEST_PACKAGE = 2_000
"""Files of a tree that are looked through for calls of one file's functions, or launches of its kernels, by their text."""
MOST_CALLERS = 12
"""Files that are read for how they call functions of one, or launch its kernels, the nearest first: each takes some 20 ms."""


def callers(reading: Reading, source: SourceFile) -> tuple[SourceFile, ...]:
    """The files of a tree that call the functions of another which launch its kernels."""
    around = [source.module_names.scopes_around(call) for _, call in source.module_names.launches]
    names = {name for scopes in around for scope in scopes if (name := getattr(scope, "name", ""))}
    sources = (parsed(reading.tree, item) for item in _mentioning(reading, source, names))
    return tuple(item for item in sources if item is not None)


def launchers(reading: Reading, source: SourceFile) -> list[Entry]:
    """The files of a tree that launch kernels of another which launches none of these itself."""
    names = {name for name in source.functions.keys() & {*source.launchable} if not any(launches(source, name))}
    return [entry for entry in _mentioning(reading, source, names) if source.path.as_posix() in _launched_by(reading, entry)]


def _mentioning(reading: Reading, source: SourceFile, names: Collection[str]) -> list[Entry]:
    """The files of a tree in whose text one of the names of another stands, `MOST_CALLERS` of the same package, tests aside."""
    path = source.path.as_posix()
    package = path.split("/")[: 2 if path.startswith("src/") else 1]
    entries = [
        entry
        for entry in reading.tree.entries().values()
        if names and is_source(entry) and entry.path != path and entry.path.split("/")[: len(package)] == package
        if not TESTS.search(entry.path)
    ][:LARGEST_PACKAGE]
    mentioned = re.compile(rb"\b(" + b"|".join(re.escape(item.encode()) for item in sorted(names)) + rb")\b")
    reading.tree.fetch(entries)
    files = [entry for entry in entries if mentioned.search(reading.tree.read(entry))]
    return sorted(files, key=lambda item: (-_common(item.path, path), item.path))[:MOST_CALLERS]


TESTS = re.compile(r"(^|/)(tests?|bench\w*|examples?)/|(^|/)test_|(^|/)(bench\w*|setup|\w+_test)\.py$")


def _common(one: str, other: str) -> int:
    """Folders that two paths have in common."""
    pairs = zip(one.split("/")[:-1], other.split("/")[:-1], strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


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
