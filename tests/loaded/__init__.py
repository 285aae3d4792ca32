"""A Python that has loaded torch and Triton already, for tests whose programs need them: loading takes longer than most of the programs."""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


@functools.cache
def python(interpret: bool = True) -> tuple[str, ...]:
    """What stands for `sys.executable` in a command: a program, `-m MODULE` or `-c CODE` follows, and its arguments.

    Args:
        interpret: Kernels run in Triton's interpreter, which is decided when Triton is imported.
    """
    folder = tempfile.TemporaryDirectory(prefix="advisor-loaded-")
    path = str(Path(folder.name) / "socket")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TRITON_INTERPRET": "1" if interpret else "0"}
    server = subprocess.Popen(
        [sys.executable, str(HERE / "server.py"), path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environment, "PYTHONPATH": str(HERE.parents[1])},
    )
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"

    def end() -> None:
        server.communicate()  # it ends with its standard input
        folder.cleanup()

    atexit.register(end)
    return (sys.executable, "-IS", str(HERE / "client.py"), path)
