"""The learned model of mixture-of-experts layers: `layer_time`, what corrects it, its errors, and which tables the stacks ran.

What the forest and the network that correct `layer_time` see of a layer: mostly ratios, so that they mean the same on another GPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.learned import network, own_rows
from advisor.learned.bushy_forest import BushyForest
from advisor.learned.layers.layer_time import LayerTime, layer_time
from advisor.learned.layers.moe_layer import AS_MEASURED, KINDS, WEIGHT_BYTES, Launched, Layers, TunedTables, keys, launched
from advisor.learned.network import Mixed
from advisor.learned.own_rows import OwnRows
from advisor.pipelines.columns import Array
from advisor.pipelines.token_draws import Loads
from advisor.system import grouped
from advisor.tables.entries import FIELDS

NEWEST = {True: 514, False: 2400}
"""The newest versions measured, of SGLang (True) and vLLM: newer ones are taken for them."""

LABELS = 3
"""The last features, which are no quantities to a network: whether there is a gate, how operands are stored, stack and version."""


def features(launch: Launched, time: LayerTime) -> Array:
    """The matrix [n, f]."""
    layers, gpu, c = launch.layers, launch.gpu, launch.configuration
    n = len(layers)
    columns: list[Array | float] = []
    for part in (time.w13, time.w2):
        columns += [_log(x / time.total) for x in (part.tensor, part.loop, part.l2, part.dram, part.total, part.idle)]
        per_sm = part.ctas / gpu.num_sms
        columns += [
            np.clip(_log(part.waves), -5, 5),
            np.where(part.waves < 12, np.clip(part.full_waves / np.maximum(part.waves, 0.02), 0, 8), 1),
            np.where(per_sm < 12, np.clip(np.ceil(per_sm) / np.maximum(per_sm, 0.01), 0, 8), 1),
            _log(part.steps),
        ]
    columns += [_log(x / time.total) for x in (time.activation, time.combine, time.quantisation, time.floor, time.align)]
    slots = launch.kept * layers.topk
    columns += [
        np.clip(_log(time.fill), -4, 4),
        _log(time.total),
        _log(time.total / time.floor),
        _log(launch.slots / launch.used),
        _log(launch.slots / launch.blocks / c["BLOCK_SIZE_M"]),
        launch.used / launch.held,
        _log(launch.loads.hottest * launch.used / launch.slots),
        _log(launch.blocks / gpu.num_sms),
        *c.values(),
        launch.resident,
        float(launch.mma),
        float(gpu.compute_capability == "10.3"),
        launch.flop_per_clock,
        float(launch.split_l2),
        layers.topk,
        (layers.inner % 16 != 0).astype(float),
        layers.ranks,
        layers.routing,
        c["BLOCK_SIZE_K"] * WEIGHT_BYTES[layers.kind],
        _log(launch.held),
        _log(layers.hidden),
        _log(layers.inner),
        _log(launch.kept),
        _log(layers.tokens / launch.kept),
        _log(slots * (launch.width + layers.inner) * 2 / gpu.l2_bytes),
        _log(slots * layers.hidden * 2 / gpu.l2_bytes),
        layers.inner % c["BLOCK_SIZE_N"] != 0,
        layers.inner % c["BLOCK_SIZE_K"] != 0,
        layers.hidden % c["BLOCK_SIZE_K"] != 0,
        _log(launch.flop_per_clock * gpu.num_sms * gpu.max_clock_mhz * 1e6 / gpu.dram_bytes_per_s),
        _log(gpu.dram_bytes_per_s / gpu.l2_bytes_per_s),
        float(gpu.smem_bytes_per_sm),
        layers.ungated.astype(float),
        AS_MEASURED[layers.kind].astype(float),
        np.where(layers.sglang, np.minimum(layers.version, NEWEST[True]), 10000 + np.minimum(layers.version, NEWEST[False])),
    ]
    return np.stack([np.broadcast_to(np.asarray(x, dtype=np.float32), (n,)) for x in columns], axis=1)


def _log(x: Array | float) -> Array:
    return np.log(np.maximum(x, 2.5e-3))


PREFIX = "moe_layer"
TOKEN_BINS = (4.5, 32.5, 256.5, 2048.5)
"""Edges between numbers of tokens whose errors are told apart."""

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


def own_kind(kind: int) -> str:
    """Under what a user's rows of layers of a kind of `KINDS` are kept."""
    return f"layer {KINDS[kind]}"


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
class Ran:
    """Whether a version of a stack was seen to run the tuned table, or else its default, for layers that there is a table for."""

    sglang: bool
    gpu: str
    held: int
    inner: int
    kind: int
    version: int
    tuned: bool


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
        correction: Log of latency to `layer_time`.
        quantiles: Between which four of five logs of measured to predicted lie, of GPUs seen and of each when it was left out (by name),
            [1 + GPUs, token bins, kinds, 2].
        ran: Layers for which a table or, although there was one, a default ran.
        versions: (SGLang, version) measured, by GPU.
        held_out: By `own_kind` and GPU, errors in percent that training saw on rows left out, and by name what it says in words.
        corrections: Rows of the user, by GPU and `own_kind`.
    """

    constants: Array
    correction: BushyForest | Mixed
    quantiles: Array
    ran: Sequence[Ran]
    versions: Mapping[str, list[list[float]]]
    held_out: Mapping[str, Any] = field(default_factory=dict)
    corrections: Mapping[tuple[str, str], OwnRows] = field(default_factory=dict)

    def newest(self, gpu: str, sglang: bool) -> float:
        """The newest version of a stack that was measured on a GPU, or on any."""
        pairs = self.versions.get(gpu) or [pair for measured in self.versions.values() for pair in measured]
        of_stack = [version for theirs, version in pairs if bool(theirs) == sglang]
        return max(of_stack) if of_stack else max(v for measured in self.versions.values() for s, v in measured if bool(s) == sglang)

    def launched(
        self,
        layers: Layers,
        gpu: GpuSpec,
        configuration: dict[str, Array] | None = None,
        loads: Loads | None = None,
        tables: TunedTables | None = None,
    ) -> Launched:
        """Layers with a configuration, or else with what their stack and version launch.

        That is the entry of its tuned table among `tables`, unless its default was seen to run all the same; where a table is known to
        have run that is not among them, the fastest of `TYPICAL`; else the default.
        """
        launch = launched(layers, gpu, configuration, loads)
        if configuration is not None:
            return launch
        seen = {(r.sglang, r.gpu, r.held, r.inner, r.kind, r.version): r.tuned for r in self.ran if r.gpu == gpu.name}
        groups = grouped(
            ((key, version), row)
            for row, (key, version) in enumerate(zip(keys(launch), layers.version.tolist(), strict=True))
            if seen.get((*key, int(version)), tables is not None and key in tables)
        )
        best: dict[str, Array] | None = None
        for (key, version), rows in groups.items():
            entry = None if tables is None else tables.running(key, version, launch.kept[rows])
            if entry is None and (*key, int(version)) in seen:
                best = best or self._tuned(launch)
                entry = {name: values[rows] for name, values in best.items()}
            for name, values in (entry or {}).items():
                launch.configuration[name][rows] = values
        return launch

    def _tuned(self, launch: Launched) -> dict[str, Array]:
        """The fastest configuration of `TYPICAL` by `layer_time`, by the names of `FIELDS`, [n] each."""
        rows = [np.full(launch.kept.shape, float(value)) for value in TYPICAL[0]]
        least = np.full(launch.kept.shape, np.inf)
        for configuration in TYPICAL:
            columns = {name: np.full(least.shape, float(value)) for name, value in zip(FIELDS, configuration, strict=True)}
            us = layer_time(replace(launch, configuration=columns), self.constants).total
            rows = [np.where(us < least, value, row) for value, row in zip(configuration, rows, strict=True)]
            least = np.minimum(us, least)
        return dict(zip(FIELDS, rows, strict=True))

    def predict(self, launch: Launched, cold: NDArray[np.bool_] | bool = False) -> Predicted:
        """Latencies of layers with the configuration they are launched with; where `cold`, what was learned of them, measured again and
        again, and what physics add where the L2 held some of them.

        On a GPU never measured the forest speaks alone: with B300 left out it is 3.2 % off, with the network 4.5.
        """
        layers = launch.layers
        time = layer_time(launch, self.constants)
        matrix = features(launch, time)
        seen = launch.gpu.name in self.versions
        correction = self.correction if seen or isinstance(self.correction, BushyForest) else self.correction.by_trees
        us = time.total * np.exp(correction(matrix))
        alike = AS_MEASURED[layers.kind]
        width = self._quantiles_of(launch.gpu)[token_bin(layers.tokens), alike]
        low, high = us * np.exp(width[:, 0]), us * np.exp(width[:, 1])
        for kind in sorted(set(alike.tolist())):
            if (corrections := self.corrections.get((launch.gpu.name, own_kind(kind)))) is not None:
                rows = alike == kind
                us[rows], low[rows], high[rows] = corrections.corrected(matrix[rows], us[rows], low[rows], high[rows])
        slower = layer_time(launch, self.constants, cold).total / time.total
        us, low, high = us * slower, low * slower, high * slower
        best = np.full(us.shape, np.inf)
        for configuration in TYPICAL:
            columns = {name: np.full(us.shape, float(value)) for name, value in zip(FIELDS, configuration, strict=True)}
            best = np.minimum(best, layer_time(replace(launch, configuration=columns), self.constants).total)
        gain = np.minimum(best / time.total, 1.0)
        sigma = np.log(high / low) / 2 / 1.2816
        p = 1 / (1 + np.exp(-1.702 * (-np.log(gain) - np.log(1.1)) / np.maximum(sigma, 0.02)))
        return Predicted(
            us=us,
            low_us=low,
            high_us=high,
            ceiling_us=us * gain,
            p_speedup=p,
            seen=seen or any(gpu == launch.gpu.name for gpu, _ in self.corrections),
        )

    def _quantiles_of(self, gpu: GpuSpec) -> Array:
        """[token bins, kinds, 2]: of a GPU never measured those of its kin when they were left out, or else of GPUs without kin."""
        if gpu.name in self.versions:
            return self.quantiles[0]
        others = _gpus(tuple(sorted(self.versions)))
        alike = kin(gpu, others) or [i for i, other in enumerate(others) if not kin(other, others)] or list(range(len(others)))
        quantiles = np.sort(self.quantiles[1:][alike], axis=0)
        return (quantiles[(len(alike) - 1) // 2] + quantiles[len(alike) // 2]) / 2  # np.median, which imports masked arrays: 20 ms

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The model as named arrays, to be stored."""
        names = sorted(self.versions)
        rows = [[r.sglang, names.index(r.gpu), r.held, r.inner, r.kind, r.version, r.tuned] for r in self.ran]
        versions = [[names.index(name), *pair] for name in names for pair in self.versions[name]]
        return {
            f"{PREFIX}/constants": self.constants,
            f"{PREFIX}/quantiles": self.quantiles,
            f"{PREFIX}/measured": np.array(names),
            f"{PREFIX}/versions": np.array(versions),
            f"{PREFIX}/ran": np.array(rows, dtype=np.int32).reshape(-1, 7),
            f"{PREFIX}/held_out": np.array(json.dumps(self.held_out)),
            **self.correction.arrays(f"{PREFIX}/correction"),
        }


def load(stored: Mapping[str, NDArray[Any]]) -> LayerModel | None:
    """The reverse of `LayerModel.arrays`; None where there are no layers in what is stored."""
    if f"{PREFIX}/constants" not in stored:
        return None
    names = [str(name) for name in stored[f"{PREFIX}/measured"]]
    ran = [
        Ran(bool(sglang), names[gpu], held, inner, kind, version, bool(tuned))
        for sglang, gpu, held, inner, kind, version, tuned in stored[f"{PREFIX}/ran"].tolist()
    ]
    versions: dict[str, list[list[float]]] = {name: [] for name in names}
    for gpu, sglang, version in stored[f"{PREFIX}/versions"].tolist():
        versions[names[int(gpu)]].append([sglang, version])
    return LayerModel(
        constants=stored[f"{PREFIX}/constants"],
        correction=network.from_arrays(stored, f"{PREFIX}/correction"),
        quantiles=stored[f"{PREFIX}/quantiles"],
        ran=ran,
        versions=versions,
        held_out=json.loads(str(stored.get(f"{PREFIX}/held_out", "{}"))),
        corrections=own_rows.load_all(stored),
    )
