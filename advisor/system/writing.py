"""Writing: files, whole or not at all, with errors that say what to do; temporary folders that do not outlive their process; and the
progress of long work on stderr, one transient bar on a terminal, a plain line now and then in a pipe.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from advisor.system import processes
from advisor.system.errors import UsageError, shorten

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The disk is full, the user's share of it is used up, or no file may grow so large: another name does not help, room does."""

_LINKS_FOLLOWED = 40
"""Links from one to the next that Linux follows; where there are more, opening the file says so."""

MAKE_ROOM = "make room on the disk, then run it again"


def remedy_for(error: BaseException, otherwise: str) -> str:
    """The remedy of a write that failed: make room where the disk is full, else what the caller gives."""
    return MAKE_ROOM if getattr(error, "errno", None) in _FULL else otherwise


def unwritable(path: str | os.PathLike[str], error: BaseException, remedy: str) -> UsageError:
    """The error for a file that could not be written; `remedy` is for every reason but a full disk."""
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, FileExistsError):  # of making its folder
        reason = "a file stands where its folder would be"
    limit = "a file in a folder that can be written to, with room on its disk"
    return UsageError(f"{shorten(os.fspath(path))}: cannot be written ({reason})", None, limit, remedy_for(error, remedy))


@contextlib.contextmanager
def replacing(path: Path, remedy: str) -> Iterator[Path]:
    """Where to write, so that the file appears whole or not at all: beside it, and renamed when the block has ended.

    Of a link, the file that it leads to is replaced; the new file may be read and written by those who might the old one. What is no
    file (/dev/stdout, a named pipe) is written to as it is.

    Raises:
        UsageError: It cannot be written; `remedy` says what to do, where that is not to make room.
    """
    try:
        replaced = _replaceable(path)
        place = replaced.with_name(f".{replaced.name}.{os.getpid()}") if replaced is not None else path
        try:
            if replaced is not None and replaced.exists():  # nobody reads what is half written who might not read the old one
                place.unlink(missing_ok=True)  # of a process of the same number that was killed
                os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR))
            yield place
            if replaced is not None:
                with contextlib.suppress(OSError):  # there is none yet, or the file system knows no permissions
                    shutil.copymode(replaced, place)
                place.replace(replaced)
        finally:
            if replaced is not None:
                with contextlib.suppress(OSError, ValueError):
                    place.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) and "\0" not in str(path):
            raise  # of what was being written, and no word on the place
        raise unwritable(path, error, remedy) from None


def _replaceable(path: Path) -> Path | None:
    """The file that a path leads to, there or not; None where it is to be written to as it is.

    /dev/stdout may lead to a regular file, but whoever redirected it holds that file open, and would not see another in its place.
    /dev/shm holds files like any other.
    """
    for _ in range(_LINKS_FOLLOWED):
        if not path.is_symlink():
            return path if path.is_file() or not path.exists() else None
        place = path.parent.resolve().parts
        if place[1:2] in (("dev",), ("proc",)) and place[1:3] != ("dev", "shm"):
            return None
        path = path.parent / path.readlink()
    return None


_OWNED = re.compile(r"advisor-[a-z]+-(?P<among>[0-9a-f]{8})-(?P<pid>\d+)-(?P<started>\d+)-\w+")


@contextlib.contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A folder that is removed at the end of the block. Those that killed processes of this user left are removed first.

    Args:
        purpose: Part of its name: lower-case letters.
    """
    place = Path(tempfile.gettempdir())
    _remove_abandoned(place)
    pid = os.getpid()
    owner = f"{_among()}-{pid}-{processes.started(pid) or 0}"
    with tempfile.TemporaryDirectory(prefix=f"advisor-{purpose}-{owner}-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _among() -> str:
    """The scope within which process numbers are unique, in eight characters: containers that share a folder have their own."""
    return hashlib.sha256((processes.namespace() or "").encode()).hexdigest()[:8]


def _remove_abandoned(place: Path) -> None:
    """Removes the folders of processes that no longer run; what cannot be removed stays."""
    if processes.namespace() is None:
        return
    with contextlib.suppress(OSError):
        for path in place.iterdir():
            match = _OWNED.fullmatch(path.name)
            if match is None or match["among"] != _among() or processes.is_running(int(match["pid"]), match["started"]):
                continue
            with contextlib.suppress(OSError):
                if not path.is_symlink() and path.stat().st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)


EVERY_SECONDS = 10.0
EVERY_SHARE = 0.1

Advance = Callable[[int, int], None]
"""Called with how much is done, and how much there is."""


@contextmanager
def progress_bar(what: str) -> Iterator[Advance]:
    """Shows nothing for work that ends within the first two seconds."""
    if _rewritable():
        with _bar(what) as advance:
            yield advance
    else:
        yield _lines(what)


def _rewritable() -> bool:
    """Whether stderr is a terminal on which a line can be taken back. rich alone would say so of a pipe too, under FORCE_COLOR."""
    if not sys.stderr.isatty():
        return False
    from rich.console import Console

    return Console(stderr=True).is_interactive


@contextmanager
def _bar(what: str) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _lines(what: str) -> Advance:
    started = last = time.monotonic()
    share = 0.0

    def advance(done: int, total: int) -> None:
        nonlocal last, share
        now = time.monotonic()
        due = now - last >= EVERY_SECONDS or (total and done / total - share >= EVERY_SHARE)
        if due and now - started >= 2.0:
            print(f"advisor: {what} {done} of {total}", file=sys.stderr, flush=True)
            last, share = now, done / total if total else 0.0

    return advance


class StatusLine:
    """One line on stderr that rewrites itself on a terminal; in a pipe a line every 10 s or 10 %."""

    def __init__(self) -> None:
        self.live, self.open = _rewritable(), False
        self.said_at, self.said_share = time.monotonic(), 0.0

    def say(self, text: str, share: float = 0.0) -> None:
        """Shows the text, at most 120 characters of it where it is rewritten; `share` is how much is done."""
        now = time.monotonic()
        if not self.live and now - self.said_at < EVERY_SECONDS and share - self.said_share < EVERY_SHARE:
            return
        self.said_at, self.said_share = now, share
        if self.live:
            sys.stderr.write(f"\r\x1b[2K{text[:120]}")
            self.open = True
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Clears the live line."""
        if self.open:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
