"""Fitting the learned model of fused-MoE launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned import calibration, habits, quality, reach
from advisor.learned.configurations import as_configuration, as_rows
from advisor.learned.data import Measured
from advisor.learned.features import BEST, EXACT, SERVED
from advisor.learned.folds import CALIBRATION_FOLDS, GPU_FOLDS, SCALE_FOLDS, leave_out
from advisor.learned.forest import Forest
from advisor.learned.grow import grow
from advisor.learned.habits import Habits
from advisor.learned.launch import Launch, concatenate, moe_launch
from advisor.learned.machine import machine
from advisor.learned.moe import Core, MoeModel, domain_of, of_served_gpu
from advisor.learned.served import served_configuration
from advisor.pipelines import Array

SOURCES = {"served": SERVED, "exact": EXACT, "best": BEST}
SERVED_WEIGHT = 0.2
"""Weight of one served launch: there are some 190 token counts of every model, against 18 of a sweep."""

NEAR_OPTIMAL = 1.01
WINNERS = 24
ROWS_PER_PROBLEM = 12
GROWTH: dict[str, Any] = {"max_iter": 400, "learning_rate": 0.05, "max_features": 0.3}
OWN_GROWTH: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "exact": (("exact",), {"max_iter": 240, "learning_rate": 0.07, "min_samples_leaf": 15}),
    "sweeps": (("exact", "best"), {}),
    "best": (("best",), {"min_samples_leaf": 6}),
}
"""Kinds of rows and options of the forests of sweeps. Few trees, so that 2,000 configurations take less than ten milliseconds."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Measured launches of one kind in columns.

    Attributes:
        launch: Columns [n]; None for the best of sweeps, whose launch depends on the physics (`candidates`).
        latency_us: [n].
        weight: [n].
        model: (E, topk, H, N) of each row.
        gpu: Name of each row's GPU.
        key: gpu, model and tokens of each row.
        configuration: [n, 6], for exact launches.
        candidates: Launches of every winner, for the best of sweeps.
        paired_us: The default's latency in the same sweep, for the best of sweeps.
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
    paired_us: Array | None = None

    def launches(self, physics: Array, rows: NDArray) -> Launch:
        """Launches of the rows; for the best of sweeps those of the winner that the physics finds fastest."""
        if self.launch is not None:
            return self.launch.take(rows)
        parts = [c.take(rows) for c in self.candidates]
        predicted = np.stack([np.where(p.shared_bytes > p.smem_capacity - 1024, np.inf, reach.terms(p, physics)[0]) for p in parts])
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
            keys += _keys(part)
            if kind == "best":
                for i in range(winners.shape[0]):
                    candidates[i].append(moe_launch(part.problem, as_configuration(winners[i : i + 1]), gpu))
            else:
                configuration = part.configuration or served_configuration(part.problem, gpu)
                launches.append(moe_launch(part.problem, configuration, gpu))
                rows.append(as_rows(configuration))
            weights.append(_weights(part))
        out[kind] = Table(
            kind=kind, launch=concatenate(launches) if launches else None,
            latency_us=np.concatenate([p.latency_us for p in parts]), weight=np.concatenate(weights),
            model=[m for p in parts for m in p.models()], gpu=[p.gpu.name for p in parts for _ in range(len(p))], key=keys,
            configuration=np.concatenate(rows) if rows else None,
            candidates=tuple(concatenate(c) for c in candidates) if kind == "best" else (),
            paired_us=np.concatenate([p.paired_us for p in parts if p.paired_us is not None]) if kind == "best" else None,
        )  # fmt: skip
    return out


def _keys(part: Measured) -> list[tuple[object, ...]]:
    tokens = np.broadcast_to(part.problem.sizes["M"], (len(part),)).astype(int)
    return [(part.gpu.name, *model, m) for model, m in zip(part.models(), tokens.tolist(), strict=True)]


