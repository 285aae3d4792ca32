"""The learned model of mixture-of-experts layers: `layer_time`, a forest that corrects it, its errors, and which tables the stacks ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.learned import bushy_forest
from advisor.learned.bushy_forest import BushyForest
from advisor.pipelines.columns import Array
from advisor.pipelines.token_draws import Loads
from advisor.steps.layer_features import features
from advisor.steps.layer_time import layer_time
from advisor.steps.moe_layer import Launched, Layers, launched
from advisor.tables.defaults import FIELDS

PREFIX = "moe_layer"
TOKEN_BINS = (4.5, 32.5, 256.5, 2048.5)
"""Edges between numbers of tokens whose errors are told apart."""

HABIT_TOKENS = (1, 4, 16, 48, 128, 512, 2048, 8192)
"""Numbers of tokens at which a table is kept: a summary of what ran, not the table."""

TYPICAL = (
    (16, 64, 128, 1, 4, 4),
    (16, 128, 128, 1, 4, 3),
    (16, 32, 64, 1, 4, 3),
    (32, 64, 128, 1, 4, 3),
    (32, 128, 64, 1, 4, 3),
    (64, 64, 64, 1, 4, 3),
    (64, 128, 64, 8, 4, 4),
    (128, 128, 64, 16, 8, 3),
    (128, 256, 64, 16, 8, 4),
    (64, 128, 128, 16, 4, 3),
    (128, 128, 128, 16, 8, 3),
    (128, 256, 128, 16, 8, 4),
)
"""Configurations between which a tuned layer is likely to find its best."""


@lru_cache
def _gpus(names: tuple[str, ...]) -> tuple[GpuSpec, ...]:
    return tuple(load_gpu(name) for name in names)


def token_bin(tokens: Array) -> NDArray[np.int64]:
    """Which errors count, [n]."""
    return np.searchsorted(TOKEN_BINS, tokens)


def kin(gpu: GpuSpec, others: Sequence[GpuSpec]) -> list[int]:
    """Places of the GPUs of the same generation and class as `gpu`."""
    return [
        i
        for i, other in enumerate(others)
        if other.compute_capability.split(".")[0] == gpu.compute_capability.split(".")[0]
        and other.smem_bytes_per_sm == gpu.smem_bytes_per_sm
        and other.name != gpu.name
    ]


@dataclass(frozen=True, slots=True)
class Habit:
    """A table that a stack ran: for which layers, in which versions, and its configurations at `HABIT_TOKENS`, [8, 6]."""

    sglang: bool
    gpu: str
    held: int
    inner: int
    kind: int
    since: int
    until: int
    configurations: NDArray[np.uint16]

    @classmethod
    def of(cls, key: tuple[bool, str, int, int, int], since: float, until: float, tokens: Array, rows: Array) -> Self:
        """From a table's token counts [m] and configurations [m, 6]."""
        place = [int(np.abs(tokens - wanted).argmin()) for wanted in HABIT_TOKENS]
        return cls(*key, int(since), int(until), rows[place].astype(np.uint16))


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Latencies of layers in microseconds, [n] each, an interval that holds four of five, and the regime of their GPU."""

    us: Array
    low_us: Array
    high_us: Array
    ceiling_us: Array
    p_speedup: Array
    seen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerModel:
    """Everything learned about layers.

    Attributes:
        constants: Of `layer_time`, as logarithms.
        forest: Log of latency to `layer_time`.
        quantiles: Between which four of five logs of measured to predicted lie, of GPUs seen and of each when it was left out (by name),
            [1 + GPUs, token bins, kinds, 2].
        habits: Tables that ran.
        versions: (SGLang, version) measured, by GPU.
    """

    constants: Array
    forest: BushyForest
    quantiles: Array
    habits: Sequence[Habit]
    versions: Mapping[str, list[list[float]]]

    def newest(self, gpu: str, sglang: bool) -> float:
        """The newest version of a stack that was measured on a GPU, or on any."""
        pairs = self.versions.get(gpu) or [pair for found in self.versions.values() for pair in found]
        of_stack = [version for theirs, version in pairs if bool(theirs) == sglang]
        return max(of_stack) if of_stack else max(v for found in self.versions.values() for s, v in found if bool(s) == sglang)

    def launched(self, layers: Layers, gpu: GpuSpec, configuration: dict[str, Array] | None = None, loads: Loads | None = None) -> Launched:
        """Layers with a configuration, or else with what their stack and version launch: a table that ran, else the default."""
        launch = launched(layers, gpu, configuration, loads)
        if configuration is not None:
            return launch
        held = launch.held
        at = np.abs(np.log(np.array(HABIT_TOKENS))[:, None] - np.log(np.maximum(launch.kept, 1))).argmin(axis=0)
        for habit in self.habits:
            if habit.gpu != gpu.name:
                continue
            rows = (layers.sglang == habit.sglang) & (held == habit.held) & (layers.inner == habit.inner) & (layers.kind == habit.kind)
            rows &= (layers.version >= habit.since) & (layers.version <= habit.until)
            for i, name in enumerate(FIELDS):
                launch.configuration[name][rows] = habit.configurations[at[rows], i]
        return launch

    def predict(self, launch: Launched) -> Predicted:
        """Latencies of layers with the configuration they are launched with."""
        layers = launch.layers
        time = layer_time(launch, self.constants)
        us = time.total * np.exp(self.forest(features(launch, time)))
        width = self._quantiles_of(launch.gpu)[token_bin(layers.tokens), layers.kind]
        best = np.full(us.shape, np.inf)
        for configuration in TYPICAL:
            columns = {name: np.full(us.shape, float(value)) for name, value in zip(FIELDS, configuration, strict=True)}
            best = np.minimum(best, layer_time(replace(launch, configuration=columns), self.constants).total)
        gain = np.minimum(best / time.total, 1.0)
        sigma = (width[:, 1] - width[:, 0]) / 2 / 1.2816
        p = 1 / (1 + np.exp(-1.702 * (-np.log(gain) - np.log(1.1)) / np.maximum(sigma, 0.02)))
        return Predicted(
            us=us,
            low_us=us * np.exp(width[:, 0]),
            high_us=us * np.exp(width[:, 1]),
            ceiling_us=us * gain,
            p_speedup=p,
            seen=launch.gpu.name in self.versions,
        )

    def _quantiles_of(self, gpu: GpuSpec) -> Array:
        """[token bins, kinds, 2]: of a GPU never measured those of its kin when they were left out, or else of GPUs without kin."""
        if gpu.name in self.versions:
            return self.quantiles[0]
        others = _gpus(tuple(sorted(self.versions)))
        alike = kin(gpu, others) or [i for i, other in enumerate(others) if not kin(other, others)] or list(range(len(others)))
        return np.median(self.quantiles[1:][alike], axis=0)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The model as named arrays, to be stored."""
        names = sorted(self.versions)
        gpus = sorted({*names, *(habit.gpu for habit in self.habits)})
        rows = [[h.sglang, gpus.index(h.gpu), h.held, h.inner, h.kind, h.since, h.until] for h in self.habits]
        versions = [[names.index(name), *pair] for name in names for pair in self.versions[name]]
        return {
            f"{PREFIX}/constants": self.constants,
            f"{PREFIX}/quantiles": self.quantiles,
            f"{PREFIX}/gpus": np.array(gpus),
            f"{PREFIX}/measured": np.array(names),
            f"{PREFIX}/versions": np.array(versions),
            f"{PREFIX}/habit_keys": np.array(rows, dtype=np.int32).reshape(-1, 7),
            f"{PREFIX}/habits": np.array([h.configurations for h in self.habits], dtype=np.uint16).reshape(
                -1, len(HABIT_TOKENS), len(FIELDS)
            ),
            **self.forest.arrays(f"{PREFIX}/forest"),
        }


def load(stored: Mapping[str, NDArray[Any]]) -> LayerModel | None:
    """The reverse of `LayerModel.arrays`; None where there are no layers in what is stored."""
    if f"{PREFIX}/constants" not in stored:
        return None
    gpus, names = ([str(name) for name in stored[f"{PREFIX}/{which}"]] for which in ("gpus", "measured"))
    habits = [
        Habit(bool(sglang), gpus[gpu], held, inner, kind, since, until, configurations)
        for (sglang, gpu, held, inner, kind, since, until), configurations in zip(
            stored[f"{PREFIX}/habit_keys"].tolist(), stored[f"{PREFIX}/habits"], strict=True
        )
    ]
    versions: dict[str, list[list[float]]] = {name: [] for name in names}
    for gpu, sglang, version in stored[f"{PREFIX}/versions"].tolist():
        versions[names[int(gpu)]].append([sglang, version])
    return LayerModel(
        constants=stored[f"{PREFIX}/constants"],
        forest=bushy_forest.from_arrays(stored, f"{PREFIX}/forest"),
        quantiles=stored[f"{PREFIX}/quantiles"],
        habits=habits,
        versions=versions,
    )
