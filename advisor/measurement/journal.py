"""The file rows are appended to: what is in it survives a kill at any moment, and tells what need not be measured again.

A row is one line, written by one `write` to a file opened for appending and synced to the disk before the next batch begins. A
last line without its end is what a killed writer left: it is cut off before anything is appended. One writer at a time.

A failure that may have been the machine's is measured again when the run goes on; its old row stays in the file, and
`read_measured` gives the new one in its place.
"""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from advisor.measurement.measured_rows import HEADER, MeasuredRow, line_of, read_measured
from advisor.system.errors import InputError, UsageError
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
        if self.path.suffix == ".gz":
            raise UsageError("rows cannot be appended to a compressed file", str(path), "a .csv file", "compress it afterwards")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as error:
            raise unwritable(path, error, "choose another file with -o") from None
        try:
            self._lock()
            self._open(resume)
        except BaseException:
            os.close(self._descriptor)
            raise

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
        text = self.path.read_bytes() if size else b""  # size 0: also what is no file
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

    def _foreign(self) -> InputError:
        what = f"{self.path}: is not a file that `advisor measure` wrote"
        return InputError(what, "another header", "its own columns", "choose another file with -o")

    def keys(self) -> set[str]:
        """The launches that the file had when it was opened and that need no further try: lasting failures included, others not."""
        return {row.key() for row in self.rows if row.lasting}

    def append(self, rows: Sequence[dict[str, str]]) -> None:
        """Appends rows, and returns when they are on the disk.

        Raises:
            UsageError: They cannot be written; the file then ends with whole rows.
        """
        self._write("".join(line_of(cells) for cells in rows))

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
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