def _weights(part: Measured) -> Array:
    """One per problem and file; served launches count less, there are more of them."""
    if part.kind == "served":
        return np.full(len(part), SERVED_WEIGHT)
    keys = _keys(part)
    count: dict[tuple[object, ...], int] = {}
    for key in keys:
        count[key] = count.get(key, 0) + 1
    return np.array([1 / count[key] for key in keys])


def near_optimal(exact: Sequence[Measured], best: Sequence[Measured]) -> tuple[list[tuple[object, ...]], Array]:
    """Problem and configuration [n, 6] of the exact launches within 1 % of their sweep's best."""
    least = {key: us for part in best for key, us in zip(_keys(part), part.latency_us.tolist(), strict=True)}
    keys: list[tuple[object, ...]] = []
    rows: list[Array] = []
    for part in exact:
        assert part.configuration is not None
        mine = _keys(part)
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


def _thin(table: Table, keep: NDArray[np.bool_]) -> NDArray[np.bool_]:
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


def fit_core(found: dict[str, Table], keep: dict[str, NDArray[np.bool_]], winners: Array, **options: Any) -> Core:
    """Physics and forests from the kept rows of every kind; `options` of `grow.grow`."""
    keep = {k: _thin(found[k], mask) if k == "exact" else mask for k, mask in keep.items()}
    solid: list[str] = [k for k in ("served", "exact") if k in found and keep[k].any()]
    launches: dict[str, Launch] = {k: found[k].launches(np.zeros(0), np.flatnonzero(keep[k])) for k in solid}
    physics = reach.fit(
        concatenate([launches[k] for k in solid]),
        np.concatenate([found[k].latency_us[keep[k]] for k in solid]),
        np.concatenate([found[k].weight[keep[k]] for k in solid]),
    )
    if "best" in found and keep["best"].any():
        launches["best"] = found["best"].launches(physics, np.flatnonzero(keep["best"]))
    x: dict[str, Array] = {}
    y: dict[str, Array] = {}
    nothing = Core(physics=physics, common=_zero(), exact=None, sweeps=None, best=None, winners=winners,
                   habits=_habits(found, keep, launches, physics))  # fmt: skip
    for kind, launch in launches.items():
        estimate = nothing.estimate(launch, SOURCES[kind])
        x[kind], y[kind] = estimate.features, np.log(found[kind].latency_us[keep[kind]]) - estimate.log_us
    weight = {k: found[k].weight[keep[k]] * (2.0 if k == "best" else 1.0) for k in x}

    def forest(kinds: Sequence[str], **mine: Any) -> Forest | None:
        some = [k for k in kinds if k in x]
        return grow(*(np.concatenate([part[k] for k in some]) for part in (x, y, weight)), **(options | mine)) if some else None

    own = {name: forest(kinds, **mine) for name, (kinds, mine) in OWN_GROWTH.items()}
    common = forest(tuple(x))
    assert common is not None
    return Core(physics=physics, common=common, **own, winners=winners, habits=nothing.habits)


def _habits(found: dict[str, Table], keep: dict[str, NDArray[np.bool_]], launches: dict[str, Launch], physics: Array) -> Habits:
    """What launches as served say of their GPUs."""
    if "served" not in launches:
        return habits.NONE
    served, kept = launches["served"], keep["served"]
    us, stack = reach.terms(served, physics)
    swept = habits.machines_of(launches["exact"]) if "exact" in launches else np.zeros((0, 2))
    return habits.fit(served, np.log(found["served"].latency_us[kept] / us), stack, found["served"].weight[kept], swept)


