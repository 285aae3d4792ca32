"""Files that may hold kernels: parsed, never imported."""

from __future__ import annotations

import ast
import sys
import warnings

from advisor.comparison.trees.trees import Entry, FileChange, Tree
from advisor.python_source.source import SourceFile, parse_source
from advisor.result.comparison_schema import Failure, Subject
from advisor.result.schema import Finding
from advisor.system.errors import AdvisorError, InputError

LARGEST_SOURCE_BYTES = 1_000_000
"""No kernel file is that long, and parsing takes some fifty times its size in memory."""

ODD = (TypeError, ValueError, KeyError, IndexError, AttributeError, ZeroDivisionError, OverflowError, RecursionError, MemoryError)
"""What a hostile or half-written file can make the parsing of literals raise, besides our own errors."""


def mentions_triton(data: bytes | None) -> bool:
    """Whether a file can hold a kernel; cheap, before parsing."""
    return data is not None and b"triton" in data and b"jit" in data


def parse(data: bytes, path: str) -> SourceFile:
    """The file, parsed.

    Raises:
        InputError: It is too large, or is not Python.
    """
    if len(data) > LARGEST_SOURCE_BYTES:
        raise InputError(f"{path}: too large to be parsed", f"{len(data):,} bytes", f"at most {LARGEST_SOURCE_BYTES:,} bytes")
    return _KEPT.parsed(data, path)


def parsed(tree: Tree, entry: Entry, *, kernels: bool = False) -> SourceFile | None:
    """A file of a tree, parsed; None: it is no file, too large, or not Python, or can hold no kernel where `kernels` are asked for."""
    try:
        data = tree.read(entry) if entry.kind == "file" and entry.size_bytes <= LARGEST_SOURCE_BYTES else None
        return parse(data, entry.path) if data is not None and (not kernels or mentions_triton(data)) else None
    except AdvisorError:
        return None


class KeptFiles:
    """The files that were asked for last, of so many bytes together that they fit the memory: parsed they take some fifty times as much.

    Whoever gets one reads it, and changes nothing of it.
    """

    def __init__(self, largest_bytes: int) -> None:
        self.largest_bytes = largest_bytes
        self._files: dict[tuple[str, bytes], SourceFile] = {}  # the one that was asked for last is the last
        self._bytes = 0

    def parsed(self, data: bytes, path: str) -> SourceFile:
        """The file, parsed.

        Raises:
            InputError: It is not Python.
        """
        key = (path, data)
        source = self._files.pop(key, None)
        if source is None:
            try:
                source = parse_source(data.decode("utf-8-sig"), path)
            except UnicodeDecodeError:
                raise InputError(f"{path}: not UTF-8 text") from None
            self._bytes += len(data)
        self._files[key] = source
        while self._bytes > self.largest_bytes:
            oldest = next(iter(self._files))
            del self._files[oldest]
            self._bytes -= len(oldest[1])
        return source


_KEPT = KeptFiles(largest_bytes=6_000_000)


def is_kernel_source(data: bytes) -> bool:
    """Whether a file can hold a kernel, and can be parsed."""
    return mentions_triton(data) and refused(data) is None


def unreadable(change: FileChange, reason: str) -> Subject:
    """A file that could be read and no longer can: whatever launches with it is not known any more, and that gates."""
    issue = Finding(
        rule="unreadable",
        severity="error",
        title="The file can no longer be read",
        evidence=reason,
        remedy="put a file in its place that can be; where its syntax is that of a newer Python, compare with that one",
        scope="kernel" if change.path.endswith(".py") else "table",
    )
    failure = Failure(condition="failed", what="", reason=reason)
    return Subject(kind="file", title=change.path, path=change.path, change=change.word, new_issues=(issue,), failures=(failure,))


def refused(data: bytes) -> str | None:
    """Why Python refuses a file, None where it does not; as bytes, for the file may say its own encoding."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(data)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        return f"{where}{error.msg}, says Python {sys.version_info.major}.{sys.version_info.minor}"
    except ValueError as error:
        return str(error)
    except (RecursionError, MemoryError):  # nothing is certain of these
        return None
    return None
