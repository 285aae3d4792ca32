"""What models of published series of measurements share: constants of every series, what corrects the reference latency that they give, the
size of its errors, and the GPUs that answer for others."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.learned import calibration, network
from advisor.learned.calibration import GROUP, WIDEST, Calibration, of_left_out
from advisor.learned.forest import BushyForest, bushy_from_arrays
from advisor.learned.library.moe_layers import kernel_class
from advisor.learned.machine import chip
from advisor.learned.network import Mixed
from advisor.pipelines import Array
from advisor.system.resources import folder

T = TypeVar("T")
STACK_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "aiter": "AITER"}
"""Stacks as their authors write them, for reports."""

ALIKE = 1.4
"""Ratio of the FLOP per clock of two SMs below which one GPU answers for another: not H100 for H20, nor L40S for RTX 4090."""


def number(version: str) -> int:
    """`0.5.14` as 514, `1.3.0rc20` as 10300."""
    parts = [int(part) for part in re.findall(r"\d+", version)]
    return sum(part * scale for part, scale in zip((*parts, 0, 0, 0), (10_000, 100, 1), strict=False))


def numbers(*columns: NDArray[Any], unit: float = 1.0) -> NDArray[np.int64]:
    """A number for each distinct row of the columns in steps of 1 / `unit`, the same in every run, [n]."""
    rows = (np.stack(columns, axis=1) * unit).astype(np.int64)
    distinct, which = np.unique(rows, axis=0, return_inverse=True)
    return np.array([zlib.crc32(item.tobytes()) for item in distinct], dtype=np.int64)[which.ravel()]


def relatives(measured: Iterable[str], gpu: GpuSpec) -> tuple[str, ...]:
    """The measured GPUs that answer for one: itself; else those of its own target, else those of its generation where that has matrix
    instructions of its own, in both cases with SMs that multiply about as fast; none where there are none."""
    names = sorted(measured)
    if gpu.name in names:
        return (gpu.name,)
    if gpu.vendor != "nvidia":
        return ()
    target, figures = chip(gpu, "bf16"), {name: chip(load_gpu(name), "bf16") for name in names}
    alike = [name for name, figure in figures.items() if max(target.rate, figure.rate) < ALIKE * min(target.rate, figure.rate)]
    same = tuple(name for name in alike if figures[name].capability == target.capability)
    return same or tuple(name for name in alike if kernel_class(load_gpu(name)) == kernel_class(gpu) > 0)


def equally(identities: Sequence[Array]) -> Sequence[tuple[float, Array]]:
    """Identities, [figures] each, with how much each counts: alike, and one in all."""
    return [(1 / len(identities), item) for item in identities]


def weighed(x: Array, of: Callable[[Array], Array], identities: Sequence[tuple[float, Array]]) -> Array:
    """What `of` says of rows, [n, f] without the identity of their GPU, as of the GPUs that answer for it, [n]."""
    return np.add.reduce(
        [share * of(np.concatenate([x, np.broadcast_to(item, (len(x), item.size))], axis=1)) for share, item in identities]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Latencies in microseconds, [n] each, an interval that holds four of five, and whether the GPU was measured."""

    us: Array
    low_us: Array
    high_us: Array
    seen: bool


