"""Groups to leave out: whole models, whole GPUs. A random split of neighbouring token counts would prove nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

MODEL_FOLDS = 4
CALIBRATION_FOLDS = 12
"""Folds of models for the intervals: with few folds a fold knows far fewer models than the final fit does, and its errors are too
large (four folds: 80 % intervals held 84 % to 87 %)."""

GPU_FOLDS = 6
SCALE_FOLDS = 6
"""Folds of models for the forest of expected error sizes; with two, it knows too little and the quantiles over it come out 2 % too wide."""


def leave_out(labels: Sequence[object], folds: int, apart: Collection[object] = ()) -> Iterator[tuple[list[object], NDArray[np.bool_]]]:
    """Deal the sorted distinct labels into folds; yields the labels left out and a mask of their rows.

    Every fold leaves at least one label in; with a single label there is nothing to yield. Labels of `apart` are dealt first, so that no
    two of them are left out together while there are folds enough.
    """
    names = sorted(set(labels), key=lambda label: (label not in apart, str(label)))
    count = min(folds, len(names))
    if len(names) < 2:
        return
    for k in range(count):
        out = names[k::count]
        chosen = set(out)
        yield out, np.array([label in chosen for label in labels], dtype=bool)
