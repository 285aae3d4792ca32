"""Predictors that did not see what they are asked about: models of configured launches, each fitted without a fifth of the problems."""

from __future__ import annotations

import zlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

FOLDS = 5


def fold_of(sizes: Any) -> int:
    """The fifth that problems of these sizes belong to, whatever their type and kernel."""
    return zlib.crc32(" ".join(str(int(size)) for size in sizes).encode()) % FOLDS


@lru_cache(maxsize=2)
def predictors(folder: Path | None = None) -> tuple[Any, ...]:
    """One predictor for each fifth, which did not see it: of the project's own rows, and of the sweeps in a folder (`training.dejavu`)."""
    from advisor.learned.estimator import LearnedPredictor
    from advisor.learned.weights import load, shipped
    from advisor.training import configured_training as training

    rows = training.read_launches([folder] if folder else [], (), ())
    weights = load(shipped())
    sizes = [[part for part in name.split() if part.isdigit()] for name in rows.problem.tolist()]
    fold = np.array([fold_of(each) for each in sizes])
    found = []
    for left_out in range(FOLDS):
        known = rows.take(np.flatnonzero(fold != left_out))
        forest, networks = training._forest(known, training.TREES), training._networks(known)  # those shipped have seen every problem
        found.append(LearnedPredictor(replace(weights, configured=replace(weights.configured, forest=forest, networks=networks))))
    return tuple(found)
