"""The decision for one key, with every configuration that was looked at, and why one was left out.

The tuning cache's SQLite file: its tables, opening it beside other processes, and what can be saved of one that fails.
"""

from __future__ import annotations

import errno
import logging
import math
import sqlite3
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from advisor.autotuning.watching import NeverEndsError, TooSlowError

VERSION = 3
BUSY_S = 30.0
"""How long a write waits for the writes of other processes (each takes well below a millisecond)."""
PROBE_AFTER_S = 0.5
"""How long opening waits before it asks whether the file system has locks at all: without, SQLite says "locked" for ever."""
log = logging.getLogger("advisor.autotune")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS problems (
    id TEXT PRIMARY KEY, kernel TEXT NOT NULL, source TEXT NOT NULL, triton TEXT NOT NULL, gpu TEXT NOT NULL, key TEXT NOT NULL,
    family TEXT, problem TEXT, created REAL NOT NULL, used REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS timings (
    problem TEXT NOT NULL, config TEXT NOT NULL, state TEXT NOT NULL, us REAL, low_us REAL, high_us REAL, predicted_us REAL,
    reason TEXT NOT NULL DEFAULT '', owner TEXT NOT NULL DEFAULT '', lease REAL NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,
    at REAL NOT NULL, PRIMARY KEY (problem, config)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS decisions (
    problem TEXT NOT NULL, list TEXT NOT NULL, config TEXT NOT NULL, how TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (problem, list)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS problems_by_family ON problems (family, problem);
"""


def patiently(path: Path) -> sqlite3.Connection:
    """Opens the file; SQLite's own patience does not cover the switch to WAL, which several new processes may make at once."""
    started, warned = time.monotonic(), False
    while True:
        try:
            return _file(path)
        except sqlite3.OperationalError as error:
            waited = time.monotonic() - started
            if "locked" not in str(error) or waited > BUSY_S:
                raise
            if waited > PROBE_AFTER_S and not warned:
                if not has_locks(path.parent):
                    raise sqlite3.OperationalError("its file system has no locks") from None
                log.warning("the tuning cache %s is locked by another process; waiting for it, at most %g s", path, BUSY_S)
                warned = True
            time.sleep(0.01)


def has_locks(folder: Path) -> bool:
    """Whether files in a folder can be locked; True where that cannot be found out."""
    try:
        import fcntl

        with tempfile.TemporaryFile(dir=folder) as probe:
            fcntl.lockf(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # Windows, where every file system has them
        return True
    except OSError as error:
        return error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
    return True


def _file(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=PROBE_AFTER_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, VERSION):
            word = "a later" if version > VERSION else "an earlier"
            raise sqlite3.DatabaseError(f"written by {word} version: {version}, this one knows {VERSION}")
        if version == 0:
            with transaction(connection):
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")
        # Finds out now, and not in the middle of tuning, whether the file can be written.
        connection.execute("UPDATE problems SET used = used WHERE id = ''")
        connection.execute(f"PRAGMA busy_timeout = {1000 * BUSY_S:.0f}")
        return connection
    except BaseException:
        connection.close()
        raise


def in_memory() -> sqlite3.Connection:
    """A new cache that is no file."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(_SCHEMA)
    return connection


def copied_to(path: Path, memory: sqlite3.Connection) -> bool:
    """Copies a file that cannot be written to memory, as far as that is possible."""
    for options in ("mode=ro", "mode=ro&immutable=1"):
        try:
            source = sqlite3.connect(f"{path.absolute().as_uri()}?{options}", uri=True, timeout=1.0)
        except sqlite3.Error:
            continue
        try:
            if source.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                return False
            for table in ("problems", "timings", "decisions"):
                rows = source.execute(f"SELECT * FROM {table}")
                places = ",".join("?" * len(rows.description))
                memory.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({places})", rows.fetchall())
            return True
        except sqlite3.Error:
            continue
        finally:
            source.close()
    return False


class transaction:  # noqa: N801 - reads as a statement
    """BEGIN IMMEDIATE … COMMIT: waits for other writers instead of failing half-way."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __enter__(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.connection.execute("COMMIT" if kind is None else "ROLLBACK")


State = Literal["measured", "compile", "fit", "time", "output", "crash", "not-measured"]
"""compile: it does not compile. fit: the GPU cannot hold it. time: it takes too long. output: it wrote something other than the
first configuration. crash: anything else that went wrong. not-measured: it was not run."""

_STATES: dict[str, State] = {
    "compile-error": "compile",
    "out-of-resources": "fit",
    "hang": "time",
    "wrong-output": "output",
}

How = Literal["measured", "cached", "imported", "predicted", "default", "only", "off"]


class Timing(NamedTuple):
    """One configuration: its latency in microseconds (median, 20 % and 80 % quantile), or why it has none; `clocks_mhz` the lowest and the
    highest SM clock while it was measured, where that was read."""

    config: Any  # triton.Config
    state: State
    us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    predicted_us: float | None = None
    reason: str = ""
    clocks_mhz: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The configuration for one key, and how it came about.

    `how`: measured (now, or together with other processes), cached, imported (another tuner's), predicted, default (nothing was known;
    `reason` says why), only (there is one configuration), off.
    """

    config: Any  # triton.Config
    how: How
    reason: str
    key: tuple = ()
    ranked_by: str = ""  # "learned model (weights 1a2b)", "given order: ..."
    timings: tuple[Timing, ...] = ()
    measurements: int = 0  # made by this process for this decision
    duration_s: float | None = None
    default_us: float | None = None  # of the first of the list (or `default=`), where it was measured
    chosen_us: float | None = None
    provisional: bool = False  # made while a CUDA graph was captured: decided anew afterwards

    def explain(self) -> str:
        """The decision as text, as `print` shows it: one line, then one per configuration, the fastest first."""
        from advisor.rendering.figures import microseconds

        lines = [f"{self.how}: {self.config} ({self.reason})"]
        if self.ranked_by:
            lines.append(f"ranked by {self.ranked_by}")
        for timing in sorted(self.timings, key=lambda entry: math.inf if entry.us is None else entry.us):
            shown = f"{microseconds(timing.us)} µs" if timing.us is not None else timing.state
            predicted = f", predicted {microseconds(timing.predicted_us)} µs" if timing.predicted_us is not None else ""
            at = f" at {' to '.join(f'{clock:,.0f}' for clock in dict.fromkeys(timing.clocks_mhz))} MHz" if timing.clocks_mhz else ""
            lines.append(f"  {shown}{at}{predicted}: {timing.config}" + (f" ({timing.reason})" if timing.reason else ""))
        return "\n".join(lines)

    __str__ = explain


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """`lasting`: a property of the configuration, which the cache keeps. `fatal`: nothing runs in this process any more."""

    state: State
    reason: str
    lasting: bool
    fatal: bool


def left_out(error: Exception, stage: str) -> LeftOut:
    """The reason that an exception gives for leaving a configuration out; `stage` is compile or launch."""
    from advisor.measurement.launch import classify, is_fatal  # loads the models

    failure = classify(error, "launch")
    if isinstance(error, (TooSlowError, NeverEndsError)):
        return LeftOut(state="time", reason=failure.message, lasting=True, fatal=isinstance(error, NeverEndsError))
    fatal, state = is_fatal(error, failure), _STATES.get(failure.kind, "compile" if stage == "compile" else "crash")
    # A lost context is the configuration's doing. Anything else unknown (the GPU's memory was full) may go well next time.
    lasting = fatal or failure.kind in ("compile-error", "out-of-resources", "wrong-output")
    return LeftOut(state=state, reason=failure.message, lasting=lasting, fatal=fatal)
