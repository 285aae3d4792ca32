"""Intervals that hold: a forest says how large an error to expect, held-out errors say how many times that is needed.

Errors are log(measured / predicted). For every task and for GPUs seen and not seen in training, the quantiles of error / expected
size are kept, from models (and GPUs) that the prediction did not know: split-conformal prediction with a learned scale (Lei et al.,
JASA 2018), asymmetric. GPUs that were seen have quantiles of their own (Mondrian: Vovk, Lindsay, Nouretdinov and Gammerman, 2003): how
well a GPU repeats itself, the forest does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned.forest import Forest
from advisor.pipelines import Array

LEVELS = np.linspace(0, 1, 201)
"""Levels at which the distribution of scaled errors is kept."""

SMALLEST_SCALE = 0.004
"""Log error below which measurements do not repeat."""


CERTAIN = (0.001, 0.999)
"""Probabilities nearer to 0 and 1 than held-out errors can tell."""

WIDEST = float(np.log(4))
"""Log error that no interval exceeds to either side. Quantiles times a size expected reach factors of 50: of GPUs left out far from what
was learned, and of the A40, that throttles in a fifth of its rows, in the others too. Of its rows on models left out none is beyond 3.9."""

LEAST_ROWS = 100
"""Held-out errors from which a GPU has quantiles of its own: ten lie outside either end of an 80 % interval."""

_OF_GPU = "/of "


def of_others(task: str) -> str:
    """The name of a task's errors on models that were never seen, where those that were have quantiles of their own."""
    return f"{task}, other models"


def of_left_out(task: str) -> str:
    """The name of a task's errors on GPUs that were left out, by the GPU: those never measured err as their relatives did then."""
    return f"{task}, left out"


GROUP = ": "


def of_group(task: str, group: str) -> str:
    """The name of the errors of a group of a task's rows, such as layers of one format."""
    return f"{task}{GROUP}{group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Scaled error quantiles, [201], by task ("served", "exact", "best", …) and by whether the GPU was seen.

    Attributes:
        quantiles: By task and whether the GPU was seen.
        of_gpu: By task and name, of single GPUs that were seen.
    """

    quantiles: Mapping[tuple[str, bool], Array]
    of_gpu: Mapping[tuple[str, str], Array] = field(default_factory=dict)

    def quantile(self, task: str, seen: bool, level: float, gpu: str = "") -> float:
        """Scaled error below which a share `level` of held-out errors lies: of the GPU named where it was seen, or of all that were."""
        return float(np.interp(level, LEVELS, self._of(task, seen, gpu)))

    def answering(self, task: str) -> str:
        """The name of a group of a task's rows, or of the task where the group has no quantiles of its own."""
        return task if (task, True) in self.quantiles else task.partition(GROUP)[0]

    def share_below(self, task: str, seen: bool, scaled: Array, gpu: str = "") -> Array:
        """Share of held-out scaled errors below `scaled`, within `CERTAIN`."""
        table = self._of(task, seen, gpu)
        # Ties in the table would make the inverse ambiguous: nudge them apart.
        table = np.maximum.accumulate(table) + 1e-9 * np.arange(table.size)
        return np.clip(np.interp(scaled, table, LEVELS), *CERTAIN)

    def _of(self, task: str, seen: bool, gpu: str) -> Array:
        if seen and (task, gpu) in self.of_gpu:
            return self.of_gpu[(task, gpu)]
        quantiles = self.quantiles.get((task, seen))
        if quantiles is None:
            quantiles = self.quantiles[(task, not seen)]
        return quantiles

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The calibration as named arrays."""
        pooled = {f"{prefix}/{task}/{'seen' if seen else 'unseen'}": table for (task, seen), table in self.quantiles.items()}
        return pooled | {f"{prefix}/{task}{_OF_GPU}{gpu}": table for (task, gpu), table in self.of_gpu.items()}


def from_arrays(stored: Mapping[str, NDArray[Any]], prefix: str) -> Calibration:
    """The reverse of `Calibration.arrays`."""
    quantiles, of_gpu = {}, {}
    for name, table in stored.items():
        if name.startswith(prefix + "/"):
            key = name[len(prefix) + 1 :]
            if _OF_GPU in key:
                task, gpu = key.split(_OF_GPU, 1)
                of_gpu[(task, gpu)] = table
            else:
                task, seen = key.rsplit("/", 1)
                quantiles[(task, seen == "seen")] = table
    return Calibration(quantiles=quantiles, of_gpu=of_gpu)


def scale(forest: Forest, features: Array) -> Array:
    """Expected size of the log error, [n]."""
    return np.maximum(np.exp(forest(features)), SMALLEST_SCALE)


def table(errors: Array, scales: Array, weight: Array | None = None, group: Sequence[object] | None = None) -> Array:
    """Quantiles of errors / scales at `LEVELS`, weighted.

    Args:
        errors: log(measured / predicted), [n].
        scales: Expected sizes of the errors, [n].
        weight: [n].
        group: What was left out together (models), [n]; None: the quantiles of all rows. One group far from all others, such as the
            smallest model, has errors beyond any scale and widens the pooled quantiles for everyone: they are averaged with those of
            the typical group (the median over groups). Pooled, 80 % intervals held 82 to 84 % on models left out; averaged, 80 to 82 %.
    """
    scaled = errors / scales
    mass = np.ones(scaled.size) if weight is None else weight
    pooled = _quantiles(scaled, mass)
    if group is None:
        return pooled
    labels = np.array([str(label) for label in group])
    typical = np.median([_quantiles(scaled[labels == name], mass[labels == name]) for name in np.unique(labels)], axis=0)
    return (pooled + typical) / 2


def _quantiles(values: Array, mass: Array) -> Array:
    order = np.argsort(values, kind="stable")
    position = (np.cumsum(mass[order]) - 0.5 * mass[order]) / mass.sum()
    return np.interp(LEVELS, position, values[order])
