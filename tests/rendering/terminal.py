"""What a command prints on a terminal."""

from __future__ import annotations

import io
import os
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from advisor.rendering import terminal
from advisor.result.schema import Result
from tests import loaded

ROOT = Path(__file__).resolve().parents[2]


def to_text(result: Result, *, report: str | None = None) -> str:
    """All that is printed of a result, without colours."""
    sink = io.StringIO()
    terminal.show(result, report=report, file=sink)
    return sink.getvalue()


def printed_on_a_terminal(*arguments: str, environment: Mapping[str, str], columns: int = 0) -> str:
    """Standard output of `advisor` with these arguments on a terminal of so many columns (0: one that does not say), escapes and all.

    `environment` is added to this process's, less what says how wide the terminal is, what it is and whether it has colours.
    """
    pty, fcntl, termios = (pytest.importorskip(name) for name in ("pty", "fcntl", "termios"))
    inherited = {name: value for name, value in os.environ.items() if name not in ("TERM", "COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    program = subprocess.Popen(
        [*loaded.python(), "-m", "advisor", *arguments],
        stdout=writing,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env={**inherited, **environment},
    )
    os.close(writing)
    shown = b""
    try:
        while part := os.read(reading, 65536):
            shown += part
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(reading)
    assert program.wait() == 0
    return shown.decode()
