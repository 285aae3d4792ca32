"""Killable compile processes."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import selectors
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from advisor.compiled.compiler.answers import read_answer
from advisor.python_source import language
from advisor.system import sandbox, triton_install
from advisor.system.settings import COMPILE_LIMIT_S, read_settings
from advisor.system.triton_install import interpreter

WORKER = Path(__file__).with_name("worker.py")
OPTION = "--compile-limit"
"""What sets how long compilations may take, as ADVISOR_COMPILE_LIMIT does."""
SLOW_S = 10.0
"""After this long a worker says that it is still at it: huge tiles take minutes to compile, and silence looks like a hang."""
STILL = "advisor: Triton is still at work on %s after %g s; it is given up after %g s (%s), and left out of what is reported"

MOST_WORKERS = 8
"""Each holds Triton in memory, some 300 MB and more while it compiles; and counting what they compiled is done in one process, which more
of them would only wait for."""

LEAST_SHARE_BYTES = 2 << 30
"""Of memory for one compilation, however small the machine: huge tiles take a gigabyte."""

FOLDERS = "advisor-worker-"
"""What the names of workers' folders begin with."""
LOCK, MAKING = "lock", "lock.new"
"""In each: the file that its worker's parent holds, and what that is called before it is held."""
HALF_MADE_S = 600.0
"""After this long a folder without its lock is not about to get one."""

log = logging.getLogger("advisor.compiled")


