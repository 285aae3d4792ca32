"""The order of measuring where not all can be measured: most informative first, so that any cut-off leaves a useful set.

Problems come in a low-discrepancy order over all axes at once (Roberts' R sequence), so that the first n cover every axis evenly.
A problem's configurations come densest near the predicted best, yet reach through the whole space: pick i is the one at quantile
u_i ** 2 of the predicted order, with u a van der Corput sequence. Before them come the default and what the shipped predictor ranks
first: what a recommendation wins is then known of every problem that was visited. Deterministic: the order is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec
from advisor.learned import load_predictor
from advisor.result.schema import Configuration, Problem
from advisor.system.errors import AdvisorError

RECOMMENDED = 4
"""Of the configurations that the predictor ranks first, how many come right after the default."""


def low_discrepancy(lengths: Sequence[int]) -> list[tuple[int, ...]]:
    """Every cell of a grid with these axis lengths, once, in low-discrepancy order.

    The axis of length n is cut into n equal parts; point i lies at frac(1/2 + i / phi^(d + 1)) on axis d, where phi is the root of
    x^(D + 1) = x + 1 (M. Roberts, "The unreasonable effectiveness of quasirandom sequences", 2018).
    """
    if not lengths or min(lengths) < 1:
        return [()] if not lengths else []
    dimensions, total = len(lengths), math.prod(lengths)
    phi = 2.0
    for _ in range(60):
        phi = (1 + phi) ** (1 / (dimensions + 1))
    steps = np.array([phi ** -(d + 1) for d in range(dimensions)])
    shape = np.array(lengths)
    cells: dict[tuple[int, ...], None] = {}
    # A cell is met after about total * ln(total) points; what is left then follows in its own order.
    points = np.arange(int(4 * total * (math.log(total) + 1)) + 1)
    grid = np.floor(((0.5 + points[:, None] * steps) % 1.0) * shape).astype(int)
    for cell in map(tuple, np.minimum(grid, shape - 1).tolist()):
        cells.setdefault(cell)
        if len(cells) == total:
            break
    for flat in range(total):
        cells.setdefault(tuple(int(i) for i in np.unravel_index(flat, lengths)))
    return list(cells)


def van_der_corput(count: int) -> np.ndarray:
    """The first `count` numbers of the base-2 sequence in (0, 1)."""
    numbers = np.arange(1, count + 1)
    result, scale = np.zeros(count), 0.5
    while numbers.any():
        result += scale * (numbers & 1)
        numbers >>= 1
        scale /= 2
    return result


@lru_cache(maxsize=4096)
def informative_order(count: int) -> tuple[int, ...]:
    """Ranks 0..count-1 in the order in which to visit them: dense near rank 0, which comes first."""
    if not count:
        return ()
    # Most ranks' quantiles are drawn within a few times their number; the rest follows in its own order.
    u = van_der_corput(8 * count)
    order = dict.fromkeys([0, *np.minimum((u * u * count).astype(int), count - 1).tolist()])
    for rank in range(count):
        order.setdefault(rank)
    return tuple(order)


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
