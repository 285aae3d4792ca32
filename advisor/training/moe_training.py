"""Fitting the learned model of fused-MoE launches, and its intervals and figures from predictions of rows that their fold did not know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned import calibration
from advisor.learned.calibration import Calibration
from advisor.learned.forest import Forest
from advisor.learned.moe import corrections, moe_physics
from advisor.learned.moe.corrections import GpuCorrections
from advisor.learned.moe.launch import Launch, concatenate
from advisor.learned.moe.model import Core, MoeModel, domain_of, of_served_gpu
from advisor.learned.moe.ranking_features import BEST, EXACT, SERVED
from advisor.pipelines import Array
from advisor.system.errors import InputError
from advisor.training import quality
from advisor.training.data import CALIBRATION_FOLDS, GPU_FOLDS, SCALE_FOLDS, Measured, leave_out
from advisor.training.grow import grow
from advisor.training.moe_tables import Table, tables, thin, winning_configurations
from advisor.training.rank_training import fit_ranker

SOURCES = {"served": SERVED, "exact": EXACT, "best": BEST}
GROWTH: dict[str, Any] = {"max_iter": 400, "learning_rate": 0.05, "max_features": 0.3}
OWN_GROWTH: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "exact": (("exact",), {"max_iter": 240, "learning_rate": 0.07, "min_samples_leaf": 15}),
    "sweeps": (("exact", "best"), {}),
    "best": (("best",), {"min_samples_leaf": 6}),
}
"""Kinds of rows and options of the forests of sweeps. Few trees, so that 2,000 configurations take less than ten milliseconds."""

Progress = Callable[[str], None]


def fit_core(by_source: dict[str, Table], keep: dict[str, NDArray[np.bool_]], winners: Array, **options: Any) -> Core:
    """Physics and forests from the kept rows of every kind; `options` of `grow.grow`."""
    keep = {k: thin(by_source[k], mask) if k == "exact" else mask for k, mask in keep.items()}
    solid: list[str] = [k for k in ("served", "exact") if k in by_source and keep[k].any()]
    launches: dict[str, Launch] = {k: by_source[k].launches(np.zeros(0), np.flatnonzero(keep[k])) for k in solid}
    physics = moe_physics.fit(
        concatenate([launches[k] for k in solid]),
        np.concatenate([by_source[k].latency_us[keep[k]] for k in solid]),
        np.concatenate([by_source[k].weight[keep[k]] for k in solid]),
    )
    if "best" in by_source and keep["best"].any():
        launches["best"] = by_source["best"].launches(physics, np.flatnonzero(keep["best"]))
    x: dict[str, Array] = {}
    y: dict[str, Array] = {}
    nothing = Core(
        physics=physics,
        common=_zero(),
        exact=None,
        sweeps=None,
        best=None,
        winners=winners,
        corrections=_gpu_corrections(by_source, keep, launches, physics),
    )
    for kind, launch in launches.items():
        estimate = nothing.estimate(launch, SOURCES[kind])
        x[kind], y[kind] = estimate.features, np.log(by_source[kind].latency_us[keep[kind]]) - estimate.log_us
    weight = {k: by_source[k].weight[keep[k]] * (2.0 if k == "best" else 1.0) for k in x}

    def forest(kinds: Sequence[str], **mine: Any) -> Forest | None:
        some = [k for k in kinds if k in x]
        return grow(*(np.concatenate([part[k] for k in some]) for part in (x, y, weight)), **(options | mine)) if some else None

    forests = {name: forest(kinds, **mine) for name, (kinds, mine) in OWN_GROWTH.items()}
    common = forest(tuple(x))
    assert common is not None
    return Core(physics=physics, common=common, **forests, winners=winners, corrections=nothing.corrections)


def _gpu_corrections(
    by_source: dict[str, Table], keep: dict[str, NDArray[np.bool_]], launches: dict[str, Launch], physics: Array
) -> GpuCorrections:
    """Corrections of single GPUs from their launches as served."""
    if "served" not in launches:
        return corrections.NONE
    served, kept = launches["served"], keep["served"]
    us, stack = moe_physics.terms(served, physics)
    swept = corrections.machines_of(launches["exact"]) if "exact" in launches else np.zeros((0, 2))
    return corrections.fit(served, np.log(by_source["served"].latency_us[kept] / us), stack, by_source["served"].weight[kept], swept)


def _zero() -> Forest:
    """A forest that adds nothing."""
    return Forest(
        feature=np.zeros((1, 15), np.uint8),
        code=np.full((1, 15), 255, np.uint8),
        ruled_out=np.zeros((1, 15), np.uint16),
        leaf=np.zeros((1, 16), np.float32),
        edges=(np.zeros(0, np.float32),),
        base=0.0,
    )


def hold_out(by_source: dict[str, Table], winners: Array, by: str, progress: Progress) -> HeldOut:
    """Predict every row from the folds that leave out its model (`by` "model"), its GPU ("gpu"), or its GPU's sweeps ("sweep")."""
    if by == "sweep":
        labels = {k: [""] * len(t.gpu) if k == "served" else t.gpu for k, t in by_source.items()}
    else:
        labels = {k: getattr(t, by) for k, t in by_source.items()}
    names = sorted({label for of_kind in labels.values() for label in of_kind if label}, key=str)
    log_us = {k: np.full(t.latency_us.size, np.nan) for k, t in by_source.items()}
    features: dict[str, Array] = {}
    blocks: dict[str, Array] = {}
    # Few GPUs were swept: a fold without two of them would know far less than the final fit does without one.
    swept = {g for kind, t in by_source.items() if kind != "served" for g in t.gpu} if by != "model" else set()
    for out, _ in leave_out(names, CALIBRATION_FOLDS if by == "model" else GPU_FOLDS, swept):
        progress(f"leaving out {by}s {', '.join(map(str, out))}")
        chosen = set(out)
        gone = {k: np.array([label in chosen for label in of_kind], dtype=bool) for k, of_kind in labels.items()}
        core = fit_core(by_source, {k: ~mask for k, mask in gone.items()}, winners, **GROWTH)
        for kind, mask in gone.items():
            if not mask.any():
                continue
            launch = by_source[kind].launches(core.physics, np.flatnonzero(mask))
            estimate = core.estimate(launch, SOURCES[kind])
            log_us[kind][mask] = estimate.log_us
            features.setdefault(kind, np.full((mask.size, estimate.features.shape[1]), np.nan))[mask] = estimate.features
            blocks.setdefault(kind, np.full((mask.size, 3), np.nan))[mask] = corrections.blocks(launch)
    return HeldOut(log_us=log_us, features=features, blocks=blocks)


