"""The matrix product: types and tiles that its instructions do not take, tiles beyond the edge, its software pipeline."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from advisor.diagnosis.context import LaunchContext
from advisor.diagnosis.pricing import first
from advisor.diagnosis.rule import cured, kibibytes, make_finding, microseconds, percent, rule, severity_of
from advisor.pipelines import problem_batch
from advisor.result.schema import Finding
from advisor.tables.launchability import swaps_operands


@rule("The product does not run on the matrix pipeline", "configuration", "runs", "dot", changes_type=True)
def not_tensor_dtype(context: LaunchContext) -> Finding | None:
    """fp32 operands on the fma pipeline. Fires where a type of the matrix pipeline saves time."""
    if context.launch_demand.tensor_dtype is not None:
        return None
    dtype = next((d for d in ("tf32", "bf16", "fp16") if context.gpu.supports(d)), None)
    if dtype is None:
        return None
    other = replace(context.problem, dtype=dtype)
    after = max(context.what_if(problem=other), context.bound_of(other))
    saving = max(context.now_us - after, 0.0)  # not down to the bound of the problem as it is: that is of another type
    if not context.matters(saving):
        return None
    slow, name = context.problem.dtype, context.gpu.name
    if context.gpu.vendor == "amd" and slow == "fp32":  # v_mfma_f32_*_f32 (CDNA 3 and 4 ISA)
        title = "fp32 runs at the rate of the fma pipeline"
        why = f"the fp32 matrix instructions of {name} are as fast as its vector units"
    else:
        title, why = f"{slow} runs on the fma pipeline", f"{name} has no matrix instruction for {slow}"
    return make_finding(
        context,
        severity_of(context, saving),
        title,
        evidence=f"{why}; {dtype} would take {microseconds(after)}",
        remedy=f'input_precision="{dtype}" in tl.dot (numerics change)' if dtype == "tf32" else f"{dtype} operands",
        saving_us=saving,
    )


@rule("The tile is too small for the fastest matrix instruction", "configuration", "runs", "dot")
def tile_below_matrix_instruction(context: LaunchContext) -> Finding | None:
    """Fewer than 64 rows or four warps where wgmma wants them. Fires where a tile for the faster instruction saves time."""
    rate = first(context.launch_demand.tensor_rate)
    if rate >= 1 or context.launch_demand.tensor_dtype is None:
        return None
    # wgmma reads its operands from shared memory by itself: with the lower rate goes the reading through registers.
    free = {**context.launch_demand.per_cta, "smem": np.zeros_like(context.launch_demand.per_cta["smem"])}
    costs = context.costs(demand={"tensor_rate": np.ones_like(context.launch_demand.tensor_rate), "per_cta": free})
    if not context.matters(costs):
        return None
    around = context.neighbours()
    better = around.best(around.column(around.demand.tensor_rate) > rate)
    rows = context.parameter("BLOCK_SIZE_M", context.parameter("BLOCK_M", 64))
    # Columns matter where the kernel would swap them to the rows; wide enough, they would have been.
    swaps = first(swaps_operands(context.problem.family, context.problem.dtype, context.gpu.compute_capability, rows, 64)) > 0
    columns = f" and {context.parameter('BLOCK_SIZE_N', 64)} columns" if swaps else ""
    return cured(
        context,
        better,
        f"A tile of {rows} rows{columns} with {context.parameter('num_warps', 4)} warps runs on mma.sync",
        evidence=f"mma.sync reaches at most {percent(rate)} of the matrix pipeline of {context.gpu.name}; "
        f"the faster instruction needs 64 rows{' or columns' if swaps else ''} and 4 warps",
        costs_us=costs,
    )


def product_sizes(context: LaunchContext) -> tuple[float, float, float]:
    """Rows (tokens, for experts), columns and depth of the product."""
    sizes = problem_batch([context.problem]).sizes
    if context.problem.family == "gemm":
        return first(sizes["M"]), first(sizes["N"]), first(sizes["K"])
    if context.problem.op == "w13":
        return first(sizes["M"]), 2 * first(sizes["N"]), first(sizes["H"])
    return first(sizes["M"]), first(sizes["H"]), first(sizes["N"])


@rule("Tiles reach beyond the edge of the matrix", "runs", "tiles")
def edge_padding(context: LaunchContext) -> Finding | None:
    """Masked lanes of tiles at the edges. Fires where blocks that fit better save time."""
    names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
    blocks = {name: context.parameter(name, 64) for name in names}
    sizes = dict(zip(names, product_sizes(context), strict=True))
    if context.problem.family == "fused_moe":
        blocks.pop("BLOCK_SIZE_M")  # rows are padded per expert: another rule
    wasted = {n: 1 - sizes[n] / (math.ceil(sizes[n] / block) * block) for n, block in blocks.items()}
    name = max(wasted, key=lambda n: wasted[n])
    costs = context.costs(relax=("padding",))
    if wasted[name] <= 0 or not context.matters(costs):
        return None
    around = context.neighbours()
    fits = around.column(around.demand.useful_fraction) > first(context.launch_demand.useful_fraction) * 1.001
    better = around.best(fits & (around.values[name] != blocks[name]))
    return cured(
        context,
        better,
        f"{name}={blocks[name]} does not divide {sizes[name]:,.0f}",
        evidence=f"{100 * wasted[name]:.1f} % of the tiles' extent lies beyond the edge; padding costs {microseconds(costs)} in all",
        costs_us=costs,
    )


@rule("The software pipeline is too shallow to hide the loads", "configuration", "runs", "dot")
def few_stages(context: LaunchContext) -> Finding | None:
    """Memory latency that a deeper software pipeline would hide. Fires where a deeper pipeline or longer steps save time."""
    costs = context.costs(relax=("latency",))
    if not context.matters(costs):
        return None
    stages, trips = context.parameter("num_stages", 3), first(context.launch_demand.k_iterations)
    around = context.neighbours()
    deeper = (around.values["num_stages"] > stages) | (around.column(around.demand.k_iterations) < trips)
    better = around.best(deeper & around.only("num_stages", "BLOCK_SIZE_K", "BLOCK_N") & (around.cost("latency") < costs))
    return cured(
        context,
        better,
        f"{stages} stages do not hide the loads of {trips:,.0f} loop iterations",
        evidence=f"with free loads the launch would be {microseconds(costs)} faster",
        costs_us=costs,
    )


@rule("The loop over K ends before the software pipeline is full", "configuration", "runs", "tiles")
def k_loop_shorter_than_pipeline(context: LaunchContext) -> Finding | None:
    """Stages that never fill. Fires where fewer stages or shorter steps save time."""
    trips, stages = first(context.launch_demand.k_iterations), context.parameter("num_stages", 3)
    if trips >= stages:
        return None
    around, block = context.neighbours(), context.parameter("BLOCK_SIZE_K", 64)
    less = around.only("num_stages", "BLOCK_SIZE_K")
    shorter = (around.values["num_stages"] < stages) | (around.values["BLOCK_SIZE_K"] < block)
    better = around.best(less & shorter)
    return cured(
        context,
        better,
        f"{trips:.0f} loop iteration{'s' if trips > 1 else ''} for {stages} pipeline stages",
        evidence=f"the loop over K has {trips:.0f} iterations of {block}; its buffers take "
        f"{kibibytes(first(context.launch_demand.resources.shared_memory_bytes))} of shared memory",
    )
