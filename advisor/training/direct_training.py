"""Fitting the models of library kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from advisor.learned import calibration
from advisor.learned.calibration import Calibration
from advisor.learned.library import direct, tiled
from advisor.learned.library.direct import DirectModel, Streaming
from advisor.learned.library.tiled import Physics
from advisor.learned.machine import machine
from advisor.pipelines import Array
from advisor.system import grouped
from advisor.training import quality
from advisor.training.data import Measured, leave_out
from advisor.training.grow import grow

GEMM: dict[str, Any] = {
    "loss": "squared_error",
    "max_iter": 1400,
    "max_leaf_nodes": 16,
    "min_samples_leaf": 5,
    "learning_rate": 0.08,
    "max_features": 0.5,
}
ROWS: dict[str, Any] = {"loss": "absolute_error", "max_iter": 300, "max_leaf_nodes": 16, "min_samples_leaf": 5}
SEEDS = {"gemm/fp8": 3}
"""Forests to average: fp8 gemm repeats to a few tenths of a per cent, which one forest does not reach (1.04 % against 0.9 %)."""

SHAPE_FOLDS = 3
GPU_FOLDS = 5


def groups(data: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Measured library kernels by `direct.kind_of`. A cold cache is not learned: what it adds the analytical model says."""
    out = grouped(
        (direct.kind_of(part.problem), part)
        for part in data
        if direct.covers(part.problem, part.configuration) and part.problem.cache == "warm"
    )
    return out


def fit(kind: str, parts: Sequence[Measured], progress: Callable[[str], None]) -> DirectModel:
    """One kind's model, calibrated on shapes and GPUs left out."""
    progress(f"fitting {kind}")
    physics = _physics(kind, parts)
    x, y, gpus, shapes = columns(parts, physics)
    options = GEMM if kind.startswith("gemm") else ROWS
    # Folds judge the size of errors; a third of the trees tells it nearly as well.
    short = options | {"max_iter": max(int(options["max_iter"]) // 3, 100)}
    errors = {"shape": np.full(y.size, np.nan), "gpu": np.full(y.size, np.nan)}
    unseen = x.copy()  # features as a model sees them that does not know the GPU
    for _, out in leave_out([s % SHAPE_FOLDS for s in shapes], SHAPE_FOLDS):
        errors["shape"][out] = y[out] - grow(x[~out], y[~out], **short)(x[out])
    for names, out in leave_out(gpus, GPU_FOLDS):
        other = _physics(kind, [p for p in parts if p.gpu.name not in names])
        x_other, y_other, _, _ = columns(parts, other)
        unseen[out], errors["gpu"][out] = x_other[out], y_other[out]
    target = np.log(np.abs(np.nan_to_num(errors["shape"])) + 0.003)
    size: dict[str, Any] = {"loss": "squared_error", "max_iter": 80, "min_samples_leaf": 40}
    half = np.array(shapes) % 2 == 0
    crossed = np.empty(y.size)
    for mask in (half, ~half):
        crossed[mask] = grow(x[~mask], target[~mask], **size)(x[mask]) if mask.any() and (~mask).any() else target.mean()
    forest = grow(x, target, **size)
    quantiles = {(kind, True): calibration.table(errors["shape"], np.maximum(np.exp(crossed), calibration.SMALLEST_SCALE))}
    if np.isfinite(errors["gpu"]).any():
        quantiles[(kind, False)] = calibration.table(errors["gpu"], calibration.scale(forest, unseen))
    return DirectModel(
        kind=kind,
        correction=grow(x, y, seeds=SEEDS.get(kind, 1), **options),
        scale=forest,
        calibration=Calibration(quantiles=quantiles),
        low=x.min(axis=0),
        high=x.max(axis=0),
        gpus=tuple(sorted(set(gpus))),
        held_out=_figures(errors, gpus),
        physics=physics,
    )


def _figures(errors: dict[str, Array], gpus: list[str]) -> dict[str, Any]:
    """Mean absolute percentage errors on shapes and on GPUs left out, in all and per GPU."""
    out: dict[str, Any] = {}
    for by, error in errors.items():
        good = np.isfinite(error)
        if good.any():
            relative = 100 * np.abs(np.expm1(-error[good]))
            names = [g for g, ok in zip(gpus, good, strict=True) if ok]
            out[by] = {"mape_percent": float(relative.mean()), "per_gpu": quality.by(names, lambda e: float(e.mean()), relative)}
    return out


def _physics(kind: str, parts: Sequence[Measured]) -> Physics | Streaming:
    """The fitted reference of a kind."""
    rows = [(p.problem, machine(p.gpu, p.problem.dtype), p.latency_us) for p in parts]
    return tiled.fit(rows) if kind.startswith("gemm") else direct.fit(rows)


def columns(parts: Sequence[Measured], physics: Physics | Streaming) -> tuple[Array, Array, list[str], list[int]]:
    """Features, log(latency / reference), GPU names, and a number per distinct shape that is stable between runs."""
    features, target, gpus, shapes = [], [], [], []
    for part in parts:
        us, x = direct.reference(part.problem, machine(part.gpu, part.problem.dtype), physics)
        features.append(x)
        target.append(np.log(part.latency_us / us))
        gpus += [part.gpu.name] * len(part)
        sizes = np.stack(np.broadcast_arrays(*part.problem.sizes.values()), axis=1).astype(np.int64)
        shapes += (sizes * np.array([2_654_435_761, 40_503, 97, 7][: sizes.shape[1]]) % 1_000_003).sum(axis=1).tolist()
    return np.concatenate(features), np.concatenate(target), gpus, shapes
