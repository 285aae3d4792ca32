"""Progress of long work on stderr: one transient bar on a terminal, a plain line now and then in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_SECONDS = 10.0
EVERY_SHARE = 0.1

Advance = Callable[[int, int], None]
"""Called with how much is done, and how much there is."""


@contextmanager
def progress_bar(what: str) -> Iterator[Advance]:
    """Shows nothing for work that ends within the first two seconds."""
    if _rewritable():
        with _bar(what) as advance:
            yield advance
    else:
        yield _lines(what)


def _rewritable() -> bool:
    """Whether stderr is a terminal on which a line can be taken back. rich alone would say so of a pipe too, under FORCE_COLOR."""
    if not sys.stderr.isatty():
        return False
    from rich.console import Console

    return Console(stderr=True).is_interactive


@contextmanager
def _bar(what: str) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _lines(what: str) -> Advance:
    started = last = time.monotonic()
    share = 0.0

    def advance(done: int, total: int) -> None:
        nonlocal last, share
        now = time.monotonic()
        due = now - last >= EVERY_SECONDS or (total and done / total - share >= EVERY_SHARE)
        if due and now - started >= 2.0:
            print(f"advisor: {what} {done} of {total}", file=sys.stderr, flush=True)
            last, share = now, done / total if total else 0.0

    return advance


class StatusLine:
    """One line on stderr that rewrites itself on a terminal; in a pipe a line every 10 s or 10 %."""

    def __init__(self) -> None:
        self.live, self.open = _rewritable(), False
        self.said_at, self.said_share = time.monotonic(), 0.0

    def say(self, text: str, share: float = 0.0) -> None:
        """Shows the text, at most 120 characters of it where it is rewritten; `share` is how much is done."""
        now = time.monotonic()
        if not self.live and now - self.said_at < EVERY_SECONDS and share - self.said_share < EVERY_SHARE:
            return
        self.said_at, self.said_share = now, share
        if self.live:
            sys.stderr.write(f"\r\x1b[2K{text[:120]}")
            self.open = True
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Clears the live line."""
        if self.open:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
