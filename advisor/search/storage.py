"""The storage of a study: a journal file that many processes append to under a lock, or any storage URL of Optuna's."""

from __future__ import annotations

import contextlib
import os
import re
import time
import uuid
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna.storages.journal import JournalFileOpenLock

from advisor.system import processes
from advisor.system.errors import AdvisorError, InputError, MissingDependencyError, UsageError
from advisor.system.writing import unwritable

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.storages.journal import JournalFileOpenLock


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


_ANOTHER = "give another --storage"
_PACKAGES = {"psycopg2": "psycopg2-binary", "psycopg": "psycopg[binary]", "MySQLdb": "mysqlclient"}
_PASSWORD_OPTION = re.compile(r"([?&][^=&]*passw(?:or)?d[^=&]*=)[^&]*", re.IGNORECASE)
_JOURNAL, _SQLITE = b'{"op_code":', b"SQLite format 3"  # how Optuna begins every line of a journal, and SQLite a database
_TRIES, _TRY_AGAIN_S = 20, 0.1  # SQLite creates one table at a time: another process can be first at each of them, a dozen


def open_storage(where: str | os.PathLike[str]) -> BaseStorage:
    """A storage: a path names a journal file (made where there is none), anything with `://` is a storage URL.

    Raises:
        InputError: It cannot be opened.
        UsageError: It is nothing that lines can be appended to and read again, or a file of something else.
        MissingDependencyError: The URL's database driver is not installed.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    text = os.fspath(where)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            if "://" in text:
                return _database(text)
            path = Path(text)
            if path.exists() and not path.is_file():  # a device such as /dev/zero is read without end
                found = "a folder" if path.is_dir() else "a device or a pipe"
                raise UsageError(f"{text}: a study cannot be kept there", found, "a file, or the name of a new one", _ANOTHER)
            _check_is_journal(path)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise unwritable(path, error, _ANOTHER) from None
            _unlink_dangling_lock(path)
            _repair(path)
            return _journal(path)
    except AdvisorError:
        raise
    except ImportError as error:
        driver = getattr(error.__cause__ or error, "name", None)  # Optuna's own words do not name it
        raise MissingDependencyError(
            f"the storage needs a package: {error}" if driver is None else f"the storage needs {driver}, which is not installed",
            text.partition("://")[0],
            None,
            "install the database's driver" if driver is None else f"pip install {_PACKAGES.get(driver, driver)}",
        ) from None
    except Exception as error:  # drivers raise whatever they like
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(
            f"the storage cannot be opened: {reason}",
            without_password(text),
            "a file, or a URL such as postgresql://user@host/database",
            "check that it is there and may be written",
        ) from None


def _database(url: str) -> BaseStorage:
    """Optuna's database storage. It creates its tables in a new database: where several processes do so at once, those that come second
    fail on what is there since they looked, and look again."""
    import optuna
    from sqlalchemy.exc import DBAPIError, IntegrityError

    url = _with_driver(url)
    for _ in range(_TRIES - 1):
        try:
            return optuna.storages.get_storage(url)
        except DBAPIError as error:
            if not isinstance(error, IntegrityError) and "already exists" not in str(error.orig):
                raise
            time.sleep(_TRY_AGAIN_S)
    return optuna.storages.get_storage(url)


def _with_driver(url: str) -> str:
    """The URL with the PostgreSQL driver that is installed, where it names none: SQLAlchemy takes psycopg 3 from 2.1 on, else psycopg2."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}+{'psycopg' if find_spec('psycopg') else 'psycopg2'}{separator}{rest}" if scheme == "postgresql" else url


def _journal(path: Path) -> BaseStorage:
    """Optuna's journal storage; a file that cannot be written is told by its name, and no half line stays in it.

    Raises:
        UsageError: It cannot be written; so do the storage's own methods, whenever that happens.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    class Backend(JournalFileBackend):
        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            try:
                super().append_logs(logs)
            except OSError as error:
                with contextlib.suppress(OSError):
                    _repair(path)
                raise unwritable(path, error, _ANOTHER) from None

    try:
        return JournalStorage(Backend(os.fspath(path), lock_obj=_lock(path)))
    except OSError as error:
        raise unwritable(path, error, _ANOTHER) from None


@contextlib.contextmanager
def database_errors_named(where: str) -> Iterator[None]:
    """Makes what a database refuses (its disk is full, it went away) an error that names it.

    Raises:
        UsageError: The storage failed.
    """
    import optuna

    try:
        yield
    except optuna.exceptions.StorageInternalError as error:
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise UsageError(
            f"{without_password(where)}: the storage failed ({reason})",
            None,
            "a storage that can be written to, with room",
            "see to it, then run the same command again: what was finished is kept",
        ) from None


def _lock(path: Path) -> JournalFileOpenLock:
    """The journal's lock: a file, which is free as soon as the process that made it is dead.

    Optuna's default, a link to the journal, it waits for without end where a killed writer left it and it leads nowhere: because the path
    was relative, or the folder has moved since.
    """

    return OwnedFileLock(os.fspath(path))


def _unlink_dangling_lock(path: Path) -> None:
    """Removes a lock of Optuna's default kind that leads nowhere: whoever opened the journal without `_lock` was killed."""
    lock = path.with_name(f"{path.name}.lock")
    if lock.is_symlink() and not lock.exists():
        lock.unlink(missing_ok=True)


def _check_is_journal(path: Path) -> None:
    """Refuses a file that is something else: its end would be cut off as torn, and a study appended to it.

    Raises:
        UsageError: It does not begin as Optuna begins a journal.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        begins = file.read(len(_SQLITE))
    if not begins.startswith(_JOURNAL[: len(begins)]):
        remedy = f"name a database by its URL: --storage sqlite:///{path}" if begins == _SQLITE else _ANOTHER
        raise UsageError(
            f"{path}: a study cannot be kept there", "a file that is no journal", "a journal of Optuna's, or a new file", remedy
        )


def _repair(path: Path) -> None:
    """Cuts off a last line without an end, which a killed writer left: what is appended to it could never be read again.

    Under the journal's own lock, so that no line is cut that somebody is still writing.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    if _whole_bytes(path) == path.stat().st_size:
        return
    lock = _lock(path)
    lock.acquire()
    try:
        os.truncate(path, _whole_bytes(path))
    finally:
        lock.release()


def _whole_bytes(path: Path) -> int:
    """Bytes up to and with the last end of a line."""
    with path.open("rb") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - (1 << 16))
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0 if size else size


def opened_by_optuna(where: str) -> str:
    """A storage as Optuna's own interface opens it on this machine, with the driver that is installed; without its password."""
    return without_password(_with_driver(where))


def without_password(text: str) -> str:
    """A storage, or an argument that may hold one (`--storage=URL`), without the password of a URL: of the user, or an option."""
    head, separator, tail = text.partition("://")
    user, at, rest = _PASSWORD_OPTION.sub(r"\1***", tail).rpartition("@")
    return f"{head}{separator}{user.partition(':')[0]}{at}{rest}" if separator else text
