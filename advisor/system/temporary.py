"""Temporary folders that do not outlive their process for long, however that one ends."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from advisor.system import processes

_OWNED = re.compile(r"advisor-[a-z]+-(?P<among>[0-9a-f]{8})-(?P<pid>\d+)-(?P<started>\d+)-\w+")


@contextlib.contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A folder that is removed at the end of the block. Those that killed processes of this user left are removed first.

    Args:
        purpose: Part of its name: lower-case letters.
    """
    place = Path(tempfile.gettempdir())
    _remove_abandoned(place)
    pid = os.getpid()
    owner = f"{_among()}-{pid}-{processes.started(pid) or 0}"
    with tempfile.TemporaryDirectory(prefix=f"advisor-{purpose}-{owner}-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _among() -> str:
    """The scope within which process numbers are unique, in eight characters: containers that share a folder have their own."""
    return hashlib.sha256((processes.namespace() or "").encode()).hexdigest()[:8]


def _remove_abandoned(place: Path) -> None:
    """Removes the folders of processes that no longer run; what cannot be removed stays."""
    if processes.namespace() is None:
        return
    with contextlib.suppress(OSError):
        for path in place.iterdir():
            found = _OWNED.fullmatch(path.name)
            if found is None or found["among"] != _among() or processes.is_running(int(found["pid"]), found["started"]):
                continue
            with contextlib.suppress(OSError):
                if not path.is_symlink() and path.stat().st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)
