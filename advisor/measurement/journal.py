"""The file rows are appended to: what is in it survives a kill at any moment, and tells what need not be measured again.

A row is one line, written by one `write` to a file opened for appending and synced to the disk before the next batch begins. A
last line without its end is what a killed writer left: it is cut off before anything is appended. One writer at a time.

A failure that may have been the machine's is measured again when the run goes on; once the file is closed (or opened again, after
a kill), the new row stands where the old one was, so that no launch has two.
"""

from __future__ import annotations

import contextlib
import csv
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from advisor.measurement.measured_rows import HEADER, MeasuredRow, line_of, read_measured
from advisor.system.errors import AdvisorError, InputError, UsageError
from advisor.system.writing import unwritable

_HEADER_LINE = ",".join(HEADER) + "\n"


class Journal:
    """An open rows file; a context manager."""

    def __init__(self, path: str | os.PathLike[str], *, resume: bool = True) -> None:
        """Opens or creates the file, and repairs its end.

        Raises:
            UsageError: It cannot be written, somebody else is writing it, or it has rows and `resume` is False.
            InputError: It is there, but is not a file of measured rows.
        """
        self.path = Path(path)
        self.repaired_bytes = 0
        self.rows: tuple[MeasuredRow, ...] = ()
        self._appended = False
        if self.path.suffix == ".gz":
            raise UsageError("rows cannot be appended to a compressed file", str(path), "a .csv file", "compress it afterwards")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as error:
            raise unwritable(path, error, "choose another file with -o") from None
        try:
            self._lock()
            if not self._is_named():
                remedy = "run it again"
                raise UsageError(f"{self.path}: another run put a new file in its place just now", None, None, remedy)
            self._open(resume)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _is_named(self) -> bool:
        """Whether the file that was opened still goes by its name: between opening and locking, another run may have replaced it."""
        opened = os.fstat(self._descriptor)
        try:
            return not stat.S_ISREG(opened.st_mode) or os.path.samestat(opened, self.path.stat())
        except FileNotFoundError:
            return False

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # not a POSIX system
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "wait for it, or choose another file with -o"
            raise UsageError(f"{self.path}: another run is writing to it", None, None, remedy) from None
        except OSError:  # a file system that has no locks (some network and shared folders): nobody else is known to write
            return

    def _open(self, resume: bool) -> None:
        size = os.fstat(self._descriptor).st_size
        text = self._read(size)
        whole = text.rfind(b"\n") + 1
        if whole == 0 and not _HEADER_LINE.encode().startswith(text):
            raise self._foreign()  # one line that is not ours: not to be cut off
        self.repaired_bytes = size - whole
        if self.repaired_bytes:
            os.ftruncate(self._descriptor, whole)
        if whole == 0:
            self._write(_HEADER_LINE)
            return
        header = next(csv.reader([text[: text.find(b"\n")].decode(errors="replace")]), [])
        if tuple(header) != HEADER:
            raise self._foreign()
        if whole > len(_HEADER_LINE):
            if not resume:
                raise UsageError(f"{self.path}: has rows already", None, None, "choose another file with -o, or let it resume")
            os.fsync(self._descriptor)
            self.rows = tuple(read_measured(self.path))
            self._replace_retried()

    def _foreign(self) -> InputError:
        what = f"{self.path}: is not a file that `advisor measure` wrote"
        return InputError(what, "another header", "its own columns", "choose another file with -o")

    def _read(self, size: int) -> bytes:
        parts, offset = [], 0
        while offset < size:
            part = os.pread(self._descriptor, min(1 << 24, size - offset), offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def keys(self) -> set[str]:
        """The launches that the file had when it was opened and that need no further try: lasting failures included, others not."""
        return {row.key() for row in self.rows if row.lasting}

    def append(self, rows: Sequence[dict[str, str]]) -> None:
        """Appends rows, and returns when they are on the disk.

        Raises:
            UsageError: They cannot be written; the file then ends with whole rows.
        """
        self._appended = True
        self._write("".join(line_of(cells) for cells in rows))

    def _replace_retried(self) -> None:
        """Puts the row of a launch that was measured again where its old one, a failure that need not last, stands.

        The new file is whole, and locked, before it takes the old one's name: a kill leaves one of the two.
        """
        status = os.fstat(self._descriptor)
        lines = self._read(status.st_size).decode().splitlines(keepends=True)
        places: dict[str, int] = {}
        kept: list[tuple[MeasuredRow, str]] = []
        if not stat.S_ISREG(status.st_mode) or len(lines) != len(self.rows) + 1:
            return  # no place of its own, or lines that somebody else wrote
        for row, line in zip(self.rows, lines[1:], strict=True):
            place = places.setdefault(row.key(), len(kept))
            if place < len(kept) and not kept[place][0].lasting:
                kept[place] = (row, line)
            else:
                kept.append((row, line))
        if len(kept) == len(self.rows):
            return
        path = self.path.resolve()
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        old = self._descriptor
        try:
            self._descriptor = os.open(beside, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o644)
            try:
                self._lock()
                os.fchmod(self._descriptor, stat.S_IMODE(status.st_mode))
                self._write("".join([lines[0], *(line for _, line in kept)]))
                beside.replace(path)
            except BaseException:
                os.close(self._descriptor)
                beside.unlink(missing_ok=True)
                raise
        except (OSError, UsageError):  # no room for it: two rows of a launch are what readers can live with
            self._descriptor = old
            return
        except BaseException:
            self._descriptor = old
            raise
        os.close(old)
        self.rows = tuple(row for row, _ in kept)

    def _write(self, text: str) -> None:
        data = text.encode()
        end = os.fstat(self._descriptor).st_size
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fsync(self._descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, end)
            raise unwritable(self.path, error, "choose another file with -o") from None

    def close(self) -> None:
        """Closes the file; the lock goes with it."""
        if self._appended and not all(row.lasting for row in self.rows):
            with contextlib.suppress(OSError, AdvisorError):
                self.rows = tuple(read_measured(self.path))
                self._replace_retried()
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
