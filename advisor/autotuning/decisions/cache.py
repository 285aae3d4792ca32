"""The tuning cache: one SQLite file that many processes read and write at once, and that survives being killed at any moment.

One row per configuration of a problem. A problem is a kernel (its source with dependencies), a Triton version, a GPU model and a
tuning key. A row is claimed before it is measured, so that processes that tune the same key share the work: owner and lease are written
beside it, and the lease is extended meanwhile (`system.processes.repeating`). A claim whose process died (seen at once on the same machine)
or whose lease ran out may be taken over. The first decision written for a list of configurations stands for all of them.

A file that is damaged or cannot be written costs a warning: what can be read of it is used, and the rest happens in memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from advisor.autotuning.decisions.decision import VERSION, copied_to, in_memory, patiently, transaction
from advisor.system.errors import InputError
from advisor.system.processes import is_alive, owner_name
from advisor.system.settings import read_settings

FILE_NAME = "autotune.sqlite3"
CLAIMED = "claimed"
LEASE_S, EXTEND_EVERY_S = 30.0, 5.0
"""How long a claim stands that is not extended: the longest a stopped process keeps others waiting."""
ATTEMPTS = 3
"""A configuration that so many processes died on is recorded as a crash."""
FOR_CONSTANTS = " for "
"""In a problem's source, before the constants that its calls pass and its key does not hold (`source.passed_constants`)."""
WITH_HOOKS = " with hooks"
"""After the source of a kernel whose latencies hold what `pre_hook`, `post_hook`, `reset_to_zero` or `restore_value` take."""
BY_NAME, IMPORTED = "by-name", "imported"
"""Source of a problem of another tuner, which knows its kernel by name only; and how it was decided."""
DAMAGE = ("malformed", "not a database", "no such table", "no such column")
"""In SQLite's words for a file that is of no use."""
_PROBLEMS = "SELECT kernel, source, triton, gpu, key, family, problem FROM problems"
log = logging.getLogger("advisor.autotune")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemKey:
    """The key of timings. `problem` is the canonical JSON of the recognised problem, with `family`; None where it is not known."""

    kernel: str
    source: str
    triton: str
    gpu: str
    key: str
    family: str | None = None
    problem: str | None = None

    @property
    def id(self) -> str:
        """Name of the problem in the cache."""
        text = json.dumps([self.kernel, self.source, self.triton, self.gpu, self.key])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    @property
    def by_name(self) -> ProblemKey:
        """The problem under which another tuner's timings of a kernel of this name, GPU and key are kept."""
        return replace(self, source=BY_NAME, triton="")

    @property
    def constants(self) -> str:
        """The constants that tell it from other problems of the same key: "HEAD_DIM=128"; empty where none do."""
        return self.source.partition(FOR_CONSTANTS)[2]


def may_take_over(owner: str, lease_until: float, now: float) -> bool:
    """Whether a claim no longer stands."""
    return lease_until < now or is_alive(owner) is False


class Row(NamedTuple):  # hundreds are made for every new key, and a tuple takes a quarter of the time
    """One configuration of a problem as the cache has it; latencies in microseconds."""

    config: str
    state: str
    us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    predicted_us: float | None = None
    reason: str = ""
    at: float = 0.0


