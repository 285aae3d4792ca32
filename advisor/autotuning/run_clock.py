"""Timing a measured run in two parts, hooks and launch: hooks run while tuning only, and choose nothing.

A benchmark times a whole call. The clock's marks are set within it, around the launch (and the configuration's own hook, which runs with
every launch) and around the tuner's hooks, so that both are known of the very runs that were timed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from advisor.autotuning import internals

FIRST = 2
"""Runs that are waited for one by one: the first compiles, and before both of them the GPU has nothing to do."""


class RunClock:
    """Marks of runs: before the configuration's hook, before the tuner's, before the launch, after it, after the tuner's hook."""

    MARKS = 5

    def __init__(self) -> None:
        self.make: Callable[..., Any] | None = internals.event_maker()
        self.runs: list[list[Any]] = []
        self.events: list[Any] = []  # of the run that is on, not yet recorded: made beforehand, for that takes time too
        self.captured = False

    def begin(self) -> None:
        """A run begins. What a CUDA graph captures is not run, and has no time."""
        self.captured = self.captured or internals.is_capturing()
        if self.captured:
            return
        self.runs.append([])
        self.events = [self.make(enable_timing=True) for _ in range(self.MARKS)] if self.make is not None else []
        self.mark()

    def mark(self) -> None:
        """The run has come to the next of its places."""
        if self.captured:
            return
        if self.make is None:
            self.runs[-1].append(1e3 * time.perf_counter())
            return
        event = self.events.pop()
        event.record()
        self.runs[-1].append(event)

    def launches_ms(self) -> list[float]:
        """Milliseconds of each launch without the tuner's hooks; none where there are no events to tell."""
        if self.make is None:
            return []
        return [_between(run, 0) + _between(run, 2) for run in self._timed()]

    def hooks_ms(self) -> float:
        """Median milliseconds of the tuner's hooks; 0 where they are not known."""
        found = [_between(run, 1) + _between(run, 3) for run in self._timed()]
        return statistics.median(found) if found else 0.0

    def span_ms(self) -> float:
        """Milliseconds from the beginning of the first run to the end of the last; 0 where they are not known."""
        timed = self._timed()  # waits
        first = next((run for run in self.runs if len(run) == self.MARKS), None)
        return _between([first[0], timed[-1][-1]], 0) if timed and first is not None else 0.0

    def _timed(self) -> list[list[Any]]:
        """The runs that came to their end, without the first where there are others."""
        if self.captured:
            return []
        wait = internals.synchronizer()
        if wait is not None and self.make is not None:
            wait()
        whole = [run for run in self.runs if len(run) == self.MARKS]
        return whole[FIRST:] or whole[-1:]


def _between(run: Sequence[Any], place: int) -> float:
    """Milliseconds from one mark to the next."""
    begin, end = run[place], run[place + 1]
    return float(begin.elapsed_time(end) if hasattr(begin, "elapsed_time") else end - begin)
