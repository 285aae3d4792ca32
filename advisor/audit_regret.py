"""Predicted regret of every entry of a tuned table: what the audit adds to the offline checks of `configs.audit`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from advisor.configs.tables import Table
from advisor.errors import AdvisorError
from advisor.learned.base import Predictor
from advisor.pipelines import configuration_batch, problem_batch
from advisor.targets import PlannedLaunch, Request, Target, fused_moe_table, gemm_table


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRegret:
    """Predicted latency of one entry over what is predicted to be reachable, minus 1; both in microseconds, all GEMMs of the entry."""

    tokens: int
    predicted_us: float
    ceiling_us: float
    probability: float  # that at least 10 % can be won; of the GEMM that is least sure

    @property
    def regret(self) -> float:
        """0.1: the entry is predicted 10 % slower than the best configuration; inf where it cannot launch."""
        return self.predicted_us / self.ceiling_us - 1


def table_regret(table: Table, predictor: Predictor) -> tuple[EntryRegret, ...]:
    """Regret of every entry, in the table's order; empty where the table's GPU or shape is not known well enough.

    A fused-MoE table does not name its hidden size and top-k: the commonest model that fits is assumed.
    """
    request = Request(assume=True)
    try:
        target = fused_moe_table(table, request) if table.name.kind == "fused_moe" else gemm_table(table, request)
    except AdvisorError:
        return ()
    now: dict[int, float] = defaultdict(float)
    best: dict[int, float] = defaultdict(float)
    sure: dict[int, float] = defaultdict(lambda: 1.0)
    for members in _alike(target):
        problem = problem_batch([launch.problem for launch in members])
        configuration = configuration_batch([launch.configuration for launch in members if launch.configuration])
        predicted = predictor.predict(problem, configuration, target.gpu)
        ceiling = predictor.ceiling(problem, target.gpu)
        chance = predictor.p_speedup(problem, target.gpu, None, predicted, ceiling)
        for launch, us, least, p in zip(members, predicted.us, np.minimum(ceiling.us, predicted.us), chance, strict=True):
            tokens = launch.tokens or 0
            now[tokens] += float(us)
            best[tokens] += float(least)
            sure[tokens] = min(sure[tokens], float(p))
    return tuple(EntryRegret(tokens=m, predicted_us=now[m], ceiling_us=best[m], probability=sure[m]) for m in now)


def _alike(target: Target) -> list[list[PlannedLaunch]]:
    """Launches that one batch can take: same operator, same parameter names."""
    groups: dict[tuple[object, ...], list[PlannedLaunch]] = defaultdict(list)
    for launch in target.launches:
        if launch.configuration is not None:
            groups[(launch.problem.op, tuple(sorted(launch.configuration.parameters)))].append(launch)
    return list(groups.values())
