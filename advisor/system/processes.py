"""Whether another process of this machine still runs, told by its number and when it started."""

from __future__ import annotations

import os
from pathlib import Path


def namespace() -> str | None:
    """The scope within which process numbers are unique: one boot and one PID namespace; None: the system does not say.

    Containers on the host's network and cloned machines have one hostname, and process numbers that mean nothing to each other.
    """
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def started(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None: there is none, or it cannot be seen from here."""
    fields = _stat(pid)
    return fields[19] if fields else None


def is_running(pid: int, started_at: str) -> bool:
    """Whether the process of that number which started then still runs. A zombie does not: it only waits for its parent.

    Args:
        pid: Its number in this `namespace`.
        started_at: What `started` said of it.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's, and /proc may hide it
        pass
    fields = _stat(pid)
    return fields is None or (fields[19] == started_at and fields[0] != "Z")


def _stat(pid: int) -> list[str] | None:
    """The fields of `/proc/PID/stat` from the state on, which come after a name that may hold anything."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > 19 else None
