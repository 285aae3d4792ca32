"""How well library kernels are predicted whose shapes, or whose GPU, were left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from advisor.gpus.hardware import load_gpu
from advisor.learned import own_predictor, own_rows
from advisor.learned.library.kernels import LibraryModel
from advisor.training import quality
from advisor.training.library_kernels import fitting
from advisor.training.library_kernels.fitting import Measured, bound_us, fit, read

SHARE = 5
"""One in so many weight matrices or layouts of heads is left out."""

MOST_JUDGED = 3_000
"""Rows of a file that are judged, drawn at random."""


def judge(
    paths: Iterable[Path | str],
    gpus: Sequence[str] | None = None,
    leave_out: Sequence[str] = ("shape", "gpu"),
    progress: Callable[[str], None] = lambda text: None,
    given: Sequence[int] = (),
) -> dict[str, Any]:
    """Figures by split: "shapes left out", "newest versions left out", "no H200" and so on, and "no H200, 50 rows given".

    Args:
        paths: Folders of `silicon_training`.
        gpus: Names of the GPUs to leave out one by one; None: all that were measured.
        leave_out: Which splits.
        progress: Told what is being done.
        given: Of a GPU left out, how many rows of each stack's newest kernels the model is corrected by before the rest is judged.
    """
    parts = read(paths, None, progress) if {"shape", "gpu", "version"} & set(leave_out) else []
    out: dict[str, Any] = {}
    if parts and "shape" in leave_out:
        progress("shapes left out")
        kept = [part.take(np.flatnonzero(part.group // 11 % SHARE != 0)) for part in parts]
        gone = [part.take(np.flatnonzero(part.group // 11 % SHARE == 0)) for part in parts]
        out["shapes left out"] = figures = _figures(fit(kept, progress), gone)
        for kind, percent in nearest_shapes(kept, gone).items():
            figures[kind]["words"] = f"the nearest shapes measured: {percent:.1f} %"
    if parts and "version" in leave_out:
        progress("newest versions left out")
        versions: dict[tuple[str, ...], set[tuple[int, ...]]] = {}
        for part in parts:
            versions.setdefault((part.kind, *part.series[:2]), set()).add(part.series.newness)
        of = [versions[(part.kind, *part.series[:2])] for part in parts]
        newest = [len(known) > 1 and part.series.newness == max(known) for part, known in zip(parts, of, strict=True)]
        kept, gone = ([part for part, its in zip(parts, newest, strict=True) if its == which] for which in (False, True))
        out["newest versions left out"] = _figures(fit(kept, progress, quick=True), gone)
    names = gpus if gpus is not None else list(dict.fromkeys(part.series.gpu for part in parts))
    for name in names if "gpu" in leave_out else ():
        progress(f"{name} left out")
        kinds = {part.kind for part in parts if part.series.gpu == name}
        kept = [part for part in parts if part.series.gpu != name and part.kind in kinds]
        gone, models = [part for part in parts if part.series.gpu == name], fit(kept, progress, quick=True)
        out[f"no {name}"] = _figures(models, gone)
        out |= {f"no {name}, {count} rows given": _figures(models, _newest(gone), count) for count in given}
    return out


def nearest_shapes(kept: Sequence[Measured], gone: Sequence[Measured]) -> dict[str, float]:
    """Errors in percent by kind, of rows of `gone` that reach as much of their bound as the nearest in `kept` of the same series."""
    errors: dict[str, list[np.ndarray]] = {}
    for known, part in zip(kept, gone, strict=True):
        if min(len(known.latency_us), len(part.latency_us)) < quality.NEAREST:
            continue
        part = part.take(_judged(part))
        at, of = ([np.log1p(np.broadcast_to(v, p.latency_us.shape)) for v in p.problem.sizes.values()] for p in (part, known))
        reached = quality.nearest(np.stack(of, axis=1), np.log(known.latency_us / bound_us(known)), np.stack(at, axis=1))
        errors.setdefault(part.kind, []).append(np.expm1(reached + np.log(bound_us(part) / part.latency_us)))
    return {kind: float(100 * np.abs(np.concatenate(distances)).mean()) for kind, distances in errors.items()}


def _judged(part: Measured, given: int = 0) -> np.ndarray:
    """Rows at random: first those given, then those judged."""
    return np.random.default_rng(0).permutation(part.latency_us.size)[: given + MOST_JUDGED]


def _newest(parts: Sequence[Measured]) -> list[Measured]:
    """Of each kernel of each stack the newest version."""
    newest: dict[tuple[str, ...], Measured] = {}
    for part in sorted(parts, key=lambda part: part.series.newness):
        newest[(part.kind, part.series.stack, *part.series[3:])] = part
    return list(newest.values())


def _figures(models: Sequence[LibraryModel], parts: Sequence[Measured], given: int = 0) -> dict[str, Any]:
    """Errors in percent, and the share within 80 % intervals, by kind; and within it by GPU, types and implementation."""
    out: dict[str, Any] = {}
    for model in models:
        judged = [(part, *_errors(model, part, given)) for part in parts if part.kind == model.kind and len(part.latency_us) > given]
        if not judged:
            continue
        labels = {
            "per_gpu": [part.series.gpu for part, *_ in judged],
            "per_type": [f"{part.problem.dtype}, KV {part.problem.weight_dtype or part.problem.dtype}" for part, *_ in judged],
            "per_implementation": [part.series.implementation for part, *_ in judged],
        }
        out[model.kind] = _summed(judged) | {
            name: {label: _summed([f for f, origin in zip(judged, of, strict=True) if origin == label]) for label in dict.fromkeys(of)}
            for name, of in labels.items()
        }
    return out


def _errors(model: LibraryModel, part: Measured, given: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of some rows: log(predicted / measured), whether the interval holds them, whether they are below the bound; the first `given` are not
    judged, but known."""
    part, gpu = part.take(_judged(part, given)), load_gpu(part.series.gpu)
    problem = fitting.problem_of(part)
    prediction, _ = model.predict(problem, gpu)
    bound = bound_us(part)
    if given:
        matrix = own_predictor.features(problem, gpu, prediction[0])
        rows = own_rows.of_rows(matrix[:given], np.log(part.latency_us[:given] / prediction[0][:given]))
        prediction = rows.corrected(matrix, *prediction)
    us, low, high, measured = (item[given:] for item in (*prediction, part.latency_us))
    return np.log(us / measured), (low <= measured) & (measured <= high), measured < bound[given:]


def _summed(judged: Sequence[tuple[Any, np.ndarray, np.ndarray, np.ndarray]]) -> dict[str, float]:
    return summed(*(np.concatenate([item[i] for item in judged]) for i in (1, 2, 3)))


def summed(error: np.ndarray, held: np.ndarray | None, below: np.ndarray) -> dict[str, float]:
    """Figures of rows: log(predicted / measured), whether the interval holds them (None: not asked), whether they are below the bound."""
    relative = 100 * np.abs(np.expm1(error))
    return {
        "rows": int(error.size),
        "mape_percent": float(relative.mean()),
        "median_percent": float(np.median(relative)),
        "bias_percent": float(100 * error.mean()),
        "bound_violations": int(below.sum()),
    } | ({} if held is None else {"coverage_percent": float(100 * held.mean())})
