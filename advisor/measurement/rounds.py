"""Rounds: the sides of a batch timed once each, in random order, until enough rounds count.

Interleaving is what makes drift (clocks, temperature, a neighbour) hit all sides alike. Every sample is kept; a round that ran
at too low a clock is kept too, with the reason why it does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.measurement import statistics
from advisor.result.schema import Round


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One side of one round: samples in microseconds, and the state of the GPU while they were taken."""

    samples_us: tuple[float, ...]
    sm_clock_mhz: float | None = None
    throttle: tuple[str, ...] = ()
    temperature_c: float | None = None
    power_w: float | None = None


TimeSide = Callable[[int, int], Timing]
"""(side, round) -> what it gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTimings:
    """All rounds of one side."""

    rounds: tuple[Round, ...]
    throttle: tuple[str, ...]
    temperature_c: float | None  # highest seen
    power_w: float | None  # highest seen


def measure_rounds(
    time_side: TimeSide,
    sides: int,
    *,
    rounds: int = statistics.MIN_ROUNDS,
    max_rounds: int = statistics.MAX_ROUNDS,
    seed: int = 0,
    default_clock_mhz: float | None = None,
    together: bool = False,
    before: Callable[[int, int], None] | None = None,
) -> list[SideTimings]:
    """Times `sides` sides in interleaved rounds.

    Args:
        time_side: Times one side once.
        sides: How many there are.
        rounds: Rounds that must count, per side.
        max_rounds: Rounds at most; what is noisy (interval wider than tau) or was dropped is repeated up to here.
        seed: Of the order within rounds.
        default_clock_mhz: Rounds below 75 % of it do not count; None: not known, all count. Where the power cap alone kept most
            rounds below, the GPU runs at no higher clock under load (L4: 72 W), and the rounds are judged by their own median clock.
        together: Extend all sides alike.
        before: Told (side, round) before each timing.
    """
    generator = np.random.default_rng(seed)
    taken: list[list[Round]] = [[] for _ in range(sides)]
    timings: list[list[Timing]] = [[] for _ in range(sides)]
    waiting = list(range(sides))
    number = 0
    while waiting and number < max_rounds:
        for side in (waiting[i] for i in generator.permutation(len(waiting))):
            if before is not None:
                before(side, number)
            timing = time_side(side, number)
            timings[side].append(timing)
            taken[side].append(_round(timing, default_clock_mhz))
        number += 1
        if number >= rounds:
            reference = _reference_clock_mhz(timings, default_clock_mhz)
            taken = [[_round(timing, reference) for timing in of_side] for of_side in timings]
            waiting = [side for side in range(sides) if not _settled(taken[side], rounds)]
            if together and waiting:
                waiting = list(range(sides))
    return [_side(rounds_of, seen) for rounds_of, seen in zip(taken, timings, strict=True)]


def _reference_clock_mhz(timings: Sequence[Sequence[Timing]], default_clock_mhz: float | None) -> float | None:
    """The clock by which rounds are judged: the default one, or the one that the power cap holds most rounds at."""
    clocks = [(timing.sm_clock_mhz, timing.throttle) for of_side in timings for timing in of_side if timing.sm_clock_mhz is not None]
    if not clocks or not default_clock_mhz:
        return default_clock_mhz
    capped = [clock for clock, why in clocks if clock < statistics.CLOCK_SHARE * default_clock_mhz and why == ("sw-power-cap",)]
    return float(np.median(capped)) if 2 * len(capped) > len(clocks) else default_clock_mhz


def _round(timing: Timing, default_clock_mhz: float | None) -> Round:
    reason, clock = None, timing.sm_clock_mhz
    if clock is not None and default_clock_mhz and clock < statistics.CLOCK_SHARE * default_clock_mhz:
        share = 100 * clock / default_clock_mhz
        why = f" ({' and '.join(timing.throttle)})" if timing.throttle else ""
        reason = f"clock {clock:.0f} MHz is {share:.0f} % of the default {default_clock_mhz:.0f} MHz{why}"
    return Round(samples_us=timing.samples_us, sm_clock_mhz=clock, discarded=reason)


def _settled(rounds: Sequence[Round], needed: int) -> bool:
    """Enough rounds count, and they agree to within tau."""
    if sum(r.discarded is None for r in rounds) < needed:
        return False
    interval = statistics.median_interval(rounds)
    return interval is not None and interval[2] - interval[1] <= 2 * statistics.TAU * interval[0]


def _side(rounds: list[Round], timings: list[Timing]) -> SideTimings:
    temperatures = [t.temperature_c for t in timings if t.temperature_c is not None]
    powers = [t.power_w for t in timings if t.power_w is not None]
    return SideTimings(
        rounds=tuple(rounds),
        throttle=tuple(sorted({reason for t in timings for reason in t.throttle})),
        temperature_c=max(temperatures, default=None),
        power_w=max(powers, default=None),
    )
