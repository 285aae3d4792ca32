"""Who is measuring a configuration right now, and whether that process still lives.

A process claims a configuration by writing its name and a lease beside it. While it measures, a thread extends its leases. A claim
whose process died (seen at once on the same machine) or whose lease ran out may be taken over.
"""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable
from types import TracebackType

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


def may_take_over(owner: str, lease_until: float, now: float, unchanged_s: float = 0.0) -> bool:
    """Whether a claim no longer stands; `unchanged_s` is how long this process has seen that lease, by its own clock.

    A lease far in the future is one of a machine whose clock is ahead: a living owner would have extended it by then.
    """
    return lease_until < now or unchanged_s > LEASE_S or is_alive(owner) is False


class Extending:
    """Calls `extend` every few seconds, in a thread, as long as the block runs."""

    def __init__(self, extend: Callable[[], None]) -> None:
        self._extend = extend
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="advisor-leases", daemon=True)
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(EXTEND_EVERY_S):
            self._extend()
