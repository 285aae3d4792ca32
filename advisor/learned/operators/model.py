"""What was learned of the published operators (`work.KINDS`): constants of every series of measurements, trees that correct a reference
latency, the size of their errors, and how well they did on what was left out.

The weights are a file of their own, `ceilings/operators.npz` (`advisor train --operators`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.learned import bushy_forest, calibration
from advisor.learned.bushy_forest import BushyForest
from advisor.learned.calibration import Calibration
from advisor.learned.library.chip import chip
from advisor.learned.library.moe_kernels import ALIKE, STACK_NAMES, Predicted, corrected, number
from advisor.learned.library.moe_layers import kernel_class
from advisor.learned.operators.work import HOST, KINDS, TERMS, Operators, Stages
from advisor.pipelines import Array
from advisor.pipelines.bound import LEAST_LAUNCH_US
from advisor.system.resources import folder

FILE = "operators.npz"
POWER = 4.0
"""Sharpness of the maximum of what a stage needs."""

FLOOR, BESIDE = 3.0, 3.0
"""Microseconds where the fit of launches' floor, and of what a host takes beside them, starts."""


class Series(NamedTuple):
    """One series of measurements, whatever the GPU: the publisher's operator, stack, version and kernel, further words (formats, phase),
    and `kernel_class`."""

    operator: str
    stack: str
    version: str
    kernel: str
    words: tuple[str, ...]
    instructions: int

    @property
    def title(self) -> str:
        """Its name in reports: `chunk_gated_delta_rule (vLLM 0.24.0)`."""
        return f"{self.kernel} ({STACK_NAMES.get(self.stack, self.stack)} {self.version})"


def reference(stages: Stages, logarithms: Array) -> tuple[Array, Array]:
    """Latencies in microseconds [n] and the stages' parts [n, stages], with logarithms of constants [n, 2 + 4 stages] or [2 + 4 stages]:
    floor, host, and a multiple of each of a stage's terms.

    The host's launches hide behind the kernels: the longer of the two shows.
    """
    c = np.exp(logarithms)
    parts, host = [], c[..., 1]
    for i, (name, (products, dram, l2, chain)) in enumerate(stages.items()):
        a, b, d, e = (c[..., 2 + len(TERMS) * i + j] for j in range(len(TERMS)))
        if name == HOST:
            host = host + a * products
            continue
        parts.append(((a * products) ** POWER + (b * dram + d * l2) ** POWER + (e * chain) ** POWER) ** (1 / POWER))
    device = c[..., 0] + np.sum(parts, axis=0)
    return (device**POWER + host**POWER) ** (1 / POWER), np.stack(parts, axis=-1)


def start(stages: int) -> Array:
    """Logarithms of the constants where their fit starts."""
    return np.log(np.array([FLOOR, BESIDE, *([1.3, 1.1, 1.2, 0.5] * stages)]))


def features(rows: Operators, stages: Stages, us: Array, parts: Array, series: Sequence[Series], places: Mapping[str, int]) -> Array:
    """What the trees see of launches but for the GPU's identity, [n, f].

    Args:
        rows: What is computed.
        stages: Its work on the GPU.
        us: Reference latency.
        parts: Of its stages.
        series: Of each row.
        places: A number for each word.
    """
    columns: list[Any] = [np.log(us)]
    columns += [parts[:, i] / us for i in range(parts.shape[1])]
    for terms in stages.values():
        columns += [np.log(np.maximum(each, 1e-4) / us) for each in terms]
    columns += [np.log2(np.maximum(rows.sizes[name], 0.5)) for name in KINDS[rows.kind].sizes]
    sizes = rows.sizes
    if "batch_size" in sizes:
        length = sizes.get("isl", sizes.get("seq_len", np.ones(1)))
        columns += [np.log2(sizes["batch_size"] * length), np.log2(length + sizes.get("step", 0.0))]
        columns += [np.ceil(length / 128) * 128 / length]
    columns += [np.array([places[word] for word in words]) for words in zip(*(_words(each) for each in series), strict=True)]
    columns += [np.array([number(each.version) for each in series])]
    return np.stack([np.broadcast_to(np.asarray(each, dtype=np.float32), us.shape) for each in columns], axis=1)


