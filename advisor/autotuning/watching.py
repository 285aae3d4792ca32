"""Waiting for a kernel that may never end.

A kernel that runs cannot be stopped, nor can a thread that waits for it: so nothing here waits in the driver. An event is recorded
behind the launch, and asked now and then. What has not ended after `HANG_FACTOR` times the limit counts as hung: that is reported
as an error instead of blocking for ever, and nothing is measured in this process any more for as long as the GPU stays blocked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from advisor.autotuning import internals
from advisor.system.errors import MeasurementError

HANG_FACTOR = 6.0
HANG_LEAST_S = 30.0
"""However short the limit: the first run of a process may load modules and set up the device."""
POLL_S = (0.00002, 0.01)
"""How often the event is asked: from often, for a run that takes microseconds, to rarely."""

_hung: list[Any] = []  # events behind kernels that had not ended when they were given up


class TooSlowError(MeasurementError):
    """One run of a configuration took longer than the limit."""


class NeverEndsError(MeasurementError):
    """A configuration's run has not ended, and blocks the GPU for this process."""


def hang_limit_s(limit_s: float) -> float:
    """When a run counts as hung, in seconds, for a limit of `limit_s`."""
    return max(HANG_FACTOR * limit_s, HANG_LEAST_S)


def wait(limit_s: float | None, event: Callable[[], Any] | None, what: Callable[[], str]) -> None:
    """Waits until everything that was launched has ended.

    Args:
        limit_s: The limit of one run; None: there is none, and a kernel that never ends blocks the process.
        event: Makes an event that can be recorded and asked; None: the device has none, and is waited for.
        what: Gives kernel and configuration, for the error.

    Raises:
        NeverEndsError: It has not ended after `hang_limit_s`.
    """
    if limit_s is None or event is None:
        synchronize = internals.synchronizer()
        if synchronize is not None:
            synchronize()
        return
    behind = event()
    behind.record()
    if behind.query():
        return
    until = time.monotonic() + hang_limit_s(limit_s)
    delay = POLL_S[0]
    while not behind.query():
        if time.monotonic() > until:
            _hung.append(behind)
            raise NeverEndsError(
                f"{what()}: a run has not ended, and is given up",
                f"no end after {hang_limit_s(limit_s):g} s",
                f"an end within {HANG_FACTOR:g} times time_limit_s={limit_s:g} (raise it), and {HANG_LEAST_S:g} s at least",
                "a running kernel cannot be stopped: the GPU stays blocked for this process, which may end on SIGKILL only, and what it "
                "launches now waits behind it. The configuration is recorded and will not be tried again: restart",
            )
        time.sleep(delay)
        delay = min(2 * delay, POLL_S[1])


def is_blocked() -> bool:
    """Whether a kernel that was given up still blocks the GPU for this process."""
    while _hung:
        try:
            if not _hung[0].query():
                return True
        except Exception:  # the context is lost: the next launch says so better
            pass
        _hung.pop(0)
    return False
