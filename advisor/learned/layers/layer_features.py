"""What the forest and the network that correct `layer_time` see of a layer: mostly ratios, so that they mean the same on another GPU."""

from __future__ import annotations

import numpy as np

from advisor.learned.layers.layer_time import LayerTime
from advisor.learned.layers.moe_layer import AS_MEASURED, WEIGHT_BYTES, Launched
from advisor.pipelines.columns import Array

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
