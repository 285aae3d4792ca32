"""Processes: whether another one still runs, workers that end with us, programs of the user's with something of ours started in them.

A killable worker process that runs jobs: it receives a function and its arguments, and sends what the function says and returns.

It talks over a pipe of its own (a kernel may print what it likes), and says what it is about to do before it does it, so that whoever
watches knows what hangs or crashes, kills the worker, and starts another.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, Any

from advisor.system.errors import AdvisorError, UsageError, shorten


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


ORPHANED = 143
"""Exit status of a worker that ended with its parent: that of a process which SIGTERM ended."""

LAST_WORDS_S = 5.0
"""What a worker that handles SIGTERM has to end in an orderly way."""


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Within it SIGTERM raises KeyboardInterrupt, as Ctrl-C does: both are somebody's wish, and no fault of what runs."""
    if threading.current_thread() is not threading.main_thread():  # only there can it be handled
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Within it neither Ctrl-C nor SIGTERM is heard: for the last words of what leaves because of one of them, or of both."""
    if threading.current_thread() is not threading.main_thread():  # only there are they raised
        yield
        return
    before = {item: signal.signal(item, signal.SIG_IGN) for item in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for entry, handler in before.items():
            signal.signal(entry, handler)


@contextlib.contextmanager
def starting_workers() -> Iterator[None]:
    """Within it Ctrl-C waits, here until the end of it, and in a worker that is started in it until that one says `hear_interrupts`.

    A worker that imports for a second has nobody yet who takes a KeyboardInterrupt: it would end with a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker  # which takes a command longer to import than to start

    resource_tracker.ensure_running()  # started with the first worker, it would let Ctrl-C in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # workers inherit the mask
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear_interrupts() -> None:
    """Raises the KeyboardInterrupt that waited since `starting_workers`, if one did; from here on Ctrl-C raises it at once."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def end_with_parent() -> None:
    """Have this process end as soon as the one that started it is gone; nothing in the process that nobody's child is.

    `multiprocessing` ends its children when their parent ends in an orderly way. A parent that a signal ends says nothing to them: they
    would train on for minutes, or measure on a GPU that seems idle.
    """
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(LAST_WORDS_S)
        os._exit(ORPHANED)

    threading.Thread(target=watch, daemon=True, name="ends-with-parent").start()


def python_command(code: str, *arguments: str) -> list[str]:
    """The command line of a Python that runs `code` with `arguments` as its `sys.argv[1:]`.

    `python -c` looks for modules in the working folder first, where a user's `json.py` would stand for the standard library's.
    Nothing but `sys`, which is built in, may be imported before the path is set.
    """
    first = 1 + len(arguments)
    start = f"import sys; sys.path[:] = sys.argv[{first}:]; del sys.argv[{first}:]\n"
    return [sys.executable, "-c", start + code, *arguments, *(entry or str(Path.cwd()) for entry in sys.path)]


STARTED = Path(__file__).parent.parent / "compiled" / "recorder"
"""The folder whose sitecustomize starts what the environment asks for."""


def program_of(given: Sequence[str], example: str) -> list[str]:
    """The command after "--".

    Raises:
        UsageError: There is none, or its program is not on the PATH.
    """
    command = list(given[1:] if given[:1] == ["--"] else given)
    if not command:
        raise UsageError("a program to run is missing", None, example)
    if shutil.which(command[0]) is None:
        raise UsageError("no such program", command[0], None, "check the path")
    return command


def run_with(command: Sequence[str], variables: Mapping[str, str], interrupted: str) -> int:
    """Runs a command with these environment variables; its exit code, 128 and the signal's number where one ended it.

    Raises:
        KeyboardInterrupt: The program was interrupted, and has ended; says `interrupted`.
    """
    environment = {**os.environ, **variables}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(STARTED), environment.get("PYTHONPATH", ""))))
    process = subprocess.Popen(command, env=environment)
    try:
        with sigterm_as_interrupt():  # or the program would go on by itself
            code = process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise KeyboardInterrupt(interrupted) from None
    return code if code >= 0 else 128 - code


def owner_name() -> str:
    """Name of this process: unique among processes, also of those whose id is used again."""
    pid = os.getpid()
    return f"{_among()}|{pid}|{started(pid) or ''}"


def is_alive(owner: str) -> bool | None:
    """Whether the process of that name lives; None where it cannot be told from here."""
    namespace, _, rest = owner.partition("|")
    pid, _, started = rest.partition("|")
    if namespace != _among() or not pid.isdigit():
        return None
    return is_running(int(pid), started)


def _among() -> str:
    """The scope within which process numbers are unique, as far as the system says: without /proc (macOS), the machine."""
    return namespace() or platform.node()


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


_START = "from advisor.system.processes import serve; serve(int(sys.argv[1]))"
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
