"""Files that may hold kernels: parsed, never imported."""

from __future__ import annotations

from advisor.comparison.trees.kept_files import KeptFiles
from advisor.python_source.source import SourceFile
from advisor.system.errors import InputError

LARGEST_SOURCE_BYTES = 1_000_000
"""No kernel file is that long, and parsing takes some fifty times its size in memory."""

_KEPT = KeptFiles(largest_bytes=6_000_000)

ODD = (TypeError, ValueError, KeyError, IndexError, AttributeError, ZeroDivisionError, OverflowError, RecursionError, MemoryError)
"""What a hostile or half-written file can make the parsing of literals raise, besides our own errors."""


def mentions_triton(data: bytes | None) -> bool:
    """Whether a file can hold a kernel; cheap, before parsing."""
    return data is not None and b"triton" in data and b"jit" in data


def parse(data: bytes | None, path: str) -> SourceFile | None:
    """The file, parsed.

    Raises:
        InputError: It is too large, or is not Python.
    """
    if data is None:
        return None
    if len(data) > LARGEST_SOURCE_BYTES:
        raise InputError(f"{path}: too large to be parsed", f"{len(data):,} bytes", f"at most {LARGEST_SOURCE_BYTES:,} bytes")
    return _KEPT.parsed(data, path)