class Worker:
    """One compile process; started when first needed, and again after it was killed."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.folder: str | None = None
        self.lock = -1
        self.asked = 0

    def ask(self, request: dict[str, Any], timeout_s: float, option: str = OPTION) -> dict[str, Any]:
        """The answer, or `{"error": ..., "kind": ...}` (`answers.read_answer`)."""
        self._start()
        process = self.process
        assert process is not None and process.stdin is not None and process.stdout is not None
        what = request.get("kernel", "a compiled kernel")
        still = threading.Timer(SLOW_S, log.warning, (STILL, what, SLOW_S, round(timeout_s, 1), option))
        still.daemon = True
        still.start()
        self.asked += 1
        try:
            process.stdin.write(json.dumps(request | {"seconds": timeout_s, "id": self.asked}).encode() + b"\n")
            process.stdin.flush()
            head, text = self._read(process, time.monotonic() + timeout_s)
        except TimeoutError:
            self.close()
            return {"error": f"timed out: no end after {round(timeout_s, 1):g} s, which {option} sets", "kind": "timeout"}
        except BaseException as error:
            code = process.poll()
            self.close()
            if isinstance(error, (OSError, ValueError)):
                return {"error": f"the compiler crashed (exit code {code})", "kind": "crash"}
            raise
        finally:
            still.cancel()
        return read_answer(request, head, text)

    def _read(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[dict[str, Any], bytes]:
        """What the worker says of a request, and the text that follows.

        Raises:
            ValueError: The worker ended, or this is an answer to another request.
            TimeoutError: There is none until the deadline.
        """
        assert process.stdout is not None
        data = bytearray()
        head: dict[str, Any] | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while head is None or len(data) < head["bytes"]:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise TimeoutError
                piece = os.read(process.stdout.fileno(), 1 << 20)
                if not piece:
                    raise ValueError("the worker ended")
                data += piece
                if head is None and b"\n" in data:
                    line, _, rest = bytes(data).partition(b"\n")
                    head, data = json.loads(line), bytearray(rest)
        if head["id"] != self.asked or len(data) > head["bytes"]:
            raise ValueError("an answer to another request")
        return head, bytes(data)

    def _start(self) -> None:
        if self.process is not None and self.process.poll() is None:
            return
        self.close()
        remove_abandoned()
        self.folder = os.path.abspath(tempfile.mkdtemp(prefix=FOLDERS))  # noqa: PTH100 (TMPDIR may be ".", and the worker's is "/")
        self.lock = _locked(Path(self.folder, MAKING), os.O_CREAT)
        Path(self.folder, MAKING).rename(Path(self.folder, LOCK))  # there only while it is held: nobody takes it before this worker does
        Path(self.folder).chmod(0o711)  # the user that root becomes must get through to its own
        environment = sandbox.passed(os.environ, self.folder)
        # Fusion as Triton 3.9 does it by default; said so, it does not warn.
        environment.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
        environment["TRITON_INTERPRET"] = "0"
        places = {"sandbox": sandbox.__file__, "language": language.__file__}
        given = {"parent": os.getpid(), "folder": self.folder, "places": places, "triton": _triton_place()}
        self.process = subprocess.Popen(
            # Isolated, from "/": what it imports before the walls stand comes from Python and from what is installed for it.
            [interpreter(), "-I", "-P", "-B", "-X", "utf8", str(WORKER), json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env=environment,
            start_new_session=True,  # Ctrl-C is for the parent, which then ends the worker; killed itself, the worker notices
        )

    def close(self) -> None:
        """End the process, if need be by killing it and what it started."""
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, 9)
            process.wait()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    stream.close() if stream else None
        if self.folder is not None:
            with contextlib.suppress(OSError):
                sandbox.remove_folder(self.folder)
            os.close(self.lock)
            self.folder = None


def _triton_place() -> str:
    """The folder that Triton is imported from where it is not installed for its Python; "": it is, or there is none."""
    place = triton_install.folder() if "PYTHONPATH" in os.environ and triton_install.named() is None else None
    return str(place.parent) if place is not None else ""


def remove_abandoned() -> None:
    """Remove the folders of workers whose process was killed with its workers, so that nobody was left to do it."""
    for each in Path(tempfile.gettempdir()).glob(f"{FOLDERS}*"):
        with contextlib.suppress(OSError):
            about = each.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
                continue
            try:
                os.close(_locked(each / LOCK))
            except FileNotFoundError:  # it is just being made, or was half removed
                if time.time() - about.st_mtime < HALF_MADE_S:
                    continue
            sandbox.remove_folder(str(each))


def _locked(path: Path, create: int = 0) -> int:
    """A descriptor that holds the lock of a worker's folder, until it is closed or its process ends.

    Raises:
        BlockingIOError: Another process holds it.
    """
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | create, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _cores() -> int:
    """Cores that this process may use: `taskset` and containers give it fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_share(workers: int) -> int:
    """Bytes of memory for each of so many compilations at a time: three quarters of what this machine, or this container of it, has."""
    has = 16 << 30
    with contextlib.suppress(AttributeError, OSError, ValueError):  # Windows, or a system that does not say
        has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max": none
            has = min(has, int(Path(limit).read_text()))
    return max(LEAST_SHARE_BYTES, has * 3 // 4 // workers)


class Pool:
    """As many workers as asked for, or else as there are cores, `MOST_WORKERS` at most. A context manager: leaving it ends them."""

    def __init__(self, workers: int | None = None, timeout_s: float | None = None, budget_s: float | None = None) -> None:
        limits_s = read_settings().compile_limits_s
        self.size = max(1, workers or min(_cores(), MOST_WORKERS))
        self.timeout_s = limits_s[0] if timeout_s is None else timeout_s
        self.limit_name = OPTION  # what `timeout_s` follows from
        self.until = time.monotonic() + (limits_s[1] if budget_s is None else budget_s)
        self.idle: list[Worker] = []
        self.given_up = 0  # compilations that took longer than that
        self.lock = threading.Lock()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all idle workers."""
        with self.lock:
            idle, self.idle = self.idle, []
        for worker in idle:
            worker.close()

    def one(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request, in the calling thread; where the time for all is used up, that it timed out."""
        if (left := self.until - time.monotonic()) <= 0:
            return {"error": f"timed out: the time for all compilations, which {OPTION} sets, is used up", "kind": "timeout"}
        with self.lock:
            worker = self.idle.pop() if self.idle else Worker()
        try:
            request = request | {"sealed": is_sealed(), "memory": memory_share(self.size)}
            answer = worker.ask(request, min(self.timeout_s, left), self.limit_name if self.timeout_s <= left else OPTION)
        except BaseException:
            worker.close()
            raise
        with self.lock:
            self.idle.append(worker)
            self.given_up += answer.get("kind") == "timeout"
        return answer

    def map(self, requests: Sequence[dict[str, Any]], done: Callable[[int, dict[str, Any]], None]) -> None:
        """Answer all requests on all workers; `done(i, answer)` is called as they come, from the calling thread."""
        from concurrent.futures import ThreadPoolExecutor, as_completed

        if not requests:
            return
        with ThreadPoolExecutor(max_workers=min(self.size, len(requests))) as threads:
            waiting = {threads.submit(self.one, request): i for i, request in enumerate(requests)}
            try:
                for future in as_completed(waiting):
                    done(waiting[future], future.result())
            except BaseException:
                for future in waiting:
                    future.cancel()
                raise


@functools.cache
def walls() -> dict[str, str]:
    """What each wall of the room that kernels are compiled in lacks on this machine (`sandbox.WALLS`), "" where it stands.

    A worker builds them, and then tries what they are to stop.
    """
    worker = Worker()
    try:
        answer = worker.ask({"walls": True}, COMPILE_LIMIT_S)
    finally:
        worker.close()
    return answer["walls"] if "walls" in answer else dict.fromkeys(sandbox.WALLS, str(answer["error"]))


def sandbox_lacks() -> str:
    """Why it is not safe to compile a stranger's kernel here: the walls that do not stand, each with its reason; "": it is safe."""
    return "; ".join(f"{name}: {lacks}" for name, lacks in walls().items() if lacks)


def is_sealed() -> bool:
    """Whether a request is refused where a layer does not work as it is answered: this process has asked (`sandbox_lacks`), and was told
    that all stand."""
    return walls.cache_info().currsize > 0 and not sandbox_lacks()


@contextlib.contextmanager
def borrowed(pool: Pool | None) -> Iterator[Pool]:
    """`pool`, or a new one that ends with the block."""
    if pool is not None:
        yield pool
        return
    with Pool() as own:
        yield own
