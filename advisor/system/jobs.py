"""A killable worker process that runs jobs: it receives a function and its arguments, and sends what the function says and returns.

It talks over a pipe of its own (a kernel may print what it likes), and says what it is about to do before it does it, so that whoever
watches knows what hangs or crashes, kills the worker, and starts another.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any

from advisor.system.errors import AdvisorError, shorten
from advisor.system.processes import python_command

_START = "from advisor.system.jobs import serve; serve(int(sys.argv[1]))"
STDERR_TAIL_BYTES = 2000

Say = Callable[..., None]
"""Sends the parent a message of a job: its kind and what goes with it."""


class Worker:
    """The parent's handle on one worker."""

    def __init__(self) -> None:
        ours, theirs = Pipe(duplex=True)
        self.connection: Connection = ours
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        try:
            self.process = subprocess.Popen(
                python_command(_START, str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                pass_fds=(theirs.fileno(),),
                close_fds=True,
            )
        finally:
            theirs.close()

    def send(self, job: Callable[..., Any], *arguments: Any) -> None:
        """Sends a job, called with what sends messages and the arguments; a worker that is gone shows when its answer is waited for."""
        with contextlib.suppress(OSError):
            self.connection.send((job, arguments))

    def receive(self) -> tuple[Any, ...] | None:
        """The next message: ("done", what the job returned), ("error", in words, exit code) or what it says meanwhile; None: it is gone."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    def kill(self) -> None:
        """Ends it, whatever it is doing."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        self.connection.close()
        self._stderr.close()

    def how_it_ended(self) -> str:
        """Why a worker that is gone is gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        code = self.process.returncode
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"the worker was killed by {signal.Signals(-code).name}{self._last_words()}"
        return f"the worker ended with status {code}{self._last_words()}"

    def _last_words(self) -> str:
        try:
            size = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, size - STDERR_TAIL_BYTES))
            lines = [line for line in self._stderr.read().decode(errors="replace").splitlines() if line.strip()]
        except (OSError, ValueError):
            return ""
        return f": {shorten(lines[-1], 160)}" if lines else ""


def serve(descriptor: int) -> None:
    """The worker's side: runs jobs until the pipe closes."""
    _die_with_parent()
    connection = Connection(descriptor)

    def say(*message: Any) -> None:
        connection.send(message)

    while True:
        try:
            job, arguments = connection.recv()
        except (EOFError, OSError):
            return
        try:
            say("done", job(say, *arguments))
        except BrokenPipeError:
            return
        except Exception as error:
            message = str(error) if isinstance(error, AdvisorError) else f"{type(error).__name__}: {error}"
            say("error", shorten(message, 600), getattr(error, "exit_code", 3))


def _die_with_parent() -> None:
    """Asks Linux to end this process when its parent is killed: a hung kernel must not outlive a killed run."""
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
