"""Reference latencies of library kernels, and what the trees see of a launch: GEMM (`gemm`), and attention (`prefill`, `decode`).

GEMM: from tiles, waves, splits of K, DRAM and L2. What is timed is the whole linear, with the quantisation of the activations for fp8;
several weights take turns, so that they come from DRAM unless all of them fit the L2.

Attention: causal prefill, and decoding with a cache. Sequences and heads enter as their products: the kernels cut both into the same CTAs,
so that a layout of heads never measured is answered as one that was, of as many CTAs.
"""

from __future__ import annotations

import numpy as np

from advisor.learned.machine import Chip, missed_share
from advisor.pipelines import Array

TILES = ((64, 64), (128, 64), (128, 128), (128, 256), (256, 128), (256, 256))
SPLITS = (1, 2, 4, 8, 16)
LEAST_SPLIT_K = 256
PLAIN, SCALED, BLOCKED = "bf16", "fp8", "fp8 block"
WEIGHTS_IN_TURN = 6
"""In the measurements of `ai-dynamo/aiconfigurator`."""


def gemm(m: Array, n: Array, k: Array, gpu: Chip, kind: str, tuned: bool = False, cold: bool = False) -> tuple[Array, dict[str, Array]]:
    """Latency in microseconds and features, [n] each.

    Args:
        m: Rows.
        n: Columns.
        k: Depth.
        gpu: Its figures for the operands' type.
        kind: `PLAIN`, `SCALED` or `BLOCKED`.
        tuned: As AMD's tuner times it: the same weight again and again, activations already quantised.
        cold: All of the weights come from DRAM.
    """
    size = 1.0 if kind != PLAIN else 2.0
    quantised, in_turn = kind != PLAIN and not tuned, 1 if tuned else WEIGHTS_IN_TURN
    flop = 2 * m * n * k
    weights, rows, result = n * k * size, m * k * size, m * n * 2.0
    missed = missed_share(in_turn * weights + rows + result, 0.9 * gpu.l2_bytes) if not cold else np.ones(m.shape)
    passing = missed_share(rows * (3 if quantised else 1) + result, 0.7 * gpu.l2_bytes)
    dram = (weights * missed + (rows + result) * passing) / (0.92 * gpu.dram)
    l2_rate = 0.7 * gpu.l2_rate
    by_tile = [_tile_us(m, n, k, tile, gpu, size, dram, l2_rate) for tile in TILES]
    best = np.min([us for us, _ in by_tile], axis=0)
    which = np.argmin([us for us, _ in by_tile], axis=0)
    quantisation = 1.5 + 3 * rows * passing / (0.8 * gpu.dram) + 3 * rows / l2_rate if quantised else np.zeros_like(m)
    power = flop / gpu.sustained
    us = (best**6 + power**6) ** (1 / 6) + quantisation + 2.0
    columns = {
        "us": np.log(us),
        "dram": dram / us,
        "compute": flop / (gpu.rate * gpu.sms * gpu.clock) / us,
        "power": power / us,
        "quantisation": quantisation / us,
        "tile": which.astype(np.float64),
        "splits": np.choose(which, [splits for _, splits in by_tile]),
        "m": m,
        "n": n,
        "k": k,
        "m n": np.log(m * n),
        "n k": np.log(n * k),
        "m k": np.log(m * k),
        "n / k": np.log(n / k),
        "m / n": np.log(m / n),
        "weights / l2": np.log(in_turn * weights / gpu.l2_bytes),
        "rows / l2": np.log((rows + result) / gpu.l2_bytes),
        "intensity": np.log(flop / (weights + rows + result)),
        # cuBLAS and vLLM take other kernels where rows are not aligned
        "alignment": np.select([m % 8 == 0, m % 4 == 0, m % 2 == 0], [3.0, 2.0, 1.0], 0.0),
        "column fill 256": n / (np.ceil(n / 256) * 256),
    }
    columns |= {f"tile {a}x{b}": np.log(tile / best) for (a, b), (tile, _) in zip(TILES, by_tile, strict=True)}
    columns |= {f"row fill {step}": m / (np.ceil(m / step) * step) for step in (16, 64, 128, 256)}
    for a, b in ((64, 64), (128, 128), (128, 256), (256, 256)):
        waves = np.ceil(m / a) * np.ceil(n / b) / gpu.sms
        columns |= {f"waves {a}x{b}": np.log(waves), f"last wave {a}x{b}": np.where(waves < 50, waves / np.ceil(waves), 1.0)}
    if kind == BLOCKED and not tuned:
        rows_of, columns_of, waves, used = deep_gemm_blocks(m, n, gpu)
        columns |= {"block rows": rows_of, "block columns": columns_of, "block waves": waves, "last blocks": used / gpu.sms}
        columns["blocks"] = np.log(waves * rows_of * columns_of * k / (gpu.rate * gpu.clock) / us)
    return us, columns


