"""The latency of every configuration after some were measured: a Gaussian process on the predictor's error.

The error (log of measured over predicted latency) is the sum of four parts: one that all configurations of a problem share, one that
similar configurations share, one of each configuration's own, and the noise of measuring. Problems of neighbouring sizes share the
first two and some of the third, the less the more doublings lie between them. A measurement that only says "slower than the best" cuts
off the lower tail of that configuration's part, and is replaced by the normal distribution of the same mean and variance.

What is expected of a configuration before anything was measured is the place that the order gives it (`Prior.mean`): the order knows
better than the predicted latencies which is the best. What is learned by measuring is how far the predicted latency
(`Prior.predicted_us`) was off: the order spreads configurations over latencies that none of them has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from advisor.learned.analytical import normal_cdf
from advisor.search.prior import Array, Precedent, Prior, Shares

Kind = Literal["measured", "slower", "running"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The outcome of one trial. `prior` is of its decision; `log_us` None unless measured.

    `slower`: it ran (or was not recorded) and is known only not to be the best. `running`: another worker is at it.
    """

    prior: Prior
    index: int
    kind: Kind
    log_us: float | None = None

    @property
    def predicted(self) -> float:
        """The log of the latency that was predicted; not finite where the configuration was predicted not to launch."""
        us = float(self.prior.predicted_us[self.index])
        return math.log(us) if us > 0 else math.nan


SLOWER_BY = 0.01
"""A configuration that is known only to lose is slower than the best by more than this (recorded near-optimal rows: 1 %)."""


def posterior(
    prior: Prior, observations: Sequence[Observation], shares: Shares | None = None, expected: Array | None = None
) -> tuple[Array, Array]:
    """Mean and standard deviation of the log latency of every configuration, columns [c]; mean inf where it cannot launch.

    Where this decision measured a configuration, the mean is what was measured. Observations of configurations that were predicted
    not to launch say what is best, and nothing of the predictor's error.

    Args:
        prior: Of this decision.
        observations: What its trials said, and those of neighbouring problems.
        shares: How the predictor's error splits, where not as the prior has it.
        expected: Log latencies that are expected where nothing was measured, [c]; those of the prior unless precedents moved them.
    """
    shares = shares or prior.shares
    mean = (prior.mean if expected is None else expected).copy()
    variance = np.full(prior.mean.shape, prior.sigma**2 * (shares.common + shares.similar + shares.individual))
    usable = [o for o in observations if math.isfinite(o.predicted) and (o.kind != "slower" or math.isfinite(o.prior.mean[o.index]))]
    if usable:
        shift, reduced = _error(prior, usable, {id(o.prior): _best_of(observations, o.prior) for o in usable}, shares)
        mean, variance = mean + shift, np.maximum(variance - reduced, 1e-10)
    measured: dict[int, float] = {}
    for seen in observations:
        if seen.prior is prior and seen.log_us is not None:
            measured[seen.index] = min(seen.log_us, measured.get(seen.index, math.inf))
    mean[list(measured)] = list(measured.values())
    return mean, np.sqrt(variance)


def _error(prior: Prior, observations: Sequence[Observation], best: Mapping[int, float | None], shares: Shares) -> tuple[Array, Array]:
    """Mean of the predictor's error for every configuration, [c], and by how much its variance is less for what was observed, [c].

    `best`: the best log latency measured for each decision, by the id of its prior.
    """
    # Where nothing was measured yet, "slower than the best" compares with a best that has the common part too.
    whole = np.array([o.kind != "slower" or best[id(o.prior)] is not None for o in observations], dtype=np.float64)
    points = _points(observations, whole)
    among = _covariance(points, points, shares)
    middle, cov = np.zeros(len(observations)), among.copy()
    order = sorted(range(len(observations)), key=lambda i: observations[i].kind == "slower")  # numbers first: they say what is best
    noise = shares.noise**2
    for i in order:
        seen, variance = observations[i], max(cov[i, i], 1e-12)
        if seen.kind == "measured":
            assert seen.log_us is not None
            gain = cov[:, i] / (variance + noise)
            middle = middle + gain * (seen.log_us - seen.predicted - middle[i])
            cov = cov - np.outer(gain, cov[i])
        elif seen.kind == "slower":
            fastest, ordered = best[id(seen.prior)], seen.prior.mean[seen.index] - float(np.min(seen.prior.mean))
            limit = SLOWER_BY - ordered if fastest is None else fastest - seen.predicted
            expected, var = _cut_off(float(middle[i]), float(variance), limit)
            gain = cov[:, i] / variance
            middle = middle + gain * (expected - middle[i])
            cov = cov - np.outer(gain, cov[i]) * (1 - var / variance)
        else:  # believed to come out as expected: only the uncertainty shrinks
            gain = cov[:, i] / (variance + noise)
            cov = cov - np.outer(gain, cov[i])
    count = len(prior.mean)
    space = _Points(
        sigma=np.full(count, prior.sigma),
        place=np.full(count, prior.place),
        features=prior.features,
        index=np.arange(float(count)),
        decision=np.full(count, id(prior)),
        common=np.ones(count),
    )
    across = _covariance(space, points, shares)
    inverse = np.linalg.inv(among + np.eye(len(observations)) * (1e-8 + 1e-6 * among.trace() / len(observations)))
    weights = across @ inverse
    return weights @ middle, np.einsum("ij,ij->i", weights @ (among - cov), weights)


