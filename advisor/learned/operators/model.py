"""What was learned of the published operators (`work.KINDS`): constants of every series of measurements, trees that correct a reference
latency, the size of their errors, and how well they did on what was left out.

The weights are a file of their own, `ceilings/operators.npz` (`advisor train --operators`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.learned.calibration import of_group, of_others
from advisor.learned.library import series_model
from advisor.learned.library.series_model import STACK_NAMES, Predicted, SeriesModel, number
from advisor.learned.machine import chip
from advisor.learned.operators.sparse import HOST, TERMS, Operators, Stages
from advisor.learned.operators.work import KINDS, WORDS, further_words, model_of
from advisor.pipelines import Array
from advisor.pipelines.bound import LEAST_LAUNCH_US

FILE = "operators.npz"
POWER = 4.0
"""Sharpness of the maximum of what a stage needs."""


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
    """Logarithms of the constants where their fit starts: microseconds of launches' floor and of the host, multiples of the terms."""
    return np.log(np.array([3.0, 3.0, *([1.3, 1.1, 1.2, 0.5] * stages)]))


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
        columns += [np.log(np.maximum(term, 1e-4) / us) for term in terms]
    columns += [np.log2(np.maximum(rows.sizes[name], 0.5)) for name in KINDS[rows.kind].sizes]
    sizes = rows.sizes
    if "batch_size" in sizes:
        length = sizes.get("isl", sizes.get("seq_len", np.ones(1)))
        columns += [np.log2(sizes["batch_size"] * length), np.log2(length + sizes.get("step", 0.0))]
        columns += [np.ceil(length / 128) * 128 / length]
    columns += [np.array([places[word] for word in words]) for words in zip(*(_words(item) for item in series), strict=True)]
    columns += [np.array([number(item.version) for item in series])]
    return np.stack([np.broadcast_to(np.asarray(column, dtype=np.float32), us.shape) for column in columns], axis=1)


def _words(series: Series) -> tuple[str, ...]:
    return (series.operator, series.stack, series.kernel, *series.words)


def numbers_of_words(series: Iterable[Series]) -> dict[str, int]:
    """A number for each word of the series; of kernels such that those whose names begin alike are neighbours."""
    return {word: i for i, word in enumerate(sorted({word for item in series for word in _words(item)}))}


def labels_of(kind: str) -> int:
    """How many features of a kind, the last, are no quantities: words, stack, version, and the six of the GPU's identity."""
    return len(WORDS) + len(further_words(kind)) + 2 + 6


def identity(gpu: GpuSpec) -> Array:
    """Figures that tell measured GPUs apart, the last columns that the trees see.

    Grace launches kernels half as fast as the hosts of the other boards: modules of DSA take 1.3 ms beside it, 0.65 on a B200.
    """
    return np.array([*chip(gpu, "bf16").identity.values(), _has_grace(gpu)], dtype=np.float32)


def _has_grace(gpu: GpuSpec) -> bool:
    return gpu.name.startswith(("GB2", "GB3", "GH"))


def answering_for(gpu: GpuSpec, measured: Collection[str]) -> Sequence[tuple[float, Array]]:
    """The identities that answer for a GPU: its relatives' in equal parts, and for those with another host, what a measured GPU with its
    host says beyond its own relative with that other: a GB300 is to a B300 as a GB200 is to a B200."""
    beside, alike = {name: _has_grace(load_gpu(name)) == _has_grace(gpu) for name in measured}, series_model.relatives(measured, gpu)
    others = [name for name, same in beside.items() if not same]
    pairs = [(name, item) for name, same in beside.items() if same for item in series_model.relatives(others, load_gpu(name))]
    out = [item for name in alike for item in zip((1, 1, -1), (name, *(pairs[0] if name in others and pairs else ())), strict=False)]
    return [(share / len(alike), identity(load_gpu(name))) for share, name in out]