def _tile_us(
    m: Array, n: Array, k: Array, tile: tuple[int, int], gpu: Chip, size: float, dram: Array, l2_rate: float
) -> tuple[Array, Array]:
    """Microseconds [n] of the busiest SM with tiles of this shape and the best split of K, and that split."""
    rows, columns = tile
    # of the tile that keeps the matrix units busy: wgmma and tcgen05 read it from shared memory (H100 128, H20 32, B200 256)
    side = gpu.rate * size / 64 if gpu.warp_groups else 96
    share = 0.95 * min(1.0, np.sqrt(rows * columns) / side) ** 0.7
    best, chosen = np.full(m.shape, np.inf), np.ones(m.shape)
    for splits in SPLITS:
        depth = np.ceil(k / splits / 64) * 64
        ctas = np.ceil(m / rows) * np.ceil(n / columns) * splits
        products = 2 * rows * columns * depth / (gpu.rate * share) / gpu.clock
        loads = (rows + columns) * depth * size * np.minimum(ctas, gpu.sms) / l2_rate
        us = np.ceil(ctas / gpu.sms) * (np.maximum(products, loads) + 0.6 + rows * columns * 4 / (64 * gpu.clock))
        us = np.maximum(us, dram * np.maximum(1, 0.6 * gpu.sms / ctas))  # few SMs do not fill the memory's pipeline
        if splits > 1:
            us = np.where(k / splits >= LEAST_SPLIT_K, us + 1.0 + splits * m * n * 8 / l2_rate, np.inf)
        chosen = np.where(us < best, splits, chosen)
        best = np.minimum(best, us)
    return best, chosen


def deep_gemm_blocks(m: Array, n: Array, gpu: Chip) -> tuple[Array, Array, Array, Array]:
    """Rows and columns of DeepGEMM's blocks, waves, and blocks of the last wave, [n] each.

    It takes the fewest waves, then the fullest last one, then the smaller block (`get_best_config` of
    `csrc/jit_kernels/heuristics/common.hpp`, version 2). 128 rows with more than 128 columns run at half the speed on Hopper, which is
    where the latency jumps.
    """
    hopper = not gpu.tensor_memory
    best_rows, best_columns, best_used = np.zeros(m.shape), np.zeros(m.shape), np.zeros(m.shape)
    best_waves = np.full(m.shape, np.inf)
    for rows in (64, 128, 256) if hopper else (128,):
        for columns in range(16, 257, 16):
            if (rows > 128 and columns > 128) or not _unrolls(columns, hopper):
                continue
            blocks = np.ceil(m / rows) * np.ceil(n / columns)
            waves, used = np.ceil(blocks / gpu.sms), (blocks - 1) % gpu.sms + 1
            smaller = (rows == best_rows) & (columns < best_columns) | (columns == best_columns) & (rows < best_rows)
            wider = (rows != best_rows) & (columns > best_columns) & (columns <= n) & (rows <= m)
            better = (waves < best_waves) | (waves == best_waves) & ((used > best_used) | (used == best_used) & (smaller | wider))
            best_rows, best_columns = np.where(better, rows, best_rows), np.where(better, columns, best_columns)
            best_waves, best_used = np.where(better, waves, best_waves), np.where(better, used, best_used)
    return best_rows, best_columns, best_waves, best_used


def _unrolls(columns: int, hopper: bool) -> bool:
    """Whether DeepGEMM has a kernel for blocks so wide: on Hopper two scales of the weights meet in it in a pattern that repeats."""
    if not hopper:
        return columns <= 32 or columns % 32 == 0
    return columns <= 128 or columns % (columns - 128) == 0 or 128 % (columns - 128) == 0


PREFILL_TILES = ((64, 64), (128, 128), (128, 64), (256, 128))  # queries and keys
EXPONENTIALS_PER_CLOCK = 16.0  # of an SM's special function units


