"""Configurations of fused-MoE launches: as batches, as rows of six numbers, and as columns under short names."""

from __future__ import annotations

import numpy as np

from advisor.pipelines import Array, ConfigurationBatch

FIELDS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")


def as_configuration(rows: Array) -> ConfigurationBatch:
    """Configurations [n, 6] (`FIELDS`) as a batch."""
    return ConfigurationBatch(
        parameters={name: rows[:, i] for i, name in enumerate(FIELDS[:4])}, num_warps=rows[:, 4], num_stages=rows[:, 5]
    )


def as_rows(configuration: ConfigurationBatch) -> Array:
    """The reverse of `as_configuration`, with defaults for parameters that are missing."""
    return np.stack(np.broadcast_arrays(*as_columns(configuration).values()), axis=1)


def as_columns(configuration: ConfigurationBatch) -> dict[str, Array]:
    """The six columns of a fused-MoE configuration, defaults where it lacks one."""
    return {
        "BM": configuration.get("BLOCK_SIZE_M", 64),
        "BN": configuration.get("BLOCK_SIZE_N", 64),
        "BK": configuration.get("BLOCK_SIZE_K", 64),
        "GM": configuration.get("GROUP_SIZE_M", 1),
        "W": configuration.num_warps,
        "S": configuration.num_stages,
    }
