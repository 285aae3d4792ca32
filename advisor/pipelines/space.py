"""Configuration spaces of the families: what a kernel of that kind may be tried with, as columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines.batch import ELEMENT_BYTES, ConfigurationBatch, ProblemBatch
from advisor.pipelines.columns import column
from advisor.pipelines.occupancy import has_warp_group
from advisor.result.schema import Configuration, Problem
from advisor.system.errors import UsageError
from advisor.tables.launchability import least_block_k, most_block_k, raised_block_k

LAUNCH_OPTIONS = ("num_warps", "num_stages")

LEAST_MOE_ROW_BYTES = 64
"""Bytes of a row of a fused-MoE tile below which nothing was measured: the tuners' BLOCK_SIZE_K begins at 64, of the sweeps in bf16 at 32;
of 990 tuned entries in fp8 none is less deep than 64."""

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
    "normalization": {"ROWS_PER_CTA": (1, 2, 4, 8, 16, 32), "num_warps": (1, 2, 4, 8, 16), "num_stages": (1,)},
    "elementwise": {"BLOCK_SIZE": (256, 512, 1024, 2048, 4096), "num_warps": (2, 4, 8), "num_stages": (1,)},
}
"""Per family, the values of every parameter."""

SPLITS: dict[tuple[str, str], dict[str, tuple[int, ...]]] = {
    ("gemm", "gemm"): {"SPLIT_K": (2, 4, 8, 16, 32, 64)},
    ("attention", "decode"): {"NUM_KV_SPLITS": (2, 4, 8, 16, 32, 64, 128)},
}
"""What kernels that divide the depth among CTAs may be tried with besides 1, by family and operator. cuBLAS and FlashDecoding do."""

_SPLIT_SPACE: dict[str, tuple[int, ...]] = {
    "BLOCK_SIZE_M": (16, 32, 64, 128),
    "BLOCK_SIZE_N": (32, 64, 128),
    "BLOCK_SIZE_K": (32, 64, 128),
    "GROUP_SIZE_M": (1,),
    "num_warps": (4,),
    "num_stages": (2, 4),
}
"""Of a product that is split: small tiles, for large ones fill the GPU by themselves; and few, to rank them in milliseconds."""

_Tiles = tuple[tuple[int, ...], ...]
_TILES: _Tiles = (
    # M, N, K, group, warps, stages: small, medium and large tiles with the depth that suits them.
    (16, 32, 128, 1, 4, 4),
    (16, 64, 128, 1, 4, 4),
    (16, 128, 128, 1, 4, 3),
    (16, 128, 64, 1, 4, 4),
    (32, 64, 128, 1, 4, 3),
    (32, 128, 64, 1, 4, 4),
    (64, 64, 64, 1, 4, 3),
    (64, 128, 64, 8, 4, 3),
    (64, 256, 64, 8, 8, 3),
    (128, 128, 64, 8, 8, 3),
    (128, 128, 32, 8, 4, 4),
    (128, 256, 64, 8, 8, 3),
    (256, 128, 64, 8, 8, 3),
    (128, 64, 64, 8, 4, 3),
    (64, 32, 64, 1, 4, 3),
)
"""For operands of two bytes."""
_LARGE_TILES: _Tiles = ((128, 256, 32, 8, 8, 4), (256, 128, 32, 8, 8, 4))
"""Of plain products besides: they fit the shared memory of smaller parts (A40, T4), where cuBLAS takes them."""
_COVERING: dict[str, _Tiles] = {
    "fused_moe": (
        (256, 256, 128, 1, 4, 2),
        (128, 128, 256, 1, 4, 2),
        (128, 256, 256, 1, 4, 2),
        (16, 32, 256, 1, 4, 2),
        (64, 128, 256, 1, 4, 2),
        (32, 256, 128, 8, 4, 5),
        (16, 128, 256, 1, 4, 2),
        (256, 256, 64, 8, 4, 2),
        (16, 16, 256, 1, 4, 2),
        (128, 128, 128, 1, 8, 2),
        (128, 256, 128, 1, 4, 2),
        (16, 64, 256, 1, 4, 2),
        (16, 128, 32, 8, 4, 2),
        (256, 256, 32, 8, 4, 3),
        (16, 16, 64, 1, 4, 2),
        (256, 128, 32, 8, 8, 4),
        (128, 256, 32, 8, 8, 2),
    ),
    "gemm": (
        (128, 128, 128, 1, 4, 2),
        (256, 256, 128, 1, 4, 2),
        (16, 32, 128, 1, 4, 5),
        (128, 64, 128, 1, 4, 2),
        (64, 64, 128, 8, 4, 5),
        (32, 32, 128, 8, 4, 5),
        (128, 128, 128, 8, 4, 4),
        (64, 128, 128, 8, 4, 5),
        (64, 64, 128, 8, 4, 2),
        (256, 256, 64, 8, 4, 2),
        (256, 256, 32, 8, 4, 3),
        (16, 32, 128, 1, 4, 2),
        (32, 32, 128, 8, 4, 2),
        (64, 32, 128, 8, 4, 2),
        (16, 64, 128, 1, 4, 5),
        (64, 32, 128, 1, 4, 5),
        (128, 256, 128, 1, 4, 2),
        (32, 64, 128, 8, 4, 2),
    ),
}
"""What the tiles above lack for other types than they are for, and for GPUs with more or less memory per SM: chosen one after another, each
for what it takes from the mean of least predicted latency / that over the whole space (`tests/bench/covering.py` prints both)."""
_BYTE_TILES: _Tiles = tuple((m, n, 128, *rest) for m, n, k, *rest in _TILES if k == 64)
"""Of operands of one byte besides: rows of 128 bytes, as of wider types, and so half as many trips."""
_SPLIT_TILES: _Tiles = tuple(tile for tile in _TILES if tile[0] <= 64 and tile[1] <= 128)

MULTICAST = 2
"""CTAs of a cluster that take the right operand's tiles from the L2 once for all, in library products on sm_90 and sm_100. Source: CUTLASS
("efficient_gemm.md", TMA multicast; its Hopper examples and cuBLAS's nvjet kernels, "..._2x1_...", have clusters of two). Without
it 8192 x 8192 x 8192 in bf16 would be bound by the L2 of an H100 and take 1,980 us; published are 1,379 (797 TFLOP/s), predicted with it
about as many. Triton kernels have no multicast: `num_ctas` is 1 in all configurations here."""


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
def _split_space(family: str, op: str) -> ConfigurationBatch:
    """The space of a family with the `SPLITS` of the operator, where there are any."""
    space = family_space(family)
    if (family, op) not in SPLITS:
        return space
    ((name, values),) = SPLITS[family, op].items()
    split = combinations({**(_SPLIT_SPACE if family == "gemm" else SPACES[family]), name: values})
    both = {
        parameter: np.concatenate([space.get(parameter, 1) + np.zeros(len(space)), split.parameters[parameter]])
        for parameter in split.parameters
    }
    return ConfigurationBatch(
        parameters=both,
        num_warps=np.concatenate([space.num_warps, split.num_warps]),
        num_stages=np.concatenate([space.num_stages, split.num_stages]),
    )


def block_k_range(problem: Problem | ProblemBatch, vendor: str = "nvidia", stack: str | None = None) -> tuple[int, int | None]:
    """Least and most BLOCK_SIZE_K that a launch of the problem compiles with and gives right results with; None: no most.

    Args:
        problem: Of a family with a BLOCK_SIZE_K.
        vendor: Of the GPU, as `GpuSpec.vendor`.
        stack: Whose launcher it is; where that is not known, what is right for both, or for SGLang's alone where vLLM's would cut every
            depth of the space down to less (blocks of [1, 32]).
    """
    clamped = problem.family == "fused_moe" and stack != "sglang"
    uncut, most = (most_block_k(problem.dtype, problem.weight_dtype, problem.block_shape, clamped=cut) for cut in (False, clamped))
    if stack is None and most is not None and most < min(SPACES[problem.family]["BLOCK_SIZE_K"]):
        most = uncut
    if most is not None and problem.block_shape is not None:
        # A depth is a power of two (tl.arange): steps of one that does not divide the block (128 of 192) span two blocks all the same.
        along_k = problem.block_shape[1]
        most = min(most, along_k & -along_k)
    raised = raised_block_k(problem.family, stack, problem.dtype, problem.block_shape, vendor)
    return max(least_block_k(problem.dtype, vendor), raised), most


def sound_depths(
    space: ConfigurationBatch, problem: Problem | ProblemBatch, vendor: str = "nvidia", stack: str | None = None
) -> NDArray[np.bool_]:
    """Which configurations of a space have a BLOCK_SIZE_K that launches of the problem may have (`block_k_range`), [c]."""
    depth = space.parameters.get("BLOCK_SIZE_K")
    if depth is None:
        return np.ones(len(space), dtype=bool)
    least, most = block_k_range(problem, vendor, stack)
    return np.broadcast_to((depth >= least) & (depth <= (np.inf if most is None else most)), (len(space),))


def problem_space(
    problem: Problem | ProblemBatch, vendor: str = "nvidia", stack: str | None = None, *, splits: bool = False
) -> ConfigurationBatch:
    """The space of a problem: its family's, less what gives wrong results or does not compile (`sound_depths`), and less the depth that
    neither the stacks' tuners nor any published sweep try of one-byte operands (`LEAST_MOE_ROW_BYTES`).

    Args:
        problem: What is launched.
        vendor: Of the GPU, as `GpuSpec.vendor`.
        stack: Whose launcher it is, where that is known.
        splits: Whether the kernel can divide the depth among CTAs (`SPLITS`); none of block-scaled products does.

    Raises:
        UsageError: The family has none, or nothing of it is left.
    """
    space = _split_space(problem.family, problem.op) if splits and problem.block_shape is None else family_space(problem.family)
    tried = space.num_stages <= MOST_STAGES.get(vendor, np.inf) if problem.family in _COVERING else np.ones(len(space), dtype=bool)
    sound = sound_depths(space, problem, vendor, stack)
    if problem.family == "fused_moe":
        deep = space.parameters["BLOCK_SIZE_K"] * ELEMENT_BYTES[problem.dtype] >= LEAST_MOE_ROW_BYTES
        tried = tried & deep if (sound & deep).any() else tried  # blocks of [1, 32] leave no deeper one
    if (sound & tried).all():
        return space
    if not sound.any():
        least, most = block_k_range(problem, vendor, stack)
        depth = space.parameters["BLOCK_SIZE_K"]
        got = f"BLOCK_SIZE_K from {depth.min():.0f} to {depth.max():.0f}"
        raise UsageError(
            "no configuration of the space is right for the problem",
            got,
            f"from {least} for operands of {problem.dtype} to {most} for the quantization block",
            "correct the block shape, or describe another space",
        )
    return space.take(np.flatnonzero(sound & tried))


def held_to(space: ConfigurationBatch, configuration: Configuration | None, names: Collection[str]) -> ConfigurationBatch:
    """The space with the parameters `names` held to the values of a configuration, whether or not the space has those."""
    pinned = {} if configuration is None else {n: configuration.parameters[n] for n in names if n in space.parameters}
    if not pinned:
        return space
    one = np.logical_and.reduce([np.broadcast_to(space.parameters[name] == space.parameters[name][0], (len(space),)) for name in pinned])
    matching = space.take(np.flatnonzero(one))
    return replace(matching, parameters={**matching.parameters, **{n: np.full(len(matching), float(v)) for n, v in pinned.items()}})


def typical_configurations(problem: Problem | ProblemBatch, vendor: str = "nvidia") -> tuple[ConfigurationBatch, ...]:
    """A few configurations, one batch of one each, that together come near the best of the space for most problems.

    Where BLOCK_SIZE_K may be no more than some depth (`block_k_range`), deeper ones are cut down to it.
    """
    most = block_k_range(problem, vendor)[1] if problem.family in _COVERING else None
    typical = _typical(problem.family, problem.op, ELEMENT_BYTES[problem.dtype], vendor, most)
    return (*typical, *_tiles(_COVERING.get(problem.family, ()), 2, vendor, most))


def library_configurations(problem: ProblemBatch, gpu: GpuSpec) -> tuple[ConfigurationBatch, ...]:
    """Spaces of the configurations a library may launch: tiles of its sizes, and, for plain products, split depths and tiles that the
    CTAs of a cluster share (`MULTICAST`), which Triton kernels of the tables do not have.

    Of the types that library products were measured in, no more than those do (fp32: parts of a depth; fp8 without tcgen05: neither):
    outside of what was learned of them the learned model fades into the analytical one, and the two have to meet.
    """
    most = block_k_range(problem, gpu.vendor)[1] if problem.family in _COVERING else None
    typical = _typical(problem.family, problem.op, ELEMENT_BYTES[problem.dtype], gpu.vendor, most)
    if problem.family != "gemm" or problem.block_shape is not None:
        return typical
    split = _with(_tiles(_SPLIT_TILES, problem.operand_bytes, gpu.vendor, most), "SPLIT_K", SPLITS["gemm", "gemm"]["SPLIT_K"])
    if problem.dtype == "fp32":
        return (*_tiles(_TILES, 2, gpu.vendor, most), *split)
    if problem.dtype == "fp8" and not (has_warp_group(gpu) and gpu.architecture == "blackwell"):
        return _tiles(_TILES, 2, gpu.vendor, most)
    if problem.operand_bytes <= 1:
        typical = (*typical, *_tiles(_BYTE_TILES, 2, gpu.vendor, most))
    shared = _with(typical, "MULTICAST", (MULTICAST,)) if has_warp_group(gpu) else ()
    return (*typical, *shared, *split)


@lru_cache(maxsize=64)
def _typical(family: str, op: str, element_bytes: float, vendor: str, most_block_k: int | None) -> tuple[ConfigurationBatch, ...]:
    if family == "fused_moe":
        return _tiles(_TILES, 2, vendor, most_block_k)
    if family == "gemm":
        return _tiles((*_TILES, *_LARGE_TILES), element_bytes, vendor, most_block_k)
    batch = family_space(family)
    blocks = tuple(batch.take(np.array([i])) for i in range(len(batch)))
    if (family, op) not in SPLITS:
        return blocks
    # Shallow, and of every size up to 64: of wide heads or types only small tiles in two stages fit most shared memories.
    few = [one for one in blocks if one.parameters["BLOCK_M"] <= 64 and one.num_warps == 4 and one.num_stages == 2]
    return (*blocks, *_with(few, "NUM_KV_SPLITS", SPLITS[family, op]["NUM_KV_SPLITS"]))


@lru_cache(maxsize=64)
def _tiles(rows: _Tiles, element_bytes: float, vendor: str, most_block_k: int | None) -> tuple[ConfigurationBatch, ...]:
    """Tiles of `rows`; of operands of more than two bytes so much less deep that they need no more memory."""
    most = most_block_k or np.inf
    narrower = min(2 / element_bytes, 1)
    return tuple(
        ConfigurationBatch(
            parameters={
                "BLOCK_SIZE_M": column(m),
                "BLOCK_SIZE_N": column(n),
                "BLOCK_SIZE_K": column(min(k * narrower, most)),
                "GROUP_SIZE_M": column(group),
            },
            num_warps=column(warps),
            num_stages=column(min(stages, MOST_STAGES.get(vendor, stages))),
        )
        for m, n, k, group, warps, stages in rows
    )


def _with(configurations: Sequence[ConfigurationBatch], name: str, values: Sequence[int]) -> tuple[ConfigurationBatch, ...]:
    """Each configuration with each of the values of one more parameter."""
    return tuple(
        replace(configuration, parameters={**configuration.parameters, name: column(value)})
        for configuration in configurations
        for value in values
    )


def together(configurations: Sequence[ConfigurationBatch]) -> ConfigurationBatch:
    """Batches of one as one batch; a parameter that only some have is 1 for the others."""
    names = dict.fromkeys(name for configuration in configurations for name in configuration.parameters)
    return ConfigurationBatch(
        parameters={name: np.concatenate([configuration.get(name, 1) for configuration in configurations]) for name in names},
        num_warps=np.concatenate([configuration.num_warps for configuration in configurations]),
        num_stages=np.concatenate([configuration.num_stages for configuration in configurations]),
    )


def configuration_at(batch: ConfigurationBatch, i: int) -> Configuration:
    """Row i of a batch as a `Configuration`."""

    def value(values: np.ndarray) -> int:
        return int(values[i if values.size > 1 else 0])

    return Configuration(
        parameters={name: value(values) for name, values in batch.parameters.items()},
        num_warps=value(batch.num_warps),
        num_stages=value(batch.num_stages),
    )
