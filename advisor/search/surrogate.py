"""The latency of every configuration after some were measured: a Gaussian process on the predictor's error.

The error (log of measured over predicted latency) is the sum of four parts: one that all configurations of a problem share, one that
similar configurations share, one of each configuration's own, and the noise of measuring. A measurement that only says "slower than the
best" cuts off the lower tail of that configuration's part, and is replaced by the normal distribution of the same mean and variance.

What is expected of a configuration before anything was measured is the place that the order gives it (`Prior.mean`): the order knows
better than the predicted latencies which is the best. What is learned by measuring is how far the predicted latency
(`Prior.predicted_us`) was off: the order spreads configurations over latencies that none of them has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from advisor.learned.analytical import normal_cdf
from advisor.search.prior import Array, Precedent, Prior

Kind = Literal["measured", "slower", "running"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The outcome of one trial of a decision. `log_us` None unless measured.

    `slower`: it ran (or was not recorded) and is known only not to be the best. `running`: another worker is at it.
    """

    index: int
    kind: Kind
    log_us: float | None = None


SLOWER_BY = 0.01
"""A configuration that is known only to lose is slower than the best by more than this (recorded near-optimal rows: 1 %)."""


def posterior(prior: Prior, observations: Sequence[Observation], expected: Array | None = None) -> tuple[Array, Array]:
    """Mean and standard deviation of the log latency of every configuration, columns [c]; mean inf where it cannot launch.

    Where this decision measured a configuration, the mean is what was measured. Observations of configurations that were predicted
    not to launch say what is best, and nothing of the predictor's error.

    Args:
        prior: Of the decision.
        observations: What its trials said.
        expected: Log latencies that are expected where nothing was measured, [c]; those of the prior unless precedents moved them.
    """
    shares = prior.shares
    mean = (prior.mean if expected is None else expected).copy()
    variance = np.full(prior.mean.shape, prior.sigma**2 * (shares.common + shares.similar + shares.individual))
    with np.errstate(divide="ignore", invalid="ignore"):
        predicted = np.log(prior.predicted_us)  # not finite where a configuration was predicted not to launch
    usable = [o for o in observations if math.isfinite(predicted[o.index]) and (o.kind != "slower" or math.isfinite(prior.mean[o.index]))]
    if usable:
        shift, reduced = _error(prior, usable, predicted, best_of(observations))
        mean, variance = mean + shift, np.maximum(variance - reduced, 1e-10)
    measured: dict[int, float] = {}
    for seen in observations:
        if seen.log_us is not None:
            measured[seen.index] = min(seen.log_us, measured.get(seen.index, math.inf))
    mean[list(measured)] = list(measured.values())
    return mean, np.sqrt(variance)


def _error(prior: Prior, observations: Sequence[Observation], predicted: Array, fastest: float | None) -> tuple[Array, Array]:
    """Mean of the predictor's error for every configuration, [c], and by how much its variance is less for what was observed, [c].

    `fastest`: the best log latency measured, where any was.
    """
    # Where nothing was measured yet, "slower than the best" compares with a best that has the common part too.
    whole = np.array([o.kind != "slower" or fastest is not None for o in observations], dtype=np.float64)
    indices = np.array([o.index for o in observations])
    among = _covariance(prior, indices, whole, indices, whole)
    middle, cov = np.zeros(len(observations)), among.copy()
    order = sorted(range(len(observations)), key=lambda i: observations[i].kind == "slower")  # numbers first: they say what is best
    noise = prior.shares.noise**2
    for i in order:
        seen, variance = observations[i], max(cov[i, i], 1e-12)
        if seen.kind == "measured":
            assert seen.log_us is not None
            gain = cov[:, i] / (variance + noise)
            middle = middle + gain * (seen.log_us - predicted[seen.index] - middle[i])
            cov = cov - np.outer(gain, cov[i])
        elif seen.kind == "slower":
            ordered = prior.mean[seen.index] - float(np.min(prior.mean))
            limit = SLOWER_BY - ordered if fastest is None else fastest - predicted[seen.index]
            expected, var = _cut_off(float(middle[i]), float(variance), limit)
            gain = cov[:, i] / variance
            middle = middle + gain * (expected - middle[i])
            cov = cov - np.outer(gain, cov[i]) * (1 - var / variance)
        else:  # believed to come out as expected: only the uncertainty shrinks
            gain = cov[:, i] / (variance + noise)
            cov = cov - np.outer(gain, cov[i])
    count = len(prior.mean)
    across = _covariance(prior, np.arange(count), np.ones(count), indices, whole)
    inverse = np.linalg.inv(among + np.eye(len(observations)) * (1e-8 + 1e-6 * among.trace() / len(observations)))
    weights = across @ inverse
    return weights @ middle, np.einsum("ij,ij->i", weights @ (among - cov), weights)


