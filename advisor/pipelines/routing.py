"""Token slots per expert: the routing is part of an MoE problem.

A routing is a pair (rows, count): `count` experts hold `rows` token slots each, over a few groups g, because counting by
groups of equal experts is exact and does not grow with the number of experts. Idle experts need not be listed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.pipelines import token_draws
from advisor.pipelines.columns import Array, column
from advisor.result.schema import Problem
from advisor.system.errors import UsageError


def uniform(tokens: Array, experts: Array, topk: Array) -> tuple[Array, Array]:
    """Round-robin routing: min(E, M topk) experts are active, each with floor or ceil of the mean.

    Args:
        tokens: M, [n].
        experts: E, [n].
        topk: Experts per token, [n].

    Returns:
        rows [n, 2] and count [n, 2].
    """
    slots = tokens * topk
    low = np.floor(slots / experts)
    more = slots - low * experts  # experts with one slot more
    rows = np.stack([low, low + 1], axis=-1)
    count = np.stack([np.where(low > 0, experts - more, 0.0), more], axis=-1)
    return rows, count


def histogram(slots_per_expert: Sequence[int], slots: int) -> tuple[Array, Array]:
    """A histogram of expert loads, scaled to `slots` token slots in all by largest remainders.

    Args:
        slots_per_expert: One non-negative number per expert, not all zero.
        slots: M topk of the problem.

    Returns:
        rows [g] and count [g], over the distinct positive loads.
    """
    load = np.asarray(slots_per_expert, dtype=np.float64)
    if load.ndim != 1 or not load.size or load.min() < 0 or load.sum() <= 0:
        raise UsageError("a routing must be non-negative loads, one per expert, not all zero", slots_per_expert)
    exact = load * (slots / load.sum())
    whole = np.floor(exact)
    missing = int(slots - whole.sum())
    if missing > 0:
        whole[np.argsort(-(exact - whole), kind="stable")[:missing]] += 1
    rows, count = np.unique(whole[whole > 0], return_counts=True)
    return rows, count.astype(np.float64)


def of_problem(problem: Problem) -> tuple[Array, Array]:
    """The routing of one problem, [g] each."""
    sizes = problem.sizes
    if problem.distribution is not None:
        return token_draws.groups(sizes["M"], sizes["E"], sizes["topk"], token_draws.exponent(problem.distribution))
    if problem.routing is None:
        rows, count = uniform(column(sizes["M"]), column(sizes["E"]), column(sizes["topk"]))
        return rows[0], count[0]
    if len(problem.routing) != sizes["E"]:
        raise UsageError("a routing needs one load per expert", f"{len(problem.routing)} loads", f"E = {sizes['E']}")
    return histogram(problem.routing, sizes["M"] * sizes["topk"])


def least_used(problem: Problem) -> float:
    """Experts that 99 % of the draws of a problem's routing use at least."""
    sizes = problem.sizes
    if problem.distribution is None:
        return float(of_problem(problem)[1].sum())
    return token_draws.least_used(sizes["M"], sizes["E"], sizes["topk"], token_draws.exponent(problem.distribution))


def stack(routings: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Routings of several problems, padded with empty groups to [n, g]."""
    width = max(rows.size for rows, _ in routings)
    rows_out, count_out = np.zeros((len(routings), width)), np.zeros((len(routings), width))
    for i, (rows, count) in enumerate(routings):
        rows_out[i, : rows.size], count_out[i, : count.size] = rows, count
    return rows_out, count_out
