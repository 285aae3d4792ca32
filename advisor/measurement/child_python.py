"""Starting a Python of our own, so that it looks for modules where this one does."""

from __future__ import annotations

import sys
from pathlib import Path


def python_command(code: str, *arguments: str) -> list[str]:
    """The command line of a Python that runs `code` with `arguments` as its `sys.argv[1:]`.

    `python -c` looks for modules in the working folder first, where a user's `json.py` would stand for the standard library's.
    Nothing but `sys`, which is built in, may be imported before the path is set.
    """
    first = 1 + len(arguments)
    start = f"import sys; sys.path[:] = sys.argv[{first}:]; del sys.argv[{first}:]\n"
    return [sys.executable, "-c", start + code, *arguments, *(entry or str(Path.cwd()) for entry in sys.path)]
