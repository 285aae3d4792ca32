"""The tunable ceiling that every command shows: what the model gives for the best of the space, and what contradicts it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.learned.base import Prediction
from advisor.pipelines import Array


def tunable_ceiling(calibrated: Prediction, bound_us: Array, *members_us: Array) -> Prediction:
    """The predicted tunable ceiling of problems, columns [n], microseconds.

    The model's ceiling is calibrated to be right on average; a configuration of the space that is predicted faster is reached all the same,
    so that no command shows a configuration below the ceiling. Commands know different ones: `predict` and `audit` that of each launch;
    `advise`, `tune` and the comparison have ranked the space and know the first-ranked one too, so that theirs may be lower: on 96
    launches of three models on four GPUs with sweeps by 0.2 % on average and at most 4 %, where the analytical model answers by more.

    Args:
        calibrated: `Predictor.ceiling` of the problems.
        bound_us: Their bounds, [n]: no ceiling is lower.
        members_us: What is predicted of configurations of the space, [n] each; inf where one cannot launch.
    """
    us = np.maximum(np.minimum.reduce([calibrated.us, *members_us]), bound_us)
    return replace(calibrated, us=us, low_us=np.minimum(calibrated.low_us, us), high_us=np.maximum(calibrated.high_us, us))