@dataclass(frozen=True, kw_only=True)
class OperatorModel(SeriesModel):
    """Everything learned of one kind of operators: `kind` is of `work.KINDS`, `models` are the numbers (`work.model_of`) of those that were
    measured, `measured` the places of the series measured on each GPU."""

    kind: str
    series: tuple[Series, ...]
    models: NDArray[np.int64]
    measured: Mapping[str, Sequence[int]]

    @cached_property
    def places(self) -> Mapping[str, int]:
        """A number for each word of the series."""
        return numbers_of_words(self.series)

    @property
    def is_better(self) -> bool:
        """Whether it is better than the crude baseline on pairs of batch and length left out."""
        return self.beats_baseline("pairs")

    def answers_for(self, gpu: GpuSpec) -> bool:
        """Whether it was measured; or another GPU with the same instructions, where GPUs left out were predicted better than by the crude
        baseline."""
        return gpu.name in self.measured or (bool(self.relatives(gpu)) and self.beats_baseline("gpus"))

    def answering(self, operator: str, stack: str, version: str, kernel: str, words: tuple[str, ...], gpu: GpuSpec) -> int | None:
        """The place of the series that answers for an operator of these words, empty ones: whichever is newest; None where none was
        measured with such words."""
        here = {i for name in self.relatives(gpu) for i in self.measured[name]}
        fits = [i for i in here if self.series[i].operator == operator]

        def nearness(i: int) -> tuple[Any, ...]:
            candidate = self.series[i]
            return (
                sum(mine == word for mine, word in zip(candidate.words, words, strict=True)),
                not kernel or candidate.kernel == kernel,
                not kernel or kernel in candidate.kernel,
                not stack or candidate.stack == stack,
                number(candidate.version) == number(version),
                number(candidate.version),
                candidate.kernel,
            )

        return max(fits, key=nearness) if fits else None

    def predict_unmeasured(self, rows: Operators, which: NDArray[np.int64], gpu: GpuSpec) -> Predicted:
        """As `predict`, of launches of a kernel that was never measured: the interval reaches over all that were, of their operator and
        formats."""
        out = self.predict(rows, which, gpu)
        for place in self.measured[self.relatives(gpu)[0]]:
            other = self.series[place]
            alike = np.array([(self.series[i].operator, self.series[i].words) == (other.operator, other.words) for i in which.tolist()])
            if alike.any():
                some = rows.take(alike)
                some = replace(some, labels={**some.labels, "kernel_source": np.full(len(some), other.kernel)})
                beside = self.predict(some, np.full(len(some), place), gpu)
                out.low_us[alike] = np.minimum(out.low_us[alike], beside.low_us)
                out.high_us[alike] = np.maximum(out.high_us[alike], beside.high_us)
        return out

    def predict(self, rows: Operators, which: NDArray[np.int64], gpu: GpuSpec) -> Predicted:
        """Latencies of launches of one GPU by the places of their series, [n]; on a GPU that was never measured the trees answer as for
        its relatives with its host."""
        stages = KINDS[self.kind].stages(rows, gpu)
        us, parts = reference(stages, self.constants[which])
        x = features(rows, stages, us, parts, [self.series[i] for i in which.tolist()], self.places)
        others = of_others(self.kind)
        judged = gpu.name in self.measured and (others, True) in self.calibration.quantiles
        known = np.isin(model_of(rows), self.models) | (not judged)
        operators = np.array([self.series[i].operator for i in which.tolist()])
        tasks = {
            of_group(task, operator): mine & (operators == operator)
            for task, mine in ((self.kind, known), (others, ~known))
            for operator in np.unique(operators).tolist()
        }
        centre, down, up = self.corrected(x, answering_for(gpu, self.measured), tasks, gpu)
        us = us * np.exp(centre)
        least, _ = bound(rows, gpu)
        us = np.maximum(us, least)
        return Predicted(us=us, low_us=np.clip(us * np.exp(down), least, us), high_us=us * np.exp(up), seen=gpu.name in self.measured)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As named arrays, to be stored."""
        about = {
            "series": [[*item[:4], list(item.words), item.instructions] for item in self.series],
            "measured": {name: list(names) for name, names in self.measured.items()},
            "models": self.models.tolist(),
        }
        return self.stored(self.kind, about)


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
        about, parts = series_model.restored(stored, kind)
        out[kind] = OperatorModel(
            kind=kind,
            series=tuple(Series(a, b, c, d, tuple(words), instructions) for a, b, c, d, words, instructions in about["series"]),
            models=np.array(about["models"], dtype=np.int64),
            measured=about["measured"],
            **parts,
        )
    return out


def load_shipped(path: Path | None = None) -> dict[str, OperatorModel]:
    """What the advisor ships, or what a file of `advisor train --operators` holds, by kind; empty where there is none."""
    return series_model.shipped(FILE, load, path) or {}
