"""Which files of two trees launch kernels that others define: a change of the one is a change of how the other's kernels run."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor.comparison.kernels.kernel_source import LARGEST_SOURCE_BYTES, ODD
from advisor.comparison.kernels.reading import Reading
from advisor.comparison.trees import git
from advisor.comparison.trees.trees import Entry, FileChange, Tree, sized
from advisor.python_source.launch_calls import imported_launches
from advisor.system.errors import AdvisorError

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
        looked_at = {each.path for change in known for each in (change.base, change.head) if each is not None}
        paths = sorted({*self.base, *self.head} - looked_at)
        return sized([FileChange(path=path, base=before.get(path), head=after.get(path)) for path in paths], base, head)


def launched_elsewhere(base: Tree, head: Tree, changed: Sequence[FileChange]) -> LaunchedElsewhere:
    """Of files that changed, or that import what did: the kernels of others that they launch.

    Args:
        base, head: The trees.
        changed: The files.
    """
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
            if LAUNCH.search(tree.read(entry)):
                for path in _launched_by(reading, entry):
                    found.setdefault(path, []).append(entry)
    return found


def _launched_by(reading: Reading, entry: Entry) -> list[str]:
    """The paths of the files whose kernels a file launches."""
    try:
        source = reading.launches(entry, whole=False)
        files = [file for file, *_ in imported_launches(source)] if source is not None else []
    except git.PartialCloneError:
        raise
    except (AdvisorError, *ODD):  # told where the file itself is compared
        return []
    places = dict.fromkeys(file.path for file in files if file.path.is_relative_to(reading.folder))
    return [place.relative_to(reading.folder).as_posix() for place in places]
