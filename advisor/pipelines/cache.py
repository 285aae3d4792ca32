"""The L2: what it still holds when a launch starts and when it ends, and which re-reads it absorbs while the launch runs."""

from __future__ import annotations

import numpy as np

from advisor.pipelines.batch import Array


def least_dram_bytes(
    compulsory_bytes: Array, result_bytes: Array, l2_bytes: float, cache: str, in_place_bytes: Array | float = 0.0
) -> Array:
    """The least that must come from or go to DRAM, of `compulsory_bytes` of which `result_bytes` are written.

    With a cold cache every byte read, and of those written what exceeds the L2: it writes back later, so that a launch may end with its
    results in it. With a warm one (the same launch ran before), only what of all exceeds the L2: one launch may find its inputs there
    and leave its results there, but of launches alike each begins with what the one before left, an L2 of both together. Of the
    `in_place_bytes`, read and then overwritten and so counted twice, it holds two with one of its own. This is a bound: a real
    replacement policy keeps less.
    """
    if cache == "cold":
        return compulsory_bytes - result_bytes + np.maximum(0.0, result_bytes - l2_bytes)
    return _beyond_l2(compulsory_bytes, l2_bytes, in_place_bytes)


def likely_dram_bytes(compulsory_bytes: Array, l2_bytes: float, cache: str, in_place_bytes: Array | float = 0.0) -> Array:
    """What likely comes from or goes to DRAM: as `least_dram_bytes`, but with a cold cache the results go out while the launch runs."""
    if cache == "cold":
        return compulsory_bytes
    return _beyond_l2(compulsory_bytes, l2_bytes, in_place_bytes)


def _beyond_l2(compulsory_bytes: Array, l2_bytes: float, in_place_bytes: Array | float) -> Array:
    return np.maximum(0.0, compulsory_bytes - l2_bytes - np.minimum(l2_bytes, in_place_bytes))


def re_read_fraction(reuse_footprint_bytes: Array, l2_bytes: float) -> Array:
    """Share of re-reads that miss the L2, when `reuse_footprint_bytes` pass between a byte's two uses.

    0 while the footprint fits half the L2 (the rest holds other traffic), 1 from one and a half times the L2 on, linear
    between: the shape of an LRU cache under a mix of streams.
    """
    return np.clip((reuse_footprint_bytes / l2_bytes - 0.5) / 1.0, 0.0, 1.0)
