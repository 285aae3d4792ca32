"""`advisor train`: measured rows in, weights out, those of library kernels among them. The same rows give the same bits on the same
machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from advisor.learned import calibration
from advisor.learned.calibration import Calibration
from advisor.learned.library import direct, tiled
from advisor.learned.library.direct import DirectModel, Streaming
from advisor.learned.library.tiled import Physics
from advisor.learned.machine import machine
from advisor.learned.moe.model import covers
from advisor.learned.weights import Weights
from advisor.pipelines import Array
from advisor.system import grouped
from advisor.system.errors import InputError
from advisor.training import configured_training, data, dejavu, moe_training, quality, silicon
from advisor.training.data import Measured, Model, leave_out
from advisor.training.grow import grow

FITTED_BY = ("numpy", "scikit-learn", "lightgbm", "torch")
"""Distributions whose version the weights may depend on; without sweeps the last two are not needed."""

LEAST_ROWS = 200
"""Kinds of library kernels with fewer rows are not learned."""


def train(
    paths: Iterable[Path | str],
    *,
    exclude_gpus: Sequence[str] = (),
    exclude_models: Sequence[Model] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> Weights:
    """Fit everything that the rows allow.

    Args:
        paths: CSV files, or folders with some, in the layouts of the published data; folders of `silicon`; folders of `dejavu`,
            with which configured launches are learned, from this project's own measurements too.
        exclude_gpus: GPUs to leave out entirely.
        exclude_models: MoE models (E, topk, H, N) to leave out entirely.
        progress: Told what is being done.

    Raises:
        InputError: There are no measured rows, or too few of every kind.
    """
    given = list(paths)
    layouts = [path for path in given if silicon.is_layout(path)]
    sweeps = [path for path in given if path not in layouts and dejavu.is_layout(path)]
    paths = [path for path in given if path not in layouts and path not in sweeps]
    of_layouts = silicon.train(layouts, exclude_gpus, exclude_models, progress) if layouts else {}
    if not paths:
        origin = {"files": sorted(Path(path).name for path in layouts), "excluded_gpus": sorted(exclude_gpus), "versions": _versions()}
        return Weights(moe=None, direct={}, about=origin, silicon=of_layouts)
    measured = data.read(paths, exclude_gpus=exclude_gpus, exclude_models=exclude_models, progress=progress)
    learned = [part for part in measured if covers(part.problem) or library_groups([part])]
    described = about(learned, exclude_gpus, exclude_models)
    fitted = replace(fit(learned, described, progress), silicon=of_layouts)
    if sweeps:
        fitted = replace(fitted, configured=configured_training.fit(sweeps, exclude_gpus, exclude_models, progress))
    if fitted.moe is None and not fitted.direct:
        counted = ", ".join(f"{n} of {kind}" for kind, n in described["rows"].items())
        raise InputError(
            "too few rows to learn from",
            f"{sum(map(len, measured))} rows, of which are learned: {counted or 'none'}",
            f"launches of fused MoE in bf16 or fp16, or at least {LEAST_ROWS} of a library kernel, with a warm cache",
            "measure more",
        )
    return fitted


def fit(
    measured: Sequence[Measured],
    described: dict[str, Any],
    progress: Callable[[str], None] = lambda text: None,
    calibrate_by: Sequence[str] = ("model", "gpu", "sweep"),
) -> Weights:
    """Weights from rows that are read already; `calibrate_by` as in `moe_training.fit`."""
    moe = [m for m in measured if covers(m.problem)]
    kinds = library_groups(measured)
    return Weights(
        moe=moe_training.fit(moe, progress, calibrate_by) if moe else None,
        direct={k: fit_library(k, p, progress) for k, p in sorted(kinds.items()) if sum(map(len, p)) >= LEAST_ROWS},
        about=described,
    )


def about(measured: Sequence[Measured], exclude_gpus: Sequence[str], exclude_models: Sequence[Model]) -> dict[str, Any]:
    """Facts of the training as JSON values: rows, GPUs, models, files, versions."""
    rows: dict[str, int] = {}
    for part in measured:
        kind = part.kind if part.problem.family == "fused_moe" else f"{part.problem.family}/{part.problem.dtype}"
        rows[kind] = rows.get(kind, 0) + len(part)
    models = sorted({m for part in measured for m in part.models()})
    return {
        "rows": rows,
        "gpus": sorted({p.gpu.name for p in measured}),
        "models": [list(m) for m in models],
        "files": sorted({p.source for p in measured}),
        "excluded_gpus": sorted(exclude_gpus),
        "excluded_models": sorted(list(m) for m in exclude_models),
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in FITTED_BY:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


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


def library_groups(data: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Measured library kernels by `direct.kind_of`. A cold cache is not learned: what it adds the analytical model says."""
    out = grouped(
        (direct.kind_of(part.problem), part)
        for part in data
        if direct.covers(part.problem, part.configuration) and part.problem.cache == "warm"
    )
    return out


def fit_library(kind: str, parts: Sequence[Measured], progress: Callable[[str], None]) -> DirectModel:
    """One kind's model, calibrated on shapes and GPUs left out."""
    progress(f"fitting {kind}")
    physics = _physics(kind, parts)
    x, y, gpus, shapes = library_columns(parts, physics)
    options = GEMM if kind.startswith("gemm") else ROWS
    # Folds judge the size of errors; a third of the trees tells it nearly as well.
    short = options | {"max_iter": max(int(options["max_iter"]) // 3, 100)}
    errors = {"shape": np.full(y.size, np.nan), "gpu": np.full(y.size, np.nan)}
    unseen = x.copy()  # features as a model sees them that does not know the GPU
    for _, out in leave_out([s % SHAPE_FOLDS for s in shapes], SHAPE_FOLDS):
        errors["shape"][out] = y[out] - grow(x[~out], y[~out], **short)(x[out])
    for names, out in leave_out(gpus, GPU_FOLDS):
        other = _physics(kind, [p for p in parts if p.gpu.name not in names])
        x_other, y_other, _, _ = library_columns(parts, other)
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


def library_columns(parts: Sequence[Measured], physics: Physics | Streaming) -> tuple[Array, Array, list[str], list[int]]:
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
