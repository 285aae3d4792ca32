"""What lies in another place than before: tables in another folder, and kernels in another file, so that a rename hides no change."""

from __future__ import annotations

import ast
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from advisor.comparison.kernels.kernel_digest import renamed
from advisor.comparison.kernels.kernel_source import LARGEST_SOURCE_BYTES, mentions_triton, parse
from advisor.comparison.kernels.kernel_version import launched
from advisor.comparison.kernels.kernels import LARGEST_KERNELS
from advisor.comparison.trees import git
from advisor.comparison.trees.trees import Entry, FileChange, Tree
from advisor.system.errors import AdvisorError
from advisor.tables.names import TableName, is_table_name, parse_table_name


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
class Origin:
    """Where a kernel lay in the base: the file, and what it was called there."""

    entry: Entry
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedKernels:
    """Kernels that lie in another file than before."""

    came: Mapping[str, Mapping[str, Origin]] = field(default_factory=dict)  # by the head's file, then by kernel
    left: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by the base's file


def moved_kernels(changed: Sequence[FileChange], base: Tree, head: Tree) -> MovedKernels:
    """Of changed files: the kernels that one no longer has, and another has now under the same name; or, where it is a new file, under
    another name with nearly the same body.

    Where several files lost or gained a kernel of the name, those of the same content belong together, then those of the same file name;
    what is left is a pair only where it is the only one.
    """
    lost: dict[str, list[Entry]] = defaultdict(list)
    gained: dict[str, list[Entry]] = defaultdict(list)
    bodies: tuple[_Bodies, _Bodies] = ({}, {})  # of what is gone from files that gained nothing, and of what is in new files
    for change in changed:
        if not change.path.endswith(".py"):
            continue
        before, after = _kernels(base, change.base), _kernels(head, change.head)
        for names, others, entry, found in ((before, after, change.base, lost), (after, before, change.head, gained)):
            for name, node in names.items():
                if node is not None and name not in others and entry is not None:
                    found[name].append(entry)
                    if (change.base is None) if found is gained else after.keys() <= before.keys():
                        bodies[found is gained][entry, name] = node
    came: dict[str, dict[str, Origin]] = defaultdict(dict)
    left: dict[str, set[str]] = defaultdict(set)
    for name in lost:
        for old, new in _pairs(lost[name], gained.get(name, ())):
            came[new.path][name] = Origin(entry=old, name=name)
            left[old.path].add(name)
    gone, fresh = (
        {key: node for key, node in side.items() if key[1] not in known} for side, known in zip(bodies, (gained, lost), strict=True)
    )
    for (file, name), (old, former) in renamed(_few(gone), _few(fresh)).items():
        came[file.path][name] = Origin(entry=old, name=former)
        left[old.path].add(former)
    return MovedKernels(came=came, left={path: frozenset(names) for path, names in left.items()})


_Bodies = dict[tuple[Entry, str], ast.FunctionDef]
"""Kernels by file and name."""


def _few(bodies: _Bodies) -> _Bodies:
    return dict(itertools.islice(bodies.items(), LARGEST_KERNELS))


def _kernels(tree: Tree, entry: Entry | None) -> dict[str, ast.FunctionDef | None]:
    """The kernels that a file defines, each with its body where it is launched.

    There are none where the file cannot be read, which its comparison tells.
    """
    if entry is None or entry.kind != "file" or entry.size_bytes > LARGEST_SOURCE_BYTES:
        return {}
    try:
        data = tree.read(entry)
        source = parse(data, entry.path) if mentions_triton(data) else None
    except git.PartialCloneError:
        raise
    except AdvisorError:
        return {}
    if source is None:
        return {}
    return dict.fromkeys(source.definitions) | {name: source.definitions[name][-1] for name in launched(source)}


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
