"""Who is measuring a configuration right now, and whether that process still lives.

A process claims a configuration by writing its name and a lease beside it. While it measures, a thread extends its leases. A claim
whose process died (seen at once on the same machine) or whose lease ran out may be taken over.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Callable
from types import TracebackType
from typing import ClassVar

from advisor.system import processes

LEASE_S = 30.0
"""How long a claim stands that is not extended: the longest a stopped process keeps others waiting."""

EXTEND_EVERY_S = 5.0

ATTEMPTS = 3
"""A configuration that so many processes died on is recorded as a crash."""


def owner_name() -> str:
    """Name of this process: unique among processes, also of those whose id is used again."""
    pid = os.getpid()
    return f"{_among()}|{pid}|{processes.started(pid) or ''}"


def is_alive(owner: str) -> bool | None:
    """Whether the process of that name lives; None where it cannot be told from here."""
    namespace, _, rest = owner.partition("|")
    pid, _, started = rest.partition("|")
    if namespace != _among() or not pid.isdigit():
        return None
    return processes.is_running(int(pid), started)


def _among() -> str:
    """The scope within which process numbers are unique, as far as the system says: without /proc (macOS), the machine."""
    return processes.namespace() or platform.node()


def may_take_over(owner: str, lease_until: float, now: float) -> bool:
    """Whether a claim no longer stands."""
    return lease_until < now or is_alive(owner) is False


class Extending:
    """Calls `extend` every few seconds as long as the block runs, in a thread that the process keeps: starting one takes milliseconds."""

    _extends: ClassVar[set[Callable[[], None]]] = set()
    _wake = threading.Event()
    _thread: threading.Thread | None = None

    def __init__(self, extend: Callable[[], None]) -> None:
        self._extend = extend

    def __enter__(self) -> None:
        idle = not Extending._extends
        Extending._extends.add(self._extend)
        if Extending._thread is None or not Extending._thread.is_alive():
            Extending._thread = threading.Thread(target=self._run, name="advisor-leases", daemon=True)
            Extending._thread.start()
        if idle:  # or whoever waits would wait anew
            self._wake.set()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        Extending._extends.discard(self._extend)

    @classmethod
    def _run(cls) -> None:
        while True:
            if cls._wake.wait(EXTEND_EVERY_S if cls._extends else None):
                cls._wake.clear()
                continue
            for extend in list(cls._extends):
                with contextlib.suppress(Exception):  # the cache has said it
                    extend()

    @classmethod
    def forked(cls) -> None:
        """In a child, which has no such thread, and measures nothing yet."""
        cls._extends, cls._wake, cls._thread = set(), threading.Event(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Extending.forked)
