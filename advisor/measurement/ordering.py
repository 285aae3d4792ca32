"""The order of measuring where not all can be measured: most informative first, so that any cut-off leaves a useful set.

Problems come in a random order over all axes at once, so that the first n cover every axis. A problem's configurations come densest
near the predicted best, yet reach through the whole space: each pick is the one at quantile u ** 2 of the predicted order, with u
uniform. Before them come the default and what the shipped predictor ranks
first: what a recommendation wins is then known of every problem that was visited. Deterministic: the order is the same on every machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec
from advisor.learned import load_predictor
from advisor.result.schema import Configuration, Problem
from advisor.system.errors import AdvisorError

SEED = 2
RECOMMENDED = 4
"""Of the configurations that the predictor ranks first, how many come right after the default."""


def shuffled_cells(lengths: Sequence[int]) -> list[tuple[int, ...]]:
    """Every cell of a grid with these axis lengths, once, in a random order that is the same everywhere."""
    cells = list(itertools.product(*map(range, lengths)))
    return [cells[i] for i in np.random.default_rng(SEED).permutation(len(cells))]


@lru_cache(maxsize=4096)
def informative_order(count: int) -> tuple[int, ...]:
    """Ranks 0..count-1 in the order in which to visit them: dense near rank 0, which comes first."""
    u = np.random.default_rng(SEED).random(8 * count)  # most ranks are drawn within a few times their number; the rest follows
    return tuple(dict.fromkeys([*range(min(count, 1)), *(u * u * count).astype(int).tolist(), *range(count)]))


def predicted_latency_us(problem: Problem, configurations: Sequence[Configuration], gpu: GpuSpec | None) -> np.ndarray | None:
    """The analytical model's latencies, [configurations]; inf where one cannot launch; None where there is no model."""
    if gpu is None or not configurations:
        return None

    try:
        analysis = pipelines.analyse(pipelines.problem_batch([problem]), pipelines.configuration_batch(list(configurations)), gpu)
    except (AdvisorError, KeyError):
        return None
    return np.broadcast_to(analysis.latency_us, (len(configurations),)).astype(np.float64)


def visiting_order(
    problem: Problem, configurations: Sequence[Configuration], gpu: GpuSpec | None, *, seed: int = 0, recommended: int = RECOMMENDED
) -> list[Configuration]:
    """The configurations in the order in which to measure them.

    The first one (the default) stays first, then come as many as `recommended` says that the shipped predictor ranks first, then the
    others. Those that the model says cannot launch are left out. Where there is no model, the order is a seeded shuffle.
    """
    if not configurations:
        return []
    predicted = predicted_latency_us(problem, configurations, gpu)
    if gpu is None or predicted is None:
        rest = np.random.default_rng(seed).permutation(len(configurations) - 1) + 1
        return [configurations[0], *(configurations[i] for i in rest)]
    ascending = np.argsort(predicted, kind="stable")
    ranks = ascending[(ascending != 0) & np.isfinite(predicted[ascending])].tolist()
    first = foremost(problem, [configurations[i] for i in ranks], gpu, recommended)
    order = dict.fromkeys([0, *(ranks[i] for i in first), *(ranks[rank] for rank in informative_order(len(ranks)))])
    return [configurations[i] for i in order]


def foremost(problem: Problem, configurations: Sequence[Configuration], gpu: GpuSpec, count: int) -> list[int]:
    """The places of the configurations that the shipped predictor ranks first, `count` at most."""
    if not configurations or not count:
        return []
    found = load_predictor().scores(pipelines.problem_batch([problem]), pipelines.configuration_batch(list(configurations)), gpu)
    scores = np.broadcast_to(found, (len(configurations),))
    return [int(i) for i in np.argsort(scores, kind="stable")[:count] if np.isfinite(scores[i])]
