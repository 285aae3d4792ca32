"""Who holds what others wait for, and whether that process still lives: a configuration that it measures, in a tuning cache or a study."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Callable, Iterator

from advisor.system import processes


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


@contextlib.contextmanager
def repeating(action: Callable[[], object], every_s: float) -> Iterator[None]:
    """Calls `action` every so many seconds, in a thread, as long as the block runs. What it raises is not heard: the next may succeed."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(every_s):
            with contextlib.suppress(Exception):
                action()

    threading.Thread(target=run, name="advisor-lives", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
