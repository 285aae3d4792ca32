"""Predictors that did not see what they are asked about: forests of configured launches, each grown without a third of the problems."""

from __future__ import annotations

import zlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

FOLDS, TREES = 3, 300


def fold_of(sizes: Any) -> int:
    """The third that problems of these sizes belong to, whatever their type and kernel."""
    return zlib.crc32(" ".join(str(int(size)) for size in sizes).encode()) % FOLDS


@lru_cache(maxsize=2)
def predictors(folder: Path | None = None) -> tuple[Any, ...]:
    """One predictor for each third, which did not see it: of the project's own rows, and of the sweeps in a folder (`training.dejavu`)."""
    from advisor.learned import bushy_forest
    from advisor.learned.estimator import LearnedPredictor
    from advisor.learned.weights import load, shipped
    from advisor.training import configured_training as training

    rows = training._read([folder] if folder else [], (), ())
    weights = load(shipped())
    sizes = [[part for part in name.split() if part.isdigit()] for name in rows.problem.tolist()]
    fold = np.array([fold_of(each) for each in sizes])
    found = []
    for left_out in range(FOLDS):
        known = (fold != left_out) & (rows.own | (np.arange(fold.size) % training.OF_MANY == 0))
        forest = bushy_forest.flatten(training._grow(rows.take(np.flatnonzero(known)), TREES), rows.told.shape[1])
        found.append(LearnedPredictor(replace(weights, configured=replace(weights.configured, forest=forest))))
    return tuple(found)
