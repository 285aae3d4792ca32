"""Configuration spaces of the families: what a kernel of that kind may be tried with, as columns."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np

from advisor.errors import UsageError
from advisor.pipelines.batch import ConfigurationBatch, column
from advisor.schema import Configuration

LAUNCH_OPTIONS = ("num_warps", "num_stages")

SPACES: dict[str, dict[str, tuple[int, ...]]] = {
    # The space vLLM's and SGLang's tuners search for fused MoE (benchmark_moe.py, get_configs_compute_bound: 1,920
    # configurations), with BLOCK_SIZE_K 32 and BLOCK_SIZE_N 16, which the published sweeps also tried.
    "fused_moe": {
        "BLOCK_SIZE_M": (16, 32, 64, 128, 256),
        "BLOCK_SIZE_N": (16, 32, 64, 128, 256),
        "BLOCK_SIZE_K": (32, 64, 128, 256),
        "GROUP_SIZE_M": (1, 4, 8, 16, 32, 64),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4, 5),
    },
    "gemm": {
        "BLOCK_SIZE_M": (16, 32, 64, 128, 256),
        "BLOCK_SIZE_N": (32, 64, 128, 256),
        "BLOCK_SIZE_K": (32, 64, 128),
        "GROUP_SIZE_M": (1, 8, 16, 32),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4, 5),
    },
    "attention": {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (16, 32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    },
    "normalization": {"ROWS_PER_CTA": (1, 2, 4), "num_warps": (1, 2, 4, 8, 16), "num_stages": (1,)},
    "elementwise": {"BLOCK_SIZE": (256, 512, 1024, 2048, 4096), "num_warps": (2, 4, 8), "num_stages": (1,)},
}
"""Per family, the values of every parameter."""

_TYPICAL: dict[str, tuple[tuple[int, ...], ...]] = {
    # M, N, K, group, warps, stages: small, medium and large tiles with the depth that suits them.
    "fused_moe": (
        (16, 32, 128, 1, 4, 4), (16, 64, 128, 1, 4, 4), (16, 128, 128, 1, 4, 3), (16, 128, 64, 1, 4, 4), (32, 64, 128, 1, 4, 3),
        (32, 128, 64, 1, 4, 4), (64, 64, 64, 1, 4, 3), (64, 128, 64, 8, 4, 3), (64, 256, 64, 8, 8, 3), (128, 128, 64, 8, 8, 3),
        (128, 128, 32, 8, 4, 4), (128, 256, 64, 8, 8, 3), (256, 128, 64, 8, 8, 3), (128, 64, 64, 8, 4, 3), (64, 32, 64, 1, 4, 3),
    ),
}  # fmt: skip


MOST_STAGES = {"amd": 2}
"""Where the stacks try no more: on ROCm their tuners and defaults have two stages only (vLLM, `benchmark_moe.get_rocm_tuning_space`)."""


def combinations(space: dict[str, tuple[int, ...]]) -> ConfigurationBatch:
    """All combinations of a space's values, the last parameter fastest."""
    names = tuple(space)
    values = np.array(list(product(*space.values())), dtype=np.float64)
    columns = dict(zip(names, values.T, strict=True))
    return ConfigurationBatch(
        parameters={n: c for n, c in columns.items() if n not in LAUNCH_OPTIONS},
        num_warps=columns.get("num_warps", column(4)),
        num_stages=columns.get("num_stages", column(3)),
    )


@lru_cache(maxsize=16)
def family_space(family: str) -> ConfigurationBatch:
    """The whole space of a family.

    Raises:
        UsageError: The family has none.
    """
    if family not in SPACES:
        raise UsageError("no configuration space for the family", family, "one of " + ", ".join(SPACES))
    return combinations(SPACES[family])


@lru_cache(maxsize=16)
def typical_configurations(family: str, vendor: str = "nvidia") -> tuple[ConfigurationBatch, ...]:
    """A few configurations, one batch of one each, that together come near the best of the space for most problems."""
    if family in ("fused_moe", "gemm"):
        names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
        return tuple(
            ConfigurationBatch(
                parameters={n: column(v) for n, v in zip(names, row[:4], strict=True)},
                num_warps=column(row[4]), num_stages=column(min(row[5], MOST_STAGES.get(vendor, row[5]))),
            )
            for row in _TYPICAL["fused_moe"]
        )  # fmt: skip
    batch = family_space(family)
    return tuple(batch.take(np.array([i])) for i in range(len(batch)))


def configuration_at(batch: ConfigurationBatch, i: int) -> Configuration:
    """Row i of a batch as a `Configuration`."""

    def value(values: np.ndarray) -> int:
        return int(values[i if values.size > 1 else 0])

    return Configuration(
        parameters={name: value(values) for name, values in batch.parameters.items()},
        num_warps=value(batch.num_warps),
        num_stages=value(batch.num_stages),
    )
