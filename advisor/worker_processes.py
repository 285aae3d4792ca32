"""Worker processes of `multiprocessing` that end with the process that started them, however that one ends."""

from __future__ import annotations

import multiprocessing
import os
import threading

ORPHANED = 143
"""Exit status of a worker that ended with its parent: that of a process which SIGTERM ended."""


def end_with_parent() -> None:
    """Have this process end as soon as the one that started it is gone; nothing in the process that nobody's child is.

    `multiprocessing` ends its children when their parent ends in an orderly way. A parent that a signal ends says nothing to them: they
    would train on for minutes, or measure on a GPU that seems idle.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(ORPHANED)

    threading.Thread(target=watch, daemon=True, name="ends-with-parent").start()
