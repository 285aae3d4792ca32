"""Who is measuring a configuration right now, and whether that process still lives.

A process claims a configuration by writing its name and a lease beside it. While it measures, a thread extends its leases. A claim
whose process died (seen at once on the same machine) or whose lease ran out may be taken over.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import TracebackType

LEASE_S = 30.0
"""How long a claim stands that is not extended: the longest a stopped process keeps others waiting."""

EXTEND_EVERY_S = 5.0

ATTEMPTS = 3
"""A configuration that so many processes died on is recorded as a crash."""


@lru_cache(maxsize=1)
def _namespace() -> str:
    """Where process ids mean the same: a boot of a machine, and the container in it."""
    parts = []
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    except OSError:
        import platform

        parts.append(platform.node())
    try:
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        parts.append("")
    return "/".join(parts)


def _started(pid: int) -> str:
    """When a process started, in the kernel's ticks; "" where that cannot be told."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def owner_name() -> str:
    """Name of this process: unique among processes, also of those whose id is used again."""
    pid = os.getpid()
    return f"{_namespace()}|{pid}|{_started(pid)}"


def is_alive(owner: str) -> bool | None:
    """Whether the process of that name lives; None where it cannot be told from here."""
    namespace, _, rest = owner.partition("|")
    pid_text, _, started = rest.partition("|")
    if namespace != _namespace() or not pid_text.isdigit():
        return None
    try:
        os.kill(int(pid_text), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    if _state(int(pid_text)) == "Z":
        return False
    return _started(int(pid_text)) == started


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def may_take_over(owner: str, lease_until: float, now: float) -> bool:
    """Whether a claim no longer stands."""
    return lease_until < now or is_alive(owner) is False


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
