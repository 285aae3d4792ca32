"""Configuration spaces of the families: what a kernel of that kind may be tried with, as columns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from advisor.configs.launchability import least_block_k, most_block_k
from advisor.errors import UsageError
from advisor.pipelines.batch import ConfigurationBatch, ProblemBatch, column
from advisor.schema import Configuration, Problem

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


def block_k_range(problem: Problem | ProblemBatch, vendor: str = "nvidia", stack: str | None = None) -> tuple[int, int | None]:
    """Least and most BLOCK_SIZE_K that a launch of the problem compiles with and gives right results with; None: no most.

    Args:
        problem: Of a family with a BLOCK_SIZE_K.
        vendor: Of the GPU, as `GpuSpec.vendor`.
        stack: Whose launcher it is; where that is not known, what is right for both.
    """
    clamped = problem.family == "fused_moe" and stack != "sglang"
    most = most_block_k(problem.dtype, problem.weight_dtype, problem.block_shape, clamped=clamped)
    if most is not None and problem.block_shape is not None:
        # A depth is a power of two (tl.arange): steps of one that does not divide the block (128 of 192) span two blocks all the same.
        along_k = problem.block_shape[1]
        most = min(most, along_k & -along_k)
    return least_block_k(problem.dtype, vendor), most


def sound_depths(space: ConfigurationBatch, problem: Problem | ProblemBatch, vendor: str = "nvidia",
                 stack: str | None = None) -> NDArray[np.bool_]:  # fmt: skip
    """Which configurations of a space have a BLOCK_SIZE_K that launches of the problem may have (`block_k_range`), [c]."""
    depth = space.parameters.get("BLOCK_SIZE_K")
    if depth is None:
        return np.ones(len(space), dtype=bool)
    least, most = block_k_range(problem, vendor, stack)
    return np.broadcast_to((depth >= least) & (depth <= (np.inf if most is None else most)), (len(space),))


def problem_space(problem: Problem | ProblemBatch, vendor: str = "nvidia", stack: str | None = None) -> ConfigurationBatch:
    """The space of a problem: its family's, less what gives wrong results or does not compile (`sound_depths`).

    Raises:
        UsageError: The family has none, or nothing of it is left.
    """
    space = family_space(problem.family)
    sound = sound_depths(space, problem, vendor, stack)
    if sound.all():
        return space
    if not sound.any():
        least, most = block_k_range(problem, vendor, stack)
        depth = space.parameters["BLOCK_SIZE_K"]
        got = f"BLOCK_SIZE_K from {depth.min():.0f} to {depth.max():.0f}"
        raise UsageError("no configuration of the space is right for the problem", got,
                         f"from {least} for operands of {problem.dtype} to {most} for the quantization block",
                         "correct the block shape, or describe another space")  # fmt: skip
    return space.take(np.flatnonzero(sound))


def held_to(space: ConfigurationBatch, configuration: Configuration | None, names: Collection[str]) -> ConfigurationBatch:
    """The space with the parameters `names` held to the values of a configuration, whether or not the space has those."""
    held = {} if configuration is None else {n: configuration.parameters[n] for n in names if n in space.parameters}
    if not held:
        return space
    one = np.logical_and.reduce([np.broadcast_to(space.parameters[name] == space.parameters[name][0], (len(space),)) for name in held])
    kept = space.take(np.flatnonzero(one))
    return replace(kept, parameters={**kept.parameters, **{n: np.full(len(kept), float(v)) for n, v in held.items()}})


@lru_cache(maxsize=64)
def typical_configurations(family: str, vendor: str = "nvidia", most_block_k: int | None = None) -> tuple[ConfigurationBatch, ...]:
    """A few configurations, one batch of one each, that together come near the best of the space for most problems.

    Where BLOCK_SIZE_K may be no more than `most_block_k` (`block_k_range`), deeper ones are cut down to it.
    """
    if family in ("fused_moe", "gemm"):
        names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
        return tuple(
            ConfigurationBatch(
                parameters={n: column(v) for n, v in zip(names, (*row[:2], min(row[2], most_block_k or row[2]), row[3]), strict=True)},
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