def prefill(
    batch: Array, length: Array, heads: Array, kv_heads: Array, head_dim: Array, window: Array, gpu: Chip, kv_size: float
) -> tuple[Array, dict[str, Array]]:
    """Latency in microseconds and features, [n] each; `window` 0: none; `kv_size`: bytes of an element of the cache."""
    seen = np.where(window > 0, np.minimum(window, length), length)
    pairs = batch * heads * (seen * (seen + 1) / 2 + (length - seen) * seen)
    flop = 4 * pairs * head_dim
    exponentials = pairs / (EXPONENTIALS_PER_CLOCK * gpu.sms * gpu.clock)
    outer = batch * heads * length * head_dim * 4.0
    inner = 2 * batch * kv_heads * length * head_dim * (2.0 + kv_size)
    dram = (outer + inner) * missed_share(outer + inner, 0.7 * gpu.l2_bytes) / (0.92 * gpu.dram)
    l2 = (outer + 4 * batch * heads * length * head_dim * np.maximum(1, seen / 256)) / gpu.l2_rate
    columns: dict[str, Array] = {}
    by_tile: dict[str, Array] = {}
    for rows, keys in PREFILL_TILES:
        tiles = np.ceil(length / rows)
        ctas = tiles * batch * heads
        longest = np.minimum(np.ceil(length / keys), np.where(window > 0, np.ceil((window + rows) / keys) + 1, np.inf))
        shortest = np.minimum(np.maximum(rows / keys, 1), longest)
        steps = (longest + shortest) / 2 * ctas
        step = np.maximum(4 * rows * keys * head_dim / (0.75 * gpu.rate), 0.8 * rows * keys / EXPONENTIALS_PER_CLOCK) / gpu.clock + 0.05
        by_tile[f"tile {rows}x{keys}"] = np.maximum(steps / np.minimum(gpu.sms, ctas), longest) * step + 0.7 * np.ceil(ctas / gpu.sms)
        waves = ctas / gpu.sms
        columns |= {f"waves {rows}": np.log(waves), f"last wave {rows}": np.where(waves < 30, waves / np.ceil(waves), 1.0)}
    power = flop / gpu.sustained
    us = (np.min(list(by_tile.values()), axis=0) ** 5 + dram**5 + power**5 + l2**5) ** 0.2 + 4.0
    columns |= {name: np.log(tile / us) for name, tile in by_tile.items()}
    columns |= {
        "us": np.log(us),
        "compute": np.log(flop / (gpu.rate * gpu.sms * gpu.clock) / us),
        "exponentials": np.log(exponentials / us),
        "dram time": dram / us,
        "l2 time": l2 / us,
        "power": power / us,
        "kv / l2": np.log(inner / gpu.l2_bytes),
        "all / l2": np.log((outer + inner) / gpu.l2_bytes),
        "length": length,
        "group": heads / kv_heads,
        "head dim": head_dim,
        "window": window,
        "packed waves": np.log(np.ceil(length * heads / kv_heads / 128) * batch * kv_heads / gpu.sms),
        "batch heads": np.log(batch * heads),
        "batch kv heads": np.log(batch * kv_heads),
        "tokens": np.log(batch * length),
        "queries": np.log(batch * length * heads),
        "windows": np.where(window > 0, np.log(seen / length), 1.0),
        "fill 128": length / (np.ceil(length / 128) * 128),
        "pairs": np.log(pairs),
    }
    return us, columns


