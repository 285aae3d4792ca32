"""One command in a process of its own that need not load the package first; `test_doors.py` forks it from one that has."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path


def go(command: tuple[str, ...], folder: str) -> None:
    """Runs a command in a folder; what it says goes to `words` there, and its exit code, seconds and bytes of memory to `ended`."""
    os.chdir(folder)
    os.environ["ADVISOR_CACHE_DIR"] = str(Path(folder) / "own-cache")
    words = os.open("words", os.O_WRONLY | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, stream in ((0, nothing), (1, words), (2, words)):
        os.dup2(stream, number)
    from advisor.cli import main

    before = resource.getrusage(resource.RUSAGE_SELF)
    try:
        code = main(list(command))
    except SystemExit as ended:
        code = int(ended.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    Path("ended").write_text(json.dumps([code, seconds, after.ru_maxrss * 1024]), encoding="utf-8")
