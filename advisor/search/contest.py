"""Telling configurations apart on a GPU whose clock moves: what lies near the best is measured again, alternately, until it is told apart.

A GPU at its power limit lowers its clock while it is measured, so that what is measured later looks slower. The log of a measured latency
is taken for the sum of the configuration's own, a drift that neighbouring measurements share, and noise; where the clock of each
measurement is known, for that of the configuration at the highest clock seen, too, and a share of the clock's fall. How large drift and
noise are is learned from what was measured more than once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from advisor.search.prior import Array

SPREAD = 0.10
"""Relative: what is not slower than the best by more may be the best in truth. An H100 at 700 W ran 4096³ products at 1,290 to 1,740 of
1,980 MHz, and what took 248 µs rested took 250 to 278 then; where clocks are read, theirs counts if it is wider."""
EQUAL = 0.01
"""Relative: configurations that are this near to each other are as good, and need not be told apart."""
BURST_US = 25_000.0
"""A launch that takes longer outlasts the burst that a board's power limit lets pass: boards average their power over 25 ms (A100, H100;
Yang et al., "Part-time power measurements", SC 2024)."""
SURE = 2.6
"""Standard deviations between configurations that are told apart: wrong once in 200 times."""
AT_ONCE = 4
"""Configurations of a round: the best, and those nearest to it that are not told apart. The next round goes by what this one said."""

MOST = 24
"""Configurations that take part, of more the nearest: what is known of each costs processor time that grows with their cube."""

DRIFTS, NOISES = (0.0003, 0.003, 0.01, 0.03, 0.1), (0.0003, 0.002, 0.006)
"""Standard deviations of drift and noise among which the measurements choose (rows of an idle H100: noise 0.2 to 1 %)."""
REACH = 4.0
"""Measurements over which the drift changes."""
CLOCK_POWER, CLOCK_POWER_SIGMA = 0.9, 0.25
"""By which power of the clock a latency falls, and how far that is known: 1 where the SMs bind, less where memory does."""

Judged = Literal["as measured", "rested", "sustained"]
"""rested: at the highest clock seen. sustained: at the clock that each holds, because a launch outlasts a burst. as measured: the clock did
not move, or is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One measurement of a configuration: its median latency in microseconds, and the SM clock meanwhile in MHz, where that is known."""

    us: float
    clock_mhz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of a contest.

    Attributes:
        us: Latency of each configuration that took part, in microseconds, judged as `judged` says.
        judged: At which clock.
        clock_mhz: That clock; None: not known, or each configuration's own.
        clocks_mhz: Lowest and highest clock while each configuration was measured.
        measurements: How many were made for it, beyond the first of each.
        told_apart: Whether the best is known to be the best, or equal within `EQUAL`.
    """

    us: Mapping[int, float]
    judged: Judged
    clock_mhz: float | None = None
    clocks_mhz: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    measurements: int = 0
    told_apart: bool = True

    def __str__(self) -> str:
        at = {"as measured": "", "sustained": ", judged at the clock that each sustains", "rested": ", judged at one clock"}[self.judged]
        at += f" ({self.clock_mhz:.0f} MHz)" if self.judged == "rested" and self.clock_mhz else ""
        if not self.measurements:
            return at.removeprefix(", ")
        left = "" if self.told_apart else "; their latencies did not differ"
        return f"{len(self.us)} of them measured in rounds, {self.measurements} times more{at}{left}"


def contest(
    first: Mapping[int, Reading],
    measure: Callable[[int], Reading | None],
    *,
    most: int | None = None,
    equal: float = EQUAL,
) -> Verdict:
    """Measures what may be the best again, alternately, until it is told apart or as good.

    Args:
        first: The measurement of each configuration, in the order in which they were made.
        measure: Measures a configuration once more; None: it cannot be measured now, and the contest ends.
        most: Measurements at most; None: as many as there are in `first`.
        equal: Relative; what is nearer than that need not be told apart.
    """
    most = len(first) if most is None else most
    near = _near(first)
    if len(near) < 2:
        return Verdict(us={place: first[place].us for place in near}, judged="as measured")
    readings = [(place, first[place]) for place in first if place in near]
    made, turn = 0, -1
    while True:
        belief = _belief(readings)
        open_to_doubt = belief.not_told_apart(equal)
        if not open_to_doubt or made + 1 >= most:
            break
        round_ = [belief.best, *open_to_doubt][: min(AT_ONCE, most - made)]
        last_at = {place: number for number, (place, _) in enumerate(readings)}
        # What was measured last comes first: a clock that falls all the while then falls on all alike.
        round_ = sorted(round_, key=lambda place: turn * last_at[place])
        repeated = [(place, reading) for place in round_ if (reading := measure(place)) is not None]
        readings += repeated
        made += len(repeated)
        if len(repeated) < len(round_):
            belief = _belief(readings)
            open_to_doubt = belief.not_told_apart(equal)
            break
    clocks: dict[int, tuple[float, float]] = {}
    for place, reading in readings:
        if reading.clock_mhz is not None:
            low, high = clocks.get(place, (reading.clock_mhz, reading.clock_mhz))
            clocks[place] = min(low, reading.clock_mhz), max(high, reading.clock_mhz)
    return Verdict(
        us=belief.latencies(),
        judged=belief.judged,
        clock_mhz=belief.clock_mhz,
        clocks_mhz=clocks,
        measurements=made,
        told_apart=not open_to_doubt,
    )


