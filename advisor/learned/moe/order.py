"""The order of a problem's configurations by physics: what a GPU's figures say of tiles, stages and groups where no sweep of it is known.

The constants are fitted to say which configurations win published sweeps (`training.rank_training`), not how long launches take:
`moe_physics` is fitted
to latencies of configurations that are all good, and says little about the others. Two dozen constants that all GPUs share carry over to
a GPU never swept better than trees do, which learn the tiles that won elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from advisor.learned.moe.launch import Launch
from advisor.learned.moe.moe_physics import SPLIT_L2, TYPICAL_FLOP_PER_CLOCK
from advisor.pipelines import Array

CONSTANTS: dict[str, float] = {
    "launch_us": 3.0,
    "dram_share": 0.95,
    "short_rows": 0.15,
    "short_rows_hbm": 0.05,
    "l2_share": 0.9,
    "resident_share": 1.0,
    "resident_slope": 10.0,
    "read_again": 0.5,
    "tensor_share": 0.9,
    "tensor_share_wgmma": 0.9,
    "small_tile": 8.0,
    "smem_share": 0.9,
    "start_us": 1.5,
    "start_clocks": 1500.0,
    "epilogue_clocks": 10.0,
    "trip_clocks": 60.0,
    "copy_clocks": 2.0,
    "l2_latency_us": 0.3,
    "dram_latency_us": 0.8,
    "depth": 0.8,
    "sharpness": 4.0,
    "tail": 0.3,
    "noise": 0.05,
}
"""Name -> where fitting starts. All are positive and fitted as logarithms. `noise` is the scale of the logarithms of latencies at which
configurations win: of two that differ by it, the faster wins e times as often."""

LEANINGS = ("grouped", "group doublings", "eight warps", "one buffer", "deep tiles of resident sets", "tall tiles")
"""What the terms do not explain, in steps of `LEANING` of the logarithm; 0 where fitting starts."""

LEANING = 0.1

COLUMNS = (
    "block_m",
    "block_n",
    "block_k",
    "group_m",
    "warps",
    "stages",
    "slots",
    "experts",
    "depth",
    "width",
    "compulsory_bytes",
    "weight_bytes",
    "row_tiles",
    "column_tiles",
    "ctas",
    "per_sm",
    "resident",
    "full_waves",
    "k_iterations",
    "accumulators",
    "warp_group",
    "l2_us",
    "tensor_sm_us",
    "smem_sm_us",
    "sms",
    "clock_mhz",
    "flop_per_clock",
    "pin_rate",
    "l2_capacity",
    "capability",
)
"""Fields of `Launch` that the order reads."""

COPY_ELEMENTS = 512.0
"""Elements of 2 bytes that a warp copies with two instructions of 16 bytes per lane."""


def start() -> Array:
    """The parameters before fitting: logarithms of `CONSTANTS`, then `LEANINGS`."""
    return np.concatenate([np.log(np.array(list(CONSTANTS.values()))), np.zeros(len(LEANINGS))])


def columns(launch: Launch) -> dict[str, Array]:
    """The fields that `log_odds` reads, by name."""
    return {name: getattr(launch, name) for name in COLUMNS}


def log_odds(launch: Mapping[str, Any], parameters: Any, xp: Any = np) -> Any:
    """Log-odds that configurations win: among those of one problem, exp(log_odds) over its sum is the share of wins expected.

    Args:
        launch: `COLUMNS`, arrays of one shape; those of numpy or tensors of torch.
        parameters: Of `start`, of the same library.
        xp: The library: numpy, or torch while fitting.
    """
    names = (*CONSTANTS, *LEANINGS)
    v = {name: xp.exp(parameters[i]) if i < len(CONSTANTS) else parameters[i] for i, name in enumerate(names)}
    c = launch
    per_us = c["clock_mhz"]
    resident = xp.minimum(c["resident"], xp.clip(c["ctas"] / c["sms"], 1.0, None))
    fill = xp.log(c["compulsory_bytes"] / (v["resident_share"] * c["l2_capacity"]))
    missed = 1 / (1 + xp.exp(-xp.clip(v["resident_slope"] * fill, -50.0, 50.0)))
    again = xp.clip(_wave_bytes(c, resident, xp) - c["compulsory_bytes"], 0.0, None)
    # HBM sits behind L2s of two partitions, GDDR behind the others; rows of a B tile are runs of BLOCK_SIZE_K elements in DRAM.
    hbm = sum((c["capability"] == capability) for capability in SPLIT_L2) > 0
    short = 1 + xp.where(hbm, v["short_rows_hbm"], v["short_rows"]) * 64 / c["block_k"]
    dram = (c["compulsory_bytes"] + again * v["read_again"]) * missed * short / (c["pin_rate"] * v["dram_share"])
    harmonic = c["block_m"] * c["block_n"] / (c["block_m"] + c["block_n"])
    small = 1 + v["small_tile"] * c["flop_per_clock"] / TYPICAL_FLOP_PER_CLOCK / harmonic
    share = xp.where(c["warp_group"] > 0, v["tensor_share_wgmma"], v["tensor_share"])
    tensor = c["tensor_sm_us"] / share * small
    copies = v["copy_clocks"] * (c["block_m"] + c["block_n"]) * c["block_k"] / COPY_ELEMENTS
    ahead = xp.clip(c["stages"] - 1, 1.0, None) ** v["depth"]
    trip = (v["l2_latency_us"] + v["dram_latency_us"] * missed) / ahead + (v["trip_clocks"] + copies) / per_us
    # What one CTA takes that has the SM to itself: the others of the SM hide it.
    alone = v["start_us"] + (v["start_clocks"] + v["epilogue_clocks"] * c["accumulators"]) / per_us
    alone = alone + c["k_iterations"] * trip + tensor / c["per_sm"]
    terms = xp.stack([dram, c["l2_us"] / v["l2_share"], tensor, c["smem_sm_us"] / v["smem_share"], c["per_sm"] / resident * alone]) + 1e-3
    largest = xp.amax(terms, 0)
    soft = largest * ((terms / largest) ** v["sharpness"]).sum(0) ** (1 / v["sharpness"])
    grouped = xp.log2(xp.minimum(c["group_m"], c["row_tiles"]))
    leaning = (
        v["grouped"] * (grouped > 0)
        + v["group doublings"] * grouped
        + v["eight warps"] * (c["warps"] >= 8)
        + v["one buffer"] * (c["stages"] <= 2)
        + v["deep tiles of resident sets"] * xp.log2(c["block_k"] / 64) * (1 - missed)
        + v["tall tiles"] * xp.log2(c["block_m"] / 16)
    )
    return -(xp.log(v["launch_us"] + soft + v["tail"] * alone) + LEANING * leaning) / v["noise"]


def _wave_bytes(c: Mapping[str, Any], resident: Any, xp: Any) -> Any:
    """Distinct bytes that each wave of CTAs reads, summed over the waves: `group_m` row tiles times the columns that fill the wave."""
    element = c["weight_bytes"] / (c["experts"] * c["width"] * c["depth"])
    running = xp.minimum(c["ctas"], c["sms"] * resident)
    rows = xp.minimum(c["group_m"], c["row_tiles"])
    of_one_expert = xp.minimum(rows, c["row_tiles"] / c["experts"])
    across = xp.minimum(xp.clip(running / rows, 1.0, None), c["column_tiles"])
    blocks = running / xp.clip(across * of_one_expert, 1.0, None)
    filled = c["slots"] / c["row_tiles"]
    return blocks * element * c["depth"] * (of_one_expert * filled + across * c["block_n"]) * c["full_waves"]
