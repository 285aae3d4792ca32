"""Fitting the learned model of fused-MoE launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned.forest import Forest
from advisor.learned.moe import corrections, moe_physics
from advisor.learned.moe.corrections import GpuCorrections
from advisor.learned.moe.launch import Launch, concatenate
from advisor.learned.moe.model import Core, MoeModel, domain_of
from advisor.learned.moe.ranking_features import BEST, EXACT, SERVED
from advisor.pipelines import Array
from advisor.training.data import CALIBRATION_FOLDS, GPU_FOLDS, Measured, leave_out
from advisor.training.grow import grow
from advisor.training.moe_calibration import HeldOut, calibrate
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
