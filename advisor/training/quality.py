"""Figures of merit: errors, coverage, hits of a ranking, and how well "10 % can be won" is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.pipelines import Array

HIT_RANKS = (1, 3, 5, 8, 20)
WIN = 1.10
BINS = 10


def errors(measured_us: Array, predicted_us: Array, weight: Array | None = None) -> dict[str, float]:
    """Mean and median absolute percentage error, and bias (mean of log(predicted / measured), percent)."""
    relative = np.abs(predicted_us / measured_us - 1)
    log = np.log(predicted_us / measured_us)
    return {
        "mape_percent": 100 * float(np.average(relative, weights=weight)),
        "median_percent": 100 * float(np.median(relative)),
        "bias_percent": 100 * float(np.average(log, weights=weight)),
        "rows": int(measured_us.size),
    }


def coverage(measured_us: Array, low_us: Array, high_us: Array, weight: Array | None = None) -> float:
    """Share of measurements within their interval, percent."""
    return 100 * float(np.average((measured_us >= low_us) & (measured_us <= high_us), weights=weight))


def area_under_curve(score: Array, label: NDArray[np.bool_]) -> float:
    """Probability that a positive scores above a negative; ties count half. NaN where one class is missing."""
    positive, negative = int(label.sum()), int((~label).sum())
    if not positive or not negative:
        return float("nan")
    _, inverse, count = np.unique(score, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    rank = (last - (count - 1) / 2)[inverse]
    return float((rank[label].sum() - positive * (positive + 1) / 2) / (positive * negative))


def diagnosis(probability: Array, label: NDArray[np.bool_]) -> dict[str, float]:
    """AUC, precision, recall at one half, and the expected calibration error over ten bins."""
    flag = probability >= 0.5
    edges = np.minimum((probability * BINS).astype(int), BINS - 1)
    calibration = sum(
        abs(probability[edges == b].mean() - label[edges == b].mean()) * (edges == b).mean() for b in range(BINS) if (edges == b).any()
    )
    return {
        "auc": area_under_curve(probability, label),
        "precision": float(label[flag].mean()) if flag.any() else float("nan"),
        "recall": float(flag[label].mean()) if label.any() else float("nan"),
        "calibration_error": float(calibration),
        "positives": float(label.mean()),
        "rows": int(label.size),
    }


def hits(places: Sequence[int | None]) -> dict[str, float]:
    """Share of problems, percent, whose first near-optimal configuration is among the first k; None: not ranked at all."""
    first = np.array([np.inf if p is None else p for p in places], dtype=float)
    return {f"hit_at_{k}_percent": 100 * float((first < k).mean()) for k in HIT_RANKS} | {"problems": len(places)}


def by(labels: Sequence[object], figure: Any, *columns: NDArray[Any]) -> dict[str, Any]:
    """`figure(*columns)` for the rows of each label."""
    values = np.array([str(label) for label in labels])
    return {name: figure(*(c[values == name] for c in columns)) for name in sorted(set(values.tolist()))}


NEAREST = 4


def nearest(known: Array, reached: Array, queries: Array) -> Array:
    """What is expected of the sizes asked [m, d] by the nearest of those known [n, d] and what they reached [n]: its mean by inverse
    distance, [m]. So the publisher of the silicon tables predicts."""
    from scipy.spatial import KDTree

    distance, near = KDTree(known).query(queries, NEAREST)
    weight = 1 / np.maximum(distance, 1e-6)
    return (weight * reached[near]).sum(axis=1) / weight.sum(axis=1)


def side_by_side(gpu: NDArray[Any], errors: Mapping[str, Array]) -> dict[str, dict[str, float]]:
    """By GPU: mean absolute errors in percent of each column of log(predicted / measured) over the rows [n] in which it is known, and how
    many rows these are of the first column."""
    figures: dict[str, dict[str, float]] = {}
    for name in np.unique(gpu).tolist():
        known = {key: error[(gpu == name) & np.isfinite(error)] for key, error in errors.items()}
        percent = {key: 100 * float(np.abs(np.expm1(error)).mean()) for key, error in known.items() if error.size}
        figures[name] = {"rows": next(iter(known.values())).size, **percent}
    return figures
