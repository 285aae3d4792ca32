"""Quantiles of errors that hold for models, or pairs of sizes, that nobody measured: groups of rows have their own, drawn toward those of
all rows by how few models they rest on, and stretched until each model's errors lie within what the other models say.

Errors of one model resemble one another, so that quantiles of rows hold too few rows of another model: split-conformal prediction of
exchangeable groups (Dunn, Wasserman and Ramdas, JASA 2023), here with the one factor that holds four of five rows of models left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.learned import calibration
from advisor.pipelines import Array

FIRMNESS = 2.0
"""Models whose errors count as much as those of all rows: a group of so many is half its own."""

LEAST_APART, OF_FEW = 3, 1.2
"""Models from which a stretch is fitted, and the stretch where there are fewer, of which nothing says how far apart they are: quantiles of
one or two models held 70 to 78 of a hundred rows of another, where they were told apart (`ceilings/ATTEMPTS.md`)."""

STRETCHED = (0.75, 3.0)
"""Factors of quantiles, the least and the largest."""

ENDS = (0.1, 0.9)
ALL = ""
"""The group of all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Errors over their expected sizes, the number of the model (or pair of sizes) that each row belongs to, and the name of its group, [n]
    each."""

    scaled: Array
    model: NDArray[np.int64]
    group: NDArray[np.str_]

    def take(self, rows: NDArray[np.bool_]) -> Judged:
        """Some of them."""
        return Judged(scaled=self.scaled[rows], model=self.model[rows], group=self.group[rows])

    def of(self, name: str) -> NDArray[np.bool_]:
        """Where rows are of a group, [n]."""
        return np.full(self.scaled.size, True) if name == ALL else self.group == name


def tables(judged: Judged) -> Mapping[str, Array]:
    """Quantiles at `calibration.LEVELS`, of `ALL` rows and of every group of `calibration.LEAST_ROWS` and more."""
    names, rows = np.unique(judged.group, return_counts=True)
    large = names[rows >= calibration.LEAST_ROWS].tolist()
    return {name: _pooled(judged, name, calibration.LEVELS) * _stretch(judged, name) for name in (ALL, *large)}


def held(judged: Judged, split: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether 80 % intervals hold each row, [n], by the errors of the other splits; of a single split each half of its models by the
    other's."""
    parts = split if np.unique(split).size > 1 else np.unique(judged.model, return_inverse=True)[1] % 2
    inside = np.zeros(judged.scaled.size, dtype=bool)
    for part in np.unique(parts):
        mine = parts == part
        if mine.all():
            continue
        others = tables(judged.take(~mine))
        for name in np.unique(judged.group[mine]).tolist():
            rows = mine & judged.of(name)
            low, high = np.interp(ENDS, calibration.LEVELS, others.get(name, others[ALL]))
            inside[rows] = (min(low, 0.0) <= judged.scaled[rows]) & (judged.scaled[rows] <= max(high, 0.0))
    return inside


def _pooled(judged: Judged, name: str, levels: Sequence[float] | Array) -> Array:
    """Quantiles of a group, drawn toward those of all rows by how few models it has."""
    every, mine = np.asarray(np.quantile(judged.scaled, levels)), judged.of(name)
    if name == ALL or not mine.any():
        return every
    count = np.unique(judged.model[mine]).size
    return np.asarray((count * np.quantile(judged.scaled[mine], levels) + FIRMNESS * every) / (count + FIRMNESS))


def _stretch(judged: Judged, name: str) -> float:
    """The factor with which intervals by the other models' quantiles hold four of five rows of a group."""
    mine = judged.of(name)
    models = np.unique(judged.model[mine]).tolist()
    if len(models) < LEAST_APART:
        return OF_FEW
    needed = []
    for model in models:
        low, high = _pooled(judged.take(judged.model != model), name, ENDS)
        errors = judged.scaled[mine & (judged.model == model)]
        needed.append(np.where(errors < 0, errors / min(low, -1e-9), errors / max(high, 1e-9)))
    return float(np.clip(np.quantile(np.concatenate(needed), ENDS[1] - ENDS[0]), *STRETCHED))
