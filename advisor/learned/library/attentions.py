"""Library attention: a reference latency and what the trees see of a launch, for causal prefill and for decoding with a cache.

Sequences and heads enter as their products: the kernels cut both into the same CTAs, so that a layout of heads never measured is
answered as one that was, of as many CTAs.
"""

from __future__ import annotations

import numpy as np

from advisor.learned.machine import Chip, missed_share
from advisor.pipelines import Array

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
