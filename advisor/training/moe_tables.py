"""Fused-MoE rows in columns, as the fits read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advisor.learned.analytical import served_configuration
from advisor.learned.machine import machine
from advisor.learned.moe import moe_physics
from advisor.learned.moe.launch import FIELDS, Launch, as_configuration, as_rows, concatenate, moe_launch
from advisor.pipelines import Array
from advisor.training.data import Measured

SERVED_WEIGHT = 0.2
"""Weight of one served launch: there are some 190 token counts of every model, against 18 of a sweep."""

NEAR_OPTIMAL = 1.01
WINNERS = 24
ROWS_PER_PROBLEM = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Measured launches of one kind in columns.

    Attributes:
        launch: Columns [n]; None for the best of sweeps, whose launch depends on the physics (`candidates`).
        latency_us: [n].
        weight: [n].
        model: (E, topk, H, N) of each row.
        gpu: Name of each row's GPU.
        key: Problem and GPU of each row (`keys_of`).
        configuration: [n, 6], for exact launches.
        candidates: Launches of every winner, for the best of sweeps.
        paired_us: For the best of sweeps, the default's latency in the same sweep, [n]; NaN elsewhere and where it was not swept.
        paired_configuration: Its configuration, [n, 6]; 0 where it is not known.
    """

    kind: str
    launch: Launch | None
    latency_us: Array
    weight: Array
    model: list[object]
    gpu: list[object]
    key: list[tuple[object, ...]]
    configuration: Array | None = None
    candidates: tuple[Launch, ...] = ()
    paired_us: Array = field(default_factory=lambda: np.zeros(0))
    paired_configuration: Array = field(default_factory=lambda: np.zeros((0, len(FIELDS))))

    def gpus(self, rows: NDArray[np.bool_]) -> list[object]:
        """Names of the GPUs of some rows."""
        return [name for name, chosen in zip(self.gpu, rows, strict=True) if chosen]

    def paired_with(self, other: Table) -> NDArray[np.int64]:
        """For the default of every sweep its row in a table of launches, [n]: with its configuration where the table has exact ones,
        else any of the same problem; -1 where there is none."""
        exact = other.kind == "exact"
        assert other.configuration is not None
        place: dict[tuple[object, ...], int] = {}
        for i, (key, row) in enumerate(zip(other.key, other.configuration.tolist(), strict=True)):
            place.setdefault((*key, *row) if exact else key, i)
        mine = [(*key, *row) if exact else key for key, row in zip(self.key, self.paired_configuration.tolist(), strict=True)]
        places = np.array([place.get(key, -1) for key in mine], dtype=np.int64)
        return np.where(np.isfinite(self.paired_us), places, -1)

    def launches(self, physics: Array, rows: NDArray) -> Launch:
        """Launches of the rows; for the best of sweeps those of the winner that the physics finds fastest."""
        if self.launch is not None:
            return self.launch.take(rows)
        parts = [c.take(rows) for c in self.candidates]
        predicted = np.stack([np.where(p.shared_bytes > p.smem_capacity - 1024, np.inf, moe_physics.terms(p, physics)[0]) for p in parts])
        chosen = predicted.argmin(axis=0)
        order = np.argsort(np.concatenate([np.flatnonzero(chosen == i) for i in range(len(parts))]), kind="stable")
        return concatenate([p.take(np.flatnonzero(chosen == i)) for i, p in enumerate(parts)]).take(order)


def tables(data: Sequence[Measured]) -> dict[str, Table]:
    """Fused-MoE rows in columns, per kind; kinds without rows are missing."""
    out: dict[str, Table] = {}
    exact = [m for m in data if m.kind == "exact"]
    best = [m for m in data if m.kind == "best"]
    winners = winning_configurations(exact, best)
    for kind in ("served", "exact", "best"):
        parts = [m for m in data if m.kind == kind and m.problem.family == "fused_moe"]
        if not parts or (kind == "best" and not winners.size):
            continue
        launches, weights, rows, keys = [], [], [], []
        candidates: list[list[Launch]] = [[] for _ in range(winners.shape[0])]
        for part in parts:
            gpu = machine(part.gpu, part.problem.dtype)
            keys += keys_of(part)
            if kind == "best":
                for i in range(winners.shape[0]):
                    candidates[i].append(moe_launch(part.problem, as_configuration(winners[i : i + 1]), gpu))
            else:
                configuration = part.configuration or served_configuration(part.problem, gpu)
                launches.append(moe_launch(part.problem, configuration, gpu))
                rows.append(as_rows(configuration))
            weights.append(weights_of(part))
        out[kind] = Table(
            kind=kind,
            launch=concatenate(launches) if launches else None,
            latency_us=np.concatenate([p.latency_us for p in parts]),
            weight=np.concatenate(weights),
            model=[m for p in parts for m in p.models()],
            gpu=[p.gpu.name for p in parts for _ in range(len(p))],
            key=keys,
            configuration=np.concatenate(rows) if rows else None,
            candidates=tuple(concatenate(c) for c in candidates) if kind == "best" else (),
            paired_us=np.concatenate([_paired_us(p) for p in parts]),
            paired_configuration=np.concatenate([_paired_rows(p) for p in parts]),
        )
    return out


