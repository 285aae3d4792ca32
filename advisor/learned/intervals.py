"""Predictions with their 80 % intervals as arrays: kept above the bound and to the power limit, widened outside of what was learned, joined
with the analytical model's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec
from advisor.learned import calibration
from advisor.learned.analytical import SPREAD, Z_80, normal_cdf
from advisor.learned.base import Prediction
from advisor.learned.calibration import WIDEST
from advisor.learned.moe.model import DOMAIN_END, DOMAIN_FADES, DOMAIN_MARGIN
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch
from advisor.pipelines.schedule import least_sustained_us, sustained_us


def launchable(
    interval: tuple[Array, Array, Array], problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec
) -> Prediction:
    """Learned values, none below the bound, of the configuration where one is given; infinite where that cannot launch."""
    if configuration is None:
        us, low, high = above_bound(slowed(interval, least_sustained_us(pipelines.work(problem, gpu), gpu)), problem, gpu)
        return Prediction(us=us, low_us=low, high_us=high, learned=np.ones(us.shape, dtype=bool))
    demand = pipelines.demand(problem, configuration, gpu)
    least = pipelines.config_bound(pipelines.work(problem, gpu), demand, gpu, problem.cache).us
    launches = np.broadcast_to(pipelines.schedule(demand, gpu).resident > 0, interval[0].shape)
    us, low, high = (np.where(launches, a, np.inf) for a in at_least_us(slowed(interval, sustained_us(demand, gpu)), least))
    return Prediction(us=us, low_us=low, high_us=high, learned=launches)


def slowed(interval: tuple[Array, Array, Array], least: Array) -> tuple[Array, Array, Array]:
    """A prediction and its interval, moved to where the board's power lets the launch end (`pipelines.schedule`): GPUs that were measured
    have enough for what they do, others may not."""
    us, low, high = interval
    with np.errstate(invalid="ignore"):  # inf / inf
        slower = np.where(np.isfinite(us), np.maximum(least / us, 1.0), 1.0)
    return us * slower, low * slower, high * slower


def above_bound(interval: tuple[Array, Array, Array], problem: ProblemBatch, gpu: GpuSpec) -> tuple[Array, Array, Array]:
    """A prediction and its interval, none of them below the bound: no launch is, and errors of what was learned do not know it."""
    return at_least_us(interval, pipelines.bound(pipelines.work(problem, gpu), gpu, problem.cache).us)


def at_least_us(interval: tuple[Array, Array, Array], least: Array) -> tuple[Array, Array, Array]:
    """A prediction and its interval, none of them below `least`; one that is raised keeps its distance to the upper end."""
    us, low, high = interval
    with np.errstate(invalid="ignore"):  # inf / inf
        above = np.where(np.isfinite(us), high / us, 1.0)
    raised = np.maximum(us, least)
    return raised, np.maximum(low, least), raised * above


def p_of_intervals(latency_us: Array | None, prediction: Prediction, ceiling: Prediction, at_least: float) -> Array:
    """P(now / ceiling >= at_least), both normal in log latency with the widths of their own intervals: learned ones are narrow, analytical
    ones wide, and where the two meet both count."""
    now, spread = prediction.us if latency_us is None else latency_us, sigma(ceiling)
    if latency_us is None:
        spread = np.hypot(spread, sigma(prediction))
    with np.errstate(invalid="ignore", divide="ignore"):  # a ceiling of no configuration that launches is infinite
        margin = (np.log(now / ceiling.us) - np.log(at_least)) / spread
    return np.clip(normal_cdf(np.clip(np.nan_to_num(margin, nan=0.0), -30, 30)), *calibration.CERTAIN)


def middle(prediction: Prediction) -> Array:
    """Latency as likely exceeded as not: of GPUs never seen, most errors lie to one side."""
    return np.sqrt(prediction.low_us * prediction.high_us)


def sigma(prediction: Prediction) -> Array:
    """Standard deviation of log latency whose 80 % interval reaches as far up as the prediction's."""
    with np.errstate(invalid="ignore", divide="ignore"):
        width = np.log(prediction.high_us / prediction.us)
    return np.maximum(np.nan_to_num(width, nan=SPREAD, posinf=SPREAD), 1e-3) / Z_80


def learned_share(far: Array) -> Array:
    """Weight of learned values so far outside what was learned (`Domain.far` [n]), against the analytical ones, 0 to 1."""
    with np.errstate(divide="ignore"):
        return np.clip(np.log(DOMAIN_END / far) / np.log(DOMAIN_END / DOMAIN_FADES), 0.0, 1.0)


def widened(interval: tuple[Array, Array, Array], far: Array) -> tuple[Array, Array, Array]:
    """A prediction with an interval as much wider (in log latency) as it lies outside: twice at twice the margin, thrice at four times."""
    us, low, high = interval
    times = 1 + np.log2(np.clip(far, DOMAIN_MARGIN, DOMAIN_END) / DOMAIN_MARGIN)
    return us, us * np.maximum((low / us) ** times, np.exp(-WIDEST)), us * np.minimum((high / us) ** times, np.exp(WIDEST))


def joined(fallback: Prediction, interval: tuple[Array, Array, Array], vouched: NDArray[np.bool_], share: Array) -> Prediction:
    """Learned values as far as they count (`share` [n]) and analytical ones for the rest; what cannot launch stays infinite.

    The means are geometric: errors of latencies are factors. `vouched` says which rows are learned, where they launch.
    """
    launches = np.isfinite(fallback.us)
    share = np.where(launches, share, 0.0)
    plain = (fallback.us, fallback.low_us, fallback.high_us)
    with np.errstate(invalid="ignore"):  # 0 * inf, which is not chosen
        mixed = (np.exp(share * np.log(a) + (1 - share) * np.log(b)) for a, b in zip(interval, plain, strict=True))
        us, low, high = (np.where(share >= 1, a, np.where(share <= 0, b, m)) for a, b, m in zip(interval, plain, mixed, strict=True))
    return Prediction(us=us, low_us=low, high_us=high, learned=vouched & launches, share=share)
