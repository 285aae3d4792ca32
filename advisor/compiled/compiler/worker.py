"""The process that compiles. Needs triton and the standard library only, so that any interpreter that has triton can run it.

It runs nothing of a request itself. Each is answered by two processes that end with it, each in its own sandbox (`advisor.system.sandbox`):

- the reader makes Triton's IR of the source (`frontend`). It writes no file and starts no process, and holds no descriptor but of the pipe
  that takes its IR, or why there is none;
- the compiler makes machine code of that IR (`backend`). It runs nothing of the source.

Both give text, which this process hands on without looking into it, with what it knows itself: which of them it is from, how that one
ended, and what its walls lacked, which each says before it reads a word of the request's.

One JSON request per line on stdin. An answer, on the descriptor that stdout was, is a line of JSON that says how many bytes of text follow.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOOL_TIMEOUT_S = 60
PARENT_CHECK_S = 0.5
CHECK_S = 0.1
PATIENCE_S = 10.0
"""For a process to end that has said all."""
MOST_ANSWERED_BYTES = 64_000_000
MOST_DISK_BYTES = 1_000_000_000
"""Of all files of one compilation together."""
MOST_FOLDERS = 3
"""One within another, in the folder of a compilation."""
MOST_MEMORY_BYTES = 12 << 30
"""Of all processes of one compilation, where a request does not say: the limit of one process (`sandbox.MEMORY_BYTES`) is of what it
may address, and so many would each have as much."""
IR, REWRITTEN_IR, FAILED = b"I", b"R", b"E"
"""What a reader's text begins with: IR follows; IR follows, of which block pointers were made pointers; JSON follows, of what failed."""


