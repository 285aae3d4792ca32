"""The predicted latency of a changed configuration, for every launch that runs with it; rows of the model's dataclasses of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Predictor, predict_each
from advisor.pipelines import Array, ConfigurationBatch
from advisor.result.schema import Problem

_T = TypeVar("_T")


def take_rows(value: _T, index: slice | NDArray[np.intp]) -> _T:
    """The rows `index` of every column in a dataclass (or mapping) of columns; columns of one row hold for all and stay."""
    taken: Any = value
    if isinstance(value, np.ndarray):
        columns = np.atleast_1d(value)
        taken = columns[index] if columns.shape[0] > 1 else columns
    elif isinstance(value, Mapping):
        taken = {name: take_rows(entry, index) for name, entry in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        taken = replace(value, **{f.name: take_rows(getattr(value, f.name), index) for f in fields(value)})
    return taken


def take_row(value: _T, i: int) -> _T:
    """Row i, as a dataclass of columns of one row."""
    return take_rows(value, np.array([i]))


def first(column: NDArray[Any]) -> float:
    """The only value of a column of one row."""
    return float(np.ravel(column)[0])


def at(column: NDArray[Any], i: int) -> float:
    """Row i of a column; one of one row holds for all."""
    return float(column[i if column.size > 1 else 0])


def now_us(predicted_us: float, measured_us: float | None, bound_us: float) -> float:
    """Microseconds of a launch as it is, comparable with predictions of a change.

    The prediction, like with like, unless the launch was measured faster: what tuning has won already is not won again. A measurement
    below the bound is a fault, and nothing follows from it.
    """
    return min(predicted_us, measured_us) if measured_us is not None and measured_us >= bound_us else predicted_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Another launch that runs with the same configuration (w13 and w2 of one table entry): whatever is changed, it gets too.

    `now_us` is what it takes as it is (`now_us` of this module, or the measurement where that is a fault: a change is then promised to
    save nothing there), inf where it cannot launch; `least_us` is its tunable ceiling.
    """

    id: str
    problem: Problem
    now_us: float
    least_us: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """The predictor that made the predictions shown, the launches a change concerns besides the one that is diagnosed, and the parameters
    that no change may touch because another entry decides them (`fixed`). The launches of a target share what was `priced` by now: those
    of one entry ask for the same changes."""

    predictor: Predictor
    sharing: tuple[Sharing, ...] = ()
    fixed: tuple[str, ...] = ()
    priced: dict[tuple[object, ...], Array] = field(default_factory=dict, repr=False, compare=False)

    def price(self, launches: Sequence[tuple[Problem, ConfigurationBatch]], gpu: GpuSpec) -> None:
        """Predict launches that will be asked about, all of a kind in one call."""
        new = {key: launch for launch in launches if (key := _key(*launch)) not in self.priced}
        for key, prediction in zip(new, predict_each(self.predictor, list(new.values()), gpu), strict=True):
            self.priced[key] = np.where(np.isfinite(prediction.us), prediction.us, np.inf)

    def us(self, problem: Problem, batch: ConfigurationBatch, gpu: GpuSpec) -> Array:
        """Predicted latency of each configuration. [c]"""
        self.price([(problem, batch)], gpu)
        return self.priced[_key(problem, batch)]

    def slower_us(self, batch: ConfigurationBatch, gpu: GpuSpec) -> dict[str, Array]:
        """Microseconds [c] that each configuration costs every other launch, by launch id; inf where it could not launch."""
        slower = {}
        for other in self.sharing:
            after = np.maximum(self.us(other.problem, batch, gpu), other.least_us)
            if math.isfinite(other.now_us):
                slower[other.id] = after - other.now_us
            else:  # it cannot launch as it is, and has nothing to lose; but it must launch afterwards
                slower[other.id] = np.where(np.isfinite(after), 0.0, np.inf)
        return slower


def _key(problem: Problem, batch: ConfigurationBatch) -> tuple[object, ...]:
    columns = {**batch.parameters, "warps": batch.num_warps, "stages": batch.num_stages}
    return repr(problem), *((name, values.tobytes()) for name, values in columns.items())
