"""One product of a mixture-of-experts layer, as whole layers taught it: for types and GPUs of which no launch was measured alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.learned.base import Prediction
from advisor.learned.layers.layer_model import PREFIX, kin
from advisor.learned.layers.layer_time import PRODUCTS, layer_time
from advisor.learned.layers.moe_layer import AS_MEASURED, BF16, FP8, FP8_BLOCK, kind_of, launched, layers_of
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch, token_draws
from advisor.tables.entries import FIELDS

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


def load(stored: Mapping[str, NDArray[Any]]) -> LayerProducts | None:
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
