"""The lock of a file that many processes append to: Optuna's, which also says who holds it."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from pathlib import Path

from optuna.storages.journal import JournalFileOpenLock

from advisor.system import processes

ABANDONED_S = 30
"""A lock that does not say whose it is, or whose process cannot be seen from here, is taken for abandoned after so long without a change;
Optuna's own figure."""

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.001, 0.1


class OwnedFileLock(JournalFileOpenLock):
    """Optuna's lock file, with its owner in it: one that was killed while it held the lock stops nobody.

    Optuna's own waits half a minute then, and so does whoever opens the file without this class: the file's name is the same.
    """

    def acquire(self) -> bool:
        """Waits for the lock, and takes it.

        Raises:
            OSError: No file can be made there.
        """
        own = _owner()  # before the file is made: whoever is killed between that and the writing leaves a lock that says nothing
        wait_s, seen, since = _FIRST_WAIT_S, None, time.monotonic()
        while True:
            with contextlib.suppress(FileExistsError):
                handle = os.open(self._lock_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
                try:
                    os.write(handle, own)
                finally:
                    os.close(handle)
                return True
            owner, changed = self._look()
            if changed != seen:
                seen, since = changed, time.monotonic()
            if owner is not None and (_is_dead(owner) or time.monotonic() - since > ABANDONED_S):
                self._take_away(owner)
                continue
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _look(self) -> tuple[bytes | None, float | None]:
        """The content of the lock file and the time it changed; None where there is none by now."""
        lock = Path(self._lock_file)
        try:
            return _said_in(lock), lock.lstat().st_mtime
        except OSError:
            return None, None

    def _take_away(self, owner: bytes) -> None:
        """Removes the lock of that owner; another one's, which came in the meantime, is put back."""
        aside = Path(f"{self._lock_file}{uuid.uuid4()}.rename")
        with contextlib.suppress(OSError):
            Path(self._lock_file).rename(aside)
            if _said_in(aside) != owner:
                with contextlib.suppress(FileExistsError):
                    os.link(aside, self._lock_file, follow_symlinks=False)
            aside.unlink()


def _said_in(lock: Path) -> bytes:
    """The content of a lock file; empty where it is Optuna's other kind, a link to the file that it is for."""
    return b"" if lock.is_symlink() else lock.read_bytes()


def _owner() -> bytes:
    """This process, as another one can look for it: namespace, number and start, in lines."""
    pid = os.getpid()
    among, started = processes.namespace(), processes.started(pid)
    return b"" if among is None or started is None else f"{among}\n{pid}\n{started}\n".encode()


def _is_dead(owner: bytes) -> bool:
    """Whether a lock says whose it is, and that process of this machine no longer runs."""
    lines = owner.decode(errors="replace").splitlines()
    if len(lines) != 3 or not owner.endswith(b"\n") or lines[0] != processes.namespace() or not lines[1].isdigit():
        return False
    return not processes.is_running(int(lines[1]), lines[2])