def fit(data: Sequence[Measured], progress: Progress, calibrate_by: Sequence[str] = ("model", "gpu", "sweep")) -> MoeModel | None:
    """The whole model, or None where no fused-MoE rows are there.

    `calibrate_by` names the groups to leave out for the intervals (`hold_out`); "model" has to be among them, the others may be spared
    where only GPUs of the training rows matter.
    """
    by_source = tables(data)
    if "served" not in by_source and "exact" not in by_source:
        return None
    winners = winning_configurations([m for m in data if m.kind == "exact"], [m for m in data if m.kind == "best"])
    progress("fitting the fused-MoE model")
    everything = {k: np.ones(t.latency_us.size, dtype=bool) for k, t in by_source.items()}
    core = fit_core(by_source, everything, winners, **GROWTH)
    progress("fitting the order of configurations")  # before the folds, which take longest: it needs what may not be installed
    ranker = fit_ranker(data, core)
    held = {by: hold_out(by_source, winners, by, progress) for by in calibrate_by}
    calibrated = calibrate(by_source, held)
    solid = concatenate([t.launch for t in by_source.values() if t.launch is not None])
    return MoeModel(
        core=core,
        ranker=ranker,
        scale=calibrated.scale,
        calibration=calibrated.calibration,
        shares=calibrated.shares,
        domain=domain_of(solid),
        gpus={k: tuple(sorted({str(g) for g in t.gpu})) for k, t in by_source.items()},
        held_out=calibrated.figures,
    )


SCALE: dict[str, Any] = {"loss": "squared_error", "max_iter": 80, "learning_rate": 0.1, "max_leaf_nodes": 8, "min_samples_leaf": 40}
"""Options of the forest of expected error sizes."""

