"""How well library kernels are predicted whose shapes, or whose GPU, were left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import load_gpu
from advisor.learned.library.kernels import LibraryModel
from advisor.training.library_kernels import fitting
from advisor.training.library_kernels.fitting import Measured, fit, read

SHARE = 5
"""One in so many weight matrices or layouts of heads is left out."""

MOST_JUDGED = 3_000
"""Rows of a file that are judged, drawn at random."""


def judge(
    paths: Iterable[Path | str],
    gpus: Sequence[str] | None = None,
    leave_out: Sequence[str] = ("shape", "gpu"),
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Figures by split: "shapes left out", and "no H200" and so on.

    Args:
        paths: Folders of `silicon_training`.
        gpus: Names of the GPUs to leave out one by one; None: all that were measured.
        leave_out: Which splits.
        progress: Told what is being done.
    """
    parts = read(paths, None, progress)
    out: dict[str, Any] = {}
    if "shape" in leave_out:
        progress("shapes left out")
        kept = [part.take(np.flatnonzero(part.group // 11 % SHARE != 0)) for part in parts]
        gone = [part.take(np.flatnonzero(part.group // 11 % SHARE == 0)) for part in parts]
        out["shapes left out"] = _figures(fit(kept, progress), gone)
    names = gpus if gpus is not None else list(dict.fromkeys(part.series.gpu for part in parts))
    for name in names if "gpu" in leave_out else ():
        progress(f"{name} left out")
        kinds = {part.kind for part in parts if part.series.gpu == name}
        kept = [part for part in parts if part.series.gpu != name and part.kind in kinds]
        out[f"no {name}"] = _figures(fit(kept, progress, quick=True), [part for part in parts if part.series.gpu == name])
    return out


def _figures(models: Sequence[LibraryModel], parts: Sequence[Measured]) -> dict[str, Any]:
    """Errors in percent, and the share within 80 % intervals, by kind; and within it by GPU, types and implementation."""
    out: dict[str, Any] = {}
    for model in models:
        found = [(part, *_errors(model, part)) for part in parts if part.kind == model.kind and len(part.latency_us)]
        if not found:
            continue
        labels = {
            "per_gpu": [part.series.gpu for part, *_ in found],
            "per_type": [f"{part.problem.dtype}, KV {part.problem.weight_dtype or part.problem.dtype}" for part, *_ in found],
            "per_implementation": [part.series.implementation for part, *_ in found],
        }
        out[model.kind] = _summed(found) | {
            name: {label: _summed([f for f, own in zip(found, of, strict=True) if own == label]) for label in dict.fromkeys(of)}
            for name, of in labels.items()
        }
    return out


def _errors(model: LibraryModel, part: Measured) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of some rows: log(predicted / measured), whether the interval holds them, whether they are below the bound."""
    rows = np.random.default_rng(0).permutation(part.latency_us.size)[:MOST_JUDGED]
    part, gpu = part.take(rows), load_gpu(part.series.gpu)
    (us, low, high), _ = model.predict(fitting.asked(part), gpu)
    bound = pipelines.bound(pipelines.work(part.problem, gpu), gpu, "warm").us
    return np.log(us / part.latency_us), (low <= part.latency_us) & (part.latency_us <= high), part.latency_us < bound


def _summed(found: Sequence[tuple[Any, np.ndarray, np.ndarray, np.ndarray]]) -> dict[str, float]:
    return figures(*(np.concatenate([each[i] for each in found]) for i in (1, 2, 3)))


def figures(error: np.ndarray, held: np.ndarray, below: np.ndarray) -> dict[str, float]:
    """Figures of rows: log(predicted / measured), whether the interval holds them, whether they are below the bound."""
    relative = 100 * np.abs(np.expm1(error))
    return {
        "rows": int(error.size),
        "mape_percent": float(relative.mean()),
        "median_percent": float(np.median(relative)),
        "bias_percent": float(100 * error.mean()),
        "coverage_percent": float(100 * held.mean()),
        "bound_violations": int(below.sum()),
    }
