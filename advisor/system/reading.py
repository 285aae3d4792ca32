"""Reading files, pipes and folders, with an error that names the file and says what to do where that fails."""

from __future__ import annotations

import json
import os
import stat
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

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

MOST_DOTS = 200
SUSPICIOUS_BYTES, MOST_TIMES = 16_000_000, 200
"""What a packed file may hold, and from there on how many times what it takes: tables of numbers are packed to a tenth or a thirtieth."""
MOST_MEMBERS = 20_000
"""Files that are packed one behind the other in a packed one, as `cat a.gz b.gz` and block-wise packers write them."""
LONGEST_LINE = 1 << 20
PIECE_BYTES = 1 << 20
"""Read at a time: asked for all at once, Python sets aside the most that a file may hold, a gigabyte for a few lines."""


def is_given(path: str | os.PathLike[str]) -> bool:
    """Whether a path names what this process was given open: it can be read once."""
    return os.fspath(path).startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/"))


def open_file(path: str | os.PathLike[str], label: str, what: str) -> BinaryIO:
    """A file opened for reading, or a pipe that this process was given: its standard input, or a descriptor of a shell's (`/dev/fd/63`).

    A pipe with a name, which waits for someone to write, and a device, which may never end, are refused.

    Args:
        path: The file.
        label: What errors call it.
        what: What it should be: "a CSV file".

    Raises:
        InputError: It cannot be opened, or is none of these.
    """
    try:
        if Path(path).is_dir():
            raise InputError(f"{label or path}: is a directory", os.fspath(path), what, "name the file inside it")
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
        stream = os.fdopen(descriptor, "rb")
        if not is_given(path) and not stat.S_ISREG(os.fstat(descriptor).st_mode):
            stream.close()
            raise InputError(
                f"{label}: is no file but a pipe or a device", os.fspath(path), what, "write it to a file, or pipe it in: /dev/stdin"
            )
        if hasattr(os, "set_blocking"):
            os.set_blocking(descriptor, True)
        return stream
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"{label}: cannot be read ({reason})", os.fspath(path), what, "check the path") from None
    except ValueError:  # a null byte in the path
        raise InputError(f"{label!r}: not a path", None, "a path", "check the path") from None


def read_bytes(path: str | os.PathLike[str], label: str, what: str, limit_bytes: int, *, unpack: bool = False) -> bytes:
    """The content of a file or pipe, read once.

    Args:
        path: The file.
        label: What errors call it.
        what: What it should be: "a CSV file".
        limit_bytes: The most it may hold, unpacked (a small .gz can hold terabytes).
        unpack: Whether it may be gzipped.

    Raises:
        InputError: It cannot be read, or is too large.
    """
    return bytes(_read(path, label, what, limit_bytes, unpack))


def _read(path: str | os.PathLike[str], label: str, what: str, limit_bytes: int, unpack: bool) -> bytearray:
    data = bytearray()
    try:
        with open_file(path, label, what) as stream:
            packed = unpack and stream.peek(2)[:2] == b"\x1f\x8b"  # type: ignore[attr-defined]  # looked at: a pipe cannot be wound back
            for piece in _unpacked(stream, label, what) if packed else iter(lambda: stream.read(PIECE_BYTES), b""):
                data += piece
                if len(data) > limit_bytes:
                    break
                if packed and len(data) > SUSPICIOUS_BYTES and len(data) > MOST_TIMES * stream.tell():
                    what_it_is = f"over {MOST_TIMES} times as much as it takes packed"
                    raise InputError(f"{label}: holds nearly nothing but repetition", what_it_is, what, "unpack it first")
    except (EOFError, zlib.error):
        raise InputError(f"{label}: damaged gzip file", None, "a whole .gz file", "fetch or pack it again") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"{label}: cannot be read ({reason})", os.fspath(path), what, "check the path") from None
    if len(data) > limit_bytes:
        remedy = "is this the file you mean? If so, leave out what is not needed"
        raise InputError(f"{label}: file too large", f"over {limit_bytes:,} bytes", f"at most {limit_bytes:,} bytes", remedy)
    return data


def _unpacked(stream: BinaryIO, label: str, what: str) -> Iterator[bytes]:
    """What is packed in a gzip file, `PIECE_BYTES` at a time.

    Raises:
        EOFError: It ends too early.
        InputError: It holds too many files of its own.
        zlib.error: It is damaged.
    """
    rest = stream.read(PIECE_BYTES)
    for _ in range(MOST_MEMBERS):
        unpacker = zlib.decompressobj(wbits=31)
        while not unpacker.eof:
            if not (rest := rest or stream.read(PIECE_BYTES)):
                raise EOFError
            if piece := unpacker.decompress(rest, PIECE_BYTES):
                yield piece
            rest = unpacker.unconsumed_tail
        rest = (unpacker.unused_data or stream.read(PIECE_BYTES)).lstrip(b"\0") or stream.read(PIECE_BYTES)  # zeros may fill it up
        if not rest:
            return
    raise InputError(f"{label}: holds too many files in one", f"over {MOST_MEMBERS:,}", what, "unpack it and pack it again")


