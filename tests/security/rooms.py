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
from advisor.compiled.compiler.compile import SMALLEST
from advisor.compiled.compiler.kernel import CompileRequest, Target
from advisor.python_source import language
from advisor.python_source.rebuild import rebuild
from advisor.python_source.source import parse_source
from advisor.system import sandbox

SECRET = "hush-4711"
"""In the environment, in a file and in the parent's memory: found in an answer, a wall did not hold."""
IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")


def need_walls() -> None:
    """Skip where this kernel has no Landlock or seccomp; in CI, where a kernel has them, what fails to use them fails."""
    lacks = pool.sandbox_lacks()
    if lacks and not (IN_CI and sandbox.landlock_version() >= sandbox.MINIMUM_LANDLOCK):
        pytest.skip(f"the kernel of this machine cannot hold a room: {lacks}")
    assert not lacks, lacks


FREE = {
    "guard": "def watch():\n    pass\n\n\ndef check_chains(*anything):\n    pass\n\n\ndef held(function):\n    return function\n"
    "\n\ndef check_call(*anything):\n    pass\n",
    "language": "def check_module(tree):\n    pass\n",
    "frontend": "BUILTINS = tuple(dir(builtins))\n_Source.imported = lambda self, *given, **named: __import__(*given, **named)\n"
    "_Source.interpreted = property(lambda self: True, lambda self, value: None)\n"
    "\n\ndef _place(*anything):\n    pass\n",
}
"""What is written over of each file, so that nothing is refused and all that a source says runs."""


def unguard(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers that are started from here on run whatever a source says: what is left is the room."""
    folder.mkdir(exist_ok=True)
    for path in pool.WORKER.parent.glob("*.py"):
        shutil.copy(path, folder)
    shutil.copy(language.__file__, folder)
    for name, text in FREE.items():
        with (folder / f"{name}.py").open("a") as file:
            file.write("\n\n" + text)
    folder.chmod(0o755)
    monkeypatch.setattr(pool, "WORKER", folder / "worker.py")
    monkeypatch.setattr(language, "__file__", str(folder / "language.py"))


def python(body: str) -> dict[str, Any]:
    """A request whose "kernel" is Python that runs as it is imported, and raises what it finds: nothing holds it but the room."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    text = (
        f"def found():\n{lines}\ntry:\n    said = found()\nexcept BaseException as error:\n    said = repr(error)\nraise ValueError(said)\n"
    )
    return module(text)


def module(text: str) -> dict[str, Any]:
    """A request whose module is a text, for workers that are not guarded."""
    request = {"target": ["cuda", 90, 32], "modules": {"rebuilt_k.py": text}, "positions": {}, "entry": "rebuilt_k", "kernel": "k"}
    return request | {"constexprs": [], "attrs": [], "signature": {"x": "*fp32"}, "options": {}}


def kernel_request() -> dict[str, Any]:
    """A request to compile the smallest kernel."""
    rebuilt = rebuild(parse_source(SMALLEST, "k.py"), "smallest")
    target = Target(backend="cuda", arch=90)
    return CompileRequest(rebuilt=rebuilt, signature={"x": "*fp32"}, constexprs={}, target=target).message()


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
