"""What changes kernels while their own files stay as they are: files that they import from, and how git writes files out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from advisor.comparison.kernels.importers import LARGEST_SOURCE_BYTES, ODD, Reading, is_source, mentions_triton, parsed
from advisor.comparison.kernels.kernel_digest import meaning
from advisor.comparison.trees import git
from advisor.comparison.trees.trees import LARGEST_FILE_BYTES, Entry, FileChange, RevisionTree, Tree
from advisor.python_source.bindings import names_in
from advisor.python_source.imports import MOST_HANDS
from advisor.python_source.kernel_forms import grid_of, may_be_kernel
from advisor.python_source.source import SourceFile
from advisor.result.comparison_schema import UNKNOWN, Failure, Subject
from advisor.system import grouped
from advisor.system.errors import AdvisorError
from advisor.system.resources import phrase

MOST_SEARCHED = 20_000
"""Python files of a tree whose text is searched for imports of those that changed."""
MOST_READ = 300
"""Files of kernels that are read for what they import: each takes some 20 ms."""
NOT_COMPARED = phrase("answer.imports_changed")
WORD = re.compile(r"\w+")
COMPARED = (".py", ".json", ".jsonl", ".toml")
"""What the names of files end in that are read of a revision."""
AS_IT_IS = {"ident": ("unspecified", "unset"), "working-tree-encoding": ("unspecified", "utf-8", "utf8")}
"""Attributes by which git writes out another text than it holds, whatever is configured -> values by which it does not, in lower case."""
SHOWN = 8
"""Files that are named; of others it is said how many there are."""


def changed_by_imports(base: Tree, head: Tree, changed: Sequence[FileChange]) -> tuple[list[Subject], list[str]]:
    """The files of kernels that are on both sides as they were, and whose kernels or launches take something else from others now; and
    warnings of what was left out. They are named, and not compared."""
    paths = {change.path for change in changed if change.path.endswith(".py")}
    before, after = base.entries(), head.entries()
    kept = [entry for path, entry in after.items() if path not in paths and before.get(path) == entry and is_source(entry)]
    candidates = _that_import(head, kept[:MOST_SEARCHED], paths) if paths else []
    left_out = max(0, len(kept) - MOST_SEARCHED) if paths else 0
    subjects: list[Subject] = []
    sides = Reading(base), Reading(head)
    for entry in candidates[:MOST_READ]:
        try:
            other = _needed(sides[1].file(entry), paths)
            one = _needed(sides[0].file(entry), paths) if other else other  # it comes by none of them: nor did it
        except (AdvisorError, *ODD):  # which is so on both sides
            continue
        if one != other:
            names = sorted({name for name, _ in {*one} ^ {*other}})
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            notes = (NOT_COMPARED, phrase("answer.imported", which=f"{', '.join(names[:SHOWN])}{more}"))
            subjects.append(Subject(kind="file", title=entry.path, path=entry.path, change="modified", notes=notes))
    left_out += max(0, len(candidates) - MOST_READ)
    warning = f"{left_out} Python files were not looked through for what their kernels import of those that changed."
    return subjects, [warning] if left_out else []


def _needed(source: SourceFile, paths: Container[str]) -> list[tuple[str, str]]:
    """What the kernels of a file, and what its launches pass, come down to in the files at `paths`; kernels that it launches are compared
    where they are."""
    passed = names_in(*(node for _, call in source.module_names.launches for node in (*call.args, *call.keywords, grid_of(call))))
    return meaning(source, [*source.definitions, *sorted(passed)], within=paths)


def _that_import(tree: Tree, entries: Sequence[Entry], paths: Iterable[str]) -> list[Entry]:
    """The files of kernels or launches that import, by themselves or through others, what may be one of the files at `paths`, by the words
    of their text."""
    tree.fetch(entries)
    imported = {entry.path: _imported_words(tree.read(entry)) for entry in entries}
    packages = {PurePosixPath(path).parent for path in tree.entries() if path.endswith("__init__.py")}
    waiting = {entry.path: entry for entry in entries}
    reached: list[Entry] = []
    names = set(paths)
    for _ in range(MOST_HANDS):
        modules = grouped((_module(path).stem, _module(path).parent) for path in names)
        inits = {str(PurePosixPath(path).parent) for path in names if path.endswith("__init__.py")}
        fresh = []
        for path, item in waiting.items():
            folder, words = PurePosixPath(path).parent, imported[path]
            around = (place for word in modules.keys() & words for place in modules[word])  # named as well, or the file's own
            if str(folder) in inits or any(p.name in words or p not in packages or folder.is_relative_to(p) for p in around):
                fresh.append(item)
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


def _module(path: str) -> PurePosixPath:
    """What a file is imported as, with its package before it: the file, or the package that it stands for."""
    place = PurePosixPath(path)
    return place.parent if place.name == "__init__.py" else place


def written_otherwise(base: Tree, head: Tree, changed: Iterable[FileChange]) -> Iterator[Subject]:
    """A failure, as of what cannot be read, where files of the head are checked out with another text than git holds, and is compared."""
    if not isinstance(base, RevisionTree) or not isinstance(head, RevisionTree):
        return
    attribute_files = [
        entry for tree in (base, head) for path, entry in tree.entries().items() if PurePosixPath(path).name == ".gitattributes"
    ]
    differing = {change.path for change in changed}
    large = [entry.path for entry in attribute_files if entry.path in differing and entry.size_bytes > LARGEST_FILE_BYTES]
    reason = f"{large[0]} is larger than {LARGEST_FILE_BYTES:,} bytes: what git reads of it depends on its version" if large else ""
    if attribute_files and not reason and (written := _rewritten(base, head, differing)):
        listed = ", ".join(written[:SHOWN]) + (f" and {len(written) - SHOWN} more" if len(written) > SHOWN else "")
        reason = f"by it, git writes {listed} out with another text than is compared (working-tree-encoding or ident)"
    if reason:
        failure, title = Failure(condition="failed", what="", reason=reason), ".gitattributes"
        yield Subject(kind="file", title=title, path=title, change="modified", notes=(reason,), failures=(failure,))


def _rewritten(base: RevisionTree, head: RevisionTree, differing: Container[str]) -> list[str]:
    """The files that git writes out with another text, and that changed, or were not written out so in the base. Git says what applies to
    which: attributes have macros, an order and places."""
    entries = {path: entry for path, entry in head.entries().items() if entry.kind == "file" and path.endswith(COMPARED)}
    old, new = (git.attributes(tree.folder, tree.revision or "", list(AS_IT_IS), list(entries)) for tree in (base, head))
    rewritten = []
    for path, values in new.items():
        rewriting = [name for name, value in values.items() if value.lower() not in AS_IT_IS[name]]
        changes = path in differing and (rewriting != ["ident"] or b"$Id" in head.read(entries[path]))
        if rewriting and (values != old[path] or changes):
            rewritten.append(path)
    return rewritten


INSTEAD = (
    re.compile(r"(?P<folder>(?:.+/)?)(?P<name>(?!__init__\.)[^/.]+)(?:/__init__\.(?:[\w-]+\.)*(?:py|so|pyd)|\.(?:[\w-]+\.)*(?:so|pyd))"),
    re.compile(r"(?P<folder>(?:.+/)?)__pycache__/(?P<name>[^/.]+)\.[^/]*pyc"),
)
"""Paths that Python imports, or may, in the place of `folder/name.py`: a package, a library, and what it compiled before."""


def taken_instead(head: Tree, changed: Iterable[FileChange]) -> Iterator[Subject]:
    """A failure for each file of kernels beside which a change puts what Python may import in its place, uncompared."""
    for change in changed:
        if change.head is None or (change.base is not None and change.path.endswith(".py")):
            continue
        matched = next((match for pattern in INSTEAD if (match := pattern.fullmatch(change.path))), None)
        stands = f"{matched['folder']}{matched['name']}" if matched else change.path if change.head.kind != "file" else ""
        entry = head.entries().get(f"{stands}.py")
        if entry is not None and entry.kind == "file" and _is_kernels(head, entry):
            reason = f"Python may take {change.path} in its place, which is not compared"
            failure = Failure(condition="failed", what="", reason=f"{UNKNOWN}{reason}")
            yield Subject(kind="file", title=entry.path, path=entry.path, change="modified", notes=(reason,), failures=(failure,))


def _is_kernels(tree: Tree, entry: Entry) -> bool:
    return entry.size_bytes <= LARGEST_SOURCE_BYTES and mentions_triton(tree.read(entry))


def no_longer_a_kernel(head: Tree, entry: Entry | None, subject: Subject) -> Subject:
    """The subject of a kernel that was removed; it fails where its file still gives something to its name, or launches it: what runs in its
    place is not compared. Plain functions and imports may take its place where nothing launches them as a kernel."""
    source = parsed(head, entry) if entry is not None else None
    if source is None or subject.kind != "kernel" or subject.change != "removed":
        return subject
    name = subject.title.rpartition("::")[2]
    lines = [node.lineno for node in source.module_names.nodes if may_be_kernel(node, name)]
    if not lines:
        return subject
    reason = (
        f"{UNKNOWN}{name} is no kernel that can be read any more, but its file has it still (line {min(lines)}): what runs is not compared"
    )
    return replace(subject, failures=(*subject.failures, Failure(condition="failed", what="", reason=reason)))
