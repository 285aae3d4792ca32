"""Counting a tiled matrix product: what gemm and fused_moe share.

A product of `rows` x `depth` by `depth` x `width` per group (an expert, a batch entry, or the whole matrix), in output tiles of
BLOCK_SIZE_M x BLOCK_SIZE_N, the depth in steps of BLOCK_SIZE_K, GROUP_SIZE_M row tiles sharing a sweep over the columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import elementwise, memory, occupancy
from advisor.pipelines.batch import ELEMENT_BYTES, ConfigurationBatch
from advisor.pipelines.columns import Array
from advisor.pipelines.demand import Demand, Work, fma_gain
from advisor.tables.launchability import least_block_k, swaps_operands

MMA_SYNC_SHARE = 0.66
"""Share of a Hopper or data-centre Blackwell SM's dense rate that mma.sync reaches (wgmma / tcgen05 reach all of it).
Source: "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking" (arXiv 2402.13499): mma.sync
averages 62.9 % of the wgmma peak on H800; rounded up, since it enters a lower bound on latency."""

FULL_HOPPER_FLOP_PER_CLOCK_PER_SM = 4096.0
"""bf16, H100. A part that is cut below it (H20) need not be cut for mma.sync: the share is of the full part's rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Products to compute. `rows` and `count` are [n, g]: `count` groups of `rows` rows each; the rest is [n]."""

    rows: Array
    count: Array
    width: Array
    depth: Array
    distinct_a_bytes: Array  # of the left operand, each byte once
    distinct_b_bytes: Array
    output_bytes: Array
    a_row_bytes: Array  # of one row of the left operand, scales included
    b_group_bytes: Array  # of one group's right operand, scales included
    a_bytes: float  # per element, as stored
    b_bytes: float
    c_dtype: str  # of the result
    dtype: str
    l2_resident: str  # cache state
    block_scaled: bool = False
    kind: str = "gemm"  # the family, as `launchability.swaps_operands` knows it
    launched_row_tiles: Array | None = None  # where the grid is sized before the routing is known

    @property
    def c_bytes(self) -> float:
        """Bytes per element of the result."""
        return ELEMENT_BYTES[self.c_dtype]


EMULATED = {"tf32": ("bf16", 3)}
"""Types that products of another stand for where the GPU has no instruction for them: hipBLASLt on gfx950 makes tf32 of bf16
products (ROCm/hipBLASLt#1806), three of them: the halves of each operand but for low times low."""


def compute_pipeline(gpu: GpuSpec, dtype: str) -> str | None:
    """The type the tensor pipeline runs this product in; None where the GPU has none for it and fma does the work.

    Quantised operands are widened where the GPU has no instruction for them, as kernels do.
    """
    wider = {
        "fp8": ("fp8", "bf16", "fp16"),
        "fp4": ("fp4", "fp8", "bf16", "fp16"),
        "int8": ("int8", "bf16", "fp16"),
        "int4": ("int4", "bf16", "fp16"),
    }
    for candidate in wider.get(dtype, (dtype,)):
        if gpu.tensor_flop_per_clock_per_sm.get(candidate):
            return candidate
    if dtype in EMULATED:
        stand_in, count = EMULATED[dtype]
        rate = gpu.tensor_flop_per_clock_per_sm.get(stand_in, 0.0) / count
        return stand_in if rate > gpu.fma_flop_per_clock_per_sm["fp32"] else None
    return None


def product_count(gpu: GpuSpec, dtype: str) -> int:
    """The number of products of type `compute_pipeline` that stand for one of `dtype`."""
    return EMULATED[dtype][1] if dtype in EMULATED and compute_pipeline(gpu, dtype) == EMULATED[dtype][0] else 1


def tensor_rate(gpu: GpuSpec, dtype: str, warp_group: Array) -> Array:
    """Share of the peak rate for `dtype` that the instruction reaches: all of it, what mma.sync can do on sm_90 and sm_100, or what
    products without block scales do where only scaled ones reach the peak: the products counted here are plain ones (`tl.dot`)."""
    rates, plain = gpu.tensor_flop_per_clock_per_sm, gpu.plain_dot_share(dtype)
    if not occupancy.has_warp_group(gpu) or not rates.get(dtype):
        return np.full(warp_group.shape, plain)
    share = MMA_SYNC_SHARE
    if "bf16" in rates:
        share = min(1.0, share * max(FULL_HOPPER_FLOP_PER_CLOCK_PER_SM / rates["bf16"], 1.0))
    if dtype == "fp8" and "fp16" in rates:  # mma.sync has no fp8 there: unpacked to fp16 (HMMA, Triton 3.9.0 on sm_90 and 100)
        share *= min(rates["fp16"] / rates["fp8"], 1.0)
    return np.minimum(np.where(warp_group, 1.0, share), plain)


