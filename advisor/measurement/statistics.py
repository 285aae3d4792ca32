"""The statistics of rounds, and the one function that decides a verdict.

A replicate is a round. The effect is the median over rounds of log(head / base); its interval is a 99 % bootstrap over rounds
(pooling samples would raise false alarms to 40-60 % under drift). A change counts from tau = max(2 %, A/A floor) on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from advisor.measurement.launch import Failure
from advisor.result.schema import Fingerprint, Round
from advisor.system.errors import UsageError

MIN_ROUNDS = 10
MAX_ROUNDS = 30
TAU = 0.02
CONFIDENCE = 0.99
RESAMPLES = 4000
CLOCK_SHARE = 0.75
"""Rounds at a clock below this share of the default clock do not count."""
OUTLIER_DEVIATIONS = 5.0
"""A sample further than this many scaled median absolute deviations above its side's median is reported as an outlier."""

VerdictName = Literal["regressed", "improved", "unchanged", "inconclusive", "not comparable", "new", "missing", "failed"]

# What must agree for two latencies to be compared. Not the UUID (two boards of one model are compared, and the A/A floor of
# separate runs is what it is), not Python or torch (they do not run on the GPU), not the live clock (rounds record it).
COMPARABLE = ("mode", "gpu", "driver", "cuda", "triton", "mig", "power_cap_w")

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A relative change, head over base minus 1 (0.03: head takes 3 % longer), and its 99 % interval."""

    relative: float
    low: float
    high: float
    rounds: int  # rounds that counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: what was measured, or why nothing was."""

    rounds: tuple[Round, ...] = ()
    failure: Failure | None = None
    fingerprint: Fingerprint | None = None
    session: str | None = None  # sides of one session were interleaved, and are compared round by round


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A verdict, the numbers it rests on, and the reason in words."""

    verdict: VerdictName
    reason: str
    effect: Effect | None = None
    tau: float = TAU

    @property
    def wants_more_rounds(self) -> bool:
        """Whether further rounds could settle it."""
        return self.verdict == "inconclusive" and self.effect is not None and self.effect.rounds < MAX_ROUNDS


def round_latencies(rounds: Sequence[Round]) -> Array:
    """The median of every round's samples in microseconds, [rounds]; NaN where the round does not count."""
    return np.array([np.median(r.samples_us) if r.samples_us and r.discarded is None else np.nan for r in rounds], dtype=np.float64)


@lru_cache(maxsize=128)
def _picks(size: int, stream: int) -> NDArray[np.intp]:
    """Indices of `RESAMPLES` resamples of `size` values, [RESAMPLES, size]; the same in every process."""
    return np.random.default_rng((20_240_229, stream)).integers(0, size, size=(RESAMPLES, size))


def bootstrap_interval(values: Array, *more: Array) -> tuple[float, float]:
    """Percentile bootstrap of median(values) minus the medians of `more` (independent samples), in the values' unit.

    Deterministic: the same values give the same interval, so that a verdict can be repeated from a file.
    """
    total = np.zeros(RESAMPLES)
    for stream, sample in enumerate((values, *more)):
        # Sorting is several times faster than np.median on so few columns.
        resampled = np.sort(sample[_picks(sample.size, stream)], axis=1)
        middle = sample.size // 2
        medians = resampled[:, middle] if sample.size % 2 else (resampled[:, middle - 1] + resampled[:, middle]) / 2
        total += -medians if stream else medians
    tail = (1.0 - CONFIDENCE) / 2
    low, high = np.quantile(total, (tail, 1.0 - tail))
    return float(low), float(high)


def median_interval(rounds: Sequence[Round]) -> tuple[float, float, float] | None:
    """Median latency over the rounds that count, with its 99 % interval, in microseconds; None where none counts."""
    values = round_latencies(rounds)
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    middle = float(np.median(values))
    low, high = bootstrap_interval(values)
    return middle, min(low, middle), max(high, middle)


