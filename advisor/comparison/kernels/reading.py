"""Kernel files of a tree, read into a folder of their own with the files that they import, so that imports are found there and nowhere
else. They are parsed, never imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from advisor.comparison.kernels.importers import imported_files
from advisor.comparison.kernels.kernel_source import LARGEST_SOURCE_BYTES, mentions_triton, parse
from advisor.comparison.trees.trees import Entry, Tree, check_readable
from advisor.python_source.source import SourceFile
from advisor.system.errors import InputError


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
