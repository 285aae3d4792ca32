"""Loads torch, Triton and the package, then forks a process for each request of `client.py`, in which the program runs.

The program finds what it would find in a process of its own: arguments, folder, environment, standard streams, path, `sitecustomize`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
import types
from pathlib import Path

OWN_PATH = [entry for entry in sys.path[1:] if entry not in os.environ.get("PYTHONPATH", "").split(os.pathsep)]
"""The path of any Python, without the folder of its program and without what the environment names."""

LOADED = (
    *("torch", "triton", "triton.language", "triton.runtime.interpreter", "rich.console"),
    *(
        "advisor.autotuning",
        "advisor.cli.advise_command",
        "advisor.advising.kernel_report",
        "advisor.comparison",
        "advisor.advising.table_report",
        "advisor.rendering.terminal",
    ),
)


def load() -> None:
    """Imports what takes long."""
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def serve(path: str) -> list[str]:
    """Serves until standard input ends; returns in each forked process, which is as its client wants it: the arguments of the program."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            asked = select.select([0, listener], [], [])[0]
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, 0 if 0 in asked else os.WNOHANG)[0]:
                    pass
            if 0 in asked:
                os._exit(0)
            connection, _ = listener.accept()
            if os.fork():
                connection.close()
                continue
            size, streams, _, _ = socket.recv_fds(connection, 4, 3)
            arguments, folder, environment = json.loads(connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
            if program := os.fork():
                keep(program, connection)
            connection.close()
            break
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    encoding = environment.get("PYTHONIOENCODING") or "utf-8"
    for number, (stream, name) in enumerate(zip(streams, ("stdin", "stdout", "stderr"), strict=True)):
        os.dup2(stream, number)
        os.close(stream)
        opened = open(number, "r" if number == 0 else "w", encoding=encoding, closefd=False)  # noqa: SIM115 - lives as long as the process
        setattr(sys, name, opened)
    sys.stderr.reconfigure(line_buffering=True, errors="backslashreplace")
    return arguments


def keep(program: int, connection: socket.socket) -> None:
    """Tells the client how the program ended; ends the program where the client is gone. Does not return."""
    ended = os.pidfd_open(program)
    if connection in select.select([ended, connection], [], [])[0]:
        os.kill(program, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(str(status).encode())
    os._exit(0)


def run(arguments: list[str]) -> None:
    """Runs `PROGRAM …`, `-m MODULE …` or `-c CODE …`."""
    kind = arguments[0]
    sys.argv = arguments if kind[0] != "-" else [kind, *arguments[2:]]
    first = str(Path(kind).resolve().parent) if kind[0] != "-" else str(Path.cwd()) if kind == "-m" else ""
    sys.path[:] = [first, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *OWN_PATH]
    importlib.invalidate_caches()
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")
    if kind == "-m":
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if kind == "-c":
        text, name = arguments[1], "<string>"
    else:
        text, name = Path(kind).read_text(encoding="utf-8"), kind
        main.__dict__["__file__"] = kind
    exec(compile(text, name, "exec"), main.__dict__)


def ended(arguments: list[str]) -> int:
    """Runs it to the end, exit functions included; its exit code. Taking torch down would take longer than all the rest."""
    code: object = 0
    try:
        run(arguments)
    except SystemExit as done:
        code = done.code
    except BaseException:
        code = 1
        traceback.print_exc()
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined] - waits for threads, as the interpreter does when it ends
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code or 0


leave = os._exit  # programs may put something else in its place
load()
leave(ended(serve(sys.argv[1])))
