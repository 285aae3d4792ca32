"""Pools of tests hand a compile process on, where the next would start with the same: starting one costs more than most compilations.

A worker runs nothing of a request itself, and what answers one ends with it: `security/test_sandbox.py` tries to leave something behind.
"""

from __future__ import annotations

import atexit
import os
import resource
import tempfile
from typing import Any

from advisor.compiled.compiler import pool
from advisor.compiled.compiler.pool import Pool, Worker
from advisor.python_source import language
from advisor.system import sandbox
from advisor.system.triton_install import interpreter

ONE, CLOSE, START = Pool.one, Pool.close, Worker._start
kept: dict[tuple[object, ...], Worker] = {}
"""The last one, by what it was started with."""


def started_with() -> tuple[object, ...]:
    """All that decides how a worker starts: what this process is and may, where files lie, and what is passed of the environment."""
    process = (os.getpid(), resource.getrlimit(resource.RLIMIT_FSIZE), pool.Worker, interpreter(), pool._triton_place())
    places = (pool.WORKER, sandbox.__file__, language.__file__, tempfile.gettempdir())
    return (*process, *places, frozenset(sandbox.passed(os.environ, "").items()))


def one(self: Pool, request: dict[str, Any]) -> dict[str, Any]:
    """`Pool.one`, with the kept worker in the place of a new one."""
    if not self.idle and kept and (worker := kept.pop(started_with(), None)) is not None:
        self.idle.append(worker)
    return ONE(self, request)


def start(self: Worker) -> None:
    """`Worker._start`, which notes with what."""
    if self.process is None or self.process.poll() is not None:
        self.started_with = started_with()  # type: ignore[attr-defined]
    START(self)


def close(self: Pool) -> None:
    """`Pool.close`, of all workers but one."""
    last = self.idle.pop() if self.idle else None
    CLOSE(self)
    if type(last) is Worker and last.process is not None:
        let_go()
        kept[last.started_with] = last  # type: ignore[attr-defined]
    elif last is not None:
        last.close()


def let_go() -> None:
    """End the kept one, if this process started it."""
    for key, worker in list(kept.items()):
        if key[0] == os.getpid():
            worker.close()
    kept.clear()


def keep() -> None:
    """From here on, in this process."""
    Pool.one, Pool.close, Worker._start = one, close, start  # type: ignore[method-assign]
    atexit.register(let_go)
