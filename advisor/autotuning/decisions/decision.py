"""The decision for one key, with every configuration that was looked at, and why one was left out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from advisor.autotuning.watching import NeverEndsError, TooSlowError

State = Literal["measured", "compile", "fit", "time", "output", "crash", "not-measured"]
"""compile: it does not compile. fit: the GPU cannot hold it. time: it takes too long. output: it wrote something other than the
first configuration. crash: anything else that went wrong. not-measured: it was not run."""

_STATES: dict[str, State] = {
    "compile-error": "compile",
    "out-of-resources": "fit",
    "hang": "time",
    "wrong-output": "output",
}

How = Literal["measured", "cached", "imported", "predicted", "default", "only", "off"]


class Timing(NamedTuple):
    """One configuration: its latency in microseconds (median, 20 % and 80 % quantile), or why it has none; `clocks_mhz` the lowest and the
    highest SM clock while it was measured, where that was read."""

    config: Any  # triton.Config
    state: State
    us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    predicted_us: float | None = None
    reason: str = ""
    clocks_mhz: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The configuration for one key, and how it came about.

    `how`: measured (now, or together with other processes), cached, imported (another tuner's), predicted, default (nothing was known;
    `reason` says why), only (there is one configuration), off.
    """

    config: Any  # triton.Config
    how: How
    reason: str
    key: tuple = ()
    ranked_by: str = ""  # "learned model (weights 1a2b)", "given order: ..."
    timings: tuple[Timing, ...] = ()
    measurements: int = 0  # made by this process for this decision
    duration_s: float | None = None
    default_us: float | None = None  # of the first of the list (or `default=`), where it was measured
    chosen_us: float | None = None
    provisional: bool = False  # made while a CUDA graph was captured: decided anew afterwards

    def explain(self) -> str:
        """The decision as text, as `print` shows it: one line, then one per configuration, the fastest first."""
        from advisor.rendering.figures import microseconds

        lines = [f"{self.how}: {self.config} ({self.reason})"]
        if self.ranked_by:
            lines.append(f"ranked by {self.ranked_by}")
        for timing in sorted(self.timings, key=lambda entry: math.inf if entry.us is None else entry.us):
            shown = f"{microseconds(timing.us)} µs" if timing.us is not None else timing.state
            predicted = f", predicted {microseconds(timing.predicted_us)} µs" if timing.predicted_us is not None else ""
            at = f" at {' to '.join(f'{clock:,.0f}' for clock in dict.fromkeys(timing.clocks_mhz))} MHz" if timing.clocks_mhz else ""
            lines.append(f"  {shown}{at}{predicted}: {timing.config}" + (f" ({timing.reason})" if timing.reason else ""))
        return "\n".join(lines)

    __str__ = explain


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """`lasting`: a property of the configuration, which the cache keeps. `fatal`: nothing runs in this process any more."""

    state: State
    reason: str
    lasting: bool
    fatal: bool


def left_out(error: Exception, stage: str) -> LeftOut:
    """The reason that an exception gives for leaving a configuration out; `stage` is compile or launch."""
    from advisor.measurement.launch import classify, is_fatal  # loads the models

    failure = classify(error, "launch")
    if isinstance(error, (TooSlowError, NeverEndsError)):
        return LeftOut(state="time", reason=failure.message, lasting=True, fatal=isinstance(error, NeverEndsError))
    fatal, state = is_fatal(error, failure), _STATES.get(failure.kind, "compile" if stage == "compile" else "crash")
    # A lost context is the configuration's doing. Anything else unknown (the GPU's memory was full) may go well next time.
    lasting = fatal or failure.kind in ("compile-error", "out-of-resources", "wrong-output")
    return LeftOut(state=state, reason=failure.message, lasting=lasting, fatal=fatal)
