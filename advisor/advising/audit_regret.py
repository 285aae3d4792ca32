"""Predicted regret of every entry of a tuned table: what the audit adds to the offline checks of `tables.audit`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.advising.targets import PlannedLaunch, Request, Target
from advisor.advising.targets.table_targets import fused_moe_table, gemm_table
from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import ANALYTICAL, EXTRAPOLATED, Predictor, tunable_ceiling
from advisor.pipelines import bound, configuration_batch, problem_batch, work
from advisor.system.errors import AdvisorError
from advisor.tables.audit import PredictedFor
from advisor.tables.tables import Table

_BASES = ("", EXTRAPOLATED, "by the analytical model")
"""What a prediction may rest on beside what was learned, the weakest last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRegret:
    """Predicted latency of one entry over what is predicted to be reachable, minus 1; both in microseconds, all GEMMs of the entry."""

    tokens: int
    predicted_us: float
    ceiling_us: float
    probability: float  # that at least 10 % can be won; of the GEMM that is least sure
    predicted_for: PredictedFor | None = None  # the model; None for a GEMM table, whose name says all
    basis: str = ""  # `by the analytical model`, or `extrapolated`, where no learned model vouches for one of the predictions

    @property
    def regret(self) -> float:
        """0.1: the entry is predicted 10 % slower than the best configuration; inf where it cannot launch."""
        return self.predicted_us / self.ceiling_us - 1


def regrets(tables: Sequence[Table], predictor: Predictor) -> list[tuple[EntryRegret, ...]]:
    """Regret of every entry of every table, in order; empty where a table's GPU or shape is not known well enough.

    Launches of all tables that share GPU, operator and types go to the model together: a call costs more than a row. A fused-MoE
    table does not name its hidden size and top-k: the commonest model that fits is assumed, and every
    entry says which.
    """
    targets = [_target(table) for table in tables]
    now: list[dict[int, float]] = [defaultdict(float) for _ in tables]
    best: list[dict[int, float]] = [defaultdict(float) for _ in tables]
    sure: list[dict[int, float]] = [defaultdict(lambda: 1.0) for _ in tables]
    basis: list[dict[int, str]] = [defaultdict(str) for _ in tables]
    for gpu, members in _alike(targets):
        problem = problem_batch([launch.problem for _, launch in members])
        configuration = configuration_batch([launch.configuration for _, launch in members if launch.configuration])
        predicted = predictor.predict(problem, configuration, gpu)
        ceiling = predictor.ceiling(problem, gpu)
        chance = predictor.p_speedup(problem, gpu, None, predicted, ceiling, configuration)
        reachable = tunable_ceiling(ceiling, bound(work(problem, gpu), gpu, problem.cache).us, predicted.us).us
        for i, ((table, launch), us, least, p) in enumerate(zip(members, predicted.us, reachable, chance, strict=True)):
            tokens = launch.tokens or 0
            basis[table][tokens] = max(basis[table][tokens], _basis(predicted.source(i, predictor.name)), key=_BASES.index)
            now[table][tokens] += float(us)
            best[table][tokens] += float(least)
            sure[table][tokens] = min(sure[table][tokens], float(p))
    return [
        tuple(
            EntryRegret(
                tokens=m,
                predicted_us=us,
                ceiling_us=best[t][m],
                probability=sure[t][m],
                predicted_for=_predicted_for(target),
                basis=basis[t][m],
            )
            for m, us in now[t].items()
        )
        for t, target in enumerate(targets)
    ]


def _basis(source: str) -> str:
    """The model behind a prediction that comes from `source`, one of `_BASES`."""
    return "by the analytical model" if source == ANALYTICAL else EXTRAPOLATED if source.endswith(EXTRAPOLATED) else ""


def _predicted_for(target: Target | None) -> PredictedFor | None:
    if target is None or target.launches[0].problem.family != "fused_moe":
        return None
    sizes = target.launches[0].problem.sizes
    return PredictedFor(model=target.model, hidden_size=int(sizes["H"]), top_k=int(sizes["topk"]), assumption=target.assumption)


def _target(table: Table) -> Target | None:
    request = Request(assume=True, distribution="random")
    try:
        return fused_moe_table(table, request) if table.name.kind == "fused_moe" else gemm_table(table, request)
    except AdvisorError:
        return None


def _alike(targets: Sequence[Target | None]) -> list[tuple[GpuSpec, list[tuple[int, PlannedLaunch]]]]:
    """Launches, with the number of their target, that one batch can take: same GPU, operator, types and parameter names."""
    groups: dict[tuple[object, ...], list[tuple[int, PlannedLaunch]]] = defaultdict(list)
    gpus: dict[tuple[object, ...], GpuSpec] = {}
    for number, target in enumerate(targets):
        for launch in target.launches if target is not None else ():
            if target is None or launch.configuration is None or launch.table is not None:  # another table's entry is judged with that
                continue
            problem, names = launch.problem, tuple(sorted(launch.configuration.parameters))
            types = (problem.dtype, problem.weight_dtype, problem.output_dtype, problem.block_shape)
            key = (target.gpu.name, problem.family, problem.op, types, names)
            gpus[key] = target.gpu
            groups[key].append((number, launch))
    return [(gpus[key], members) for key, members in groups.items()]