def _paired_us(part: Measured) -> Array:
    return part.paired_us if part.paired_us is not None else np.full(len(part), np.nan)


def _paired_rows(part: Measured) -> Array:
    return as_rows(part.paired_configuration) if part.paired_configuration is not None else np.zeros((len(part), len(FIELDS)))


def keys_of(part: Measured) -> list[tuple[object, ...]]:
    """GPU, model, tokens and routing of every row, and which of a model's products it is, of which types."""
    problem = part.problem
    tokens = np.broadcast_to(problem.sizes["M"], (len(part),)).astype(int)
    kind = (problem.op, problem.dtype, problem.weight_dtype or problem.dtype, problem.cache)
    rows = zip(part.models(), tokens.tolist(), _routings(part), strict=True)
    return [(part.gpu.name, *model, m, *kind, routing) for model, m, routing in rows]


def _routings(part: Measured) -> list[object]:
    """Every row's experts in use as pairs of rows and how many experts hold them; None where the routing is the default."""
    if part.problem.expert_rows is None:
        return [None] * len(part)
    groups = np.stack(np.broadcast_arrays(*part.problem.routing), axis=2).tolist()
    routings: list[object] = [tuple(sorted((rows, count) for rows, count in group if rows and count)) for group in groups]
    return routings * len(part) if len(routings) < len(part) else routings


def weights_of(part: Measured) -> Array:
    """One per problem and file; served launches count less, there are more of them."""
    if part.kind == "served":
        return np.full(len(part), SERVED_WEIGHT)
    keys = keys_of(part)
    count: dict[tuple[object, ...], int] = {}
    for key in keys:
        count[key] = count.get(key, 0) + 1
    return np.array([1 / count[key] for key in keys])


def near_optimal(exact: Sequence[Measured], best: Sequence[Measured]) -> tuple[list[tuple[object, ...]], Array]:
    """Problem and configuration [n, 6] of the exact launches within 1 % of their sweep's best."""
    least = {key: us for part in best for key, us in zip(keys_of(part), part.latency_us.tolist(), strict=True)}
    keys: list[tuple[object, ...]] = []
    rows: list[Array] = []
    for part in exact:
        assert part.configuration is not None
        mine = keys_of(part)
        good = np.array([us <= NEAR_OPTIMAL * least.get(k, -1.0) for k, us in zip(mine, part.latency_us.tolist(), strict=True)], dtype=bool)
        keys += [k for k, g in zip(mine, good, strict=True) if g]
        rows.append(as_rows(part.configuration)[good])
    return keys, np.concatenate(rows) if rows else np.zeros((0, 6))


def winning_configurations(exact: Sequence[Measured], best: Sequence[Measured]) -> Array:
    """Few configurations [w, 6] that together are near-optimal for most sweeps (greedy cover), GROUP_SIZE_M aside."""
    keys, rows = near_optimal(exact, best)
    if not keys:
        return np.zeros((0, 6))
    covers: dict[tuple[float, ...], set[object]] = {}
    for key, row in zip(keys, rows, strict=True):
        covers.setdefault((row[0], row[1], row[2], 1.0, row[4], row[5]), set()).add(key)
    chosen: list[tuple[float, ...]] = []
    open_ = set(keys)
    while open_ and len(chosen) < WINNERS:
        best_row = max(sorted(covers), key=lambda r: len(covers[r] & open_))
        chosen.append(best_row)
        open_ -= covers.pop(best_row)
    return np.array(chosen)


def thin(table: Table, keep: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """At most `ROWS_PER_PROBLEM` kept rows per problem: some problems have hundreds of near-optimal configurations."""
    count: dict[tuple[object, ...], int] = {}
    out = keep.copy()
    # Rows of one problem lie in the order of their configurations: a stride by a prime walks them without a pattern.
    order = sorted(np.flatnonzero(keep).tolist(), key=lambda i: (i * 7919) % 104_729)
    for i in order:
        key = table.key[i]
        count[key] = count.get(key, 0) + 1
        out[i] = count[key] <= ROWS_PER_PROBLEM
    return out
