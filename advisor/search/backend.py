"""The sources of latencies as the search sees them: a GPU, a recording, a stand-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from advisor.result.schema import Configuration, MeasuredRounds
from advisor.search.contest import Reading

Watch = Callable[[int, float], bool]
"""Told (rounds so far, latency so far in microseconds, of all launches together); True: it loses already, stop."""

NOT_RECORDED = "not recorded"
"""Verdict where what runs today has no recorded latency: neither better nor worse is known."""

BY_RECORD = "by recorded latencies"
"""Why one configuration won over another where rows are replayed."""

NOT_COMPARED = "not compared"
"""Verdict where the time was up before both were measured in the same rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One decision to search for: a configuration that all its launches share.

    Attributes:
        id: Stable within a search, e.g. "M64".
        launches: Names of its launches, in the order of `Measurement.parts_us`.
    """

    id: str
    launches: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The outcome of measuring one configuration: a latency, or why there is none.

    Attributes:
        us: Latency of all launches of the task together, microseconds; None where there is none.
        parts_us: The same by launch.
        failure: Why there is no latency, a class (out-of-resources, hang, wrong-output, …); None where there is one, or it was stopped.
        slower: There is no number, but it is taken to lose (a recording of the best rows lacks it).
        again: It says nothing of the configuration, which may be tried again: the GPU was not fit to measure it, or time was up.
        stopped: The watch stopped it; `us` is what the rounds until then said.
        message: In words.
        clock_mhz: SM clock meanwhile, where it is known.
    """

    us: float | None = None
    parts_us: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None
    slower: bool = False
    again: bool = False
    stopped: bool = False
    message: str = ""
    clock_mhz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """Two configurations measured against each other; `verdict` is "improved" only where the head surely wins.

    `base_us` and `head_us` are latencies of all launches of the task; None: not known. `base_rounds`: of the launches of the base, where
    there are rounds.
    """

    base_us: float | None
    head_us: float | None
    reason: str
    verdict: str
    base_parts_us: Mapping[str, float] = field(default_factory=dict)
    head_parts_us: Mapping[str, float] = field(default_factory=dict)
    base_rounds: Mapping[str, MeasuredRounds] = field(default_factory=dict)


class Backend(Protocol):
    """Measures configurations of tasks. One worker uses it, from one thread."""

    @property
    def name(self) -> str:
        """The name of the backend in results."""

    @property
    def noise_floor(self) -> float | None:
        """Relative difference between two measurements of one configuration; None: not known."""

    def measure(self, task: Task, configuration: Configuration, watch: Watch) -> Measurement:
        """Times one configuration. Never raises for what the configuration does."""

    def again(self, task: Task, configuration: Configuration, deadline: float | None = None) -> Reading | None:
        """A few rounds more of a configuration that was measured; None where nothing new would be measured, or it failed, or by `deadline`
        (on `time.monotonic`) there was no time."""

    def compare(self, task: Task, base: Configuration, head: Configuration, deadline: float | None = None) -> Versus:
        """Times two configurations in the same rounds.

        Args:
            task: What they are configurations for.
            base: What runs today.
            head: What may replace it.
            deadline: On `time.monotonic`; what is not compared then is `NOT_COMPARED`.
        """


def not_recorded(slower: bool) -> Measurement:
    """The outcome for a configuration that a recording lacks; `slower`: it holds the best of sweeps, so the search need not try it."""
    reason = ": slower than the best by more than 1 %, or not tried" if slower else ""
    return Measurement(failure="not-recorded", slower=slower, message=f"not recorded{reason}")


def recorded_versus(before: float | None, after: float | None, least_gain: float = 0.0) -> Versus:
    """The comparison of two recorded latencies: the head wins where it is faster by more than `least_gain`.

    Against what is not recorded nothing wins: the best of a sweep lack what it did not try as well as what is slower.
    """
    if after is None:
        return Versus(base_us=before, head_us=None, verdict="failed", reason="not recorded")
    if before is None:
        reason = "no row says whether the search's best is faster than what runs today"
        return Versus(base_us=None, head_us=after, verdict=NOT_RECORDED, reason=reason)
    gain = before / after - 1
    verdict = "improved" if gain > least_gain else "regressed" if gain < -least_gain else "unchanged"
    return Versus(base_us=before, head_us=after, verdict=verdict, reason=BY_RECORD)
