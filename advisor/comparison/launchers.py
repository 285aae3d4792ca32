"""Which files of two trees launch kernels that others define: a change of the one is a change of how the other's kernels run."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor.comparison import git
from advisor.comparison.kernels import LARGEST_SOURCE_BYTES, ODD
from advisor.comparison.reading import Reading
from advisor.comparison.trees import Entry, FileChange, Tree, sized
from advisor.configs.launch_calls import imported_launches
from advisor.errors import AdvisorError

_LAUNCH = re.compile(rb"\]\s*\(|\.run\s*\(")
"""Stands in every file that launches a kernel, and in few others: only these are parsed."""

LARGEST_LAUNCHERS = 1_000
"""Files of a tree that are looked through for launches: each takes some 20 ms."""

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
        return sized([FileChange(path=path, base=before.get(path), head=after.get(path)) for path in paths], base, head)


def launched_elsewhere(base: Tree, head: Tree, changed: Sequence[FileChange]) -> LaunchedElsewhere:
    """Of files that changed, or that import what did: the kernels of others that they launch."""
    sides: list[dict[str, list[Entry]]] = []
    left_out = 0
    for tree, entries in ((base, [change.base for change in changed]), (head, [change.head for change in changed])):
        sources = [each for each in entries if each is not None and _is_source(each)]
        left_out = max(left_out, len(sources) - LARGEST_LAUNCHERS)
        try:
            sides.append(_launchers(tree, sources[:LARGEST_LAUNCHERS]))
        except git.PartialCloneError:
            told = "Kernels that changed files launch were not looked for in others: a partial clone may lack them (clone without --filter)"
            return LaunchedElsewhere(left_out=(told,))
    told = f"{left_out} files were not looked through for launches of other files' kernels: there are more than {LARGEST_LAUNCHERS:,}."
    return LaunchedElsewhere(base=sides[0], head=sides[1], left_out=(told,) if left_out > 0 else ())


def _is_source(entry: Entry) -> bool:
    return entry.kind == "file" and entry.path.endswith(".py") and entry.size_bytes <= LARGEST_SOURCE_BYTES


def _launchers(tree: Tree, entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    with tempfile.TemporaryDirectory(prefix="advisor-compare-") as folder:
        reading = Reading(tree, Path(folder))
        for entry in entries:
            if not _LAUNCH.search(tree.read(entry)):
                continue
            try:
                source = reading.launches(entry, whole=False)
                files = [file for file, *_ in imported_launches(source)] if source is not None else []
            except git.PartialCloneError:
                raise
            except (AdvisorError, *ODD):  # told where the file itself is compared
                continue
            for place in dict.fromkeys(file.path for file in files if file.path.is_relative_to(folder)):
                found.setdefault(place.relative_to(folder).as_posix(), []).append(entry)
    return found
