"""The physics of library matrix products: the usual tiles on the busiest SM against what the memory system and the power limit allow.

T = launch + (sum over terms of t^p)^(1/p), the terms being the busiest SM's tiles (the quickest of the menu), the tensor or fma work at
the sustained power limit, L2 traffic, DRAM traffic and latency that the bytes in flight do not hide. A dozen constants are shared by
all GPUs of a kind, so a GPU never seen is just another point; what they miss, a forest corrects (`direct.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.learned.machine import Machine
from advisor.pipelines import Array, ProblemBatch

# name -> start value. All are positive and fitted as logarithms.
PARAMETERS: dict[str, float] = {
    "launch_us": 3.0,
    "wave_us": 1.2,  # start and end of a tile
    "pipeline_share": 0.98,  # of the compute pipeline's peak
    "step_clocks": 60.0,  # per 128 of K and tile of 128 x 128, beside the products
    "small_tile": 4.0,
    "l2_share": 0.9,
    "dram_share": 0.9,
    "sustained_share": 1.0,  # of what the board's power allows (`pipelines.power`)
    "sharpness": 4.0,
    "resident_share": 0.95,
    "resident_slope": 10.0,
    "latency_us": 0.5,
}
LIMITS = {"launch_us": (0.0, 5.0), "dram_share": (0.0, 1.0), "resident_slope": (1.0, np.inf)}
"""Least and most of constants that the GPUs learned, whose DRAM seldom binds, would set to what no other GPU can do: DRAM gives no more
than its rate, and data of many times the L2 come from there. (The L2's share may exceed 1: clusters load a tile once for several CTAs.)"""
TERMS = ("compute", "power", "l2", "dram", "latency")
LONE = ((128, 128),)
MENU = ((128, 128), (128, 64), (64, 64), (128, 32), (32, 128), (64, 32), (32, 32))
TILE_CHOICES = (LONE, MENU)
"""Tiles of libraries: fp8 kernels with scales per 128 of K have one, cuBLAS picks from many, but for batches of products the first (all
2,281 on the A100, all 2,004 on the P100 and 1,615 of 1,976 on the T4 have one tile)."""

IN_FLIGHT_STEPS = 4
HOLD = 0.05
"""Weight of the prior against a log error of one, per row."""

SAMPLE = 1500
MOST_EVALUATIONS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """Fitted constants (`PARAMETERS`, as logarithms) and the tiles [t, 2] they were fitted with."""

    parameters: Array
    tiles: NDArray[np.int64]


def terms(problem: ProblemBatch, gpu: Machine, physics: Physics) -> tuple[Array, Array]:
    """Predicted latency [n] in microseconds, and the terms [5, n] that compete for it."""
    v = dict(zip(PARAMETERS, np.exp(physics.parameters), strict=True))
    m, n, k = (np.asarray(problem.sizes[name], dtype=np.float64) for name in "MNK")
    batch = problem.sizes.get("B", np.ones(1))
    clock = gpu.clock_mhz
    compute = np.full(np.broadcast_shapes(m.shape, n.shape, k.shape, np.shape(batch)), np.inf)
    for i, (tm, tn) in enumerate(physics.tiles.tolist()):
        per_sm = np.ceil(batch * np.ceil(m / tm) * np.ceil(n / tn) / gpu.num_sms)
        area = tm * tn / 128**2
        steps = np.ceil(k / 128)
        clocks = steps * (2 * tm * tn * 128 / gpu.flop_per_clock_per_sm / v["pipeline_share"] + v["step_clocks"] * area)
        thin = 1 + v["small_tile"] * ((tm + tn) / (tm * tn) - 2 / 128)  # operand bytes per product, against the largest tile
        tile = per_sm * (clocks / clock * thin + v["wave_us"] * area)
        compute = np.minimum(compute, tile if i == 0 else np.where(batch > 1, np.inf, tile))
    rows, columns = np.ceil(m / 128), np.ceil(n / 128)
    power = 2 * batch * rows * columns * 128**2 * np.ceil(k / 128) * 128 / (v["sustained_share"] * gpu.sustained_flop)
    loads = batch * (m * k * columns + n * k * rows) * problem.operand_bytes
    stores = batch * m * n * problem.result_bytes
    distinct = batch * (m * k + n * k) * problem.operand_bytes + stores
    l2 = (loads + stores) / gpu.l2_rate_bytes / v["l2_share"]
    over = np.log(distinct / (v["resident_share"] * gpu.l2_capacity_bytes))
    missed = distinct / (1 + np.exp(-np.clip(v["resident_slope"] * over, -50, 50)))
    dram = missed / gpu.dram_bytes / v["dram_share"]
    running = np.minimum(batch * rows * columns, gpu.num_sms)
    in_flight = running * IN_FLIGHT_STEPS * (np.minimum(m, 128) + 128) * 128 * problem.operand_bytes
    latency = loads * v["latency_us"] / in_flight
    stack = np.stack(np.broadcast_arrays(compute, power, l2, dram, latency))
    largest = stack.max(axis=0)
    sharpness = np.clip(v["sharpness"], 1.0, 20.0)
    return v["launch_us"] + largest * ((stack / largest) ** sharpness).sum(axis=0) ** (1 / sharpness), stack


def start(tiles: tuple[tuple[int, int], ...]) -> Physics:
    """The constants before fitting."""
    return Physics(parameters=np.log(np.array(list(PARAMETERS.values()))), tiles=np.array(tiles, dtype=np.int64))


def _limits() -> tuple[Array, Array]:
    """Of the constants, as logarithms."""
    low, high = zip(*(LIMITS.get(name, (0.0, np.inf)) for name in PARAMETERS), strict=True)
    with np.errstate(divide="ignore"):
        return np.log(low), np.log(high)


def fit(parts: list[tuple[ProblemBatch, Machine, Array]]) -> Physics:
    """Constants and tiles that fit measured products best, by robust least squares of the log error.

    Args:
        parts: Problems of one GPU, the GPU, and latencies in microseconds, [n].
    """
    from scipy import optimize  # comes with scikit-learn, which training needs anyway

    total = sum(us.size for _, _, us in parts)
    stride = max(1, round(total / SAMPLE))
    thinned = [(p.take(np.arange(0, us.size, stride)), gpu, us[::stride]) for p, gpu, us in parts]
    target = np.concatenate([np.log(us) for _, _, us in thinned])
    found = []
    for tiles in TILE_CHOICES:
        origin = start(tiles)

        def residuals(x: Array, origin: Physics = origin) -> Array:
            predicted = [terms(p, gpu, Physics(parameters=x, tiles=origin.tiles))[0] for p, gpu, _ in thinned]
            held = HOLD * np.sqrt(target.size) * 0.05 * (x - origin.parameters)
            return np.concatenate([np.log(np.concatenate(predicted)) - target, held])

        solved = optimize.least_squares(residuals, origin.parameters, bounds=_limits(), loss="soft_l1", f_scale=0.02,
                                        max_nfev=MOST_EVALUATIONS)  # fmt: skip
        found.append((float(solved.cost), Physics(parameters=solved.x, tiles=origin.tiles)))
    return min(found, key=lambda pair: pair[0])[1]
