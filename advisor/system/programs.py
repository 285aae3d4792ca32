"""Running somebody's program with a hook of ours on its path."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from advisor.system.errors import UsageError
from advisor.system.worker_processes import sigterm_as_interrupt


def command_of(given: Sequence[str], example: str) -> list[str]:
    """What follows `--`.

    Raises:
        UsageError: There is no such program.
    """
    command = list(given[1:] if given[:1] == ["--"] else given)
    if not command:
        raise UsageError(f"{example.split()[1]} needs a program to run", None, example)
    if shutil.which(command[0]) is None:
        raise UsageError("no such program", command[0], None, "check the path")
    return command


def run_hooked(command: Sequence[str], hook: Path, variables: Mapping[str, str], interrupted: str) -> int:
    """Runs a program with a folder on its path whose `sitecustomize.py` Python runs first; its exit code, or 128 and the number of the signal that ended it.

    Args:
        command: The program and its arguments.
        hook: The folder.
        variables: Of its environment, beside those that it has: they say what the hook does.
        interrupted: What is said where it is interrupted.

    Raises:
        KeyboardInterrupt: It was interrupted, and has ended.
    """
    path = os.pathsep.join(p for p in (str(hook), os.environ.get("PYTHONPATH", "")) if p)
    process = subprocess.Popen(command, env={**os.environ, **variables, "PYTHONPATH": path})
    try:
        with sigterm_as_interrupt():  # or the program would go on by itself
            code = process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise KeyboardInterrupt(interrupted) from None
    return code if code >= 0 else 128 - code