def propose(
    prior: Prior,
    observed: Sequence[Observation],
    usable: NDArray[np.bool_],
    precedents: Sequence[Precedent] = (),
) -> int:
    """The configuration to try next.

    Args:
        prior: Of the decision.
        observed: What its trials said.
        usable: Which configurations may be tried, [c]; at least one.
        precedents: What won for other problems.
    """
    best, expected = best_of(observed), prior.after(precedents, (o.index for o in observed))
    # Trials that only lost are not heard: the order already moves on to what wins where its first picks lose. Published sweeps of GPUs left
    # out took more trials on three of four with every third trial going by the losses (90th percentile A100 22.5 instead of 20.5, H800 28
    # instead of 23, L40 28.5 instead of 24.5; A40 5 instead of 7.5).
    if best is None:
        return int(np.argmin(np.where(usable, expected, np.inf)))
    mean, deviation = posterior(prior, observed, expected)
    mean = np.where(usable, mean, np.inf)
    gain = expected_gain(mean, deviation, best)
    return int(np.argmax(gain)) if gain.max() > 0 else int(np.argmin(mean))


def expected_gain(mean: Array, deviation: Array, best_log_us: float) -> Array:
    """Expected improvement of the log latency over `best_log_us`, columns [c]; 0 where the configuration cannot launch."""
    with np.errstate(invalid="ignore"):
        z = np.where(np.isfinite(mean), (best_log_us - mean) / deviation, -np.inf)
    density = np.exp(-0.5 * np.minimum(z * z, 1400.0)) / math.sqrt(2 * math.pi)
    gain = deviation * (np.where(np.isfinite(z), z, 0.0) * normal_cdf(z) + density)
    return np.where(np.isfinite(mean), np.maximum(gain, 0.0), 0.0)


def _covariance(prior: Prior, rows: NDArray[np.int64], common_rows: Array, columns: NDArray[np.int64], common_columns: Array) -> Array:
    """Covariance of the errors of configurations, [rows, columns]; `common_…`: 1 for those with the part that all share, else 0."""
    left, right = prior.features[rows], prior.features[columns]
    shares = prior.shares
    square = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
    parts = shares.similar * np.exp(-0.5 * np.maximum(square, 0.0))
    parts += shares.common * np.outer(common_rows, common_columns)
    parts += shares.individual * (rows[:, None] == columns)
    return prior.sigma**2 * parts


def best_of(observations: Sequence[Observation]) -> float | None:
    """The best log latency that was measured; None: none was."""
    return min((o.log_us for o in observations if o.log_us is not None and o.kind == "measured"), default=None)


def _cut_off(mean: float, variance: float, limit: float) -> tuple[float, float]:
    """Mean and variance of a normal distribution without its part below `limit`."""
    sigma = math.sqrt(variance)
    z = (limit - mean) / sigma
    if z > 6:  # the tail beyond: an exponential of rate z / sigma
        return limit + sigma / z, variance / (z * z)
    above = 0.5 * math.erfc(z / math.sqrt(2))
    hazard = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) / above
    return mean + sigma * hazard, variance * max(1 - hazard * (hazard - z), 1e-3)