def _zero() -> Forest:
    """A forest that adds nothing."""
    return Forest(
        feature=np.zeros((1, 15), np.uint8), code=np.full((1, 15), 255, np.uint8), ruled_out=np.zeros((1, 15), np.uint16),
        leaf=np.zeros((1, 16), np.float32), edges=(np.zeros(0, np.float32),), base=0.0,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Predictions of rows that their fold did not know, per kind: log error, features of the scale, and which were predicted."""

    log_us: dict[str, Array]
    features: dict[str, Array]


def hold_out(found: dict[str, Table], winners: Array, by: str, progress: Progress) -> HeldOut:
    """Predict every row from the folds that leave out its model (`by` "model"), its GPU ("gpu"), or its GPU's sweeps ("sweep")."""
    if by == "sweep":
        labels = {k: [""] * len(t.gpu) if k == "served" else t.gpu for k, t in found.items()}
    else:
        labels = {k: getattr(t, by) for k, t in found.items()}
    names = sorted({label for of_kind in labels.values() for label in of_kind if label}, key=str)
    log_us = {k: np.full(t.latency_us.size, np.nan) for k, t in found.items()}
    features: dict[str, Array] = {}
    # Few GPUs were swept: a fold without two of them would know far less than the final fit does without one.
    swept = {g for kind, t in found.items() if kind != "served" for g in t.gpu} if by != "model" else set()
    for out, _ in leave_out(names, CALIBRATION_FOLDS if by == "model" else GPU_FOLDS, swept):
        progress(f"leaving out {by}s {', '.join(map(str, out))}")
        chosen = set(out)
        gone = {k: np.array([label in chosen for label in of_kind], dtype=bool) for k, of_kind in labels.items()}
        core = fit_core(found, {k: ~mask for k, mask in gone.items()}, winners, **GROWTH)
        for kind, mask in gone.items():
            if not mask.any():
                continue
            estimate = core.estimate(found[kind].launches(core.physics, np.flatnonzero(mask)), SOURCES[kind])
            log_us[kind][mask] = estimate.log_us
            features.setdefault(kind, np.full((mask.size, estimate.features.shape[1]), np.nan))[mask] = estimate.features
    return HeldOut(log_us=log_us, features=features)


def fit(data: Sequence[Measured], progress: Progress, calibrate_by: Sequence[str] = ("model", "gpu", "sweep")) -> MoeModel | None:
    """The whole model, or None where no fused-MoE rows are there.

    `calibrate_by` names the groups to leave out for the intervals (`hold_out`); "model" has to be among them, the others may be spared
    where only GPUs of the training rows matter.
    """
    found = tables(data)
    if "served" not in found and "exact" not in found:
        return None
    winners = winning_configurations([m for m in data if m.kind == "exact"], [m for m in data if m.kind == "best"])
    progress("fitting the fused-MoE model")
    everything = {k: np.ones(t.latency_us.size, dtype=bool) for k, t in found.items()}
    core = fit_core(found, everything, winners, **GROWTH)
    from advisor.learned.rank_training import fit_ranker

    progress("fitting the order of configurations")  # before the folds, which take longest: it needs what may not be installed
    ranker = fit_ranker(data, core)
    held = {by: hold_out(found, winners, by, progress) for by in calibrate_by}
    scales, table, sizes = _calibrate(found, held)
    solid = concatenate([t.launch for t in found.values() if t.launch is not None])
    return MoeModel(
        core=core, ranker=ranker, scale=scales, calibration=table, domain=domain_of(solid),
        gpus={k: tuple(sorted({str(g) for g in t.gpu})) for k, t in found.items()}, held_out=_held_out_figures(found, held, table, sizes),
    )  # fmt: skip


Sizes = dict[tuple[str, str], Array]  # (by, kind) -> expected size of the error of every row


def _calibrate(found: dict[str, Table], held: dict[str, HeldOut]) -> tuple[Forest, calibration.Calibration, Sizes]:
    """The forest of expected error sizes, the quantiles of errors over it, and the sizes of the rows held out."""
    errors = {by: {k: np.log(t.latency_us) - h.log_us[k] for k, t in found.items()} for by, h in held.items()}
    kinds = [k for k in found if np.isfinite(errors["model"][k]).any()]
    if not kinds:
        raise ValueError("calibration needs rows of at least two models")
    ok = {k: np.isfinite(errors["model"][k]) for k in kinds}
    x = np.concatenate([held["model"].features[k][ok[k]] for k in kinds])
    y = np.concatenate([np.log(np.abs(errors["model"][k][ok[k]]) + 0.003) for k in kinds])
    weight = np.concatenate([found[k].weight[ok[k]] for k in kinds])
    model = [m for k in kinds for m, good in zip(found[k].model, ok[k], strict=True) if good]
    options: dict[str, Any] = {
        "loss": "squared_error", "max_iter": 80, "learning_rate": 0.1, "max_leaf_nodes": 8, "min_samples_leaf": 40,
    }  # fmt: skip
    # Cross-fit: sizes of errors are judged by a forest that did not see them.
    crossed = np.full(y.size, np.nan)
    for _, out in leave_out(model, SCALE_FOLDS):
        crossed[out] = grow(x[~out], y[~out], weight[~out], **options)(x[out])
    forest = grow(x, y, weight, **options)
    sizes = np.maximum(np.exp(np.where(np.isfinite(crossed), crossed, y)), calibration.SMALLEST_SCALE)
    quantiles, begin = {}, 0
    expected: Sizes = {}
    for k in kinds:
        end = begin + int(ok[k].sum())
        quantiles[(k, True)] = calibration.table(errors["model"][k][ok[k]], sizes[begin:end], found[k].weight[ok[k]], model[begin:end])
        expected[("model", k)] = np.full(ok[k].size, np.nan)
        expected[("model", k)][ok[k]] = sizes[begin:end]
        begin = end
        for by, task in (("gpu", k), ("sweep", of_served_gpu(k))):
            good = np.isfinite(errors[by][k]) if by in errors else np.zeros(0, dtype=bool)
            if good.any():
                unseen = calibration.scale(forest, held[by].features[k][good])
                # Pooled: the typical GPU's errors alone are too small for the next one (best of a sweep held by 73 %, pooled by 77 %).
                quantiles[(task, False)] = calibration.table(errors[by][k][good], unseen, found[k].weight[good])
                expected[(by, k)] = np.full(good.size, np.nan)
                expected[(by, k)][good] = unseen
    return forest, calibration.Calibration(quantiles=quantiles), expected



def _held_out_figures(found: dict[str, Table], held: dict[str, HeldOut], table: calibration.Calibration, sizes: Sizes) -> dict[str, Any]:
    """What the folds of the calibration say of the model: errors, coverage and diagnosis on models and GPUs left out."""
    out: dict[str, Any] = {}
    for by, predicted in held.items():
        seen = by == "model"
        figures: dict[str, Any] = {}
        for kind, t in found.items():
            good = np.isfinite(predicted.log_us[kind])
            if not good.any():
                continue
            us, measured, weight, size = np.exp(predicted.log_us[kind][good]), t.latency_us[good], t.weight[good], sizes[(by, kind)][good]
            task = of_served_gpu(kind) if by == "sweep" else kind
            low, high = (us * np.exp(size * table.quantile(task, seen, level)) for level in (0.1, 0.9))
            gpu = [g for g, g_ok in zip(t.gpu, good, strict=True) if g_ok]
            figures[kind] = quality.errors(measured, us, weight) | {
                "coverage_percent": quality.coverage(measured, low, high, weight),
                "per_gpu": quality.by(gpu, lambda m, p, w, lo, hi: quality.errors(m, p, w) | {
                    "coverage_percent": quality.coverage(m, lo, hi, w)}, measured, us, weight, low, high),
            }  # fmt: skip
            if kind == "best" and t.paired_us is not None:
                paired = t.paired_us[good]
                known = np.isfinite(paired)
                if known.any():
                    room = np.log(paired[known]) - np.log(quality.WIN) - np.log(us[known])
                    p = table.share_below(task, seen, room / size[known])
                    label = paired[known] / measured[known] >= quality.WIN
                    figures["diagnosis"] = quality.diagnosis(p, label) | {
                        "per_gpu": quality.by(np.array(gpu)[known].tolist(), quality.diagnosis, p, label),
                    }  # fmt: skip
        out[by] = figures
    return out
