"""Who is measuring a configuration right now, and whether that process still lives.

A process claims a configuration by writing its name and a lease beside it. While it measures, a thread extends its leases. A claim
whose process died (seen at once on the same machine) or whose lease ran out may be taken over.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Callable, Iterator

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


@contextlib.contextmanager
def extending(extend: Callable[[], None]) -> Iterator[None]:
    """Calls `extend` every few seconds as long as the block runs, in a thread."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(EXTEND_EVERY_S):
            with contextlib.suppress(Exception):  # the cache has said it
                extend()

    threading.Thread(target=run, name="advisor-leases", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