class Cache:
    """See the module. `folder` None: in memory."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.path = folder / FILE_NAME if folder is not None else None
        self.in_memory = folder is None
        self._connection: sqlite3.Connection | None = None
        self._pid = -1
        self._owner = ""
        self._inode = 0
        self._watched: dict[tuple[str, str], tuple[Any, float]] = {}  # claims of others: owner and lease, and since when
        self._lock = threading.RLock()
        with _fork:
            _all.add(self)

    # ------------------------------------------------------------------------------------------- problems and their rows

    def add_problem(self, key: ProblemKey) -> None:
        """Makes the problem known, or notes that it was used.

        Calls of different sizes share a key that does not name them (or buckets them): what was measured stays of the problem that it
        was measured on, whatever is called later.
        """
        now = time.time()
        free = "NOT EXISTS (SELECT 1 FROM timings WHERE timings.problem = problems.id)"

        def action(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO problems VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET used = excluded.used,"
                f" family = CASE WHEN {free} THEN COALESCE(excluded.family, family) ELSE family END,"
                f" problem = CASE WHEN {free} THEN COALESCE(excluded.problem, problem) ELSE problem END",
                (key.id, key.kernel, key.source, key.triton, key.gpu, key.key, key.family, key.problem, now, now),
            )

        self._do(action)

    def rows(self, problem: str) -> dict[str, Row]:
        """The rows of the problem's configurations, claims left out."""
        query = "SELECT config, state, us, low_us, high_us, predicted_us, reason, at FROM timings WHERE problem = ? AND state <> ?"
        rows = self._do(lambda connection: connection.execute(query, (problem, CLAIMED)).fetchall())
        return {values[0]: Row(*values) for values in rows}

    def decision(self, problem: str, lists: Iterable[str]) -> tuple[str, str] | None:
        """Configuration and `how` of the decision for the first of the lists that has one."""
        rows = self._do(
            lambda connection: connection.execute("SELECT list, config, how FROM decisions WHERE problem = ?", (problem,)).fetchall()
        )
        decided = {name: (str(config), str(how)) for name, config, how in rows}
        return next((decided[list_name] for list_name in lists if list_name in decided), None)

    def decide(self, problem: str, configurations: str, config: str, how: str) -> str:
        """Writes the decision for a list of configurations, unless there is one; the one that stands."""

        def action(connection: sqlite3.Connection) -> str:
            connection.execute("INSERT OR IGNORE INTO decisions VALUES (?,?,?,?,?)", (problem, configurations, config, how, time.time()))
            query = "SELECT config FROM decisions WHERE problem = ? AND list = ?"
            return str(connection.execute(query, (problem, configurations)).fetchone()[0])

        return self._do(action)

    def claim_some(self, problem: str, configs: Sequence[str], most: int) -> list[str]:
        """The first configurations that this process is to measure now: nobody has, and nobody alive does.

        Args:
            problem: Name of the problem.
            configs: The configurations.
            most: How many to claim.
        """

        def action(connection: sqlite3.Connection) -> list[str]:
            claimed: list[str] = []
            fresh: list[str] = []
            with transaction(connection):
                for first in range(0, len(configs), most):
                    if len(claimed) == most:
                        break
                    chunk = configs[first : first + most]
                    places = ",".join("?" * len(chunk))
                    query = f"SELECT config, state, owner, lease, attempts FROM timings WHERE problem = ? AND config IN ({places})"
                    known = {config: state for config, *state in connection.execute(query, (problem, *chunk))}
                    for config in chunk:
                        if len(claimed) == most:
                            break
                        if config not in known:
                            fresh.append(config)
                        elif not self._taken_over(connection, problem, config, *known[config]):
                            continue
                        claimed.append(config)
                now = time.time()
                connection.executemany(
                    "INSERT INTO timings (problem, config, state, owner, lease, attempts, at) VALUES (?,?,?,?,?,1,?)",
                    [(problem, config, CLAIMED, self._owner, now + LEASE_S, now) for config in fresh],
                )
            return claimed

        return self._do(action)

    def _taken_over(
        self, connection: sqlite3.Connection, problem: str, config: str, state: str, owner: str, lease: float, attempts: int
    ) -> bool:
        """Whether a claim no longer stands, and is this process's now."""
        now = time.time()
        if state != CLAIMED or not (may_take_over(owner, lease, now) or self._stands_still(problem, config, owner, lease)):
            return False
        if attempts >= ATTEMPTS:
            connection.execute(
                "UPDATE timings SET state = 'crash', reason = ?, at = ? WHERE problem = ? AND config = ?",
                (f"{attempts} processes ended while they measured it", now, problem, config),
            )
            return False
        connection.execute(
            "UPDATE timings SET owner = ?, lease = ?, attempts = attempts + 1, at = ? WHERE problem = ? AND config = ?",
            (self._owner, now + LEASE_S, now, problem, config),
        )
        return True

    def _stands_still(self, problem: str, config: str, owner: str, lease: float) -> bool:
        """Whether a lease has not been extended for as long as one stands, by this process's clock: its own clock may be another."""
        now = time.monotonic()
        seen, since = self._watched.get((problem, config), (None, now))
        if seen != (owner, lease):
            self._watched[problem, config] = (owner, lease), now
            return False
        return now - since > LEASE_S

    def extend(self, problem: str) -> None:
        """Extends the leases this process holds on the problem's configurations."""
        query = "UPDATE timings SET lease = ? WHERE problem = ? AND state = ? AND owner = ?"
        self._do(lambda connection: connection.execute(query, (time.time() + LEASE_S, problem, CLAIMED, self._owner)))

    def release(self, problem: str, config: str) -> None:
        """Gives a claim back, unmeasured."""
        query = "DELETE FROM timings WHERE problem = ? AND config = ? AND state = ? AND owner = ?"
        self._do(lambda connection: connection.execute(query, (problem, config, CLAIMED, self._owner)))

    def record_all(self, problem: str, rows: Iterable[Row], *, replace_existing: bool = True) -> None:
        """Writes rows in one transaction."""
        word = "REPLACE" if replace_existing else "IGNORE"
        now = time.time()
        values = [(problem, *row[:7], row.at or now) for row in rows]

        def action(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                connection.executemany(
                    f"INSERT OR {word} INTO timings (problem, config, state, us, low_us, high_us, predicted_us, reason, at)"
                    " VALUES (?,?,?,?,?,?,?,?,?)",
                    values,
                )

        self._do(action)

    # ----------------------------------------------------------------------------------------------------- the whole cache

    def problems(self) -> list[ProblemKey]:
        """Every problem, most recently used first."""
        return self._do(lambda connection: [_problem(*values) for values in connection.execute(f"{_PROBLEMS} ORDER BY used DESC, id")])

    def knows(self, kernel: str) -> bool:
        """Whether anything was tuned for a kernel of that name."""
        row = self._do(lambda connection: connection.execute("SELECT 1 FROM problems WHERE kernel = ? LIMIT 1", (kernel,)).fetchone())
        return row is not None

    def decisions(self, problem: str) -> list[tuple[str, str, str, float]]:
        """List, configuration, how and time of the problem's decisions, newest first."""
        query = "SELECT list, config, how, at FROM decisions WHERE problem = ? ORDER BY at DESC, list"
        return [tuple(row) for row in self._do(lambda connection: connection.execute(query, (problem,)).fetchall())]

    def of_problem(self, family: str, problem: str) -> list[ProblemKey]:
        """Problems of one family with that canonical form, on any GPU, most recently used first."""
        query = f"{_PROBLEMS} WHERE family = ? AND problem = ? ORDER BY used DESC, id"
        return self._do(lambda connection: [_problem(*values) for values in connection.execute(query, (family, problem))])

    def forget(self, chosen: Callable[[ProblemKey, float], bool]) -> None:
        """Deletes the problems that `chosen(problem, last used)` holds for."""

        def action(connection: sqlite3.Connection) -> None:
            rows = connection.execute(_PROBLEMS.replace(" FROM", ", used FROM")).fetchall()
            doomed = [(key.id,) for *values, used in rows if chosen(key := _problem(*values), used)]
            with transaction(connection):
                for table, column in (("timings", "problem"), ("decisions", "problem"), ("problems", "id")):
                    connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", doomed)

        self._do(action)

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    # --------------------------------------------------------------------------------------------------------- connections

    def _do(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Runs an action; where the file fails, once more in memory."""
        with self._lock:
            try:
                return action(self._open())
            except sqlite3.Error as error:
                if self.in_memory:
                    raise
                self._fall_back(f"{self.path} cannot be used ({error})")
                return action(self._open())

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._pid == os.getpid():
            if self.in_memory or self._inode_now() == self._inode:
                return self._connection
            log.warning("the tuning cache %s was removed or replaced while it was open; new results go into a new one", self.path)
            self._connection.close()  # SQLite leaves alone what another process has put in its place
        self._pid, self._owner = os.getpid(), owner_name()
        if self.path is None or self.in_memory:
            self._connection = in_memory()
            return self._connection
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = patiently(self.path)
            self._inode = self._inode_now()
        except (OSError, sqlite3.Error) as error:
            self._fall_back(f"{self.path} cannot be used ({getattr(error, 'strerror', None) or error})")
        assert self._connection is not None
        return self._connection

    def _fall_back(self, why: str) -> None:
        """Goes on in memory, with what the file still gives."""
        self.in_memory = True
        memory = in_memory()
        copied = copied_to(self.path, memory) if self.path is not None else False
        what = "it is read, and new results stay in memory" if copied else "tuning goes on in memory"
        damaged = any(words in why for words in DAMAGE)
        remedy = "remove it" if damaged else "ADVISOR_CACHE_DIR names another folder"
        log.warning("the tuning cache %s: %s; %s", why, what, remedy)
        self._connection = memory

    def _inode_now(self) -> int:
        """Number of the file that the path names now; 0 where there is none."""
        try:
            return os.stat(self.path).st_ino if self.path is not None else 0  # noqa: PTH116 - at every action: half the time
        except OSError:
            return 0


def _problem(kernel: str, source: str, triton: str, gpu: str, key: str, family: str | None, problem: str | None) -> ProblemKey:
    return ProblemKey(kernel=kernel, source=source, triton=triton, gpu=gpu, key=key, family=family, problem=problem)


def copy_of(path: Path) -> Cache:
    """A cache file read into memory; the file is not changed.

    Raises:
        InputError: It is damaged, of another version, or no cache.
    """
    cache = Cache(None)
    connection = cache._open()
    if not copied_to(path, connection):
        limit = f"an SQLite file of version {VERSION} that @advisor.autotune wrote"
        raise InputError(f"{path}: cannot be read as a tuning cache", None, limit, "remove it where it is damaged")
    return cache


_all: weakref.WeakSet[Cache] = weakref.WeakSet()
_fork = threading.Lock()  # held by the thread that forks, and by one that makes a cache
_forking: list[Cache] = []  # whose locks the thread that forks holds


def _before_fork() -> None:
    """No connection to a file crosses a fork: SQLite's locks are the process's, and a copy of what it remembers of them is wrong.

    A child that believes that it holds them loses what it writes as soon as its parent closes the file. The next use opens it anew, here
    and there; and no thread is in the middle of something that the child would wait for.
    """
    _fork.acquire()
    for cache in _all:
        cache._lock.acquire()
        _forking.append(cache)
        if not cache.in_memory:
            cache.close()


def _after_fork() -> None:
    while _forking:
        _forking.pop()._lock.release()
    _fork.release()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)

_caches: dict[Path | None, Cache] = {}


def default_cache() -> Cache:
    """The cache that the environment names; one object per folder and process."""
    folder = read_settings().cache_dir.absolute()
    if folder not in _caches:
        _caches[folder] = Cache(folder)
    return _caches[folder]


def memory_cache() -> Cache:
    """A cache of this process."""
    if None not in _caches:
        _caches[None] = Cache(None)
    return _caches[None]
