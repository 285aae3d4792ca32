"""Feature columns of the learned models: ratios of the launch's quantities, so that sizes and GPUs meet on common ground."""

from __future__ import annotations

import numpy as np

from advisor.learned.moe.launch import Launch
from advisor.pipelines import Array

Columns = dict[str, Array]

SERVED, EXACT, BEST = 1.0, 0.0, -1.0
"""Values of the feature `source`: as served (a campaign of its own), an exact configuration of a sweep, the best of a sweep."""


def latency_features(launch: Launch, predicted_us: Array, stack: Array, source: float | Array) -> Columns:
    """Features of the forest that corrects the physics: its terms and the launch's ratios.

    Args:
        launch: Columns [n].
        predicted_us: What the physics predicts, [n].
        stack: Its terms, [7, n].
        source: `SERVED`, `EXACT` or `BEST`.
    """
    log = np.log
    reference = launch.config_bound_us
    columns: Columns = {f"term {i}": log((stack[i] + 1e-3) / predicted_us) for i in range(stack.shape[0])}
    columns |= {
        "latency": log(predicted_us),
        "last wave": launch.full_waves / launch.waves,
        "busiest over mean": launch.per_sm * launch.sms / launch.ctas,
        "waves": log(launch.waves),
        "ctas per sm": log(launch.ctas / launch.sms),
        "l2 fill": log(launch.compulsory_bytes / launch.l2_capacity),
        "resident": launch.resident,
        "k iterations": log(launch.k_iterations),
        "block m": launch.block_m,
        "block n": launch.block_n,
        "block k": launch.block_k,
        "row fill": launch.slots / (launch.row_tiles * launch.block_m),
        "row tiles per expert": launch.row_tiles / launch.experts,
        "rows of an expert": log(launch.most_rows),
        "group m": launch.group_m,
        "dram share": log(launch.dram_us / reference),
        "l2 share": log(launch.least_l2_us / reference),
        "weights": log(launch.weight_bytes / launch.compulsory_bytes),
        "balance": log(launch.peak_flop / launch.pin_rate),
        "l2 over dram": log(launch.l2_rate / launch.pin_rate),
        "capability": launch.capability,
        "sms": launch.sms,
        "clock": launch.clock_mhz,
        "flop per clock": launch.flop_per_clock,
        "source": source + np.zeros(len(launch)),
        "warps": launch.warps,
        "stages": launch.stages,
    }
    return columns


def matrix(columns: Columns) -> Array:
    """Columns side by side, [n, f], in their order."""
    return np.stack([np.asarray(v, dtype=np.float64) for v in columns.values()], axis=1)
