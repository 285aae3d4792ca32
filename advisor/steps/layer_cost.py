"""Bounds and costs of layers of experts, and `Cost`: what any operator of a step costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.learned.layers.layer_model import LayerModel
from advisor.learned.layers.layer_time import layer_time
from advisor.learned.layers.moe_layer import WEIGHT_BYTES, Launched
from advisor.pipelines.bound import LEAST_LAUNCH_US
from advisor.pipelines.columns import Array
from advisor.pipelines.token_draws import LOW_SIGMAS
from advisor.result.schema import PIPELINES

STORED_BYTES = 2
"""Of what goes into a layer and comes out of it, in any kind."""

_BINDING = tuple(PIPELINES.index(name) for name in ("tensor", "dram", "l2"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBound:
    """Bounds in microseconds, of any configuration and of the one launched, and the places in `PIPELINES` of what binds, [n] each."""

    us: Array
    config_us: Array
    binding: NDArray[np.int64]


def layer_bound(launch: Launched, cold: NDArray[np.bool_]) -> LayerBound:
    """The bounds of layers; `cold` [n]: nothing is in the L2 when they begin."""
    layers, gpu, c = launch.layers, launch.gpu, launch.configuration
    slots = launch.slots - np.where(layers.ranks > 1, LOW_SIGMAS * np.sqrt(launch.slots), 0)
    # Where a power law gives fewer slots than there are experts, ties say which rank gets them: the fullest has its share at least.
    share = layers.tokens * layers.topk / layers.ranks
    few = (layers.ranks > 1) & (layers.routing > 0) & (share * layers.ranks <= layers.experts)
    slots = np.maximum(np.where(few, np.minimum(slots, share), slots), 1.0)
    used = np.where(few, np.minimum(launch.loads.least_used, np.maximum(share / layers.tokens, 1.0)), launch.loads.least_used)
    rate = launch.flop_per_clock * gpu.num_sms * gpu.max_clock_mhz
    tensor = 2 * slots * layers.hidden * (launch.width + layers.inner) / rate
    weights = used * (launch.width + layers.inner) * layers.hidden * WEIGHT_BYTES[layers.kind]
    read = weights + np.minimum(launch.kept, slots) * layers.hidden * STORED_BYTES
    written = np.minimum(launch.kept, slots) * layers.hidden * STORED_BYTES
    missed = np.where(cold, read + np.maximum(written - gpu.l2_bytes, 0), np.maximum(read + written - gpu.l2_bytes, 0))
    dram = missed / (gpu.dram_bytes_per_s * gpu.dram_achievable_fraction) * 1e6
    l2 = (read + written) / gpu.l2_bytes_per_s * 1e6
    times = np.stack([tensor, dram, l2])
    us = times.max(axis=0) + LEAST_LAUNCH_US
    blocks = np.maximum(launch.blocks * used / launch.used, slots / c["BLOCK_SIZE_M"])
    padded = [np.ceil(width / c["BLOCK_SIZE_N"]) * c["BLOCK_SIZE_N"] * depth for width, depth in _products(launch)]
    activation_us = 2 * blocks * c["BLOCK_SIZE_M"] * sum(padded) / rate + LEAST_LAUNCH_US
    return LayerBound(us=us, config_us=np.maximum(us, activation_us), binding=np.array(_BINDING)[times.argmax(axis=0)])


def _products(launch: Launched) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Columns and depth of w13 and w2."""
    layers = launch.layers
    return (launch.width, layers.hidden), (layers.hidden, layers.inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One launch, microseconds: predicted with its 80 % interval, the bound and the pipeline that sets it, the tunable ceiling, and what
    the best library kernel takes, with where that was measured; None where none was.

    A library kernel chooses its own configuration: its ceiling is the prediction, and it is not `tunable`. `parts` are the kernels of a
    layer, microseconds each; `source` says which measured kernel this is.
    """

    us: float
    low_us: float
    high_us: float
    bound_us: float
    binding: str
    ceiling_us: float
    tunable: bool
    library_us: float | None = None
    library: str = ""
    source: str = ""
    parts: tuple[tuple[str, float], ...] = ()


def costs_of_layers(launch: Launched, model: LayerModel, cold: bool) -> list[Cost]:
    """The cost of each layer; `cold`: nothing of it is in the L2 when it begins, as within a step."""
    bound, predicted, time = (
        layer_bound(launch, np.full(len(launch.layers), cold)),
        model.predict(launch, cold),
        layer_time(launch, model.constants, cold),
    )
    out = []
    for i in range(len(launch.layers)):
        us, least = max(float(predicted.us[i]), float(bound.us[i])), float(bound.us[i])
        pieces = {
            "w13": time.w13.total,
            "w2": time.w2.total,
            "activation": time.activation,
            "combine": time.combine,
            "quantisation": time.quantisation,
            "align and launches": time.align + time.floor,
        }
        whole = sum(float(np.broadcast_to(piece, predicted.us.shape)[i]) for piece in pieces.values())
        shares = tuple((name, us * float(np.broadcast_to(piece, predicted.us.shape)[i]) / whole) for name, piece in pieces.items())
        out.append(
            Cost(
                us=us,
                low_us=min(max(float(predicted.low_us[i]), least), us),
                high_us=max(float(predicted.high_us[i]), us),
                bound_us=least,
                binding=PIPELINES[int(bound.binding[i])],
                ceiling_us=min(max(float(predicted.ceiling_us[i]), least), us),
                tunable=True,
                parts=tuple(pair for pair in shares if pair[1] > 0),
            )
        )
    return out