def work(product: Product, dtype: str, gpu: GpuSpec) -> Work:
    """The least work of a product, whatever the configuration: 2 M N K FLOP, each operand read and the result written once."""
    flop = 2 * (product.rows * product.count).sum(-1) * product.width * product.depth * product_count(gpu, dtype)
    tensor = compute_pipeline(gpu, dtype)
    zero = np.zeros_like(flop)
    return Work(
        tensor_flop=flop if tensor else zero,
        fma_flop=zero if tensor else flop / fma_gain(gpu, dtype, dot=True),
        xu_op=zero,
        compulsory_bytes=product.distinct_a_bytes + product.distinct_b_bytes + product.output_bytes,
        result_bytes=product.output_bytes,
        tensor_dtype=tensor,
    )


SCALING_FLOP = 4
"""What a block-scaled product takes of the fma pipeline per element of the tile and step of its loop: the product times the scales of its
row and column, added to the sum, is a multiplication and an FMA (`fp8_utils._w8a8_triton_block_scaled_mm` of vLLM 0.33); a multiplication
keeps a lane as long as an FMA, of two FLOP, does."""


LEAST_STAGES = {"nvidia": 0, "amd": 1}
"""num_stages that run at least: of 6,555 launches with 0 on an MI250X (Triton 3.2, vllm-triton-backend) none ran, of those with 1 two in
three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tiling:
    """A product cut into tiles; columns [n], but `expert_row_tiles` [n, g].

    Attributes:
        split: In how many parts the depth is summed, SPLIT_K.
        expert_row_tiles: Rows of tiles of one group.
        row_tiles: Of all groups.
        total_rows: Rows of the product.
        steps: Of the loop over the depth.
        flop: Of one tile, padding included.
        rows: Of the tile as it is multiplied, which may be transposed.
        columns: Of that tile.
        warp_group: Whether it is multiplied with wgmma or tcgen05.
        sharing: CTAs that take the right operand's tiles from the L2 together (`space.MULTICAST`).
    """

    block_m: Array
    block_n: Array
    block_k: Array
    group: Array
    split: Array
    warps: Array
    expert_row_tiles: Array
    row_tiles: Array
    total_rows: Array
    column_tiles: Array
    steps: Array
    flop: Array
    rows: Array
    columns: Array
    warp_group: Array
    sharing: Array


def demand(product: Product, configuration: ConfigurationBatch, gpu: GpuSpec) -> Demand:
    """The demand of `product` under `configuration`; columns broadcast to [n]."""
    cut = _tiling(product, configuration, gpu)
    zero = np.zeros(np.broadcast_shapes(cut.flop.shape, cut.warps.shape))
    ctas = cut.row_tiles * cut.column_tiles * cut.split
    launched_rows = cut.row_tiles if product.launched_row_tiles is None else np.maximum(cut.row_tiles, product.launched_row_tiles)

    a_loads = cut.total_rows * product.a_row_bytes * cut.column_tiles
    b_loads = cut.row_tiles * product.b_group_bytes
    # The parts of a split sum are float32 and meet in a second kernel (or in atomic additions, to results that one has cleared).
    stores = cut.total_rows * product.width * np.where(cut.split > 1, 4 * cut.split, product.c_bytes)
    compulsory = product.distinct_a_bytes + product.distinct_b_bytes + product.output_bytes
    parts = np.maximum(stores - product.output_bytes, 0)

    tensor_dtype = compute_pipeline(gpu, product.dtype)
    resources, pipelined = _resources(product, cut, configuration, gpu)
    return Demand(
        per_cta=_per_cta(product, cut, gpu, zero),
        ctas=ctas,
        launched_ctas=launched_rows * cut.column_tiles * cut.split,
        cta_load_bytes=(a_loads + b_loads * _right_share(cut, gpu)) / np.maximum(ctas, 1),
        cta_store_bytes=stores / np.maximum(ctas, 1),
        l2_bytes=a_loads + np.ceil(cut.row_tiles / cut.sharing) * product.b_group_bytes + stores,
        dram_bytes=memory.likely_dram_bytes(compulsory + parts, gpu, product.l2_resident)
        + _re_read_bytes(product, cut, gpu, occupancy.resident_ctas(gpu, resources)[0]),
        compulsory_bytes=compulsory + zero,
        useful_fraction=2 * cut.total_rows * product.width * product.depth / np.maximum(cut.flop * ctas, 1),
        k_iterations=cut.steps,
        tensor_dtype=tensor_dtype,
        tensor_rate=tensor_rate(gpu, tensor_dtype or "", cut.warp_group) + zero,
        num_stages=np.where(pipelined, configuration.num_stages, 1.0),
        resources=resources,
        in_turn=product.block_scaled,
        certain_fma=1.0 if tensor_dtype else 1 / fma_gain(gpu, product.dtype, dot=True),
        parts=cut.split,
        then=elementwise.sum_of_parts(cut.total_rows, product.width, cut.split, product.c_dtype, gpu),
    )


def _tiling(product: Product, configuration: ConfigurationBatch, gpu: GpuSpec) -> _Tiling:
    block_m, block_n = configuration.get("BLOCK_SIZE_M", 64), configuration.get("BLOCK_SIZE_N", 64)
    block_k, split = configuration.get("BLOCK_SIZE_K", 32), np.maximum(configuration.get("SPLIT_K", 1), 1)
    expert_row_tiles = np.ceil(product.rows / block_m[:, None])
    steps = np.ceil(np.ceil(product.depth / split) / block_k)
    swapped = np.equal(product.a_bytes, product.b_bytes) & swaps_operands(
        product.kind, product.dtype, gpu.compute_capability, block_m, block_n, configuration.parameters.get("SWAP_AB")
    )
    rows, columns = np.where(swapped, block_n, block_m), np.where(swapped, block_m, block_n)
    return _Tiling(
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        group=configuration.get("GROUP_SIZE_M", 1),
        split=split,
        warps=configuration.num_warps,
        expert_row_tiles=expert_row_tiles,
        row_tiles=(product.count * expert_row_tiles).sum(-1),
        total_rows=(product.count * product.rows).sum(-1),
        column_tiles=np.ceil(product.width / block_n),
        steps=steps,
        flop=2 * block_m * block_n * steps * block_k,
        rows=rows,
        columns=columns,
        warp_group=occupancy.wants_wgmma(gpu, rows, configuration.num_warps, product.dtype),
        sharing=configuration.get("MULTICAST", 1),
    )


def _right_share(cut: _Tiling, gpu: GpuSpec) -> Array:
    """Share of the right operand's tile that an SM loads and reads, [n]: with tcgen05, CTAs of a pair multiply as one (cta_group::2), each
    from its half. Elsewhere CTAs that share a tile each receive all of it."""
    paired = cut.warp_group & np.asarray(gpu.architecture == "blackwell")
    return 1 / np.where(paired, cut.sharing, 1.0)


def _per_cta(product: Product, cut: _Tiling, gpu: GpuSpec, zero: Array) -> dict[str, Array]:
    """Demand of one CTA on each pipeline, by its name."""
    operand_bytes = ELEMENT_BYTES[product.dtype]
    along_m, along_n = occupancy.mma_warps(cut.rows, cut.columns, cut.warps)
    if gpu.architecture == "blackwell":  # tcgen05.mma: up to 128 rows at a time, whatever the warps, and each reads the right operand
        groups = np.ceil(cut.rows / 128)
    else:
        groups = np.ceil(np.minimum(cut.rows, 64 * cut.warps / 4) / 64)  # warp groups that each read the right operand
    right = _right_share(cut, gpu)
    # Written to shared memory, per step, and read from there.
    staged = (cut.block_m * product.a_bytes + cut.block_n * product.b_bytes * right) * cut.block_k
    read = np.where(
        cut.warp_group,
        cut.rows * cut.block_k * operand_bytes + groups * cut.columns * cut.block_k * operand_bytes * right,
        (cut.rows * along_n + cut.columns * along_m) * cut.block_k * operand_bytes,
    )
    matrix_flop = cut.flop * product_count(gpu, product.dtype)
    instructions = matrix_flop / np.where(cut.warp_group, 2 * 64 * 128 * 16, 2 * 16 * 8 * 16) + cut.steps * (
        staged / 512 + np.where(cut.warp_group, 0.0, read / 512) + 24 * cut.warps
    )
    tensor = compute_pipeline(gpu, product.dtype) is not None
    scaling = cut.steps * SCALING_FLOP * cut.block_m * cut.block_n if product.block_scaled else 0
    return {
        "tensor": matrix_flop + zero if tensor else zero,
        "fma": (zero if tensor else cut.flop + zero) + scaling,
        "xu": zero,
        "alu": cut.steps * cut.warps * gpu.warp_size * 8 + zero,
        "issue": instructions + zero,
        "smem": cut.steps * (staged + read) + zero,
    }


def _resources(product: Product, cut: _Tiling, configuration: ConfigurationBatch, gpu: GpuSpec) -> tuple[occupancy.Resources, Array]:
    """Resources of one CTA, and whether its loads are pipelined, [n]."""
    shape = occupancy.Tile(
        block_m=cut.rows,
        block_n=cut.columns,
        block_k=cut.block_k,
        num_warps=cut.warps,
        num_stages=configuration.num_stages,
        a_bytes=product.a_bytes,
        b_bytes=product.b_bytes,
        c_bytes=product.c_bytes,
        block_scaled=product.block_scaled,
        # Kernels that store through a tensor descriptor have this parameter (triton_kernels/gemm.py, Triton's own tutorial).
        stored_parts=configuration.parameters.get("EPILOGUE_SUBTILE"),
        flattened=configuration.parameters.get("FLATTEN"),
    )
    width = min(product.a_bytes, product.b_bytes)
    known = np.logical_or(occupancy.asynchronous(product.depth, width), shape.stored_parts is not None)
    known = np.logical_and(known, occupancy.copies_asynchronously(gpu))
    right = known
    if product.kind == "gemm" and width == 2 and shape.stored_parts is None:
        # The right operand lies along either: what launches does in both ways.
        along_n = occupancy.asynchronous(product.width, width)
        right = np.logical_or(known, np.logical_and(along_n, occupancy.copies_asynchronously(gpu)))
    tcgen05 = cut.warp_group & np.asarray(gpu.architecture == "blackwell")  # accumulates in tensor memory
    resources = occupancy.Resources(
        registers=occupancy.estimate_dot_registers(gpu, shape, cut.warp_group),
        shared_memory_bytes=occupancy.dot_shared_memory(gpu, shape, cut.warp_group, (known, right)),
        num_warps=cut.warps,
        tensor_memory_columns=occupancy.tensor_memory_columns(gpu, shape, cut.warp_group),
        # A block-scaled product is scaled into a sum kept beside it: on sm_100 that one is in registers, elsewhere both are.
        accumulators=(np.where(tcgen05, 0.0, 1.0) + product.block_scaled) * cut.block_m * cut.block_n / (gpu.warp_size * cut.warps),
        compiles=(cut.block_k >= least_block_k(product.dtype, gpu.vendor))
        & (configuration.num_stages >= LEAST_STAGES[gpu.vendor])
        & occupancy.wgmma_compiles(gpu, shape, cut.warp_group),
    )
    return resources, known


def _re_read_bytes(product: Product, cut: _Tiling, gpu: GpuSpec, resident: Array) -> Array:
    """Bytes [n] read from DRAM again, because the L2 did not keep them until they were needed again."""
    concurrent = gpu.num_sms * np.maximum(resident, 1)
    # A sweep over the columns serves GROUP_SIZE_M row tiles, or as many as run at once if those are more.
    tiles_per_sweep = np.maximum(cut.group, concurrent / np.maximum(cut.column_tiles, 1))
    sweeps = (product.count * np.ceil(cut.expert_row_tiles / tiles_per_sweep[:, None])).sum(-1)
    active = np.maximum((product.count * (product.rows > 0)).sum(-1), 1)
    weights = product.b_group_bytes
    again_b = np.maximum(sweeps - active, 0) * weights
    swept = np.minimum(tiles_per_sweep, cut.row_tiles) * cut.block_m * product.a_row_bytes
    missed_b = again_b * memory.re_read_fraction(weights + swept, gpu.l2_bytes)
    # Tiles of one row that run at once go through their rows together; the next ones read them again.
    columns_at_once = np.clip(concurrent / tiles_per_sweep, 1, cut.column_tiles)
    again_a = cut.total_rows * product.a_row_bytes * np.ceil(cut.column_tiles / columns_at_once) - product.distinct_a_bytes
    missed_a = np.maximum(again_a, 0) * memory.re_read_fraction(swept + weights * columns_at_once / cut.column_tiles, gpu.l2_bytes)
    return missed_a + missed_b