def effect(base: Sequence[Round], head: Sequence[Round], *, paired: bool = True, cycles: bool = False) -> Effect | None:
    """Relative change from `base` to `head`; None where no round counts on both sides.

    Args:
        base: Rounds of one side.
        head: Rounds of the other.
        paired: Round i of both was taken in one interleaved round (else the sides are resampled on their own).
        cycles: Compare clock cycles instead of time; None where a clock is not known.
    """
    values = []
    for rounds in (base, head):
        latencies = round_latencies(rounds)
        if cycles:
            clocks = np.array([np.nan if r.sm_clock_mhz is None else r.sm_clock_mhz for r in rounds], dtype=np.float64)
            latencies = latencies * clocks
        values.append(np.log(latencies))
    if paired:
        count = min(map(len, values))
        ratios = values[1][:count] - values[0][:count]
        ratios = ratios[np.isfinite(ratios)]
        if not ratios.size:
            return None
        middle, count = float(np.median(ratios)), int(ratios.size)
        low, high = bootstrap_interval(ratios)
    else:
        before, after = (v[np.isfinite(v)] for v in values)
        if not before.size or not after.size:
            return None
        middle, count = float(np.median(after) - np.median(before)), int(min(before.size, after.size))
        low, high = bootstrap_interval(after, before)
    low, high = min(low, middle), max(high, middle)
    return Effect(relative=float(np.expm1(middle)), low=float(np.expm1(low)), high=float(np.expm1(high)), rounds=count)


def noise_floor(first: Sequence[Round], second: Sequence[Round]) -> float | None:
    """A/A floor: what two sides of one and the same launch differ by, or could have (half the interval), relative."""
    change = effect(first, second)
    if change is None:
        return None
    return max(abs(change.relative), (change.high - change.low) / 2)


def outliers(rounds: Sequence[Round]) -> int:
    """Samples far above the rest of their side. They are kept: medians bear them, and they are worth knowing of."""
    samples = np.array([s for r in rounds for s in r.samples_us], dtype=np.float64)
    if samples.size < 3:
        return 0
    middle = np.median(samples)
    # 1.4826 scales the median absolute deviation to a normal distribution's standard deviation; 0.5 % of the median keeps
    # equal samples from making every other one an outlier.
    spread = max(1.4826 * float(np.median(np.abs(samples - middle))), 0.005 * float(middle))
    return int(np.count_nonzero(samples > middle + OUTLIER_DEVIATIONS * spread))


def fingerprint_difference(base: Fingerprint | None, head: Fingerprint | None) -> str | None:
    """A sentence on what keeps two results from being compared; None where nothing does (or nothing is known)."""
    if base is None or head is None:
        return None
    for name in COMPARABLE:
        before, after = getattr(base, name), getattr(head, name)
        if before is None or after is None:
            continue  # not known on one side: no ground to refuse
        if name == "power_cap_w" and abs(before - after) <= 1.0:
            continue
        if before != after:
            return f"{name} differs: {before} and {after}"
    return None


def verdict(base: Side | None, head: Side | None, *, floor: float | None = None) -> Comparison:
    """The verdict on one row: exhaustive and disjoint.

    Args:
        base: The side compared to; None: it has no such row.
        head: The side that is judged; None: it has no such row.
        floor: A/A noise floor for this GPU and kernel, relative; None: not known.

    Raises:
        UsageError: There is neither side.
    """
    tau = max(TAU, floor or 0.0)
    if base is None and head is None:
        raise UsageError("a comparison needs at least one side", None, "a base or a head")
    if base is None:
        if head is not None and head.failure is not None:
            return Comparison(verdict="failed", reason=f"head: {head.failure.kind}", tau=tau)
        return Comparison(verdict="new", reason="only in head", tau=tau)
    if head is None:
        return Comparison(verdict="missing", reason="only in base", tau=tau)
    for name, side in (("head", head), ("base", base)):
        if side.failure is not None:
            return Comparison(verdict="failed", reason=f"{name}: {side.failure.kind}", tau=tau)
    difference = fingerprint_difference(base.fingerprint, head.fingerprint)
    if difference is not None:
        return Comparison(verdict="not comparable", reason=difference, tau=tau)
    paired = base.session is not None and base.session == head.session
    change = effect(base.rounds, head.rounds, paired=paired)
    if change is None:
        return Comparison(verdict="inconclusive", reason="no round counts on both sides", tau=tau)
    if change.rounds < MIN_ROUNDS:
        return Comparison(verdict="inconclusive", reason=f"only {change.rounds} rounds count", effect=change, tau=tau)
    if (change.low > 0 or change.high < 0) and abs(change.relative) >= tau:
        cycles = effect(base.rounds, head.rounds, paired=paired, cycles=True)
        if cycles is not None and abs(cycles.relative) < tau:
            return Comparison(verdict="inconclusive", reason="time moved but clock cycles did not", effect=change, tau=tau)
        direction: VerdictName = "regressed" if change.relative > 0 else "improved"
        return Comparison(verdict=direction, reason="the interval excludes 0 and the change reaches tau", effect=change, tau=tau)
    if -tau < change.low and change.high < tau:
        return Comparison(verdict="unchanged", reason="the interval lies inside ±tau", effect=change, tau=tau)
    return Comparison(verdict="inconclusive", reason="the interval neither lies inside ±tau nor clears it", effect=change, tau=tau)