def beside(name: str) -> types.ModuleType:
    """A module of ours that lies beside this one, or whose path was given: this Python may have no `advisor`."""
    path = PLACES.get(name) or str(Path(__file__).with_name(f"{name}.py"))
    loaded = f"advisor_{name}"
    if loaded not in sys.modules:
        spec = importlib.util.spec_from_file_location(loaded, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[loaded] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[loaded]


PLACES: dict[str, str] = {}
"""Modules of ours that lie elsewhere: name -> path."""


def read_source(request: dict[str, Any]) -> bytes:
    """A reader's text: the IR of a kernel, or why there is none."""
    failures, guard = beside("failures"), beside("guard")
    try:
        target = target_of(request)
        answer_for(target)
        beside("block_pointers").provide()
        text = beside("frontend").make_ir(request, target, beside("language"), guard)
        return (REWRITTEN_IR if beside("block_pointers").were_made() else IR) + text.encode()
    except guard.AbsentError as error:
        import triton

        said, kind = error.reason(triton.__version__), error.kind
    except BaseException as error:
        if guard.REFUSED:  # Triton may put an error of its own in the place of one
            said, kind = failures.place(error) + repr(guard.REFUSED[-1]), "refused"
        elif type(error) is beside("language").LanguageError:
            said, kind = f"refused: {error}", "refused"
        else:
            said, kind = failures.reason(error), "crash" if isinstance(failures.innermost(error), MemoryError) else "failed"
    return FAILED + json.dumps({"error": said, "kind": kind}).encode()


def compile_ir(request: dict[str, Any], text: bytes, folder: str) -> bytes:
    """A compiler's text: JSON of what was made of IR, or why nothing was."""
    failures, backend = beside("failures"), beside("backend")
    try:
        target = target_of(request)
        answer_for(target)
        answer = backend.make_code(request, target, text.decode(), folder)
    except (backend.NoIrError, UnicodeDecodeError) as error:
        answer = {"error": str(error), "kind": "interfered"}
    except backend.IrRefusedError as error:
        answer = {"error": str(error), "kind": "refused"}
    except OSError as error:  # the temporary folder's disk is full, say: no word of the kernel, and nothing to remember
        answer = {"error": f"reading or writing a file failed ({error}); is there room in the temporary folder?", "kind": "crash"}
    except BaseException as error:
        answer = {"error": failures.reason(error), "kind": "crash" if isinstance(failures.innermost(error), MemoryError) else "failed"}
    return json.dumps(answer).encode("utf-8", "surrogateescape")


def target_of(request: dict[str, Any]) -> Any:
    """The target of a request."""
    from triton.backends.compiler import GPUTarget

    return GPUTarget(*request["target"])


def answer_for(target: Any) -> None:
    """Tells Triton, in this process, which GPU it compiles for; none is looked for from here on.

    It is what a kernel is answered that asks while it compiles (`target_info.cuda_capability_geq`): this machine's driver, if it has one,
    would speak of another.
    """
    from triton.runtime.driver import driver

    class Offline:
        get_current_target = staticmethod(lambda: target)
        get_current_device = staticmethod(lambda: 0)
        get_current_stream = staticmethod(lambda device=None: 0)

    driver.set_active(Offline())


def end_with(parent: int, folder: str) -> None:
    """End this process, what it started (ptxas) and its `folder` as soon as `parent` is gone, however that ended.

    PR_SET_PDEATHSIG would end it with the *thread* that started it, which a pool outlives, and would leave ptxas running.
    """
    starter = os.getppid()  # `parent`, or a script between it and this interpreter

    def watch() -> None:
        while os.getppid() == starter and is_running(parent):
            time.sleep(PARENT_CHECK_S)
        with contextlib.suppress(OSError):
            beside("sandbox").remove_folder(folder)
        os.killpg(0, signal.SIGKILL)  # the pool started a group for this process

    threading.Thread(target=watch, daemon=True).start()


def is_running(pid: int) -> bool:
    """Whether there is a process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    """Serve requests until stdin ends, or until the process that started this one is gone."""
    given = json.loads(sys.argv[1])
    PLACES.update(given["places"])
    folder = given["folder"]
    if given["triton"]:  # not installed for this Python: where it is imported from
        sys.path.append(given["triton"])
    sandbox = beside("sandbox")
    end_with(given["parent"], folder)
    answers = os.dup(1)
    quiet = os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 1)
    if not os.environ.get("ADVISOR_DEBUG"):
        os.dup2(quiet, 2)
    triton = warm_up()
    adopt_orphans()
    walls = sandbox.Sandbox([str(Path(str(triton.__file__)).resolve().parent)] if triton else [])
    for count, line in enumerate(sys.stdin):
        request = json.loads(line)
        own = f"{folder}/{count}"  # a new one for each: what cannot be removed, nobody after it finds
        head, text = answered(walls, request, own, triton is not None)
        is_left = False
        if os.path.lexists(own):
            try:
                sandbox.remove_folder(own)
            except OSError:
                is_left = True
        head |= {"id": request.get("id"), "triton": getattr(triton, "__version__", None), "bytes": len(text)}
        write_all(answers, json.dumps(head).encode() + b"\n" + text)
        if is_left:
            return


def answered(walls: Any, request: dict[str, Any], folder: str, is_there: bool) -> tuple[dict[str, Any], bytes]:
    """What this process says of a request, and the text of the last process that answered it."""
    seconds = request.get("seconds", TOOL_TIMEOUT_S)
    sandbox = beside("sandbox")

    def make_folder() -> None:
        os.mkdir(folder, 0o700)  # noqa: PTH102
        os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = folder

    read, compile_ = (functools.partial(walls.enter, place, seconds) for place in (None, folder))
    if request.get("walls"):
        found: dict[str, str] = {}
        for who, enter in (("reader", read), ("compiler", compile_)):
            if enter is compile_:
                make_folder()
            head, text = in_a_process(enter, lambda: json.dumps(sandbox.probe()).encode(), False, None)
            reached = json.loads(text) if text.startswith(b"{") else {}
            for wall in sandbox.WALLS:
                lacks = head["lacks"].get(wall, "nothing is known of it") or reached.get(wall, "nothing is known of it")
                found[wall] = found.get(wall) or (f"{lacks} ({who})" if lacks else "")
        return {"from": "walls", "lacks": found, "code": 0}, b""
    if not is_there:
        return {"from": "missing", "lacks": {}, "code": 0}, b""
    sealed, memory = bool(request.get("sealed")), int(request.get("memory", MOST_MEMORY_BYTES))
    head, text = in_a_process(read, lambda: read_source(request), sealed, None, memory)
    head["from"] = "reader"
    first, ir = text[:1], text[1:]
    if first not in (IR, REWRITTEN_IR) or head["code"] != 0 or request.get("only") == "ttir":
        return head, text
    make_folder()
    head, text = in_a_process(compile_, lambda: compile_ir(request, ir, folder), sealed, folder, memory)
    return head | {"from": "compiler", "rewritten": first == REWRITTEN_IR}, text


def in_a_process(
    enter: Callable[[], dict[str, str]], work: Callable[[], bytes], sealed: bool, folder: str | None, memory: int = MOST_MEMORY_BYTES
) -> tuple[dict[str, Any], bytes]:
    """The text of a process that enters a room, works and ends; with it what its walls lacked, its exit code, and the limit that ended it.

    Where a wall lacks something and `sealed` is true it does not begin to work. The files in `folder` are kept below `MOST_DISK_BYTES`, and
    the memory of the process and of what it starts below `memory` bytes.
    """
    said, saying = os.pipe()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            lacks = enter()
            write_all(saying, json.dumps(lacks).encode())
            os.closerange(3, writing)  # what was just said, too: nothing after this can say it otherwise
            os.closerange(writing + 1, 4096)
            if not (sealed and any(lacks.values())):
                write_all(writing, work())
            code = 0
        finally:
            os._exit(code)
    os.close(saying)
    os.close(writing)
    first = read_all(said, 1 << 16)
    os.close(said)
    over = ""

    def is_well() -> bool:
        nonlocal over
        if folder is not None and disk_bytes(folder) > MOST_DISK_BYTES:
            over = f"its files are larger than {MOST_DISK_BYTES:,} bytes"
        elif memory_bytes() > memory:
            over = f"it takes more than its share of the memory, {memory:,} bytes"
        return not over

    data = read_all(reading, MOST_ANSWERED_BYTES, is_well)
    os.close(reading)
    if len(data) > MOST_ANSWERED_BYTES:
        over = f"it is larger than {MOST_ANSWERED_BYTES:,} bytes"
    code = end(child, bool(over), is_well)
    end_leftovers()
    try:
        lacks = json.loads(first)
    except ValueError:  # it did not get that far
        lacks = {"limits": "the process ended before its walls stood"}
    return {"lacks": lacks, "code": code, "over": over}, b"" if over else data


def read_all(descriptor: int, most: int, is_well: Callable[[], bool] = lambda: True) -> bytes:
    """All that comes from a pipe until it is closed, or more than `most` bytes have come, or `is_well` says no."""
    data = bytearray()
    check = time.monotonic() + CHECK_S
    while len(data) <= most:
        if select.select([descriptor], [], [], max(0.0, check - time.monotonic()))[0]:
            piece = os.read(descriptor, 1 << 20)
            if not piece:
                break
            data += piece
        if time.monotonic() >= check:
            if not is_well():
                break
            check = time.monotonic() + CHECK_S
    return bytes(data)


def end(child: int, now: bool, is_well: Callable[[], bool]) -> int:
    """The exit code of a process that has nothing left to say. Killed `now`, or where it does not end by itself or is not well."""
    if now:
        os.kill(child, signal.SIGKILL)
    check, last = time.monotonic(), time.monotonic() + PATIENCE_S
    while not (found := os.waitpid(child, 0 if now else os.WNOHANG))[0]:
        if time.monotonic() >= check:
            now = not is_well() or time.monotonic() > last
            check = time.monotonic() + CHECK_S
        if now:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.001)
    return os.waitstatus_to_exitcode(found[1])


def memory_bytes() -> int:
    """What all processes below this one hold in memory; 0 where the system does not list them."""
    total, waiting = 0, ["self"]
    while waiting:
        process = waiting.pop()
        with contextlib.suppress(OSError):
            for thread in os.scandir(f"/proc/{process}/task"):
                waiting += Path(thread.path, "children").read_text().split()
            if process != "self":
                total += os.sysconf("SC_PAGE_SIZE") * int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return total


def disk_bytes(folder: str) -> int:
    """What the files below a folder take on its disk; more than they may where a folder lies deeper than Triton and its tools make any."""
    total, waiting = 0, [(folder, 0)]
    while waiting:
        place, depth = waiting.pop()
        if depth > MOST_FOLDERS:
            return MOST_DISK_BYTES + 1
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    waiting += [(entry.path, depth + 1)] if entry.is_dir(follow_symlinks=False) else []
                    total += 512 * entry.stat(follow_symlinks=False).st_blocks
    return total


def warm_up() -> types.ModuleType | None:
    """Imports what a compilation needs, so that the processes that follow find it done.

    Returns:
        triton; None: it cannot be imported.
    """
    for name in ("failures", "language", "guard", "frontend", "backend"):
        beside(name)
    try:
        import triton
        import triton.compiler
    except ImportError:  # which each request is told
        return None
    with contextlib.suppress(Exception):  # there are none, or those of another release: a compilation says so
        _ = triton.knobs.nvidia.ptxas, triton.knobs.nvidia.ptxas_blackwell  # each is asked for its version, once
    beside("guard").watch()
    beside("block_pointers").provide()
    return triton


def adopt_orphans() -> None:
    """Makes this process the parent of what processes that it started leave behind."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def end_leftovers() -> None:
    """Ends this worker, with all of its group, where a request left a process running, which nothing of Triton's does."""
    with contextlib.suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                os.killpg(0, signal.SIGKILL)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of `data`: a pipe takes a part at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main()
