"""What changes kernels while their own files stay as they are: files that they import from, and how git writes files out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from advisor.comparison.kernels.importers import Reading
from advisor.comparison.kernels.kernel_digest import meaning
from advisor.comparison.kernels.kernel_source import LARGEST_SOURCE_BYTES, ODD, mentions_triton
from advisor.comparison.trees.trees import Entry, FileChange, Tree
from advisor.python_source.bindings import names_in
from advisor.python_source.imports import MOST_HANDS
from advisor.python_source.source import SourceFile
from advisor.result.comparison_schema import Failure, Subject
from advisor.system.errors import AdvisorError

MOST_SEARCHED = 20_000
"""Python files of a tree whose text is searched for imports of those that changed."""
MOST_READ = 300
"""Files of kernels that are read for what they import: each takes some 20 ms."""
NOT_COMPARED = "The file did not change, but what its kernels or launches import did: they are not compared."
WORD = re.compile(r"\w+")
REWRITING = re.compile(rb"^[ \t\r]*+(?!#)[^\n]*[ \t\r\"][-!]?(?:working-tree-encoding|ident)(?![^\s=\0])[^\n]*", re.MULTILINE)
"""Lines of attributes by which git writes out another text than it holds, whatever is configured. Blanks of git's are carriage returns too;
after a quoted pattern it needs none, and a null byte ends a line."""


def changed_by_imports(base: Tree, head: Tree, changed: Sequence[FileChange]) -> tuple[list[Subject], list[str]]:
    """The files of kernels that are on both sides as they were, and whose kernels or launches take something else from others now; and
    warnings of what was left out. They are named, and not compared."""
    paths = {change.path for change in changed if change.path.endswith(".py")}
    before, after = base.entries(), head.entries()
    kept = [entry for path, entry in after.items() if path not in paths and before.get(path) == entry and _is_source(entry)]
    candidates = _that_import(head, kept[:MOST_SEARCHED], paths) if paths else []
    left_out = max(0, len(kept) - MOST_SEARCHED) if paths else 0
    subjects: list[Subject] = []
    sides = Reading(base), Reading(head)
    for entry in candidates[:MOST_READ]:
        try:
            one, other = (_needed(reading.file(entry)) for reading in sides)
        except (AdvisorError, *ODD):  # which is so on both sides
            continue
        if one != other:
            subjects.append(Subject(kind="file", title=entry.path, path=entry.path, change="modified", notes=(NOT_COMPARED,)))
    left_out += max(0, len(candidates) - MOST_READ)
    warning = f"{left_out} Python files were not looked through for what their kernels import of those that changed."
    return subjects, [warning] if left_out else []


def _is_source(entry: Entry) -> bool:
    return entry.kind == "file" and entry.path.endswith(".py") and entry.size_bytes <= LARGEST_SOURCE_BYTES


def _needed(source: SourceFile) -> list[tuple[str, str]]:
    """What the kernels of a file, and what its launches pass, come down to."""
    passed = names_in(*(call for _, call in source.module_names.launches))
    return meaning(source, [*source.definitions, *sorted(passed)])


def _that_import(tree: Tree, entries: Sequence[Entry], paths: Iterable[str]) -> list[Entry]:
    """The files of kernels or launches that import, by themselves or through others, what may be one of the files at `paths`, by the words
    of their text."""
    tree.fetch(entries)
    imported = {entry.path: _imported_words(tree.read(entry)) for entry in entries}
    waiting = {entry.path: entry for entry in entries}
    reached: list[Entry] = []
    names = set(paths)
    for _ in range(MOST_HANDS):
        words = {_module(path) for path in names}
        folders = {str(PurePosixPath(path).parent) for path in names if path.endswith("__init__.py")}
        fresh = [
            item
            for item in waiting.values()
            if str(PurePosixPath(item.path).parent) in folders or not words.isdisjoint(imported[item.path])
        ]
        reached += fresh
        names = {item.path for item in fresh}
        waiting = {path: item for path, item in waiting.items() if path not in names}
    return [item for item in reached if mentions_triton(tree.read(item)) or b"](" in tree.read(item)]


def _imported_words(data: bytes) -> set[str]:
    """The words of the lines of a file that import something, and of those that go on from such a line."""
    words: set[str] = set()
    is_open = False
    for line in data.splitlines():
        if is_open or b"import" in line or b"from" in line:
            words.update(WORD.findall(unicodedata.normalize("NFKC", line.decode("utf-8", "replace"))))
            is_open = (is_open or b"(" in line or line.rstrip().endswith(b"\\")) and b")" not in line
    return words


def _module(path: str) -> str:
    """The word by which a file is imported: its name, or that of the package that it stands for."""
    place = PurePosixPath(path)
    return place.parent.name if place.name == "__init__.py" else place.stem


def written_otherwise(base: Tree, head: Tree, changed: Iterable[FileChange]) -> Iterator[Subject]:
    """The `.gitattributes` of a change by which files are checked out with another text than git holds, and is compared: a failure, as of
    what cannot be read."""
    for change in changed:
        if PurePosixPath(change.path).name == ".gitattributes":
            sides = ((base, change.base), (head, change.head))
            reason = ""
            try:
                old, new = (REWRITING.findall(tree.read(side)) if side is not None and side.kind == "file" else [] for tree, side in sides)
                if old != new:
                    reason = "by it, git writes files out with another text than is compared (working-tree-encoding or ident)"
            except AdvisorError as error:
                reason = str(error)
            if reason:
                failure = Failure(condition="failed", what="", reason=reason)
                yield Subject(kind="file", title=change.path, path=change.path, change=change.word, notes=(reason,), failures=(failure,))
