"""Which configuration is offered for launches that share one: the first-ranked of the space, near enough to what runs today."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor import pipelines
from advisor.advising.targets import PlannedLaunch, Target
from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Prediction, Predictor
from advisor.pipelines import problem_batch
from advisor.pipelines.space import configuration_at, held_to
from advisor.result.schema import Configuration, Latency
from advisor.system.errors import NothingMatchedError
from advisor.tables.tuned_table import replacement

NEAR_BEST = 1.005
"""Configurations predicted within this of the best count as equal; the one closest to the current configuration is taken, or to the one
that the kernel's file gives untuned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The first-ranked configuration for launches that share one, with what is predicted of each of them under it.

    Attributes:
        configuration: The configuration.
        latencies: What each launch is predicted to take under it, by launch id.
        ceilings: Each launch's own first-ranked configuration with the microseconds predicted, by launch id.
        demands: Total demand of each launch under it, by launch id, then by pipeline.
        reason: Why it is this one, in words.
    """

    configuration: Configuration
    latencies: Mapping[str, Latency]
    ceilings: Mapping[str, tuple[float, Configuration]]
    demands: Mapping[str, dict[str, float]]
    reason: str = "ranked first of the configuration space"  # in an order learned for itself: another may be predicted faster


def choose(group: list[PlannedLaunch], target: Target, predictor: Predictor, like: Configuration | None = None) -> Choice:
    """Rank the space for all launches of a group at once; each weighs as much as the time it takes.

    Args:
        group: Launches that share one configuration.
        target: Their target, with the space.
        predictor: What ranks it.
        like: The configuration whose values the first launch's `fixed` parameters keep.

    Raises:
        NothingMatchedError: No configuration of the space fits the GPU.
    """
    space, first = target.space, group[0]
    held = held_to(space, like, first.fixed)
    problems, first_ranked = [problem_batch([launch.problem]) for launch in group], []
    for launch, problem in zip(group, problems, strict=True):
        scores = predictor.scores(problem, space, target.gpu)
        if not np.isfinite(scores).any():
            raise NothingMatchedError(
                f"{launch.id}: no configuration of the space fits {target.gpu.name}", None, None, "describe a smaller space"
            )
        first_ranked.append(int(np.argmin(scores)))
    if held is not space or len(group) > 1:  # else that one launch's scores are those of the group
        scores = predictor.scores(problems, held, target.gpu)
    best = _closest(held, scores, first.configuration or first.untuned)
    row, chosen = held.take(np.array([best])), configuration_at(held, best)
    latencies, demands, ceilings = {}, {}, {}
    for launch, problem, own in zip(group, problems, first_ranked, strict=True):
        then = predictor.predict(problem, row, target.gpu)
        latencies[launch.id] = predicted_latency(then, predictor)
        if configuration_at(space, own) != chosen:
            then = predictor.predict(problem, space.take(np.array([own])), target.gpu)
        ceilings[launch.id] = (float(then.us[0]), configuration_at(space, own))
        demands[launch.id] = demand_totals(problem, row, target.gpu)
    table = first.table or target.table
    name = table.name if table is not None else None
    configuration = replacement(chosen, first.configuration, table=name, gpu=target.gpu)
    return Choice(configuration=configuration, latencies=latencies, ceilings=ceilings, demands=demands)


def demand_totals(problem: pipelines.ProblemBatch, row: pipelines.ConfigurationBatch, gpu: GpuSpec) -> dict[str, float]:
    """Total demand of one launch, by pipeline."""
    return {name: float(amount[0]) for name, amount in pipelines.demand(problem, row, gpu).totals().items()}


def _closest(space: pipelines.ConfigurationBatch, scores: pipelines.Array, current: Configuration | None) -> int:
    """The configuration within NEAR_BEST of the best score that changes fewest values; of several, the first."""
    near = np.flatnonzero(scores <= np.nanmin(scores) + np.log(NEAR_BEST))
    if current is None:
        return int(near[np.argmin(scores[near])])
    differences = np.zeros(near.size)
    for name, values in {**space.parameters, "num_warps": space.num_warps, "num_stages": space.num_stages}.items():
        now = getattr(current, name) if name in ("num_warps", "num_stages") else current.parameters.get(name)
        if now is not None:
            differences += np.broadcast_to(values, (len(space),))[near] != now
    fewest = near[differences == differences.min()]
    return int(fewest[np.argmin(scores[fewest])])


def predicted_latency(prediction: Prediction, predictor: Predictor) -> Latency:
    """The first of a prediction, with its interval and where it comes from."""
    source = prediction.source(0, predictor.name)
    return Latency(
        us=float(prediction.us[0]),
        origin="predicted",
        source=source,
        low_us=float(prediction.low_us[0]),
        high_us=float(prediction.high_us[0]),
        coverage=prediction.coverage,
    )
