"""The storage of a study: a journal file that many processes append to under a lock, or any storage URL of Optuna's.

The sources of latencies as the search sees them: a GPU, a recording, a stand-in.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from advisor.result.schema import Configuration, MeasuredRounds
from advisor.search.contest import Reading
from advisor.system.errors import AdvisorError, InputError, MissingDependencyError, UsageError
from advisor.system.writing import unwritable

Watch = Callable[[int, float], bool]
"""Told (rounds so far, latency so far in microseconds, of all launches together); True: it loses already, stop."""

NOT_RECORDED = "not recorded"
"""Verdict where what runs today has no recorded latency: neither better nor worse is known."""

BY_RECORD = "by recorded latencies"
"""Why one configuration won over another where rows are replayed."""

NOT_COMPARED = "not compared"
"""Verdict where the time was up before both were measured in the same rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One decision to search for: a configuration that all its launches share.

    Attributes:
        id: Stable within a search, e.g. "M64".
        launches: Names of its launches, in the order of `Measurement.parts_us`.
    """

    id: str
    launches: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The outcome of measuring one configuration: a latency, or why there is none.

    Attributes:
        us: Latency of all launches of the task together, microseconds; None where there is none.
        parts_us: The same by launch.
        failure: Why there is no latency, a class (out-of-resources, hang, wrong-output, …); None where there is one, or it was stopped.
        slower: There is no number, but it is taken to lose (a recording of the best rows lacks it).
        again: It says nothing of the configuration, which may be tried again: the GPU was not fit to measure it, or time was up.
        stopped: The watch stopped it; `us` is what the rounds until then said.
        message: In words.
        clock_mhz: SM clock meanwhile, where it is known.
    """

    us: float | None = None
    parts_us: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None
    slower: bool = False
    again: bool = False
    stopped: bool = False
    message: str = ""
    clock_mhz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """Two configurations measured against each other; `verdict` is "improved" only where the head surely wins.

    `base_us` and `head_us` are latencies of all launches of the task; None: not known. `base_rounds`: of the launches of the base, where
    there are rounds.
    """

    base_us: float | None
    head_us: float | None
    reason: str
    verdict: str
    base_parts_us: Mapping[str, float] = field(default_factory=dict)
    head_parts_us: Mapping[str, float] = field(default_factory=dict)
    base_rounds: Mapping[str, MeasuredRounds] = field(default_factory=dict)


class Backend(Protocol):
    """Measures configurations of tasks. One worker uses it, from one thread."""

    @property
    def name(self) -> str:
        """The name of the backend in results."""

    @property
    def noise_floor(self) -> float | None:
        """Relative difference between two measurements of one configuration; None: not known."""

    def measure(self, task: Task, configuration: Configuration, watch: Watch) -> Measurement:
        """Times one configuration. Never raises for what the configuration does."""

    def again(self, task: Task, configuration: Configuration, deadline: float | None = None) -> Reading | None:
        """A few rounds more of a configuration that was measured; None where nothing new would be measured, or it failed, or by `deadline`
        (on `time.monotonic`) there was no time."""

    def compare(self, task: Task, base: Configuration, head: Configuration, deadline: float | None = None) -> Versus:
        """Times two configurations in the same rounds.

        Args:
            task: What they are configurations for.
            base: What runs today.
            head: What may replace it.
            deadline: On `time.monotonic`; what is not compared then is `NOT_COMPARED`.
        """


def not_recorded(slower: bool) -> Measurement:
    """The outcome for a configuration that a recording lacks; `slower`: it holds the best of sweeps, so the search need not try it."""
    reason = ": slower than the best by more than 1 %, or not tried" if slower else ""
    return Measurement(failure="not-recorded", slower=slower, message=f"not recorded{reason}")


def recorded_versus(before: float | None, after: float | None, least_gain: float = 0.0) -> Versus:
    """The comparison of two recorded latencies: the head wins where it is faster by more than `least_gain`.

    Against what is not recorded nothing wins: the best of a sweep lack what it did not try as well as what is slower.
    """
    if after is None:
        return Versus(base_us=before, head_us=None, verdict="failed", reason="not recorded")
    if before is None:
        reason = "no row says whether the search's best is faster than what runs today"
        return Versus(base_us=None, head_us=after, verdict=NOT_RECORDED, reason=reason)
    gain = before / after - 1
    verdict = "improved" if gain > least_gain else "regressed" if gain < -least_gain else "unchanged"
    return Versus(base_us=before, head_us=after, verdict=verdict, reason=BY_RECORD)


if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.storages.journal import JournalFileOpenLock


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
                kind = "a folder" if path.is_dir() else "a device or a pipe"
                raise UsageError(f"{text}: a study cannot be kept there", kind, "a file, or the name of a new one", _ANOTHER)
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
    scheme, separator, location = url.partition("://")
    return f"{scheme}+{'psycopg' if find_spec('psycopg') else 'psycopg2'}{separator}{location}" if scheme == "postgresql" else url


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
        return JournalStorage(Backend(os.fspath(path), lock_obj=lock_file(path)))
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


def lock_file(path: Path) -> JournalFileOpenLock:
    """A lock: a file beside `path`, which is taken for abandoned half a minute after the process that made it was killed.

    Optuna's default, a link to the journal, it waits for without end where a killed writer left it and it leads nowhere: because the path
    was relative, or the folder has moved since.
    """
    from optuna.storages.journal import JournalFileOpenLock

    return JournalFileOpenLock(os.fspath(path))


def _unlink_dangling_lock(path: Path) -> None:
    """Removes a lock of Optuna's default kind that leads nowhere: whoever opened the journal without `lock_file` was killed."""
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
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() == b"\n":
            return
    lock = lock_file(path)
    lock.acquire()
    try:
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    finally:
        lock.release()


def opened_by_optuna(where: str) -> str:
    """A storage as Optuna's own interface opens it on this machine, with the driver that is installed; without its password."""
    return without_password(_with_driver(where))


def without_password(text: str) -> str:
    """A storage, or an argument that may hold one (`--storage=URL`), without the password of a URL: of the user, or an option."""
    head, separator, tail = text.partition("://")
    user, at, location = _PASSWORD_OPTION.sub(r"\1***", tail).rpartition("@")
    return f"{head}{separator}{user.partition(':')[0]}{at}{location}" if separator else text
