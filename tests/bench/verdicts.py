"""How often the verdicts are right: simulated rounds with drift and outliers as on real GPUs, thousands of trials at once.

`python -m pytest -m bench -s tests/bench/verdicts.py` prints the table; `tests/comparison/test_verdict_rates.py` asserts a part of
it. The decision is that of `advisor.measurement.statistics.verdict`, vectorised over trials; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pytest

from advisor.measurement import statistics
from advisor.measurement.statistics import CONFIDENCE, MAX_ROUNDS, MIN_ROUNDS, RESAMPLES, TAU

TRIALS = 2_000
CHUNK = 100
MEASURED = get_args(statistics.VerdictName)[:4]
"""Verdicts on two sides that were both measured."""

Array = np.ndarray
Latencies = tuple[Array, Array]
"""Medians of the rounds of base and head, [trials, rounds], in microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of machine. `simulate(generator, trials, rounds, change)` gives the medians of rounds; sides of a round share its time."""

    name: str
    simulate: Callable[[np.random.Generator, int, int, float], Latencies]


def _noise(generator: np.random.Generator, shape: tuple[int, ...], sigma: float) -> Array:
    return np.exp(sigma * generator.standard_normal(shape))


def quiet(generator: np.random.Generator, trials: int, rounds: int, change: float) -> Latencies:
    """1 % noise per round and side, nothing else."""
    shape = (trials, rounds)
    return 100 * _noise(generator, shape, 0.01), 100 * (1 + change) * _noise(generator, shape, 0.01)


def outliers(generator: np.random.Generator, trials: int, rounds: int, change: float) -> Latencies:
    """1 % noise, and one round in ten of either side is 5 to 60 % slower (another process, an interrupt)."""
    base, head = quiet(generator, trials, rounds, change)
    for side in (base, head):
        hit = generator.random(side.shape) < 0.1
        side *= np.where(hit, 1 + generator.uniform(0.05, 0.6, side.shape), 1.0)
    return base, head


def ramp(generator: np.random.Generator, trials: int, rounds: int, change: float) -> Latencies:
    """The GPU warms up: 10 % slower from the first round to the last, both sides alike."""
    base, head = quiet(generator, trials, rounds, change)
    drift = 1 + 0.1 * np.linspace(0, 1, rounds)
    return base * drift, head * drift


def wander(generator: np.random.Generator, trials: int, rounds: int, change: float) -> Latencies:
    """Clocks wander: a random walk of 2 % per round, shared by both sides."""
    base, head = quiet(generator, trials, rounds, change)
    drift = np.exp(np.cumsum(0.02 * generator.standard_normal((trials, rounds)), axis=1))
    return base * drift, head * drift


def steps(generator: np.random.Generator, trials: int, rounds: int, change: float) -> Latencies:
    """Power capping: in the middle of the run everything gets 8 % slower at once; in one trial of two within a round, which then hits one
    side only."""
    base, head = quiet(generator, trials, rounds, change)
    at = generator.integers(1, rounds, size=(trials, 1))
    slow = np.where(np.arange(rounds) >= at, 1.08, 1.0)
    split = np.where((np.arange(rounds) == at) & (generator.random((trials, 1)) < 0.5), 1 / 1.08, 1.0)
    return base * slow * split, head * slow


def everything(generator: np.random.Generator, trials: int, rounds: int, change: float) -> Latencies:
    """Outliers and the walk and the steps at once."""
    base, head = steps(generator, trials, rounds, change)
    drift = np.exp(np.cumsum(0.01 * generator.standard_normal((trials, rounds)), axis=1))
    for side in (base, head):
        side *= np.where(generator.random(side.shape) < 0.1, 1 + generator.uniform(0.05, 0.6, side.shape), 1.0)
    return base * drift, head * drift


SCENARIOS = (
    Scenario(name="1 % noise", simulate=quiet),
    Scenario(name="1 % noise, outliers", simulate=outliers),
    Scenario(name="drift: ramp of 10 %", simulate=ramp),
    Scenario(name="drift: random walk", simulate=wander),
    Scenario(name="drift: a step of 8 %", simulate=steps),
    Scenario(name="all of it", simulate=everything),
)


def decide(base: Array, head: Array, tau: float = TAU) -> Array:
    """The verdict of each trial, [trials], on paired rounds: `statistics.verdict` for many at once, on the same resamples."""
    ratios = np.log(head) - np.log(base)
    rounds = ratios.shape[1]
    picks = np.random.default_rng(20_240_229).integers(0, rounds, size=(RESAMPLES, rounds))
    times = np.stack([(picks == j).sum(axis=1) for j in range(rounds)], axis=1).astype(np.float32)  # [resamples, rounds]
    tail = (1 - CONFIDENCE) / 2
    parts = [np.quantile(_resampled_medians(part, times), (tail, 1 - tail), axis=1) for part in _chunks(ratios)]
    low, high = np.concatenate(parts, axis=1)
    middle = np.median(ratios, axis=1)
    low, high, middle = (np.expm1(value) for value in (np.minimum(low, middle), np.maximum(high, middle), middle))
    clear = ((low > 0) | (high < 0)) & (np.abs(middle) >= tau)
    inside = (-tau < low) & (high < tau)
    return np.select([clear & (middle > 0), clear, inside], ["regressed", "improved", "unchanged"], "inconclusive")


def _resampled_medians(values: Array, times: Array) -> Array:
    """The median of every resample, [trials, resamples]; `times` says how often each round is drawn.

    The k-th smallest of a resample is the first of the sorted values up to which at least k draws fall: counting beats sorting.
    """
    rounds = values.shape[1]
    ordered = np.sort(values, axis=1)
    upto = (values[:, :, None] <= ordered[:, None, :]).astype(np.float32)  # [trials, round, rank]
    drawn = times[None] @ upto  # [trials, resamples, rank]
    low, high = ((drawn < k).sum(axis=2) for k in ((rounds + 1) // 2, rounds // 2 + 1))
    return (np.take_along_axis(ordered, low, axis=1) + np.take_along_axis(ordered, high, axis=1)) / 2


def _chunks(ratios: Array) -> list[Array]:
    return [ratios[start : start + CHUNK] for start in range(0, len(ratios), CHUNK)]


def rates(scenario: Scenario, change: float, *, trials: int = TRIALS, seed: int = 0) -> dict[str, float]:
    """Share of each verdict: 10 rounds, and where they do not settle it the same measurement goes on to 30."""
    base, head = scenario.simulate(np.random.default_rng(seed), trials, MAX_ROUNDS, change)
    found = decide(base[:, :MIN_ROUNDS], head[:, :MIN_ROUNDS])
    going_on = found == "inconclusive"
    if going_on.any():
        found[going_on] = decide(base[going_on], head[going_on])
    return {word: float(np.mean(found == word)) for word in MEASURED}


@pytest.mark.bench
def test_print_verdict_rates():
    print(f"\n{TRIALS:,} trials each; 10 rounds, extended to 30 where inconclusive; share of verdicts in %")
    print(f"{'machine':<26}{'true change':>12}" + "".join(f"{word:>14}" for word in MEASURED))
    for scenario in SCENARIOS:
        for change in (0.0, 0.01, 0.03, 0.05, -0.03):
            found = rates(scenario, change)
            print(f"{scenario.name:<26}{100 * change:>+11.0f} %" + "".join(f"{100 * found[word]:>14.2f}" for word in found))
