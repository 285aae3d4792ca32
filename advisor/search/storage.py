"""Where a study is kept: a journal file, or any storage URL of Optuna's."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage


def open_storage(where: str | os.PathLike[str]) -> BaseStorage:
    """A storage: a path names a journal file (made where there is none), anything with `://` is a storage URL.

    Raises:
        InputError: It cannot be opened.
        MissingDependencyError: The URL's database driver is not installed.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    text = os.fspath(where)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            if "://" in text:
                return optuna.storages.get_storage(text)
            from optuna.storages import JournalStorage
            from optuna.storages.journal import JournalFileBackend

            path = Path(text)
            path.parent.mkdir(parents=True, exist_ok=True)
            _repair(path)
            return JournalStorage(JournalFileBackend(text))
    except ImportError as error:
        raise MissingDependencyError(f"the storage needs a package: {error}", text.partition("://")[0], None,
                                     "pip install the database's driver, e.g. psycopg2-binary for PostgreSQL") from None  # fmt: skip
    except Exception as error:  # drivers raise whatever they like
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"the storage cannot be opened: {reason}", _without_password(text), "a file, or a URL such as "
                         "postgresql://user@host/database", "check that it is there and may be written") from None  # fmt: skip


def _repair(path: Path) -> None:
    """Cuts off a last line without an end, which a killed writer left: what is appended to it could never be read again.

    Under the journal's own lock, so that no line is cut that somebody is still writing.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    from optuna.storages.journal import JournalFileSymlinkLock

    if _whole_bytes(path) == path.stat().st_size:
        return
    lock = JournalFileSymlinkLock(str(path))
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


def _without_password(url: str) -> str:
    head, separator, tail = url.partition("://")
    user, at, rest = tail.rpartition("@")
    return f"{head}{separator}{user.partition(':')[0]}{at}{rest}" if at else url
