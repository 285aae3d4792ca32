"""Reading text files and pipes, with an error that names the file and says what to do where that fails."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import Any

from advisor.system.errors import InputError

_FORMS = {
    b"\x1f\x8b": ("gzip's first bytes", "unpack it first"),
    b"\x28\xb5\x2f\xfd": ("zstd's first bytes", "unpack it first"),
    b"BZh": ("bzip2's first bytes", "unpack it first"),
    b"\xfd7zXZ\x00": ("xz's first bytes", "unpack it first"),
    b"PK\x03\x04": ("the first bytes of a zip archive or a spreadsheet", "save what is in it as CSV or JSON"),
    b"\xff\xfe": ("UTF-16's first bytes", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16's first bytes", "save it as UTF-8"),
}
"""First bytes of what is given for text -> what it is, and what to do about it."""

PIECE_BYTES = 1 << 20
"""Read at a time: asked for all at once, Python sets aside the most that a file may hold, a gigabyte for a few lines."""


def read_text(
    path: str | os.PathLike[str], label: str, what: str, limit_bytes: int, *, encoding: str = "utf-8-sig", unpack: bool = False
) -> str:
    """The text of a file or pipe, read once, its ends of lines as they are.

    Args:
        path: The file.
        label: What errors call it.
        what: What it should be: "a CSV file".
        limit_bytes: The most it may hold, unpacked (a small .gz can hold terabytes).
        encoding: Of the text; a mark before it is no part of it, unless this is "utf-8".
        unpack: Whether it may be gzipped.

    Raises:
        InputError: It cannot be read, is too large, or is no text.
    """
    try:
        if Path(path).is_dir():
            raise InputError(f"{label or path}: is a directory", os.fspath(path), what, "name the file inside it")
        with Path(path).open("rb") as stream:
            packed = unpack and stream.peek(2)[:2] == b"\x1f\x8b"  # looked at, not taken: a pipe cannot be wound back
            source: Any = gzip.GzipFile(fileobj=stream) if packed else stream
            data = bytearray()
            while len(data) <= limit_bytes and (piece := source.read(min(PIECE_BYTES, limit_bytes + 1 - len(data)))):
                data += piece
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"{label}: damaged gzip file", None, "a whole .gz file", "fetch or pack it again") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"{label}: cannot be read ({reason})", os.fspath(path), what, "check the path") from None
    except ValueError:  # a null byte in the path
        raise InputError(f"{label!r}: not a path", None, "a path", "check the path") from None
    if len(data) > limit_bytes:
        remedy = "is this the file you mean? If so, leave out what is not needed"
        raise InputError(f"{label}: file too large", f"over {limit_bytes:,} bytes", f"at most {limit_bytes:,} bytes", remedy)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        form, remedy = next((said for mark, said in _FORMS.items() if data.startswith(mark)), (None, "is this the file you mean?"))
        raise InputError(f"{label}: not UTF-8 text", form, what, remedy) from None
