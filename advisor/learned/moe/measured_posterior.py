"""The best latency of a problem's space, given the measured latency of one of its launches.

The model errs alike on launches of one problem on one GPU, the more so the nearer their blocks: where a launch took 5 % longer than
predicted, the best of the space will take some per cent longer than predicted too. How much of a launch's error the best shares is
fitted to errors on models and GPUs left out (the one-point case of kriging: Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, equation 2.25): little on GPUs that are known, more on others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.learned.moe.launch import Launch
from advisor.pipelines import Array

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
