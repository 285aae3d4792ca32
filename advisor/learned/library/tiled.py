"""The physics of library matrix products: the usual tiles on the busiest SM against what the memory system and the power limit allow.

T = launch + (sum over terms of t^p)^(1/p), the terms being the busiest SM's tiles (the quickest of the menu), the tensor or fma work at
the sustained power limit, L2 traffic, DRAM traffic and latency that the bytes in flight do not hide. A dozen constants are shared by
all GPUs of a kind, so a GPU never seen is just another point; what they miss, a forest corrects (`direct.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
    "sustained_share": 1.0,  # of what the board's power allows (`pipelines.schedule`)
    "sharpness": 4.0,
    "resident_share": 0.95,
    "resident_slope": 10.0,
    "latency_us": 0.5,
}
LIMITS = {"launch_us": (0.0, 5.0), "dram_share": (0.0, 1.0), "resident_slope": (1.0, np.inf)}
"""Least and most of constants that the GPUs learned, whose DRAM seldom binds, would set to what no other GPU can do: DRAM gives no more
than its rate, and data of many times the L2 come from there. (The L2's share may exceed 1: clusters load a tile once for several CTAs.)"""
TERMS = ("compute", "power", "l2", "dram", "latency")


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The tiles that a library's kernels cut a product into."""

    tiles: tuple[tuple[int, int], ...]  # rows and columns, the first of which batches of products take
    depth: int  # of K that a kernel loads at a time, and does whole
    splits: tuple[int, ...]  # of K, each of which is a CTA of its own
    grain: int  # rows and columns up to which padding takes power


SCALED = Library(tiles=((128, 128),), depth=128, splits=(1,), grain=128)
PLAIN = Library(
    tiles=((128, 128), (128, 64), (64, 64), (128, 32), (32, 128), (64, 32), (32, 32)),
    depth=8,
    splits=(1, 2, 4, 8, 16),
    grain=64,
)
LIBRARIES = {"scaled": SCALED, "plain": PLAIN}
"""fp8 kernels with scales per 128 of K have one tile. cuBLAS in fp32 picks from many, and splits K, but for batches of products (all 2,281
on the A100, all 2,004 on the P100 and 1,615 of 1,976 on the T4 have one tile); its kernels load 8 of K at a time (`sgemm_128x128x8`)."""

LEAST_SPLIT_K = 256
"""Of a split: below, its products take less than what it takes to add them up."""

REDUCTION_US = 4.0
"""Launch and latency of the kernel that adds the splits up; its traffic comes on top."""

IN_FLIGHT_STEPS = 4
HOLD = 0.05
"""Weight of the prior against a log error of one, per row."""

SAMPLE = 1500
MOST_EVALUATIONS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """Fitted constants (`PARAMETERS`, as logarithms) and the name in `LIBRARIES` of what they were fitted with."""

    parameters: Array
    library: str


def physics(parameters: Array, library: str) -> Physics:
    """Stored constants.

    Raises:
        ValueError: There is no such library.
    """
    if library not in LIBRARIES:
        raise ValueError(f"{library!r} is no library of products: {', '.join(LIBRARIES)}")
    return Physics(parameters=parameters, library=library)


def terms(problem: ProblemBatch, gpu: Machine, physics: Physics) -> tuple[Array, Array]:
    """Predicted latency [n] in microseconds, and the terms [5, n] that compete for it."""
    v = dict(zip(PARAMETERS, np.exp(physics.parameters), strict=True))
    library = LIBRARIES[physics.library]
    m, n, k = (np.asarray(problem.sizes[name], dtype=np.float64) for name in "MNK")
    batch = problem.sizes.get("B", np.ones(1))
    compute = _tiles_us(m, n, k, batch, gpu, library, v)
    grain = library.grain
    padded = np.ceil(m / grain) * np.ceil(n / grain) * grain**2 * np.ceil(k / library.depth) * library.depth
    power = 2 * batch * padded / (v["sustained_share"] * gpu.sustained_flop)
    rows, columns = np.ceil(m / 128), np.ceil(n / 128)
    loads = batch * (m * k * columns + n * k * rows) * problem.operand_bytes
    stores = batch * m * n * problem.result_bytes
    distinct = batch * (m * k + n * k) * problem.operand_bytes + stores
    l2 = (loads + stores) / gpu.l2_rate_bytes / v["l2_share"]
    over = np.log(distinct / (v["resident_share"] * gpu.l2_capacity_bytes))
    missed = distinct / (1 + np.exp(-np.clip(v["resident_slope"] * over, -50, 50)))
    dram = missed / gpu.streamed_dram_bytes / v["dram_share"]
    running = np.minimum(batch * rows * columns, gpu.num_sms)
    in_flight = running * IN_FLIGHT_STEPS * (np.minimum(m, 128) + 128) * 128 * problem.operand_bytes
    latency = loads * v["latency_us"] / in_flight
    stack = np.stack(np.broadcast_arrays(compute, power, l2, dram, latency))
    largest = stack.max(axis=0)
    sharpness = np.clip(v["sharpness"], 1.0, 20.0)
    return v["launch_us"] + largest * ((stack / largest) ** sharpness).sum(axis=0) ** (1 / sharpness), stack


def _tiles_us(m: Array, n: Array, k: Array, batch: Array, gpu: Machine, library: Library, v: dict[str, float]) -> Array:
    """Microseconds [n] of the busiest SM for its tiles: the least over tiles and splits of K, for batches that of the first tile."""
    least = np.full(np.broadcast_shapes(m.shape, n.shape, k.shape, np.shape(batch)), np.inf)
    for tm, tn in library.tiles:
        area = tm * tn / 128**2
        per_128 = 2 * tm * tn * 128 / gpu.flop_per_clock_per_sm / v["pipeline_share"] + v["step_clocks"] * area  # clocks
        thin = 1 + v["small_tile"] * ((tm + tn) / (tm * tn) - 2 / 128)  # operand bytes per product, against the largest tile
        for splits in library.splits:
            depth = np.ceil(k / splits / library.depth) * library.depth
            per_sm = np.ceil(batch * np.ceil(m / tm) * np.ceil(n / tn) * splits / gpu.num_sms)
            us = per_sm * (depth / 128 * per_128 / gpu.clock_mhz * thin + v["wave_us"] * area)
            if splits > 1:
                partial_bytes = 2 * 4 * splits * m * n * batch  # written and read, in fp32
                us = np.where(depth >= LEAST_SPLIT_K, us + REDUCTION_US + partial_bytes / gpu.l2_rate_bytes, np.inf)
            first = (tm, tn) == library.tiles[0] and splits == 1
            least = np.minimum(least, us if first else np.where(batch > 1, np.inf, us))
    return least


def start(library: str) -> Physics:
    """The constants before fitting."""
    return Physics(parameters=np.log(np.array(list(PARAMETERS.values()))), library=library)


def _limits() -> tuple[Array, Array]:
    """Limits of the constants, as logarithms."""
    low, high = zip(*(LIMITS.get(name, (0.0, np.inf)) for name in PARAMETERS), strict=True)
    with np.errstate(divide="ignore"):
        return np.log(low), np.log(high)


def fit(parts: list[tuple[ProblemBatch, Machine, Array]]) -> Physics:
    """Constants and library that fit measured products best, by robust least squares of the log error.

    Args:
        parts: Problems of one GPU, the GPU, and latencies in microseconds, [n].
    """
    from scipy import optimize  # comes with scikit-learn, which training needs anyway

    total = sum(us.size for _, _, us in parts)
    stride = max(1, round(total / SAMPLE))
    thinned = [(p.take(np.arange(0, us.size, stride)), gpu, us[::stride]) for p, gpu, us in parts]
    target = np.concatenate([np.log(us) for _, _, us in thinned])
    candidates = []
    for library in LIBRARIES:
        origin = start(library)

        def residuals(x: Array, origin: Physics = origin) -> Array:
            predicted = [terms(p, gpu, Physics(parameters=x, library=origin.library))[0] for p, gpu, _ in thinned]
            held = HOLD * np.sqrt(target.size) * 0.05 * (x - origin.parameters)
            return np.concatenate([np.log(np.concatenate(predicted)) - target, held])

        solved = optimize.least_squares(
            residuals, origin.parameters, bounds=_limits(), loss="soft_l1", f_scale=0.02, max_nfev=MOST_EVALUATIONS
        )
        candidates.append((float(solved.cost), Physics(parameters=solved.x, library=origin.library)))
    return min(candidates, key=lambda pair: pair[0])[1]
