"""Files that may hold kernels: parsed, never imported."""

from __future__ import annotations

import contextlib
import sys
import unicodedata
import warnings
from functools import lru_cache

from advisor.comparison.trees.trees import Entry, FileChange, Tree
from advisor.python_source import syntax
from advisor.python_source.source import SourceFile, parse_source, source_text
from advisor.result.comparison_schema import Failure, Subject
from advisor.result.schema import Finding
from advisor.system.errors import AdvisorError, InputError

LARGEST_SOURCE_BYTES = 1_000_000
"""No kernel file is that long, and parsing takes some fifty times its size in memory."""

KEPT_FILES = 64
"""Files that are kept parsed, those that were asked for last."""

ODD = (TypeError, ValueError, KeyError, IndexError, AttributeError, ZeroDivisionError, OverflowError, RecursionError, MemoryError)
"""What a hostile or half-written file can make the parsing of literals raise, besides our own errors."""


def mentions_triton(data: bytes | None) -> bool:
    """Whether a file can hold a kernel; cheap, before parsing."""
    if data is not None and not (data.isascii() and b"coding" not in data):  # in the encoding that it declares, and names as NFKC has them
        with contextlib.suppress(InputError):
            data = unicodedata.normalize("NFKC", source_text(data, "")).encode(errors="replace")
    return data is not None and b"triton" in data and b"jit" in data


@lru_cache(maxsize=KEPT_FILES)
def parse(data: bytes, path: str) -> SourceFile:
    """The file, parsed, and kept: whoever gets it reads it, and changes nothing of it.

    Raises:
        InputError: It is too large, or is not Python.
    """
    if len(data) > LARGEST_SOURCE_BYTES:
        raise InputError(f"{path}: too large to be parsed", f"{len(data):,} bytes", f"at most {LARGEST_SOURCE_BYTES:,} bytes")
    return parse_source(source_text(data, path), path)


def parsed(tree: Tree, entry: Entry, *, kernels: bool = False) -> SourceFile | None:
    """A file of a tree, parsed; None: it is no file, too large, or not Python, or can hold no kernel where `kernels` are asked for."""
    try:
        data = tree.read(entry) if entry.kind == "file" and entry.size_bytes <= LARGEST_SOURCE_BYTES else None
        return parse(data, entry.path) if data is not None and (not kernels or mentions_triton(data)) else None
    except AdvisorError:
        return None


def is_kernel_source(data: bytes) -> bool:
    """Whether a file can hold a kernel, and can be parsed."""
    return mentions_triton(data) and refused(data) is None


def unreadable(change: FileChange, reason: str) -> Subject:
    """A file that cannot be read, and could or is new: whatever launches with it is not known, and that gates."""
    issue = Finding(
        rule="unreadable",
        severity="error",
        title="The file can no longer be read" if change.base is not None else "The file cannot be read",
        evidence=reason,
        remedy="put a file in its place that can be; where its syntax is that of a newer Python, compare with that one",
        scope="kernel" if change.path.endswith(".py") else "table",
    )
    failure = Failure(condition="failed", what="", reason=reason)
    return Subject(kind="file", title=change.path, path=change.path, change=change.word, new_issues=(issue,), failures=(failure,))


def refused(data: bytes) -> str | None:
    """Why Python refuses a file, or we cannot read it; None: neither. As bytes, for the file may say its own encoding."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            syntax.parse(data)
        source_text(data, "the file")
    except InputError as error:
        return str(error)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        return f"{where}{error.msg}, says Python {sys.version_info.major}.{sys.version_info.minor}"
    except ValueError as error:
        return str(error)
    return None
