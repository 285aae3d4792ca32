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

FIRMNESS = 10.0
"""Models whose errors count as much as those of all rows: a group of so many is half its own. With 2, groups of four models held 1 to 3
of a hundred rows fewer than all rows' quantiles."""

STRETCHED = (0.75, 3.0)
"""Factors of quantiles, the least and the largest."""

LEAST_APART, OF_FEW = 3, 1.2
"""Models from which a stretch is fitted, and the stretch where there are fewer, of which nothing says how far apart they are: quantiles of
one or two models held 70 to 78 of a hundred rows of another, where they were told apart (`ceilings/ATTEMPTS.md`)."""

ENDS = (0.1, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Errors over their expected sizes, [n], the number of the model (or pair) each row belongs to, and the names of its group, of the
    widest to the narrowest, [n] each."""

    scaled: Array
    apart: NDArray[np.int64]
    groups: tuple[NDArray[np.str_], ...]

    def take(self, rows: NDArray[np.bool_]) -> Judged:
        """Some of them."""
        return Judged(scaled=self.scaled[rows], apart=self.apart[rows], groups=tuple(group[rows] for group in self.groups))


def table(judged: Judged, names: Sequence[str] = ()) -> Array:
    """Quantiles at `calibration.LEVELS` of the group of these names, of the widest to the narrowest; of all rows without names."""
    return _pooled(judged, names, calibration.LEVELS) * _stretch(judged, names[:1])


def tables(judged: Judged) -> Mapping[tuple[str, ...], Array]:
    """`table` of all rows, (), and of every group that there is."""
    tables_of: dict[tuple[str, ...], Array] = {(): table(judged)}
    for depth in range(1, len(judged.groups) + 1):
        for names in sorted(set(zip(*(group.tolist() for group in judged.groups[:depth]), strict=True))):
            tables_of[names] = table(judged, names)
    return tables_of


def held(judged: Judged, split: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether 80 % intervals hold each row, [n], by the errors of the other splits; of a single split each half of its models by the
    other's."""
    parts = split if np.unique(split).size > 1 else np.unique(judged.apart, return_inverse=True)[1] % 2
    out = np.zeros(judged.scaled.size, dtype=bool)
    for part in np.unique(parts):
        mine = parts == part
        if not (~mine).any():
            continue
        others = tables(judged.take(~mine))
        left_out = judged.take(mine)
        ends = {names: np.interp(ENDS, calibration.LEVELS, other) for names, other in others.items()}
        names = list(zip(*(group.tolist() for group in left_out.groups), strict=True)) if left_out.groups else [()] * int(mine.sum())
        low, high = np.array([next(ends[name[:depth]] for depth in range(len(name), -1, -1) if name[:depth] in ends) for name in names]).T
        out[mine] = (np.minimum(low, 0) <= left_out.scaled) & (left_out.scaled <= np.maximum(high, 0))
    return out


def _pooled(judged: Judged, names: Sequence[str], levels: Sequence[float] | Array) -> Array:
    """Quantiles of a group, drawn toward those of the wider ones, and of all rows, by how few models it has."""
    quantiles = np.asarray(np.quantile(judged.scaled, levels))
    mine = np.ones(judged.scaled.size, dtype=bool)
    for name, group in zip(names, judged.groups, strict=False):
        mine = mine & (group == name)
        if not mine.any():
            break
        count = np.unique(judged.apart[mine]).size
        of_group = np.quantile(judged.scaled[mine], levels)
        quantiles = (count * of_group + FIRMNESS * quantiles) / (count + FIRMNESS)
    return quantiles


def _stretch(judged: Judged, names: Sequence[str]) -> float:
    """The factor with which intervals by the other models' quantiles hold four of five rows of a group; of all rows where it has too few
    models."""
    of = np.ones(judged.scaled.size, dtype=bool)
    for name, group in zip(names, judged.groups, strict=False):
        of &= group == name
    models = np.unique(judged.apart[of])
    if models.size < LEAST_APART:
        return _stretch(judged, ()) if names else OF_FEW
    reached = []
    for model in models.tolist():
        mine = of & (judged.apart == model)
        low, high = _pooled(judged.take(judged.apart != model), names, ENDS)
        errors = judged.scaled[mine]
        reached.append(np.where(errors < 0, errors / min(low, -1e-9), errors / max(high, 1e-9)))
    return float(np.clip(np.quantile(np.concatenate(reached), ENDS[1] - ENDS[0]), *STRETCHED))