def decode(
    batch: Array,
    length: Array,
    heads: Array,
    kv_heads: Array,
    head_dim: Array,
    window: Array,
    gpu: Chip,
    kv_size: float,
    cold: bool = False,
) -> tuple[Array, dict[str, Array]]:
    """As `prefill`, of one query per sequence against `length` keys: bound by the cache it reads, which is split over CTAs. `cold`: none
    of which is in the L2."""
    group = heads / kv_heads
    seen = np.where(window > 0, np.minimum(window, length), length)
    read = 2 * batch * kv_heads * seen * head_dim * kv_size
    outer = batch * heads * head_dim * 4.0
    dram = read * (1.0 if cold else missed_share(read + outer, 0.75 * gpu.l2_bytes)) / (0.9 * gpu.dram)
    l2 = read / (0.7 * gpu.l2_rate)
    compute = 4 * batch * kv_heads * np.ceil(group / 16) * 16 * seen * head_dim / (gpu.rate * gpu.sms * gpu.clock)
    exponentials = batch * heads * seen / (EXPONENTIALS_PER_CLOCK * gpu.sms * gpu.clock)
    ctas = batch * kv_heads * np.ceil(group / 64)
    columns: dict[str, Array] = {}
    chains: list[Array] = []
    for keys in (64, 128):
        blocks = np.ceil(seen / keys)
        splits = np.clip(np.floor(2 * gpu.sms / ctas), 1, blocks)
        steps = np.ceil(blocks / splits) * np.ceil(ctas * splits / (2 * gpu.sms))
        step = 2 * keys * head_dim * kv_size / (gpu.dram / gpu.sms * 3) + 0.25
        chains.append(steps * step + np.where(splits > 1, 2.0 + batch * heads * head_dim * 4 * splits / gpu.l2_rate, 0))
        columns |= {f"splits {keys}": np.log(splits), f"steps {keys}": np.log(steps)}
    wide = np.select([head_dim <= 64, head_dim <= 128], [256.0, 128.0], 64.0)
    for name, slots, of_step in (("pairs", 2 * gpu.sms, wide), ("ones", gpu.sms, np.full(1, 128.0))):
        parts = flash_splits(ctas, np.ceil(seen / of_step), slots)
        columns |= {
            f"steps of {name}": np.log(np.ceil(np.ceil(seen / of_step) / parts) * of_step),
            f"waves of {name}": np.ceil(ctas * parts / slots),
            f"splits of {name}": parts,
        }
    chain = np.minimum(*chains)
    us = (chain**4 + dram**4 + l2**4 + compute**4) ** 0.25 + 5.0
    waves, tiled = ctas / gpu.sms, batch * kv_heads * np.ceil(group / 16) / gpu.sms
    columns |= {
        "us": np.log(us),
        "waves of 16 heads": np.log(tiled),
        "last wave of 16 heads": np.where(tiled < 60, tiled / np.ceil(tiled), 1.0),
        "dram time": dram / us,
        "l2 time": l2 / us,
        "l2 time of heads apart": np.log(l2 * group / us),
        "last wave of heads apart": np.where(batch * heads < 60 * gpu.sms, batch * heads / gpu.sms / np.ceil(batch * heads / gpu.sms), 1.0),
        "compute": compute / us,
        "exponentials": exponentials / us,
        "chain": chain / us,
        "kv / l2": np.log(read / gpu.l2_bytes),
        "waves": np.log(waves),
        "last wave": np.where(waves < 30, waves / np.ceil(waves), 1.0),
        "last wave of two": np.where(waves < 60, waves / 2 / np.ceil(waves / 2), 1.0),
        "length": length,
        "seen": seen,
        "group": group,
        "head dim": head_dim,
        "window": window,
        "batch kv heads": batch * kv_heads,
        "batch heads": np.log(batch * heads),
        "keys": np.log(batch * seen),
        "kv per sequence": np.log(kv_heads * head_dim * seen * kv_size),
        "windows": np.where(window > 0, np.log(seen / length), 1.0),
    }
    return us, columns


MOST_SPLITS = 128


def flash_splits(ctas: Array, blocks: Array, sms: float) -> Array:
    """Into how many parts FlashAttention cuts the keys, [n]: the fewest whose last wave is within 85 % of the fullest that any has.

    `num_splits_heuristic` of FlashAttention 2 (`csrc/flash_attn/flash_api.cpp`, two CTAs per SM) and 3 (one).
    """
    fullest, shares = np.zeros(ctas.shape), []
    for splits in range(1, MOST_SPLITS + 1):
        waves = ctas * splits / sms
        # as many blocks in the longest part as with one part fewer: nothing is won
        useful = (splits <= np.minimum(blocks, sms)) & ((splits == 1) | (np.ceil(blocks / splits) != np.ceil(blocks / max(splits - 1, 1))))
        shares.append(np.where(useful, waves / np.ceil(waves), 0.0))
        fullest = np.maximum(fullest, shares[-1])
    chosen = np.ones(ctas.shape)
    for splits in range(MOST_SPLITS, 0, -1):
        chosen = np.where(shares[splits - 1] >= 0.85 * fullest, splits, chosen)
    return np.where(ctas >= 0.8 * sms, 1.0, chosen)