Sizes = dict[tuple[str, str], Array]  # (by, kind) -> expected size of the error of every row


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Predictions of rows that their fold did not know, per kind, NaN where none was made.

    Attributes:
        log_us: Log latency, [n].
        features: Features of the scale, [n, f].
        blocks: `corrections.blocks` of the launches, [n, 3].
    """

    log_us: dict[str, Array]
    features: dict[str, Array]
    blocks: dict[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """The model's errors on held-out rows, and what follows for its intervals.

    Attributes:
        scale: Forest of expected error sizes.
        calibration: Quantiles of errors over them.
        shares: Of the error of a measured launch, what the best of its space has too (`corrections`),
            by name and whether the GPU was seen.
        figures: Errors, coverage and diagnosis on models and GPUs left out, as JSON values.
    """

    scale: Forest
    calibration: Calibration
    shares: Mapping[tuple[str, bool], float]
    figures: Mapping[str, Any] = field(default_factory=dict)


def calibrate(tables: Mapping[str, Table], held: Mapping[str, HeldOut]) -> Calibrated:
    """Calibrate on predictions that left out models ("model"; has to be there), GPUs ("gpu") and GPUs' sweeps ("sweep").

    Raises:
        ValueError: No row has a prediction: there are rows of one model only.
    """
    errors = {by: {k: np.log(t.latency_us) - h.log_us[k] for k, t in tables.items()} for by, h in held.items()}
    scale, sizes = _sizes(tables, held, errors)
    quantiles: dict[tuple[str, bool], Array] = {}
    of_gpu: dict[tuple[str, str], Array] = {}
    shares: dict[tuple[str, bool], float] = {}
    signals: dict[tuple[str, str], Array] = {}
    for (by, kind), size in sizes.items():
        rows, task, seen = tables[kind], of_served_gpu(kind) if by == "sweep" else kind, by == "model"
        error, good = errors[by][kind], np.isfinite(size)
        quantiles[(task, seen)] = _quantiles(rows, error, size, good, seen)
        of_gpu |= _of_gpus(task, rows, error, size, good) if seen else {}
        for source, signal in (_signals(tables, held[by]) if kind == "best" else {}).items():
            known = good & np.isfinite(signal)
            if known.any():
                name = corrections.given(task, source)
                on_seen = None if seen else shares.get((corrections.given(kind, source), True), 0.0)
                shares[(name, seen)] = _share(rows, error, signal, size, known, on_seen)
                left = error - shares[(name, seen)] * signal
                quantiles[(name, seen)] = _quantiles(rows, left, size, known, seen)
                of_gpu |= _of_gpus(name, rows, left, size, known) if seen else {}
                signals[(by, source)] = signal
    calibrated = Calibrated(scale=scale, calibration=Calibration(quantiles=quantiles, of_gpu=of_gpu), shares=shares)
    figures = {by: _figures(tables, held[by], by, calibrated, sizes, signals) for by in held}
    return replace(calibrated, figures=figures)


def _sizes(tables: Mapping[str, Table], held: Mapping[str, HeldOut], errors: Mapping[str, Mapping[str, Array]]) -> tuple[Forest, Sizes]:
    """The forest of expected error sizes, and the sizes of all rows held out; NaN for the others."""
    kinds = [k for k in tables if np.isfinite(errors["model"][k]).any()]
    if not kinds:
        raise InputError(
            "too few models to calibrate the fused-MoE model on", "one", "rows of at least two (E, topk, H, N)", "measure more"
        )
    ok = {k: np.isfinite(errors["model"][k]) for k in kinds}
    x = np.concatenate([held["model"].features[k][ok[k]] for k in kinds])
    y = np.concatenate([np.log(np.abs(errors["model"][k][ok[k]]) + 0.003) for k in kinds])
    weight = np.concatenate([tables[k].weight[ok[k]] for k in kinds])
    model = [m for k in kinds for m, good in zip(tables[k].model, ok[k], strict=True) if good]
    # Cross-fit: sizes of errors are judged by a forest that did not see them.
    crossed = np.full(y.size, np.nan)
    for _, out in leave_out(model, SCALE_FOLDS):
        crossed[out] = grow(x[~out], y[~out], weight[~out], **SCALE)(x[out])
    scale = grow(x, y, weight, **SCALE)
    size = np.maximum(np.exp(np.where(np.isfinite(crossed), crossed, y)), calibration.SMALLEST_SCALE)
    expected: Sizes = {}
    for k, part in zip(kinds, np.split(size, np.cumsum([ok[k].sum() for k in kinds])[:-1]), strict=True):
        expected[("model", k)] = _placed(part, ok[k])
        for by in held:
            good = np.isfinite(errors[by][k])
            if by != "model" and good.any():
                expected[(by, k)] = _placed(calibration.scale(scale, held[by].features[k][good]), good)
    return scale, expected


def _placed(values: Array, where: NDArray[np.bool_]) -> Array:
    out = np.full(where.size, np.nan)
    out[where] = values
    return out


def _quantiles(rows: Table, error: Array, size: Array, good: NDArray[np.bool_], seen: bool) -> Array:
    # Of GPUs left out pooled: the typical GPU's errors alone are too small for the next one (best of a sweep held by 73 %, pooled by 77 %).
    group = [m for m, g in zip(rows.model, good, strict=True) if g] if seen else None
    return calibration.table(error[good], size[good], rows.weight[good], group)


def _of_gpus(task: str, rows: Table, error: Array, size: Array, good: NDArray[np.bool_]) -> dict[tuple[str, str], Array]:
    """Quantiles of single GPUs' errors on models left out, by task and name."""
    gpu = np.array(rows.gpu, dtype=object)
    mine = {name: good & (gpu == name) for name in dict.fromkeys(rows.gpus(good))}
    return {
        (task, str(name)): _quantiles(rows, error, size, some, seen=True)
        for name, some in mine.items()
        if some.sum() >= calibration.LEAST_ROWS
    }


