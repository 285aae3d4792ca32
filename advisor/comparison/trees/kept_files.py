"""Parsed files, kept: a helper is imported by many of the files that are compared, and most are the same on both sides."""

from __future__ import annotations

from advisor.python_source.source import SourceFile, parse_source
from advisor.system.errors import InputError


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