def _near(first: Mapping[int, Reading]) -> set[int]:
    """The configurations that may be the best in truth."""
    if not first:
        return set()
    clocks = [reading.clock_mhz for reading in first.values() if reading.clock_mhz]
    spread = max(SPREAD, max(clocks) / min(clocks) - 1) if clocks else SPREAD
    limit = min(reading.us for reading in first.values()) * (1 + spread)
    near = sorted((place for place, reading in first.items() if reading.us <= limit), key=lambda place: first[place].us)
    return {*near[:MOST]}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Belief:
    """Log latencies [n] of the places, their covariance, and what they are of."""

    places: Sequence[int]
    mean: Array
    covariance: Array
    judged: Judged
    clock_mhz: float | None
    readings: Sequence[tuple[int, Reading]]

    @property
    def best(self) -> int:
        """The place that is expected to be fastest."""
        return self.places[int(np.argmin(self.mean))]

    def not_told_apart(self, equal: float) -> list[int]:
        """The places that may be faster than the best by more than `equal`, or are slower and not known to be, the nearest first."""
        best = int(np.argmin(self.mean))
        behind = self.mean - self.mean[best]
        variance = self.covariance.diagonal() + self.covariance[best, best] - 2 * self.covariance[best]
        sigma = np.sqrt(np.maximum(variance, 0.0))
        open_ = (behind < SURE * sigma) & (behind + sigma > math.log1p(equal))
        open_[best] = False
        return [self.places[i] for i in np.argsort(behind, kind="stable") if open_[i]]

    def latencies(self) -> dict[int, float]:
        """Microseconds by place: as measured where that is what is believed, else what is believed."""
        us_by_place = {}
        for place, log_us in zip(self.places, self.mean.tolist(), strict=True):
            measured = float(np.median([reading.us for read, reading in self.readings if read == place]))
            us_by_place[place] = measured if abs(math.log(measured) - log_us) < 1e-3 else math.exp(log_us)
        return us_by_place


def _belief(readings: Sequence[tuple[int, Reading]]) -> _Belief:
    """What is believed of every place after some readings, in the order in which they were made."""
    places = list(dict.fromkeys(place for place, _ in readings))
    logs = np.log([reading.us for _, reading in readings])
    which = np.array([[float(place == column) for column in places] for place, _ in readings]).reshape(len(readings), len(places))
    clocks = [reading.clock_mhz for _, reading in readings]
    outlasts = min(reading.us for _, reading in readings) > BURST_US
    known = [clock for clock in clocks if clock]
    moved = len(known) == len(clocks) and bool(known) and max(known) > (1 + EQUAL) * min(known)
    judged: Judged = "sustained" if outlasts else "rested" if moved else "as measured"
    fall = np.log(max(known) / np.array(known)) if judged == "rested" else np.zeros(len(logs))
    at = np.arange(float(len(logs)))
    alike = np.exp(-np.abs(at[:, None] - at) / REACH)
    centre = float(logs.mean())
    residual = logs - centre - CLOCK_POWER * fall
    prior = 1.0  # variance of a log latency: nothing is known
    shared = prior * which @ which.T + CLOCK_POWER_SIGMA**2 * np.outer(fall, fall)
    # A clock that was read leaves less to drift.
    drifts = DRIFTS[:3] if judged == "rested" else DRIFTS
    weights, means, covariances = [], [], []
    for drift, noise in itertools.product(drifts, NOISES):
        factor = np.linalg.cholesky(shared + drift**2 * alike + noise**2 * np.eye(len(logs)))
        both = np.linalg.solve(factor, np.column_stack([residual, prior * which]))
        solved, across = both[:, 0], both[:, 1:]
        weights.append(-0.5 * float(solved @ solved) - float(np.log(factor.diagonal()).sum()))
        means.append(across.T @ solved)
        covariances.append(prior * np.eye(len(places)) - across.T @ across)
    share = np.exp(np.array(weights) - max(weights))
    share /= share.sum()
    mean = np.einsum("m,mi->i", share, np.array(means))
    apart = np.array(means) - mean
    covariance = np.einsum("m,mij->ij", share, np.array(covariances) + apart[:, :, None] * apart[:, None, :])
    clock = max(known) if judged == "rested" else None
    return _Belief(places=places, mean=mean + centre, covariance=covariance, judged=judged, clock_mhz=clock, readings=readings)
