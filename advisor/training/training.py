"""`advisor train`: measured rows in, weights out. The same rows give the same bits on the same machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from advisor.learned.moe.model import covers
from advisor.learned.weights import Weights
from advisor.system.errors import InputError
from advisor.training import configured_training, data, dejavu, direct_training, moe_training
from advisor.training.data import Measured, Model
from advisor.training.silicon import silicon_training

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
        paths: CSV files, or folders with some, in the layouts of the published data; folders of `silicon_training`; folders of `dejavu`,
            with which configured launches are learned, from this project's own measurements too.
        exclude_gpus: GPUs to leave out entirely.
        exclude_models: MoE models (E, topk, H, N) to leave out entirely.
        progress: Told what is being done.

    Raises:
        InputError: There are no measured rows, or too few of every kind.
    """
    given = list(paths)
    layouts = [path for path in given if silicon_training.is_layout(path)]
    sweeps = [path for path in given if path not in layouts and dejavu.is_layout(path)]
    paths = [path for path in given if path not in layouts and path not in sweeps]
    silicon = silicon_training.train(layouts, exclude_gpus, exclude_models, progress) if layouts else {}
    if not paths:
        origin = {"files": sorted(Path(path).name for path in layouts), "excluded_gpus": sorted(exclude_gpus), "versions": _versions()}
        return Weights(moe=None, direct={}, about=origin, silicon=silicon)
    measured = data.read(paths, exclude_gpus=exclude_gpus, exclude_models=exclude_models, progress=progress)
    learned = [part for part in measured if covers(part.problem) or direct_training.groups([part])]
    described = about(learned, exclude_gpus, exclude_models)
    fitted = replace(fit(learned, described, progress), silicon=silicon)
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
    kinds = direct_training.groups(measured)
    return Weights(
        moe=moe_training.fit(moe, progress, calibrate_by) if moe else None,
        direct={k: direct_training.fit(k, p, progress) for k, p in sorted(kinds.items()) if sum(map(len, p)) >= LEAST_ROWS},
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
