"""Pools of tests hand compile processes on, where the next would start with the same: starting one costs more than most compilations.

A worker runs nothing of a request itself, and what answers one ends with it: `security/test_sandbox.py` tries to leave something behind.
"""

from __future__ import annotations

import atexit
import os
import resource
import tempfile
import threading
from typing import Any

from advisor.compiled.compiler import pool
from advisor.compiled.compiler.pool import Pool, Worker
from advisor.python_source import language
from advisor.system import sandbox
from advisor.system.triton_install import interpreter

ONE, START = Pool.one, Worker._start
MOST_KEPT = 2
"""As many as a pool has on two cores."""
kept: list[Worker] = []
"""The last ones."""
lock = threading.Lock()


def started_with() -> tuple[object, ...]:
    """All that decides how a worker starts: what this process is and may, where files lie, and what is passed of the environment."""
    process = (os.getpid(), resource.getrlimit(resource.RLIMIT_FSIZE), pool.Worker, interpreter(), pool._triton_place())
    places = (pool.WORKER, sandbox.__file__, language.__file__, tempfile.gettempdir())
    return (*process, *places, frozenset(sandbox.passed(os.environ, "").items()))


def one(self: Pool, request: dict[str, Any]) -> dict[str, Any]:
    """`Pool.one`, with a kept worker in the place of a new one."""
    if not self.idle and kept:
        now = started_with()
        with lock:
            found = next((worker for worker in kept if worker.started_with == now), None)  # type: ignore[attr-defined]
            if found is not None:
                kept.remove(found)
                self.idle.append(found)
    return ONE(self, request)


def start(self: Worker) -> None:
    """`Worker._start`, which notes with what."""
    if self.process is None or self.process.poll() is not None:
        self.started_with = started_with()  # type: ignore[attr-defined]
    START(self)


def close(self: Pool) -> None:
    """`Pool.close`, which keeps its workers."""
    with self.lock:
        idle, self.idle = self.idle, []
    for worker in idle:
        if type(worker) is Worker and worker.process is not None:
            with lock:
                kept.append(worker)
        else:
            worker.close()
    let_go(MOST_KEPT)


def let_go(but: int = 0) -> None:
    """End the kept ones, `but` so many of the last: those that this process started."""
    with lock:
        old, kept[:] = kept[: len(kept) - but], kept[len(kept) - but :]
    for worker in old:
        if worker.started_with[0] == os.getpid():  # type: ignore[attr-defined]
            worker.close()


def keep() -> None:
    """From here on, in this process."""
    Pool.one, Pool.close, Worker._start = one, close, start  # type: ignore[method-assign]
    atexit.register(let_go)
