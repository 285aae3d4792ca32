"""What a configured launch asks of a GPU, as numbers that mean the same on every GPU and for every family."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import Array, ConfigurationBatch, Demand, ProblemBatch, occupancy
from advisor.pipelines.bound import L2_PORT_BYTES_PER_CLOCK, throughput_per_us
from advisor.pipelines.normalization import longest_block
from advisor.pipelines.schedule import ADDRESSES, DRAM_LATENCY_US, L2_LATENCY_US, sustained_us

FAMILIES = ("gemm", "fused_moe", "attention", "normalization", "elementwise")
PRODUCTS, ROW_BY_ROW = FAMILIES[:2], FAMILIES[3:]

NAMES = (
    *("in_turn", "result_bytes", "block_m", "block_n", "block_k", "group", "warps", "stages", "depth", "parts"),
    *("tile_per_warp", "elements_per_thread", "warp_m", "warp_n", "warp_group", "subtile", "rows_per_cta"),
    *("trips", "resident", "per_sm", "fill", "waves", "last_wave", "useful", "idle", "groups", "odd_k", "odd_n"),
    *("registers", "accumulators", "shared_memory", "active_warps", "requests_a", "requests_b", "in_flight", "pipelined"),
    *("tensor", "fma", "xu", "smem", "l2", "dram", "port", "chain", "trip_latency", "busiest", "sustained"),
    *("working_set", "operands_of_a_wave", "re_read", "loads", "start", "scale", "intensity"),
    *("columns", "rows", "row_length", "cold"),
    *("persistent", "family", "op", "operand_bytes"),
)
"""Columns of `features`, in order. Amounts and times are logarithms to base 2; times are relative to the longest."""

LABELS = 4
"""The last of them tell kernels apart."""


def features(problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec, demand: Demand | None = None) -> tuple[Array, Array]:
    """The time of the longest of a launch's pipelines, log of microseconds [n], and what else is known of it, [n, len(NAMES)] (`NONE`
    where a family has no such thing).

    Configurations that cannot launch get numbers too: whoever asks leaves those out.
    """
    needed = pipelines.demand(problem, configuration, gpu) if demand is None else demand
    plan = pipelines.schedule(needed, gpu)
    rates = throughput_per_us(gpu, needed.tensor_dtype)
    held, sizes = needed.resources, problem.sizes
    n = np.broadcast_shapes(needed.ctas.shape, held.num_warps.shape, plan.resident.shape, needed.k_iterations.shape)
    sms, clock = float(gpu.num_sms), float(gpu.max_clock_mhz)
    ctas = np.maximum(needed.ctas, 1.0)
    resident = np.maximum(plan.resident, 1.0)
    per_sm = ctas / sms
    together = np.minimum(resident, np.ceil(per_sm))  # CTAs of the busiest SM that run at once
    # An SM takes its next CTA as soon as one ends: with many of them the last ones overlap.
    busiest = np.where(per_sm > 16, per_sm, np.ceil(per_sm))
    alone = {
        name: needed.per_cta[name] / (rates[name] / sms * (needed.tensor_rate if name == "tensor" else 1.0))
        for name in ("tensor", "fma", "xu", "smem", "issue")
        if rates[name]
    }
    tensor = busiest * alone.get("tensor", np.zeros(1))
    fma, xu, smem = (busiest * alone[name] for name in ("fma", "xu", "smem"))
    port = busiest * needed.cta_load_bytes / (L2_PORT_BYTES_PER_CLOCK * clock)
    l2, dram = needed.l2_bytes / rates["l2"], needed.dram_bytes / rates["dram"]
    trips = np.maximum(needed.k_iterations, 1.0) * (1.0 if needed.largest_cta_ratio is None else np.maximum(needed.largest_cta_ratio, 1.0))
    from_dram = np.clip(needed.dram_bytes / np.maximum(needed.compulsory_bytes, 1), 0, 1)
    latency = L2_LATENCY_US + (DRAM_LATENCY_US - L2_LATENCY_US) * from_dram
    depth = np.maximum(needed.num_stages - 1, 1.0) if gpu.vendor == "nvidia" and float(gpu.compute_capability) >= 8.0 else np.ones(1)
    rounds = np.maximum(np.ceil(busiest / together), 1.0)
    work_of_trip = (alone.get("tensor", np.zeros(1)) + alone["fma"]) / trips
    trip = np.maximum(latency / depth, 0.02) + work_of_trip / depth  # of one CTA that waits for its loads
    chain = rounds * trips * trip
    times = {"tensor": tensor, "fma": fma, "xu": xu, "smem": smem, "l2": l2, "dram": dram, "port": port, "chain": chain}
    if needed.in_turn:
        times["busiest"] = tensor + fma + xu
    longest = np.maximum.reduce(np.broadcast_arrays(*times.values()))
    total = sum(np.square(np.square(np.maximum(time, 1e-9) / longest)) for time in times.values())
    cold = problem.cache == "cold"
    base = np.sqrt(np.sqrt(total)) * longest + START_US + (COLD_START_US if cold else 0.0)

    block = {axis: configuration.parameters.get(f"BLOCK_SIZE_{axis}", configuration.parameters.get(f"BLOCK_{axis}")) for axis in "MNK"}
    group = configuration.parameters.get("GROUP_SIZE_M", configuration.parameters.get("GROUP_M")) if problem.family in PRODUCTS else None
    threads = held.num_warps * gpu.warp_size
    width = sizes.get("N")
    registers = np.minimum(gpu.max_registers_per_thread, np.maximum(np.floor(gpu.registers_per_sm / threads), 1.0))
    accumulators = np.zeros(1) if held.accumulators is None else held.accumulators
    tile = _product(block["M"], block["N"])
    by_row = problem.family in ROW_BY_ROW
    rows_per_cta = configuration.get("ROWS_PER_CTA", 1) if by_row else None
    if tile is None and by_row:
        tile = _product(configuration.parameters.get("BLOCK_SIZE", longest_block(sizes["H"])), rows_per_cta)
    if group is not None and width is not None and block["N"] is not None:  # a group of all row tiles or more is one launch
        group = np.minimum(group, _row_tiles(ctas, np.ceil(width / block["N"]), needed.parts))
    group_rows = np.maximum(np.nan_to_num(group, nan=1.0), 1.0) if group is not None else np.ones(1)
    running = np.minimum(ctas, sms * resident)
    of_wave = None
    if block["M"] is not None and block["N"] is not None and "K" in sizes:
        columns_of_wave = np.maximum(running / group_rows, 1.0)
        of_wave = (group_rows * block["M"] + columns_of_wave * block["N"]) * sizes["K"] * problem.operand_bytes
    row_length = sizes.get("K", sizes.get("H", sizes.get("D")))
    of: dict[str, NDArray[np.floating] | float | None] = {
        "family": float(FAMILIES.index(problem.family)),
        "op": float({"w2": 1, "decode": 1, "softmax": 1, "layer_norm": 2}.get(problem.op, 0)),
        "in_turn": float(needed.in_turn),
        "operand_bytes": problem.operand_bytes,
        "result_bytes": problem.result_bytes,
        "block_m": _log(block["M"]),
        "block_n": _log(block["N"]),
        "block_k": _log(block["K"]),
        "group": _log(group),
        "warps": _log(held.num_warps),
        "stages": configuration.num_stages,
        "depth": _log(depth),
        "parts": _log(needed.parts) if needed.parts is not None else 0.0,
        "tile_per_warp": _log(tile / held.num_warps) if tile is not None else None,
        "elements_per_thread": _log(tile / threads) if tile is not None else None,
        **_warps(block["M"], block["N"], held.num_warps, problem.dtype, gpu),
        "persistent": configuration.parameters.get("FLATTEN"),
        "subtile": configuration.parameters.get("EPILOGUE_SUBTILE"),
        "rows_per_cta": _log(rows_per_cta),
        "trips": _log(trips),
        "resident": _log(together),
        "per_sm": _log(per_sm),
        "fill": per_sm / np.ceil(per_sm),
        "waves": _log(plan.waves),
        "last_wave": plan.waves / np.ceil(np.maximum(plan.waves, 1e-9)),
        "useful": needed.useful_fraction,
        "odd_k": _odd(row_length),
        "odd_n": _odd(width),
        "registers": held.registers / registers,
        "accumulators": (accumulators + ADDRESSES) / registers,
        "shared_memory": held.shared_memory_bytes / gpu.smem_bytes_per_cta,
        "active_warps": _log(together * held.num_warps),
        **{name: _log(np.maximum(time / longest, LEAST)) for name, time in times.items() if name != "busiest"},
        "trip_latency": _log(latency / depth / np.maximum(work_of_trip * together, 1e-4)),
        "busiest": _log(busiest / np.maximum(per_sm, 1e-9)),
        "working_set": _log(needed.compulsory_bytes / gpu.l2_bytes),
        "operands_of_a_wave": _log(of_wave / gpu.l2_bytes) if of_wave is not None else None,
        "re_read": _log(needed.l2_bytes / needed.compulsory_bytes),
        "loads": _log(needed.cta_load_bytes / trips),
        "start": _log(needed.launched_ctas / (clock * longest)),
        "scale": _log(longest),
        "intensity": _log(np.maximum(tensor, 1e-3) / np.maximum(dram, 1e-3)),
        "columns": _log(width),
        "rows": _log(sizes.get("M", sizes.get("B"))),
        "row_length": _log(row_length),
        "cold": float(cold),
        "requests_a": _log(_requests(block["M"], block["K"], problem.operand_bytes, threads)),
        "requests_b": _log(_requests(block["N"], block["K"], problem.operand_bytes, threads)),
        "in_flight": _log(together * needed.cta_load_bytes / trips * depth),
        "sustained": _log(np.maximum(sustained_us(needed, gpu) / longest, LEAST)),
        "idle": _log(needed.launched_ctas / ctas),
        "groups": _log((problem.routing[1] * (problem.routing[0] > 0)).sum(-1)) if problem.family == "fused_moe" else None,
        "pipelined": needed.num_stages,
    }
    matrix = np.empty((len(NAMES), *n), dtype=np.float32)
    for i, name in enumerate(NAMES):
        value = of[name]
        matrix[i] = NONE if value is None else value
    return np.broadcast_to(np.log(base), n), matrix.T


START_US = 1.5
"""From one launch of a graph to the next, and what a CTA takes before its loop. Source: empty launches in a graph take 0.8 to 1.3 us; one
load from DRAM takes `DRAM_LATENCY_US`."""

COLD_START_US = 1.3
"""What a launch takes longer where its instructions, arguments and page tables are not in the L2 either. Source: RMS norms of 16 and 256
rows on an H200, 2.8 and 3.4 us cold, 1.5 and 1.8 warm (`ceilings/measurements/h200-tiles.csv.gz`)."""


LEAST = 2.0**-12
"""Shares of the longest time below this are no longer told apart."""


def _warps(
    rows: Array | None, columns: Array | None, warps: Array, dtype: str, gpu: GpuSpec
) -> dict[str, NDArray[np.floating] | float | None]:
    """Rows and columns of a tile that one warp multiplies, and whether four do so together."""
    if rows is None or columns is None:
        return {"warp_m": None, "warp_n": None, "warp_group": None}
    along_m, along_n = occupancy.mma_warps(rows, columns, warps)
    together = occupancy.wants_wgmma(gpu, rows, warps, dtype)
    return {"warp_m": _log(rows / along_m), "warp_n": _log(columns / along_n), "warp_group": together.astype(float)}


def _log(amount: Array | None) -> NDArray[np.float32] | None:
    return None if amount is None else np.log2(np.maximum(amount, 1e-9).astype(np.float32))


def _requests(rows: Array | None, columns: Array | None, element_bytes: float, threads: Array) -> Array | None:
    """Loads of 16 bytes that each thread makes of a tile, whether its rows exist or are read again: [n]."""
    elements = _product(rows, columns)
    return None if elements is None else elements * element_bytes / (16 * threads)


def _row_tiles(ctas: Array, columns: Array, parts: Array | None) -> Array:
    """Rows of tiles of a launch of so many CTAs with `columns` of them each, in `parts`: [n]."""
    return np.maximum(np.round(ctas / columns / (1.0 if parts is None else parts)), 1.0)


def _product(a: Array | None, b: Array | None) -> Array | None:
    return None if a is None or b is None else a * b


def _odd(length: Array | None) -> Array | None:
    """How far a row of so many elements is from the multiples that loads need: 0 of 16, 1 of 8, 2 of 4, 3 else."""
    return None if length is None else 3.0 - (length % 4 == 0) - (length % 8 == 0) - (length % 16 == 0)


NONE = -20.0
"""In place of what a family does not have: below all that there is, so that trees tell it apart."""
