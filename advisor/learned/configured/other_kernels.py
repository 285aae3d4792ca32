"""Launches of kernels that were never measured: the analytical model, corrected by what launches of measured kernels have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned import bushy_forest
from advisor.learned.bushy_forest import BushyForest
from advisor.learned.configured.features import NAMES
from advisor.pipelines import Array

PREFIX = "other kernels/"
PARTS = ("rows", "products")
"""Launches without matrix products and with them: what is learned of the former says nothing of the latter."""

DEMANDED = [
    NAMES.index(name)
    for name in (
        *("in_turn", "warps", "depth", "elements_per_thread", "trips", "resident", "per_sm", "fill", "waves", "last_wave", "useful"),
        *("idle", "registers", "accumulators", "shared_memory", "active_warps", "tensor", "fma", "xu", "smem", "l2", "dram", "port"),
        *("chain", "trip_latency", "busiest", "sustained", "working_set", "re_read", "loads", "start", "scale", "intensity"),
        *("in_flight", "pipelined"),
    )
]
"""The features that mean the same for every kernel: no tile, no size, no family."""

PHYSICS, CARRIED = 0.6, 0.6
"""Share of the analytical latency beside the longest pipeline's (geometric mean), and how much of a correction carries over to a kernel
that was not measured; both are best for kernels left out (`ATTEMPTS.md`)."""


@dataclass(frozen=True, kw_only=True)
class OtherKernels:
    """See the head of this file.

    Attributes:
        forests: log(latency / `middle`) from the features `DEMANDED`, by `PARTS`.
        errors: log(measured / predicted) of launches of kernels left out: the quantiles of 10 and 90 %, [2].
    """

    forests: Mapping[str, BushyForest]
    errors: Array

    def log_us(self, physics: Array, base: Array, matrix: Array, products: bool) -> Array:
        """The predicted latency, [n], log of microseconds; `physics`: that of the analytical model, `base` and `matrix`: of `features`."""
        return middle(physics, base) + CARRIED * self.forests[PARTS[products]](matrix[:, DEMANDED])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Named arrays."""
        out: dict[str, NDArray[Any]] = {f"{PREFIX}errors": self.errors}
        for name, forest in self.forests.items():
            out |= forest.arrays(f"{PREFIX}{name}")
        return out


def middle(physics: Array, base: Array) -> Array:
    """What is corrected: between the analytical latency and the longest pipeline's, logs of microseconds, [n]."""
    return PHYSICS * physics + (1 - PHYSICS) * base


def load(stored: Mapping[str, NDArray[Any]]) -> OtherKernels | None:
    """The reverse of `OtherKernels.arrays`; None where there is none."""
    if f"{PREFIX}errors" not in stored:
        return None
    return OtherKernels(
        forests={name: bushy_forest.from_arrays(stored, f"{PREFIX}{name}") for name in PARTS},
        errors=np.asarray(stored[f"{PREFIX}errors"], dtype=np.float64),
    )