def read_start(path: str | os.PathLike[str], count: int) -> bytes:
    """The first bytes of a file, unpacked where its first bytes are gzip's; fewer where it ends, cannot be read or is damaged."""
    data = bytearray()
    try:
        with open_file(path, os.fspath(path), "a file") as stream:
            packed = stream.peek(2)[:2] == b"\x1f\x8b"  # type: ignore[attr-defined]
            for piece in _unpacked(stream, "", "") if packed else iter(lambda: stream.read(count), b""):
                data += piece
                if len(data) >= count:
                    break
    except (EOFError, OSError, zlib.error, InputError):
        pass
    return bytes(data[:count])


def check_lines(text: str, label: str, what: str) -> None:
    """Refuses text with a line that is longer than any of a table, before it is split into cells.

    Raises:
        InputError: There is one.
    """
    place = 0
    while len(text) - place > LONGEST_LINE:
        end = max(text.rfind(mark, place, place + LONGEST_LINE) for mark in "\n\r")
        if end < 0:
            raise InputError(f"{label}: a line is too long", f"over {LONGEST_LINE:,} characters", what, "is this the file you mean?")
        place = end + 1


def read_text(
    path: str | os.PathLike[str], label: str, what: str, limit_bytes: int, *, encoding: str = "utf-8-sig", unpack: bool = False
) -> str:
    """The text of a file or pipe, read once, its ends of lines as they are; the arguments are those of `read_bytes`.

    Args:
        path: The file.
        label: What errors call it.
        what: What it should be: "a CSV file".
        limit_bytes: The most it may hold, unpacked.
        encoding: Of the text; a mark before it is no part of it, unless this is "utf-8".
        unpack: Whether it may be gzipped.

    Raises:
        InputError: It cannot be read, is too large, or is no text.
    """
    return decode_text(_read(path, label, what, limit_bytes, unpack), label, what, encoding)


def decode_text(data: bytes | bytearray, label: str, what: str, encoding: str = "utf-8-sig") -> str:
    """Text from its bytes.

    Raises:
        InputError: They are none in that encoding.
    """
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        form, remedy = next((marked for mark, marked in _FORMS.items() if data.startswith(mark)), (None, "is this the file you mean?"))
        raise InputError(f"{label}: not UTF-8 text", form, what, remedy) from None


def parse_toml(data: bytes, label: str, remedy: str | None = None) -> dict[str, Any]:
    """A TOML document.

    Args:
        data: Its text.
        label: What errors call it.
        remedy: What they say to do.

    Raises:
        InputError: It is none, or a key of it has more parts than any of ours (Python's parser takes their square of time).
    """
    deepest = max((piece.count(b".") for line in data.splitlines() for piece in line.split(b",")), default=0)
    if deepest > MOST_DOTS:
        raise InputError(f"{label}: is not TOML of ours", f"{deepest:,} dots in a row of names", f"at most {MOST_DOTS}", remedy)
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, nested too deep, or a number of thousands of digits
        raise InputError(f"{label}: is not TOML ({error})", None, None, remedy) from None


def parse_json(data: str | bytes, label: str, remedy: str | None = None) -> Any:
    """A JSON document; the arguments are those of `parse_toml`.

    Raises:
        InputError: It is none, or nested beyond reason.
    """
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise InputError(f"{label}: not valid JSON, line {error.lineno}: {error.msg}", None, None, remedy) from None
    except (RecursionError, ValueError) as error:
        raise InputError(f"{label}: not usable JSON ({type(error).__name__})", None, None, remedy) from None


ENTRY_LIMIT = 300_000
"""Files and folders looked at before giving up: a checkout of vLLM has some ten thousand, an environment with torch fifty thousand. Who
names / or a home folder by mistake is told within seconds instead of waiting for the disk."""


def not_permitted(path: Path) -> InputError:
    """The error for a file or folder that is there, or may be, and cannot be looked at."""
    return InputError(f"{path}: permission denied", None, "a file or folder that you may read", "check its permissions, and its folder's")


def files_below(folder: Path, suffix: str | tuple[str, ...]) -> list[Path]:
    """Every file below a folder whose name ends in (one) `suffix`, in the order of their paths; links to folders are not entered.

    Raises:
        InputError: The folder may not be read, or holds more than `ENTRY_LIMIT` files and folders.
    """
    seen = 0
    files: list[Path] = []

    def failed(error: OSError) -> None:
        # Others' folders below it (lost+found, a cache that several people share) are passed over.
        if isinstance(error, PermissionError) and error.filename == os.fspath(folder):
            raise not_permitted(folder) from None

    for where, folders, names in os.walk(folder, onerror=failed):
        seen += len(folders) + len(names)
        if seen > ENTRY_LIMIT:
            raise InputError(
                f"{folder}: too many files to look through",
                f"more than {ENTRY_LIMIT:,}",
                f"at most {ENTRY_LIMIT:,}",
                "name the folder that holds the tables",
            )
        files += [Path(where) / name for name in names if name.endswith(suffix)]
    return sorted(files)