@dataclass(frozen=True, kw_only=True)
class SeriesModel:
    """Everything learned about series of measurements.

    Attributes:
        series: What was measured.
        constants: Logarithms of the reference's constants, of each series, [series, constants].
        correction: log(latency / reference).
        spread: log of the error to expect of that.
        calibration: Quantiles of errors over what is expected.
        measured: By GPU, what was measured there.
        held_out: Errors in percent of what training left out, beside the crude baseline's.
    """

    series: tuple[Any, ...]
    constants: Array
    correction: BushyForest | Mixed
    spread: BushyForest
    calibration: Calibration
    measured: Mapping[str, Any]
    held_out: Mapping[str, Any] = field(default_factory=dict)

    def relatives(self, gpu: GpuSpec) -> tuple[str, ...]:
        """The measured GPUs that answer for one."""
        return relatives(self.measured, gpu)

    def beats_baseline(self, left_out: str, group: str = "all") -> bool:
        """Whether a group of what was left out is predicted better than by the crude baseline, as far as that was judged."""
        figures = self.held_out.get(left_out, {}).get(group)
        return figures is None or figures["mape"] < figures["baseline"]

    def corrected(
        self, x: Array, identities: Sequence[tuple[float, Array]], tasks: Mapping[str, NDArray[np.bool_]], gpu: GpuSpec
    ) -> tuple[Array, ...]:
        """The correction of launches (log) and both ends of its 80 % interval beside it (logs), [n] each. On a GPU never measured the trees
        speak alone: a network goes on beyond what it was shown.

        Args:
            x: What is seen but for the GPU's identity, [n, f].
            identities: Of the GPU, or of those that answer for it, and how much each counts.
            tasks: The rows that each name of errors stands for, [n]; of groups that have no errors of their own, the task's.
            gpu: The GPU.
        """
        correction = self.correction
        if isinstance(correction, Mixed) and gpu.name not in self.measured:
            correction = correction.forest
        centre, size = (weighed(x, part, identities) for part in (correction, self.spread))
        low, high = np.zeros((2, len(x)))
        for task, rows in ((task, rows) for task, rows in tasks.items() if rows.any()):
            unseen = of_left_out(task.partition(GROUP)[0])
            left_out = gpu.name not in self.measured and (unseen, True) in self.calibration.quantiles
            name = unseen if left_out else self.calibration.answering(task)
            alike = [ends(self.calibration, size[rows], name, relative, True) for relative in self.relatives(gpu)]
            low[rows], high[rows] = np.mean(alike, axis=0)
        return centre, low, high

    def stored(self, prefix: str, about: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """As named arrays, to be stored, with what else there is about it."""
        tables = self.calibration.arrays(f"{prefix}/calibration")
        return {
            f"{prefix}/about": np.array(json.dumps({**about, "held_out": self.held_out}, sort_keys=True)),
            f"{prefix}/constants": self.constants.astype(np.float32),
            **self.correction.arrays(f"{prefix}/correction"),
            **self.spread.arrays(f"{prefix}/spread"),
            **{name: table.astype(np.float32) for name, table in tables.items()},
        }


def ends(quantiles: Calibration, size: Array, task: str, gpu: str, seen: bool) -> tuple[Array, Array]:
    """Both ends of an 80 % interval beside what is predicted (logs), [n], by the log of the error to expect, [n]."""
    low, high = (quantiles.quantile(task, seen, level, gpu) * np.exp(size) for level in (0.1, 0.9))
    return np.clip(low, -WIDEST, 0), np.clip(high, 0, WIDEST)


def parts(stored: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, Any]:
    """A stored correction, the size of its errors, and their quantiles, by name."""
    return {
        "correction": network.from_arrays(stored, f"{prefix}/correction"),
        "spread": bushy_from_arrays(stored, f"{prefix}/spread"),
        "calibration": calibration.from_arrays(stored, f"{prefix}/calibration"),
    }


def restored(stored: Mapping[str, NDArray[Any]], prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What else there is about a stored model, and its parts as arguments of `SeriesModel`."""
    about = json.loads(str(stored[f"{prefix}/about"]))
    constants = stored[f"{prefix}/constants"].astype(np.float64)
    return about, {"constants": constants, "held_out": about["held_out"], **parts(stored, prefix)}


def shipped(file: str, load: Callable[[Mapping[str, NDArray[Any]]], T], path: Path | None = None) -> T | None:
    """What `load` makes of the arrays of a file that the advisor ships, or of another one; None where there is none."""
    try:
        place = path or folder("ceilings") / file
    except FileNotFoundError:
        return None
    return _loaded(load, str(place), place.stat().st_mtime_ns) if place.is_file() else None


@lru_cache(maxsize=4)
def _loaded(load: Callable[[Mapping[str, NDArray[Any]]], Any], path: str, changed: int) -> Any:
    del changed  # part of the key: a file that changed is read again
    with np.load(path, allow_pickle=False) as archive:
        return load({key: archive[key] for key in archive.files})
