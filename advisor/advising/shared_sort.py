"""w13 and w2 with an entry each: one sort of the tokens serves both, so that one BLOCK_SIZE_M has to suit both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from advisor.advising.targets import PlannedLaunch, Target
from advisor.learned.base import Predictor
from advisor.pipelines import problem_batch
from advisor.result.schema import Configuration
from advisor.tables.down_tables import SHARED


def held_configurations(
    target: Target, predictor: Predictor, worth: float, measured_us: Mapping[str, float]
) -> Mapping[str, Configuration]:
    """What the choice for a launch is held to in its `fixed` parameters, by launch id: today's configuration, with the BLOCK_SIZE_M that
    suits all launches of its sort best, where that makes them `worth` times as fast together as today's does.

    Args:
        target: All launches.
        predictor: What ranks the space.
        worth: The least speedup that is worth a change.
        measured_us: Measured latencies by launch id: what runs faster than any other BLOCK_SIZE_M is predicted to keeps its own.
    """
    sorts: dict[str, list[PlannedLaunch]] = defaultdict(list)
    for launch in target.launches:
        if launch.fixed:
            sorts[launch.sort or launch.id].append(launch)
    held: dict[str, Configuration] = {}
    for group in sorts.values():
        now = sum(measured_us.get(launch.id, np.inf) for launch in group)
        rows = _rows(group, target, predictor, worth, now) if group[0].sort is not None else None
        for launch in group:
            if launch.configuration is not None:
                changed = {} if rows is None else {SHARED: rows}
                held[launch.id] = replace(launch.configuration, parameters={**launch.configuration.parameters, **changed})
    return held


def _rows(group: list[PlannedLaunch], target: Target, predictor: Predictor, worth: float, now_us: float) -> int | None:
    """The BLOCK_SIZE_M that suits a group best, each launch with the best of the rest of the space; None: today's is as good.

    `now_us` is what the group was measured to take, inf where that is not known.
    """
    column = np.broadcast_to(target.space.parameters[SHARED], (len(target.space),))
    values = np.unique(column)
    total = np.zeros(values.size)
    for launch in group:
        problem = problem_batch([launch.problem])
        scores = predictor.scores(problem, target.space, target.gpu)
        first = [int(np.flatnonzero(column == value)[np.argmin(scores[column == value])]) for value in values]
        total = total + predictor.predict(problem, target.space.take(np.array(first)), target.gpu).us
    best = int(np.argmin(total))
    today = group[0].configuration.parameters[SHARED] if group[0].configuration is not None else None
    as_good = now_us < total[best] * worth or bool((total[values == today] < total[best] * worth).any())
    return None if as_good or not np.isfinite(total[best]) else int(values[best])
