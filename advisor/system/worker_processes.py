"""Worker processes of `multiprocessing` that end with the process that started them, however that one ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.resource_tracker
import os
import signal
import threading
import time
from collections.abc import Iterator

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
    before = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def starting_workers() -> Iterator[None]:
    """Within it Ctrl-C waits, here until the end of it, and in a worker that is started in it until that one says `hear_interrupts`.

    A worker that imports for a second has nobody yet who takes a KeyboardInterrupt: it would end with a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    multiprocessing.resource_tracker.ensure_running()  # started with the first worker, it would let Ctrl-C in again
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
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(LAST_WORDS_S)
        os._exit(ORPHANED)

    threading.Thread(target=watch, daemon=True, name="ends-with-parent").start()
