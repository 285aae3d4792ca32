"""The best latency of a problem's space, given the measured latency of one of its launches.

The model errs alike on launches of one problem on one GPU, the more so the nearer their blocks: where a launch took 5 % longer than
predicted, the best of the space will take some per cent longer than predicted too. How much of a launch's error the best shares is
fitted to errors on models and GPUs left out (the one-point case of kriging: Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, equation 2.25): little on GPUs that are known, more on others.

Corrections of single GPUs to the physics that all share, from their launches as served.

A GPU's figures do not say all: on some the other pipelines hide behind DRAM better than on others, some start a launch sooner. Served
launches were measured on more GPUs than sweeps were, and what they say of a GPU holds for its sweeps too, up to a constant that all
GPUs share: DRAM-bound launches lie 3 to 5 % higher as served than in a sweep on each of A100, A40, H800 and L40.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned.moe.launch import Launch
from advisor.learned.moe.moe_physics import TERMS
from advisor.pipelines import Array

PARTS = ("dram", "resident")
"""What a GPU may be better or worse at than the physics says: streaming from DRAM, and launches whose data the L2 holds."""

HOLD = 4.0
"""Weight of the belief that a GPU is like all others, in rows of weight 1."""

ROUNDS = 30
LEAST_ERROR = 0.01
"""Log error below which a row weighs no more than others."""

SHARPNESS = 4
"""Power that says how much of a launch the DRAM term decides; near the sharpness that the physics is fitted to."""

DRAM = TERMS.index("dram")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCorrections:
    """Log factors of GPUs, known by their figures.

    Attributes:
        machines: SMs and DRAM rate (bytes per microsecond) of each GPU, [g, 2].
        factors: Log factor for each of `PARTS`, [g, 2]; 0 is what GPUs whose sweeps are known are on average.
    """

    machines: Array
    factors: Array

    def log_factor(self, launch: Launch, stack: Array) -> Array:
        """Summand [n] of the log of the physics' latency; 0 for GPUs without measurements."""
        of = np.zeros((len(launch), len(PARTS)))
        for machine, factors in zip(self.machines, self.factors, strict=True):
            of[(launch.sms == machine[0]) & (launch.dram_rate == machine[1])] = factors
        return (of * _shares(launch, stack)).sum(axis=1)

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The corrections as named arrays."""
        return {f"{prefix}/machines": self.machines, f"{prefix}/factors": self.factors}


def from_arrays(stored: Mapping[str, NDArray[Any]], prefix: str) -> GpuCorrections:
    """The reverse of `GpuCorrections.arrays`."""
    return GpuCorrections(machines=stored[f"{prefix}/machines"], factors=stored[f"{prefix}/factors"])


NONE = GpuCorrections(machines=np.zeros((0, 2)), factors=np.zeros((0, len(PARTS))))


def _shares(launch: Launch, stack: Array) -> Array:
    """Share of a launch that each part decides, [n, 2], each in 0 to 1."""
    most = stack.max(axis=0)
    dram = (stack[DRAM] / most) ** SHARPNESS / ((stack / most) ** SHARPNESS).sum(axis=0)
    fill = launch.compulsory_bytes / launch.l2_capacity
    return np.stack([dram, np.clip(2 - 2 * fill, 0, 1) * (1 - dram)], axis=1)


def fit(launch: Launch, residual: Array, stack: Array, weight: Array, swept: Array) -> GpuCorrections:
    """Factors of every GPU that the launches as served are of.

    Args:
        launch: Launches as served, [n].
        residual: log(measured / physics), [n].
        stack: Terms of the physics, [7, n].
        weight: [n].
        swept: Rows of `machines_of` GPUs whose sweeps are known, [s, 2]; a GPU that nothing is known of is taken to be like them.
    """
    shares = _shares(launch, stack)
    keys = np.stack([launch.sms, launch.dram_rate], axis=1)
    machines = machines_of(launch)
    factors = []
    for machine in machines:
        mine = (keys == machine).all(axis=1)
        x, y, w = shares[mine], residual[mine], weight[mine]
        factor = np.zeros(len(PARTS))
        for _ in range(ROUNDS):  # least absolute errors by reweighted least squares: a throttled GPU has wild rows
            v = w * LEAST_ERROR / np.maximum(np.abs(y - x @ factor), LEAST_ERROR)
            factor = np.linalg.solve((x * v[:, None]).T @ x + HOLD * np.eye(len(PARTS)), (x * v[:, None]).T @ y)
        factors.append(factor)
    known = [any((machine == other).all() for other in swept) for machine in machines]
    typical = np.array(factors)[known] if any(known) else np.array(factors)
    return GpuCorrections(machines=machines, factors=np.array(factors) - typical.mean(axis=0))


def machines_of(launch: Launch) -> Array:
    """SMs and DRAM rate of the GPUs of some launches, [g, 2]."""
    return np.unique(np.stack([launch.sms, launch.dram_rate], axis=1), axis=0)


REACH = 1.5
"""Distance, in octaves of block sizes, over which the shared part of an error falls to 1/e."""

LARGEST = 0.3
"""Log error beyond which a measurement says no more: a throttled clock or a busy GPU is no error of the model."""

MOST_SHARED = 0.95


def given(task: str, source: str) -> str:
    """Name of a task's errors where a launch was measured: one of a known configuration ("exact") or as served ("served")."""
    return f"{task}/given {source}"


def blocks(launch: Launch) -> Array:
    """log2 of the block sizes, [n, 3]."""
    return np.log2(np.stack([launch.block_m, launch.block_n, launch.block_k], axis=1))


def signal(measured_us: Array, predicted_us: Array, launched: Array, best: Array) -> Array:
    """The measured launch's log error, less the farther its blocks lie from those of the best, [n]; 0 where it says nothing.

    Args:
        measured_us: Latencies of the launches, [n].
        predicted_us: What the model says of them, [n].
        launched: Their `blocks`, [n, 3].
        best: `blocks` of the predicted best of the same problems, [n, 3].
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.log(measured_us / predicted_us)
    error = np.where(np.isfinite(error), np.clip(error, -LARGEST, LARGEST), 0.0)
    return error * np.exp(-np.sqrt(((launched - best) ** 2).sum(axis=1)) / REACH)


def share(errors: Array, signals: Array, size: Array, weight: Array) -> float:
    """Share of the signals that the errors of the best hold: weighted least squares through 0, within [0, `MOST_SHARED`].

    Args:
        errors: log(measured / predicted) of the best, [n].
        signals: Of launches of the same problems (`signal`), [n].
        size: Expected sizes of the errors, [n].
        weight: [n].
    """
    mass = weight / size**2
    explained = (mass * signals**2).sum()
    return float(np.clip((mass * signals * errors).sum() / explained, 0.0, MOST_SHARED)) if explained > 0 else 0.0


def share_unseen(by_gpu: Sequence[float], seen: float) -> float:
    """The share to count with on a GPU that was never seen.

    Single GPUs left out share anything from nothing to all: each has a vote, and one more says that nothing is shared. And a fold that
    leaves one of few GPUs out knows less than the model that is used, whose errors are less alike: halfway to GPUs that were seen.

    Args:
        by_gpu: `share` of each GPU left out.
        seen: `share` on GPUs that were seen.
    """
    return (sum(by_gpu) / (len(by_gpu) + 1) + seen) / 2
