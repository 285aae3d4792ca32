"""Running a program of the user's with something of ours started in it: `advisor record` and `advisor run`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from advisor.system.errors import UsageError
from advisor.system.worker_processes import sigterm_as_interrupt

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