def _share(rows: Table, error: Array, signal: Array, size: Array, known: NDArray[np.bool_], seen: float | None) -> float:
    """The share of the rows told of; `seen`: where they are of GPUs left out, the share on GPUs seen."""

    def of(some: NDArray[np.bool_]) -> float:
        return corrections.share(error[some], signal[some], size[some], rows.weight[some])

    if seen is None:
        return of(known)
    gpu = np.array(rows.gpu, dtype=object)
    return corrections.share_unseen([of(known & (gpu == name)) for name in dict.fromkeys(rows.gpus(known))], seen)


def _signals(tables: Mapping[str, Table], held: HeldOut) -> dict[str, Array]:
    """For the best of every sweep, what its measured default says (`corrections.signal`); NaN where nothing is known of the default.

    Once with its configuration, and once as if launched as served: many measurements come without a configuration.
    """
    best, out = tables["best"], dict[str, Array]()
    for source in ("exact", "served"):
        if source not in tables or source not in held.blocks:
            continue
        place = best.paired_with(tables[source])
        log_us = np.where(place >= 0, held.log_us[source][place], np.nan)
        known = np.isfinite(log_us) & np.isfinite(held.log_us["best"])
        row = place[known]
        out[source] = _placed(
            corrections.signal(best.paired_us[known], np.exp(log_us[known]), held.blocks[source][row], held.blocks["best"][known]),
            known,
        )
    return out


def _figures(
    tables: Mapping[str, Table], held: HeldOut, by: str, calibrated: Calibrated, sizes: Sizes, signals: Mapping[tuple[str, str], Array]
) -> dict[str, Any]:
    """Errors and coverage of every kind, and the diagnosis from the measured defaults of sweeps."""
    out: dict[str, Any] = {}
    for (of, kind), size in sizes.items():
        if of != by:
            continue
        rows, good = tables[kind], np.isfinite(size)
        task, seen = of_served_gpu(kind) if by == "sweep" else kind, by == "model"
        us, measured, weight, size = np.exp(held.log_us[kind][good]), rows.latency_us[good], rows.weight[good], size[good]
        gpus = rows.gpus(good)
        low, high = (us * np.exp(size * _levels(calibrated.calibration, task, seen, level, gpus)) for level in (0.1, 0.9))
        out[kind] = quality.errors(measured, us, weight) | {
            "coverage_percent": quality.coverage(measured, low, high, weight),
            "per_gpu": quality.by(
                gpus,
                lambda m, p, w, lo, hi: quality.errors(m, p, w) | {"coverage_percent": quality.coverage(m, lo, hi, w)},
                measured,
                us,
                weight,
                low,
                high,
            ),
        }
        signal = signals.get((by, "exact"))
        if kind == "best" and signal is not None:
            out["diagnosis"] = _diagnosis(
                rows, np.exp(held.log_us["best"]), sizes[(by, "best")], signal, calibrated, corrections.given(task, "exact"), seen
            )
    return out


def _diagnosis(rows: Table, us: Array, size: Array, signal: Array, calibrated: Calibrated, name: str, seen: bool) -> dict[str, Any]:
    known = np.isfinite(signal) & np.isfinite(size)
    room = np.log(rows.paired_us / us / quality.WIN) - calibrated.shares[(name, seen)] * signal
    gpus, scaled = rows.gpus(known), room[known] / size[known]
    p = np.array([calibrated.calibration.share_below(name, seen, item, str(gpu)) for item, gpu in zip(scaled, gpus, strict=True)])
    label = (rows.paired_us / rows.latency_us >= quality.WIN)[known]
    return quality.diagnosis(p, label) | {"per_gpu": quality.by(gpus, quality.diagnosis, p, label)}


def _levels(fitted: Calibration, task: str, seen: bool, level: float, gpus: Sequence[object]) -> Array:
    """The quantile at `level` of every row's GPU, [n]."""
    of = {gpu: fitted.quantile(task, seen, level, str(gpu)) for gpu in set(gpus)}
    return np.array([of[gpu] for gpu in gpus])