def nearest(prior: Prior, observations: Sequence[Observation], shares: Shares | None = None, most: int = 64) -> list[Observation]:
    """The observations of other problems that matter most for this one: those within four doublings, the nearest first."""
    reach = 2 * (shares or prior.shares).doublings
    near = [o for o in observations if abs(o.prior.place - prior.place) <= reach]
    near.sort(key=lambda o: (abs(o.prior.place - prior.place), o.kind != "measured"))
    return near[:most]


def propose(
    prior: Prior,
    elsewhere: Sequence[Observation],
    observed: Sequence[Observation],
    usable: NDArray[np.bool_],
    shares: Shares | None = None,
    precedents: Sequence[Precedent] = (),
) -> int:
    """The configuration to try next.

    Args:
        prior: Of this decision.
        elsewhere: What trials of neighbouring problems said.
        observed: What this decision's trials said.
        usable: Which configurations may be tried, [c]; at least one.
        shares: How the predictor's error splits, where not as the prior has it.
        precedents: What won for other problems.
    """
    best = _best_of(observed, prior)
    # Trials that only lost are not heard: the order already moves on to what wins where its first picks lose. Published sweeps of GPUs left
    # out took more trials on three of four with every third trial going by the losses (90th percentile A100 22.5 instead of 20.5, H800 28
    # instead of 23, L40 28.5 instead of 24.5; A40 5 instead of 7.5).
    expected = prior.after(precedents, (o.index for o in observed))
    mean, deviation = posterior(prior, [*elsewhere, *observed] if best is not None else elsewhere, shares, expected)
    mean = np.where(usable, mean, np.inf)
    if best is None:
        return int(np.argmin(mean))
    gain = expected_gain(mean, deviation, best)
    return int(np.argmax(gain)) if gain.max() > 0 else int(np.argmin(mean))


def expected_gain(mean: Array, deviation: Array, best_log_us: float) -> Array:
    """Expected improvement of the log latency over `best_log_us`, columns [c]; 0 where the configuration cannot launch."""
    with np.errstate(invalid="ignore"):
        z = np.where(np.isfinite(mean), (best_log_us - mean) / deviation, -np.inf)
    density = np.exp(-0.5 * np.minimum(z * z, 1400.0)) / math.sqrt(2 * math.pi)
    gain = deviation * (np.where(np.isfinite(z), z, 0.0) * normal_cdf(z) + density)
    return np.where(np.isfinite(mean), np.maximum(gain, 0.0), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Points:
    """Errors, in columns [n]: of which prior, of which configuration, and whether with the part that all of a problem share."""

    sigma: Array
    place: Array
    features: Array  # [n, d]
    index: Array
    decision: NDArray[np.int64]
    common: Array


def _points(observations: Sequence[Observation], common: Array) -> _Points:
    features = [o.prior.features[o.index] for o in observations]
    if len({len(feature) for feature in features}) > 1:
        raise ValueError("observations of different spaces")
    columns = np.array([(o.prior.sigma, o.prior.place, o.index) for o in observations])
    return _Points(
        sigma=columns[:, 0],
        place=columns[:, 1],
        features=np.stack(features),
        index=columns[:, 2],
        decision=np.array([id(o.prior) for o in observations]),
        common=common,
    )


def _covariance(rows: _Points, columns: _Points, shares: Shares) -> Array:
    """Covariance of the errors, [rows, columns]."""
    near = np.exp(-0.5 * ((rows.place[:, None] - columns.place) / shares.doublings) ** 2)
    square = (rows.features**2).sum(1)[:, None] + (columns.features**2).sum(1) - 2 * rows.features @ columns.features.T
    parts = shares.similar * np.exp(-0.5 * np.maximum(square, 0.0))
    parts += shares.common * np.outer(rows.common, columns.common)
    individual = np.where(rows.decision[:, None] == columns.decision, shares.individual, shares.individual * shares.across)
    parts += individual * (rows.index[:, None] == columns.index)
    return rows.sigma[:, None] * columns.sigma * near * parts


def _best_of(observations: Sequence[Observation], prior: Prior) -> float | None:
    """The best log latency measured for a decision."""
    return min((o.log_us for o in observations if o.prior is prior and o.log_us is not None and o.kind == "measured"), default=None)


def _cut_off(mean: float, variance: float, limit: float) -> tuple[float, float]:
    """Mean and variance of a normal distribution without its part below `limit`."""
    sigma = math.sqrt(variance)
    z = (limit - mean) / sigma
    if z > 6:  # the tail beyond: an exponential of rate z / sigma
        return limit + sigma / z, variance / (z * z)
    above = 0.5 * math.erfc(z / math.sqrt(2))
    hazard = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) / above
    return mean + sigma * hazard, variance * max(1 - hazard * (hazard - z), 1e-3)
