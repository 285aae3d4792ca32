"""What the tests of this folder share: canaries, and workers with the guard and without it."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from advisor.compiled.compiler import pool
from advisor.system import room

SECRET = "hush-4711"
"""In the environment, in a file and in the parent's memory: found in an answer, a wall did not hold."""
IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")


def need_walls() -> None:
    """Skip where this kernel has no Landlock or seccomp; in CI, where a kernel has them, what fails to use them fails."""
    lacks = pool.room_lacks()
    if lacks and not (IN_CI and room.landlock_version() >= room.MINIMUM_LANDLOCK):
        pytest.skip(f"the kernel of this machine cannot hold a room: {lacks}")
    assert not lacks, lacks


def unguarded(folder: Path) -> Path:
    """A worker whose guard refuses nothing: what is left is the room."""
    for name in ("worker.py", "guard.py", "block_pointers.py"):
        shutil.copy(pool.WORKER.with_name(name), folder / name)
    with (folder / "guard.py").open("a") as guard:
        guard.write("\n\ndef watch():\n    pass\n\n\ndef check_chains(*anything):\n    pass\n")
    return folder / "worker.py"


def python(body: str) -> dict[str, Any]:
    """A request whose "kernel" is Python that runs as it is imported, and raises what it finds: nothing holds it but the room."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    text = (
        f"def found():\n{lines}\ntry:\n    said = found()\nexcept BaseException as error:\n    said = repr(error)\nraise ValueError(said)\n"
    )
    return {"target": ["cuda", 90, 32], "modules": {"rebuilt_k.py": text}, "entry": "rebuilt_k", "kernel": "k"}


class Listener:
    """A port of this machine, and how many came."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.setblocking(False)
        self.port = self.server.getsockname()[1]

    def visitors(self) -> int:
        """Connections since the last call."""
        count = 0
        while True:
            try:
                self.server.accept()[0].close()
                count += 1
            except BlockingIOError:
                return count


@contextmanager
def listening() -> Iterator[Listener]:
    """A listener that ends with the block."""
    found = Listener()
    try:
        yield found
    finally:
        found.server.close()
