"""The learned model of mixture-of-experts layers: `layer_time`, what corrects it, its errors, and which tables the stacks ran.

What the forest and the network that correct `layer_time` see of a layer: mostly ratios, so that they mean the same on another GPU.
One product of a layer, as whole layers taught it, answers for types and GPUs of which no launch was measured alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.learned import network, own_rows
from advisor.learned.base import Prediction
from advisor.learned.forest import BushyForest
from advisor.learned.layers.layer_time import PRODUCTS, LayerTime, layer_time
from advisor.learned.layers.moe_layer import (
    AS_MEASURED,
    BF16,
    FP8,
    FP8_BLOCK,
    KINDS,
    WEIGHT_BYTES,
    Launched,
    Layers,
    TunedTables,
    keys,
    kind_of,
    launched,
    layers_of,
)
from advisor.learned.network import Mixed
from advisor.learned.own_rows import OwnRows
from advisor.pipelines import ConfigurationBatch, ProblemBatch, token_draws
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
        """Layers with a configuration, or else with what their stack and version launch: of no version (0) what the newest does by its
        default, and what else is known of the newest that was measured on the GPU.

        That is the entry of its tuned table among `tables`, unless its default was seen to run all the same; where a table is known to
        have run that is not among them, the fastest of `TYPICAL`; else the default.
        """
        launch = launched(layers, gpu, configuration, loads)
        version = layers.version.copy()
        for sglang in set(layers.sglang[version == 0].tolist()):
            version[(version == 0) & (layers.sglang == sglang)] = self.newest(gpu.name, sglang)
        launch = replace(launch, layers=replace(layers, version=version))
        if configuration is not None:
            return launch
        seen = {(r.sglang, r.gpu, r.held, r.inner, r.kind, r.version): r.tuned for r in self.ran if r.gpu == gpu.name}
        groups = grouped(
            ((key, version), row)
            for row, (key, version) in enumerate(zip(keys(launch), launch.layers.version.tolist(), strict=True))
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
        if not seen:  # of fewer matrix units to its DRAM than any measured (H20), products take what their tiles need
            least = time.w13.least + time.w2.least + time.activation + time.combine + time.quantisation
            us, low, high = (item * np.maximum(least / us, 1) for item in (us, low, high))
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


LAUNCH_US = 1.5
"""Of a product alone, which begins where no other kernel ends; within a layer the floor counts it."""

SPREAD = {BF16: (-0.065, 0.27), FP8: (-0.08, 0.665), FP8_BLOCK: (-0.08, 0.665)}
"""Logs of measured to predicted latency that 10 and 90 % of single launches stay below: of the 1,500 in bf16 and 2,656 in fp8 blocks of
`ceilings/measurements` and their like, good and bad configurations, on an H100, of which no layer was in them. MAPE 12.0 and 20.8 % there,
the analytical model's 16.1 and 30.5 %; of fp8 with one scale per tensor none was measured alone, and the wider one is taken."""

UNLIKE = 0.3
"""How far below, in log latency, the interval of a kind reaches of which no layer was measured (int8): as the analytical model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProducts:
    """The constants of `layer_time` and the GPUs they were learned of."""

    constants: Array
    gpus: tuple[str, ...]

    def covers(self, problem: ProblemBatch, gpu: GpuSpec) -> bool:
        """Whether layers of the kind, or like it, were measured on this GPU, or on one of its generation and class."""
        if problem.family != "fused_moe" or problem.op not in PRODUCTS or problem.cache != "warm":
            return False
        if kind_of(problem.dtype, problem.weight_dtype, problem.block_shape) is None or gpu.vendor != "nvidia":
            return False
        if not gpu.supports("bf16" if problem.dtype == "fp16" else problem.dtype):
            return False
        return gpu.name in self.gpus or bool(kin(gpu, [load_gpu(name) for name in self.gpus]))

    def predict(self, problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Prediction:
        """Latencies of launches, none below the bound; infinite where a configuration cannot launch."""
        demand = pipelines.demand(problem, configuration, gpu)
        launches = np.asarray(pipelines.schedule(demand, gpu).resident > 0)
        kind = kind_of(problem.dtype, problem.weight_dtype, problem.block_shape)
        assert kind is not None  # `covers`
        loads, sizes = _loads(problem), problem.sizes
        n = np.broadcast_shapes(launches.shape, loads.slots.shape, *(size.shape for size in sizes.values()))

        def column(values: Array | float) -> Array:
            return np.broadcast_to(np.asarray(values, dtype=np.float64), n)

        asked_sizes = {name: column(sizes[name]) for name in ("M", "E", "topk", "H", "N")}
        layers = layers_of(asked_sizes, kind, False, 0.0, token_draws.BALANCED, ungated=np.zeros(n, dtype=bool))
        wide = token_draws.Loads(
            slots=column(loads.slots),
            used=column(loads.used),
            least_used=column(loads.used),
            hottest=column(loads.hottest),
            blocks=np.broadcast_to(loads.blocks, (*n, len(token_draws.BLOCKS))),
        )
        chosen = {name: column(configuration.get(name, 1)) for name in FIELDS[:4]}
        chosen |= {"num_warps": column(configuration.num_warps), "num_stages": column(configuration.num_stages)}
        time = layer_time(launched(layers, gpu, chosen, wide), self.constants)
        us = (time.w13 if problem.op == "w13" else time.w2).total + LAUNCH_US
        least = pipelines.config_bound(pipelines.work(problem, gpu), demand, gpu, problem.cache).us
        alike = int(AS_MEASURED[kind])
        low, high = SPREAD[alike] if alike == kind else (-UNLIKE, SPREAD[alike][1])
        ends = (np.where(launches, np.maximum(us * np.exp(item), least), np.inf) for item in (0.0, low, high))
        us, low_us, high_us = ends
        known = gpu.name in self.gpus and alike == kind
        measured = np.broadcast_to(launches & known, n)
        return Prediction(us=us, low_us=low_us, high_us=high_us, learned=measured, share=np.ones(n))


def load_products(stored: Mapping[str, NDArray[Any]]) -> LayerProducts | None:
    """From the weights of layers; None where there are none."""
    if f"{PREFIX}/constants" not in stored:
        return None
    return LayerProducts(constants=stored[f"{PREFIX}/constants"], gpus=tuple(str(name) for name in stored[f"{PREFIX}/measured"]))


def _loads(problem: ProblemBatch) -> token_draws.Loads:
    """Loads of the experts from the groups of a problem's routing, [n] each."""
    rows, count = problem.routing
    some = count * (rows > 0)
    return token_draws.Loads(
        slots=(rows * count).sum(-1),
        used=some.sum(-1),
        least_used=some.sum(-1),
        hottest=rows.max(-1),
        blocks=np.stack([(count * np.ceil(rows / size)).sum(-1) for size in token_draws.BLOCKS], axis=-1),
    )
