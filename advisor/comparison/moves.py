"""What lies in another place than before: tables in another folder, and kernels in another file, so that a rename hides no change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from advisor.comparison import git
from advisor.comparison.kernels import LARGEST_SOURCE_BYTES, launched, mentions_triton, parse
from advisor.comparison.trees import Entry, FileChange, Tree
from advisor.configs.names import TableName, is_table_name, parse_table_name
from advisor.errors import AdvisorError


def moved_tables(differing: Sequence[FileChange]) -> list[FileChange]:
    """The changes, with a table that went to another folder as one: it runs there as before."""
    places: dict[TableName, list[FileChange]] = {}
    for change in differing:
        if change.word in ("added", "removed") and is_table_name(change.path):
            places.setdefault(parse_table_name(change.path), []).append(change)
    moved: dict[str, FileChange] = {}
    for pair in places.values():
        if sorted(each.word for each in pair) == ["added", "removed"]:
            new, old = sorted(pair, key=lambda each: each.word)
            moved |= {old.path: old, new.path: FileChange(path=new.path, base=old.base, head=new.head)}
    return [moved.get(change.path, change) for change in differing if change.path not in moved or change.word == "added"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedKernels:
    """Kernels that lie in another file than before."""

    came: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)  # by the head's file, then by kernel: the base's file
    left: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by the base's file


def moved_kernels(changed: Sequence[FileChange], base: Tree, head: Tree) -> MovedKernels:
    """Of changed files: the kernels that one no longer has, and another has now under the same name.

    Where several files lost or gained a kernel of the name, those of the same content belong together, then those of the same file name;
    what is left is a pair only where it is the only one.
    """
    lost: dict[str, list[Entry]] = defaultdict(list)
    gained: dict[str, list[Entry]] = defaultdict(list)
    for change in changed:
        if not change.path.endswith(".py"):
            continue
        before, after = _kernels(base, change.base), _kernels(head, change.head)
        for names, others, entry, found in ((before, after, change.base, lost), (after, before, change.head, gained)):
            for name, is_launched in names.items():
                if is_launched and name not in others and entry is not None:
                    found[name].append(entry)
    came: dict[str, dict[str, Entry]] = defaultdict(dict)
    left: dict[str, set[str]] = defaultdict(set)
    for name in lost:
        for old, new in _pairs(lost[name], gained[name]):
            came[new.path][name] = old
            left[old.path].add(name)
    return MovedKernels(came=came, left={path: frozenset(names) for path, names in left.items()})


def _kernels(tree: Tree, entry: Entry | None) -> dict[str, bool]:
    """The kernels that a file defines, each with whether it is launched; none where it cannot be read, which its comparison tells."""
    if entry is None or entry.kind != "file" or entry.size_bytes > LARGEST_SOURCE_BYTES:
        return {}
    try:
        data = tree.read(entry)
        source = parse(data, entry.path) if mentions_triton(data) else None
    except git.PartialCloneError:
        raise
    except AdvisorError:
        return {}
    return dict.fromkeys(source.definitions, False) | dict.fromkeys(launched(source), True) if source is not None else {}


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
