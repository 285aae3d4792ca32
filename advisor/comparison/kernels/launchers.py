"""Which files of two trees launch kernels that others define: a change of the one is a change of how the other's kernels run."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from advisor.comparison.kernels.importers import imported_files
from advisor.comparison.kernels.kernel_source import LARGEST_SOURCE_BYTES, ODD, mentions_triton, parse
from advisor.comparison.trees import git
from advisor.comparison.trees.trees import Entry, FileChange, Tree, check_readable, sized
from advisor.python_source.launch_sites import imported_launches
from advisor.python_source.source import SourceFile
from advisor.system.errors import AdvisorError, InputError

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


@dataclass(slots=True)
class Reading:
    """Reads files of one tree into a folder."""

    tree: Tree
    folder: Path
    left_out: bool = False  # whether files that kernels need were
    _written: set[str] = field(default_factory=set)  # paths: most files import what others do

    def kernels(self, entry: Entry | None) -> SourceFile | None:
        """A file with what its kernels need; None where there is none, or it holds no kernel."""
        if entry is None:
            return None
        check_readable(entry, LARGEST_SOURCE_BYTES)
        data = self.tree.read(entry)
        if not mentions_triton(data):
            return None
        source = parse(data, entry.path)
        assert source is not None
        self.left_out |= imported_files(self.tree, source, entry.path, self._write)
        return source.at(placed(self.folder, entry.path))

    def file(self, entry: Entry) -> SourceFile:
        """A file by itself, without what it imports."""
        check_readable(entry, LARGEST_SOURCE_BYTES)
        source = parse(self.tree.read(entry), entry.path)
        assert source is not None
        return source

    def launches(self, entry: Entry, *, whole: bool) -> SourceFile | None:
        """A file that may launch kernels of others; None where it launches nothing.

        Args:
            entry: The file.
            whole: Whether to read all that it imports, and not only what leads to what it launches.
        """
        source = self.file(entry)
        names = {name for name, _ in source.launches} - set(source.definitions)
        if not names:
            return None
        return self._with_imports(source, entry, names, whole=whole)

    def _with_imports(self, source: SourceFile, entry: Entry, names: set[str], *, whole: bool) -> SourceFile:
        imported_files(self.tree, source, entry.path, self._write, names, whole=whole)
        return source.at(placed(self.folder, entry.path))

    def _write(self, entry: Entry, data: bytes) -> None:
        if entry.path in self._written:
            return
        self._written.add(entry.path)
        place = placed(self.folder, entry.path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def placed(folder: Path, path: str) -> Path:
    """Where a path of a tree is written to, below `folder`.

    Raises:
        InputError: The path would lead out of it.
    """
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or any(part in ("..", "") or len(part.encode("utf-8", "surrogateescape")) > 250 for part in parts):
        raise InputError("not a path inside the tree", path)
    return folder.joinpath(*parts)
