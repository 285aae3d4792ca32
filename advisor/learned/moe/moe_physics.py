"""The physics-shaped estimator: a launch latency and a soft maximum of seven terms, with a dozen constants that all GPUs share.

T = launch + tail + (sum over terms of t^p)^(1/p), the launch a time and a number of clocks, the terms being DRAM traffic the L2 does
not hold, DRAM and L2 latency that the bytes in flight do not hide, L2 bandwidth, the tensor and shared-memory pipelines of the busiest
SM, and the latency of the K loop. It knows nothing of a GPU but its figures, so a GPU never seen is just another point; what it
misses, the forest corrects.
"""

from __future__ import annotations

import numpy as np

from advisor.learned.moe.launch import Launch
from advisor.pipelines import Array, memory

# name -> (start value, how firmly it is held there). All are positive and fitted as logarithms.
PARAMETERS: dict[str, tuple[float, float]] = {
    "launch_us": (1.0, 5.0),
    "launch_kiloclocks": (3.5, 3.0),
    "dram_share": (0.97, 1.0),
    "tensor_share": (0.9, 1.0),
    "tensor_share_ampere": (0.9, 1.0),
    "tensor_share_mma_on_hopper": (0.9, 1.0),
    "tensor_share_wgmma": (1.05, 1.0),
    "small_tile": (8.0, 1.0),
    "sharpness": (3.0, 1.0),
    "wave_us": (1.0, 1.0),
    "iteration_us": (0.25, 1.0),
    "iteration_us_per_k": (0.001, 1.0),
    "dram_latency_us": (0.8, 1.0),
    "l2_latency_us": (0.4, 1.0),
    "l2_share": (0.9, 1.0),
    "smem_share": (0.9, 1.0),
    "resident_share": (1.02, 300.0),
    "resident_slope": (60.0, 10.0),
    "resident_share_split": (0.75, 3.0),
    "resident_slope_split": (10.0, 3.0),
    "resident_rest": (0.3, 1.0),
    "tail_us": (0.3, 1.0),
}
SPLIT_L2 = tuple(float(capability) for capability in memory.SPLIT_L2)
"""Compute capabilities whose L2 has two partitions, as numbers."""

REST_POWER = 3.0
"""What is kept of a set larger than the L2 falls with this power of how many times larger it is."""

AMPERE = (8.0, 8.7)
"""First and last compute capability of GPUs that hold a smaller share of their tensor peak at the boost clock than later ones do."""

TYPICAL_FLOP_PER_CLOCK = 2048.0
"""Of one SM; `small_tile` is meant for it."""

TERMS = ("dram", "dram latency", "l2 latency", "l2", "tensor", "smem", "loop")
HOLD = 0.002
"""Weight of the prior against the mean absolute log error."""


def start() -> Array:
    """The parameters before fitting, as logarithms."""
    return np.log(np.array([value for value, _ in PARAMETERS.values()]))


def terms(launch: Launch, parameters: Array) -> tuple[Array, Array]:
    """Predicted latency [n] in microseconds, and the terms [7, n] that compete for it."""
    v = dict(zip(PARAMETERS, np.exp(parameters), strict=True))
    ghz = launch.clock_mhz / 1e3
    # Share of the distinct bytes that must come from DRAM again: a sharp step where they exceed the L2.
    split = np.logical_or.reduce([launch.capability == capability for capability in SPLIT_L2])
    held, slope = (np.where(split, v[f"resident_{name}_split"], v[f"resident_{name}"]) for name in ("share", "slope"))
    fit = np.log(launch.compulsory_bytes / (held * launch.l2_capacity))
    missed = launch.compulsory_bytes / (1 + np.exp(-np.clip(slope * fit, -50, 50)))
    missed *= 1 - np.where(split, 0.0, np.minimum(v["resident_rest"], 0.9)) * np.exp(-REST_POWER * np.maximum(fit, 0))
    dram = missed / (launch.dram_rate * v["dram_share"])
    dram_latency = missed * v["dram_latency_us"] / launch.in_flight_bytes
    l2_latency = launch.l2_traffic_bytes * v["l2_latency_us"] / launch.in_flight_bytes
    l2 = launch.l2_us / v["l2_share"]
    ampere = (launch.capability >= AMPERE[0]) & (launch.capability <= AMPERE[1])
    share = np.where(
        launch.hopper > 0,
        np.where(launch.warp_group > 0, v["tensor_share_wgmma"], v["tensor_share_mma_on_hopper"]),
        np.where(ampere, v["tensor_share_ampere"], v["tensor_share"]),
    )
    harmonic = launch.block_m * launch.block_n / (launch.block_m + launch.block_n)
    # Feeding a small tile costs clocks, whatever the tensor pipeline could do in them.
    tensor = launch.tensor_sm_us / share * (1 + v["small_tile"] * launch.flop_per_clock / TYPICAL_FLOP_PER_CLOCK / harmonic)
    smem = launch.smem_sm_us / v["smem_share"]
    depth = np.maximum(launch.stages - 1, 1)
    trip = v["iteration_us"] + v["iteration_us_per_k"] * launch.block_k
    loop = launch.full_waves * (v["wave_us"] + launch.k_iterations * trip / depth) / ghz
    stack = np.stack([dram, dram_latency, l2_latency, l2, tensor, smem, loop])
    largest = stack.max(axis=0)
    p = v["sharpness"]
    soft = largest * ((stack / largest) ** p).sum(axis=0) ** (1 / p)
    on_busiest = np.minimum(launch.resident, launch.per_sm)
    return v["launch_us"] + v["launch_kiloclocks"] / ghz + soft + launch.per_sm * v["tail_us"] / on_busiest, stack


def fit(launch: Launch, latency_us: Array, weight: Array, seed: int = 0, sample: int = 6000, steps: int = 150) -> Array:
    """Parameters that minimise the mean absolute log error, by Adam on numeric gradients of a weighted sample of rows."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(launch), size=min(sample, len(launch)), replace=True, p=weight / weight.sum())
    sampled, target = launch.take(rows), np.log(latency_us[rows])
    origin, firmness = start(), np.array([firm for _, firm in PARAMETERS.values()])
    x, first, second = origin.copy(), np.zeros(origin.size), np.zeros(origin.size)
    eps = 1e-4
    for step in range(1, steps + 1):
        # A fresh part of the sample per step keeps a step cheap; the whole sample passes several times.
        part = rng.choice(rows.size, size=min(1000, rows.size), replace=False)
        batch, goal = sampled.take(part), target[part]

        def loss(z: Array, batch: Launch = batch, goal: Array = goal) -> float:
            error = np.abs(np.log(terms(batch, z)[0]) - goal).mean()
            return float(error + HOLD * (firmness * (z - origin) ** 2).sum())

        base = loss(x)
        gradient = np.array([(loss(x + eps * unit) - base) / eps for unit in np.eye(origin.size)])
        first, second = 0.9 * first + 0.1 * gradient, 0.99 * second + 0.01 * gradient**2
        rate = 0.04 if step < 0.7 * steps else 0.01
        x = x - rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-9)
    return x
