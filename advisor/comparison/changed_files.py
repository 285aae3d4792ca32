"""What there is to say of one file that differs between two trees: a table, the kernels it holds, a result or a file of rows."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from advisor.advising.targets import Request
from advisor.comparison.files import result_subject, rows_subject
from advisor.comparison.kernels.attempts import Compiling
from advisor.comparison.kernels.importers import (
    LARGEST_IMPORTED,
    LARGEST_SOURCE_BYTES,
    LaunchedElsewhere,
    Launchers,
    Reading,
    callers,
    is_kernel_source,
    launchers,
    mentions_triton,
    parsed,
    refused,
    unreadable,
)
from advisor.comparison.kernels.kernels import kernel_subjects
from advisor.comparison.settings import Recorded, Settings
from advisor.comparison.tables import Fallback, fallback_entry, named_like_table, table_request, table_subject, version_folders
from advisor.comparison.trees.trees import (
    LARGEST_FILE_BYTES,
    Entry,
    FileChange,
    FolderTree,
    RevisionTree,
    Tree,
    check_readable,
    reached_file,
)
from advisor.comparison.unseen import no_longer_a_kernel
from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Predictor
from advisor.measurement.measured_rows import read_measured
from advisor.python_source.source import SourceFile
from advisor.rendering.comparison_words import AUDITED
from advisor.result import result_json
from advisor.result.comparison_schema import Subject
from advisor.system import grouped
from advisor.system.errors import AdvisorError
from advisor.tables.names import is_table_name, parse_table_name

MOST_GLANCED_AT = 5_000
"""Files that are looked at for what is certain to fail, past those that are compared."""


def moved_tables(differing: Sequence[FileChange]) -> list[FileChange]:
    """The changes, with a table that went to another folder as one: it runs there as before."""
    places = grouped(
        (parse_table_name(change.path), change)
        for change in differing
        if change.word in ("added", "removed") and is_table_name(change.path)
    )
    moved: dict[str, FileChange] = {}
    for pair in places.values():
        if sorted(side.word for side in pair) == ["added", "removed"]:
            new, old = sorted(pair, key=lambda item: item.word)
            moved |= {old.path: old, new.path: FileChange(path=new.path, base=old.base, head=new.head)}
    return [moved.get(change.path, change) for change in differing if change.path not in moved or change.word == "added"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedKernels:
    """Kernels that lie in another file than before, under the same name."""

    came: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)  # by the head's file, then by kernel: where it lay in the base
    left: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by the base's file


def moved_kernels(changed: Sequence[FileChange], base: Tree, head: Tree) -> MovedKernels:
    """Of changed files: the kernels that one no longer has, and another has now under the same name.

    Where several files lost or gained a kernel of the name, those of the same content belong together, then those of the same file name;
    what is left is a pair only where it is the only one.
    """
    lost: dict[str, list[Entry]] = defaultdict(list)
    gained: dict[str, list[Entry]] = defaultdict(list)
    for change in changed:
        if change.path.endswith(".py"):
            before, after = _kernels(base, change.base), _kernels(head, change.head)
            for names, entry, paths in ((before - after, change.base, lost), (after - before, change.head, gained)):
                for name in names:
                    if entry is not None:
                        paths[name].append(entry)
    came: dict[str, dict[str, Entry]] = defaultdict(dict)
    left: dict[str, set[str]] = defaultdict(set)
    for name in lost:
        for old, new in _pairs(lost[name], gained.get(name, ())):
            came[new.path][name] = old
            left[old.path].add(name)
    return MovedKernels(came=came, left={path: frozenset(names) for path, names in left.items()})


def _kernels(tree: Tree, entry: Entry | None) -> set[str]:
    """The kernels that a file defines; none where it cannot be read, which its comparison tells."""
    source = parsed(tree, entry, kernels=True) if entry is not None else None
    return set(source.definitions) if source is not None else set()


def _pairs(lost: Sequence[Entry], gained: Sequence[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """Each file that lost something with the one that gained it, as far as that is clear."""
    old, new = list(lost), list(gained)
    for mark in (lambda entry: entry.identity, lambda entry: PurePosixPath(entry.path).name, lambda _: ""):
        for value in sorted({mark(entry) for entry in new}):
            olds, news = ([entry for entry in entries if mark(entry) == value] for entries in (old, new))
            if len(olds) == len(news) == 1:
                yield olds[0], news[0]
                old.remove(olds[0])
                new.remove(news[0])


@dataclass(frozen=True, kw_only=True)
class ChangedFiles:
    """Two trees, and what else the comparison of a file needs that differs between them."""

    base: Tree
    head: Tree
    request: Request
    settings: Settings
    gpus: tuple[GpuSpec, ...]
    predictor: Predictor
    compiling: Compiling
    recorded: Recorded
    moved: MovedKernels = field(default_factory=MovedKernels)
    launched: LaunchedElsewhere = field(default_factory=LaunchedElsewhere)
    renamed: list[str] = field(default_factory=list)  # kernels that are the same under another name or in another file, as they are found

    def subjects(self, change: FileChange) -> list[Subject]:
        """What there is to say of a changed file; nothing where it is neither a table nor holds a kernel."""
        odd = self._odd_kind(change)
        if odd is not None:
            return odd
        suffix = PurePosixPath(change.path).suffix
        if suffix == ".py":
            return self._kernels(change)
        if suffix == ".csv" or not named_like_table(change.path):
            return self._plain(change)
        spent = self.compiling.late()
        subject = table_subject(predictor=self.predictor, **self.of_table(change, predict=not spent))
        return [replace(subject, notes=(*subject.notes, f"{AUDITED}: {spent}.")) if spent else subject]

    def failing(self, changes: Sequence[FileChange]) -> Iterator[Subject]:
        """Of files that are past the limit of what is compared, those that soon turn out to fail: they cannot be read, or have entries that
        no launch takes."""
        for change in changes[:MOST_GLANCED_AT]:
            subject = None
            with contextlib.suppress(AdvisorError):
                subject = no_longer_readable(self.base, self.head, change)
                if subject is None and change.head is not None and change.head.kind == "file" and named_like_table(change.path):
                    subject = table_subject(predictor=self.predictor, **self.of_table(change, predict=False))
            if subject is not None and subject.failures:
                yield subject

    def predicted(self, changes: Iterable[FileChange]) -> dict[FileChange, dict[str, Any]]:
        """The arguments of `table_subject`, but for what predicts, of those that are tables and can be read; none where time is limited."""
        out = {}
        for change in changes if math.isinf(self.compiling.until) else ():
            with contextlib.suppress(AdvisorError):
                if named_like_table(change.path) and all(entry.kind == "file" for entry in (change.base, change.head) if entry is not None):
                    out[change] = self.of_table(change)
        return out

    def of_table(self, change: FileChange, *, predict: bool = True) -> dict[str, Any]:
        """The arguments of `table_subject`, but for what predicts."""
        return {
            "path": change.path,
            "change": change.word,
            "base": self._bytes(self.base, change.base),
            "head": self._bytes(self.head, change.head),
            "request": table_request(self.request, self.settings, change.path, change.base.path if change.base is not None else None),
            "gpus": self.gpus,
            "fallback": self._fallback(change),
            "predict": predict,
        }

    @cached_property
    def _entries(self) -> tuple[dict[str, Entry], dict[str, Entry]]:
        return self.base.entries(), self.head.entries()

    @cached_property
    def _versions(self) -> tuple[dict[PurePosixPath, list[PurePosixPath]], ...]:
        """Of each tree; every table that one side lacks asks for them."""
        return tuple(version_folders(entries) for entries in self._entries)

    def _fallback(self, change: FileChange) -> Fallback | None:
        """What runs in place of a table on the side that does not have it."""
        sides = zip((self.base, self.head), self._entries, self._versions, (change.base, change.head), strict=True)
        for tree, entries, versions, fallback in sides:
            if fallback is None and (entry := fallback_entry(change.path, entries, versions)) is not None:
                return Fallback(path=entry.path, data=tree.read(entry))
        return None

    def _odd_kind(self, change: FileChange) -> list[Subject] | None:
        """Symbolic links, submodules and the like: named, never followed. What a link is replaced by is new."""
        odd = [(word, entry) for word, entry in (("base", change.base), ("head", change.head)) if entry and entry.kind != "file"]
        if not odd:
            return None
        if not (named_like_table(change.path) or change.path.endswith(".py")):
            return []
        if change.base is not None and change.head is not None and change.head.kind == "file":
            former = f"It was a {change.base.kind}."
            return [replace(subject, notes=(former, *subject.notes)) for subject in self.subjects(replace(change, base=None))]
        notes = tuple(f"{word}: a {entry.kind}, which is not followed" for word, entry in odd)
        if (lost := no_longer_readable(self.base, self.head, change)) is not None:
            return [replace(lost, notes=notes)]
        return [Subject(kind="file", title=change.path, path=change.path, change=change.word, notes=notes)]

    def _bytes(self, tree: Tree, entry: Entry | None) -> bytes | None:
        return tree.read(entry) if entry is not None else None

    def _plain(self, change: FileChange) -> list[Subject]:
        """A result or a file of rows in a folder; only where both sides have it."""
        if change.base is None or change.head is None or isinstance(self.head, RevisionTree):
            return []
        assert isinstance(self.base, FolderTree) and isinstance(self.head, FolderTree)
        paths = [tree.folder / change.path for tree in (self.base, self.head)]
        if change.path.endswith(".csv"):
            return [rows_subject(change.path, list(read_measured(paths[0])), list(read_measured(paths[1])), self.predictor)]
        data = [self._bytes(self.base, change.base), self._bytes(self.head, change.head)]
        if not all(item is not None and b'"schema_version"' in item for item in data):
            return []
        results = [result_json.from_json(item or b"", name=change.path) for item in data]
        return [result_subject(change.path, results[0], results[1])]

    def _kernels(self, change: FileChange) -> list[Subject]:
        """The kernels of a file, with the files that launch them, and the calls of what launches others."""
        came = self.moved.came.get(change.path, {})
        left = self.moved.left.get(change.base.path, frozenset()) if change.base is not None else frozenset()
        before, after = Reading(self.base), Reading(self.head)
        sources = [self._kernel_file(reading, entry) for reading, entry in ((before, change.base), (after, change.head))]
        files = {entry.path: self._kernel_file(before, entry) for entry in set(came.values())}
        origins = {name: (entry.path, source) for name, entry in came.items() if (source := files[entry.path]) is not None}
        if sources[1] is None and (lost := no_longer_readable(self.base, self.head, change)) is not None:
            return [lost]  # not even the words can be read by which a file of kernels is known
        if not any(sources):
            return []
        former = {entry.path for entry in (*came.values(), change.base) if entry is not None}
        subjects = kernel_subjects(
            change.path,
            change.word,
            sources[0],
            sources[1],
            settings=self.settings,
            gpus=self.gpus,
            predictor=self.predictor,
            compiling=self.compiling,
            recorded=self.recorded,
            origins=origins,
            left=left,
            launchers=(
                _launchers(before, self.launched.base, former, sources[0]),
                _launchers(after, self.launched.head, {change.path}, sources[1]),
            ),
            renamed_only=self.renamed,
        )
        subjects = [no_longer_a_kernel(self.head, change.head, subject) for subject in subjects]
        left_out = before.left_out or after.left_out
        note = (f"Its kernels need more than {LARGEST_IMPORTED} other files: the rest was not read.",) if left_out else ()
        return [replace(item, notes=(*note, *item.notes)) for item in subjects]

    def _kernel_file(self, reading: Reading, entry: Entry | None) -> SourceFile | None:
        """A file that may hold kernels; None where there is none, or it holds none."""
        if entry is None:
            return None
        check_readable(entry, LARGEST_SOURCE_BYTES)
        if not mentions_triton(reading.tree.read(entry)):
            return None
        source = reading.file(entry)
        return source.given(callers=callers(reading, source)) if source.definitions else source


def _launchers(reading: Reading, known: Launchers, paths: Collection[str], source: SourceFile | None) -> list[tuple[str, SourceFile]]:
    """The files that launch kernels of others in these paths, or of one that is read, each with its path."""
    entries = [entry for path in sorted(paths) for entry in known.get(path, ())] + (
        launchers(reading, source) if source is not None else []
    )
    return [(entry.path, reading.file(entry)) for entry in dict.fromkeys(entries)]


def no_longer_readable(base: Tree, head: Tree, change: FileChange) -> Subject | None:
    """The failure of a table or a kernel file in whose place a link stands, that is too large, or no Python; None: it is neither."""
    old, new, code = change.base, change.head, change.path.endswith(".py")
    limit = LARGEST_SOURCE_BYTES if code else LARGEST_FILE_BYTES
    if new is not None and new.kind != "file" and (old is None or old.kind != "file"):
        read = reached_file(head, change.path) if code else None
        hidden = read is not None and read.size_bytes <= limit and not read.path.endswith(".py") and mentions_triton(head.read(read))
        return unreadable(change, f"a {new.kind}, which is not followed") if hidden or not code else None
    if old is None and new is not None and code and new.size_bytes <= limit and mentions_triton(data := head.read(new)):
        reason = refused(data)
        return unreadable(change, reason) if reason is not None else None
    if old is None or new is None or old.kind != "file" or old.size_bytes > limit:
        return None
    if not (is_kernel_source(base.read(old)) if code else named_like_table(change.path)):
        return None
    if new.kind != "file":
        return unreadable(change, f"a {new.kind}, which is not followed")
    if new.size_bytes > limit:
        return unreadable(change, f"too large: {new.size_bytes:,} bytes, at most {limit:,} bytes")
    reason = refused(head.read(new)) if code else None
    return unreadable(change, reason) if reason is not None else None