def _words(series: Series) -> tuple[str, ...]:
    return (series.operator, series.stack, series.kernel, *series.words)


def identity(gpu: GpuSpec, of: GpuSpec | None = None) -> Array:
    """Figures that tell measured GPUs apart, the last columns that the trees see; with `of` those of that GPU, but beside the own host.

    Grace launches kernels half as fast as the hosts of the other boards: modules of DSA take 1.3 ms beside it, 0.65 on a B200.
    """
    grace = gpu.name.startswith(("GB2", "GB3", "GH"))
    return np.array([*chip(of or gpu, "bf16").identity.values(), grace], dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class OperatorModel:
    """Everything learned of one kind of operators.

    Attributes:
        kind: Of `work.KINDS`.
        series: What was measured.
        constants: Logarithms, of each series, [series, 2 + 4 stages].
        correction: log(latency / reference).
        spread: log of the error to expect of that.
        calibration: Quantiles of errors over what is expected.
        measured: By GPU, the places of the series measured there.
        held_out: Errors in percent of what training left out, beside the crude baseline's.
    """

    kind: str
    series: tuple[Series, ...]
    constants: Array
    correction: BushyForest
    spread: BushyForest
    calibration: Calibration
    measured: Mapping[str, Sequence[int]]
    held_out: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """A number for each word of the series; of kernels such that those whose names begin alike are neighbours."""
        return {word: i for i, word in enumerate(sorted({word for each in self.series for word in _words(each)}))}

    @property
    def is_better(self) -> bool:
        """Whether it is better than the crude baseline on pairs of batch and length left out."""
        return self._beats_baseline("pairs")

    def answers_for(self, gpu: GpuSpec) -> bool:
        """Whether it was measured; or another GPU with the same instructions, where GPUs left out were predicted better than by the crude
        baseline."""
        if gpu.name in self.measured:
            return True
        return gpu.vendor == "nvidia" and bool(self.relatives(gpu)) and self._beats_baseline("gpus")

    def _beats_baseline(self, left_out: str) -> bool:
        every = self.held_out.get(left_out, {}).get("all")
        return every is None or every["mape"] < every["baseline"]

    def relatives(self, gpu: GpuSpec) -> tuple[str, ...]:
        """The GPU where it was measured; else those of its own target, else those of its instructions."""
        if gpu.name in self.measured:
            return (gpu.name,)
        own, figures = chip(gpu, "bf16"), {name: chip(load_gpu(name), "bf16") for name in sorted(self.measured)}
        alike = [name for name, each in figures.items() if max(own.rate, each.rate) < ALIKE * min(own.rate, each.rate)]
        same = tuple(name for name in alike if figures[name].capability == own.capability)
        return same or tuple(name for name in alike if kernel_class(load_gpu(name)) == kernel_class(gpu) > 0)

    def answering(self, operator: str, stack: str, version: str, kernel: str, words: tuple[str, ...], gpu: GpuSpec) -> int | None:
        """The place of the series that answers for an operator of these words, empty ones: whichever is newest; None where none was
        measured with such words."""
        here = {i for name in self.relatives(gpu) for i in self.measured[name]}
        fits = [i for i in here if self.series[i].operator == operator]

        def nearness(i: int) -> tuple[Any, ...]:
            each = self.series[i]
            return (
                sum(mine == word for mine, word in zip(each.words, words, strict=True)),
                not kernel or each.kernel == kernel,
                not kernel or kernel in each.kernel,
                not stack or each.stack == stack,
                number(each.version) == number(version),
                number(each.version),
                each.kernel,
            )

        return max(fits, key=nearness) if fits else None

    def predict(self, rows: Operators, which: NDArray[np.int64], gpu: GpuSpec) -> Predicted:
        """Latencies of launches of one GPU by the places of their series, [n]; on a GPU that was never measured the trees answer as for
        its relatives."""
        stages = KINDS[self.kind].stages(rows, gpu)
        us, parts = reference(stages, self.constants[which])
        x = features(rows, stages, us, parts, [self.series[i] for i in which.tolist()], self.places)
        seen = gpu.name in self.measured
        centre, down, up = corrected(self, x, [identity(gpu, load_gpu(name)) for name in self.relatives(gpu)], self.kind, seen, gpu)
        us = us * np.exp(centre)
        least, _ = bound(rows, gpu)
        us = np.maximum(us, least)
        return Predicted(us=us, low_us=np.clip(us * np.exp(down), least, us), high_us=us * np.exp(up), seen=seen)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As named arrays, to be stored."""
        about = {
            "series": [[*each[:4], list(each.words), each.instructions] for each in self.series],
            "measured": {name: list(found) for name, found in self.measured.items()},
            "held_out": self.held_out,
        }
        return {
            f"{self.kind}/about": np.array(json.dumps(about, sort_keys=True)),
            f"{self.kind}/constants": self.constants.astype(np.float32),
            **self.correction.arrays(f"{self.kind}/correction"),
            **self.spread.arrays(f"{self.kind}/spread"),
            **{name: table.astype(np.float32) for name, table in self.calibration.arrays(f"{self.kind}/calibration").items()},
        }


def bound(rows: Operators, gpu: GpuSpec, *, cold: bool = False) -> tuple[Array, NDArray[np.str_]]:
    """Lower bounds on the latency in microseconds, [n], and the pipeline of each: of what every implementation has to do.

    Args:
        rows: What is computed.
        gpu: Where.
        cold: Whether weights, caches and states come from DRAM; else as much of everything as the L2 cannot hold.
    """
    products, moved = KINDS[rows.kind].least(rows, gpu)
    beyond = moved if cold else np.maximum(moved - gpu.l2_bytes, 0)
    times = np.stack([products, beyond / (gpu.dram_bytes_per_s * gpu.dram_achievable_fraction) * 1e6, moved / gpu.l2_bytes_per_s * 1e6])
    return times.max(axis=0) + LEAST_LAUNCH_US, np.array(("tensor", "dram", "l2"))[times.argmax(axis=0)]


def load(stored: Mapping[str, NDArray[Any]]) -> dict[str, OperatorModel]:
    """The models of a file by their kinds, the reverse of `OperatorModel.arrays`."""
    out = {}
    for kind in KINDS:
        if f"{kind}/about" not in stored:
            continue
        about = json.loads(str(stored[f"{kind}/about"]))
        out[kind] = OperatorModel(
            kind=kind,
            series=tuple(Series(a, b, c, d, tuple(words), instructions) for a, b, c, d, words, instructions in about["series"]),
            constants=stored[f"{kind}/constants"].astype(np.float64),
            correction=bushy_forest.from_arrays(stored, f"{kind}/correction"),
            spread=bushy_forest.from_arrays(stored, f"{kind}/spread"),
            calibration=calibration.from_arrays(stored, f"{kind}/calibration"),
            measured=about["measured"],
            held_out=about["held_out"],
        )
    return out


def load_shipped(path: Path | None = None) -> dict[str, OperatorModel]:
    """What the advisor ships, or what a file of `advisor train --operators` holds, by kind; empty where there is none."""
    try:
        place = path or folder("ceilings") / FILE
    except FileNotFoundError:
        return {}
    return _loaded(str(place), place.stat().st_mtime_ns) if place.is_file() else {}


@lru_cache(maxsize=2)
def _loaded(path: str, changed: int) -> dict[str, OperatorModel]:
    del changed  # part of the key: a file that changed is read again
    with np.load(path, allow_pickle=False) as archive:
        return load({key: archive[key] for key in archive.files})
