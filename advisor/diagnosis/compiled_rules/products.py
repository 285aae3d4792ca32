"""Matrix products and the loop around them: instructions that they do not run on, loads that nothing hides, layouts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.compiled.demand.costs import cost, tensor_type
from advisor.compiled.demand.machine_work import executions_at
from advisor.diagnosis.compiled_rules.context import CompiledContext
from advisor.diagnosis.rule import make_finding, rule
from advisor.pipelines.demand import Demand
from advisor.result.schema import Finding


@rule("A dot does not run on the tensor pipeline")
def dot_without_tensor_instruction(context: CompiledContext) -> Finding | None:
    """A dot does not run on the tensor pipeline."""
    for operation, depth in context.operations:
        if operation.name != "tt.dot" or context.facts.matrix_instruction is not None:
            continue
        left = next((t for t in operation.types if t.shape), None)
        if left is None or tensor_type(operation, left) is not None:
            continue
        return make_finding(
            context,
            "warning",
            f"A dot of {left.element} operands runs on the fma pipeline",
            evidence=f"operands {left.element}, precision {operation.attribute('inputPrecision') or 'ieee'}, no matrix "
            f"instruction in the code{', in a loop' if depth else ''}",
            remedy='set input_precision="tf32" (or "tf32x3"), or convert the operands to bf16 or fp16',
            saving_us=context.saving(lambda demand: _on_tensor_pipeline(demand, context), changes_type=True),
            line=operation.location.line if operation.location else None,
            file=operation.location.file if operation.location else None,
        )
    return None


FLOP_PER_FMA = 1.5
"""As the analysis counts instructions: fused ones do two, others one."""


def _on_tensor_pipeline(demand: Demand, context: CompiledContext) -> Demand:
    """The demand with the dots' FLOP in TF32, where the GPU has it."""
    assert context.gpu is not None
    if "tf32" not in context.gpu.tensor_flop_per_clock_per_sm:
        return demand
    flop = 0.0
    for operation, _ in context.operations:
        if operation.name == "tt.dot":
            often = executions_at(context.demand, operation.location.line if operation.location else None, 0.0)
            flop += cost(operation).fma * often
    flop = min(flop / float(demand.ctas[0]), float(demand.per_cta["fma"][0]))
    spared = np.minimum(flop / FLOP_PER_FMA / context.compiled.target.warp_size, demand.per_cta["issue"])
    per_cta = {
        **demand.per_cta,
        "fma": demand.per_cta["fma"] - flop,
        "tensor": demand.per_cta["tensor"] + flop,
        "issue": demand.per_cta["issue"] - spared,
    }
    return replace(demand, per_cta=per_cta, tensor_dtype="tf32")


WARP_GROUP_ROWS = 64
"""Rows of a tile that one warp-group instruction multiplies (wgmma.m64; tcgen05 takes 64 or 128)."""
LEAST_SHARE = 0.02
"""Of the predicted latency: a slower instruction that costs less is not reported."""


@rule("mma.sync where a warp-group instruction was possible")
def mma_instead_of_wgmma(context: CompiledContext) -> Finding | None:
    """mma.sync where a warp-group instruction was possible."""
    capability = context.capability
    if capability is None or capability // 10 not in (9, 10) or context.facts.matrix_instruction != "mma":
        return None
    dots = [op for op, _ in context.operations if op.name in ("tt.dot", "tt.dot_scaled") and op.result is not None]
    if not dots:
        return None
    dot = max(dots, key=lambda op: op.result.elements if op.result else 0)
    rows, columns = dot.result.shape[-2:] if dot.result and len(dot.result.shape) >= 2 else (0, 0)
    warps = context.compiled.num_warps
    better = "tcgen05" if capability >= 100 else "wgmma"
    if rows < WARP_GROUP_ROWS > columns:
        return None  # no side is as long as the instruction
    why, remedy = (
        "operands or layouts that the instruction does not support",
        f"give {better} operands in 16 bits or fewer, loaded as they lie",
    )
    if rows < WARP_GROUP_ROWS:
        why = f"{rows} rows"
        remedy = f"swap the operands and transpose the result: the {columns} columns become the {WARP_GROUP_ROWS} rows that {better} needs"
    elif warps % 4:
        why, remedy = f"{warps} warps", f"use 4 or 8 warps: {better} runs on groups of four"
    saving_us = context.saving(lambda demand: replace(demand, tensor_rate=np.ones_like(demand.tensor_rate)))
    predicted = context.analysis.predicted if context.analysis is not None else None
    if saving_us is not None and predicted is not None and saving_us < LEAST_SHARE * predicted.us:
        return None  # the tensor cores are not what it waits for
    return make_finding(
        context,
        "advice",
        f"The dot uses mma.sync, not {better}",
        evidence=f"tile of {rows} x {columns} with {warps} warps on {context.compiled.target.name}: {why}",
        remedy=remedy,
        saving_us=saving_us,
        line=dot.location.line if dot.location else None,
        file=dot.location.file if dot.location else None,
    )


@rule("No async copy although there are several stages")
def no_async_copy(context: CompiledContext) -> Finding | None:
    """No async copy although there are several stages."""
    capability = context.capability
    known = context.facts.instructions or context.compiled.ptx
    if not known or capability is None or capability < 80 or context.compiled.num_stages < 2 or context.facts.async_copies:
        return None
    dots = [op for op, depth in context.operations if op.name.startswith("tt.dot") and depth > 0]
    loads = [op for op, depth in context.operations if op.name == "tt.load" and depth > 0]
    if not dots or not loads:
        return None
    stages = context.compiled.num_stages
    return make_finding(
        context,
        "warning",
        f"num_stages={context.compiled.num_stages}, but nothing is copied asynchronously",
        evidence=f"{len(loads)} loads in loops with tl.dot, and no cp.async or TMA instruction",
        remedy="make the contiguous dimension and its stride multiples of 16, or use tensor descriptors",
        saving_us=context.saving(lambda demand: replace(demand, num_stages=np.full_like(demand.num_stages, stages))),
        line=loads[0].location.line if loads[0].location else None,
        file=loads[0].location.file if loads[0].location else None,
    )


STAGES = 3
"""Triton's own `num_stages`."""


@rule("A loop with tl.dot waits for its loads")
def single_stage_loop(context: CompiledContext) -> Finding | None:
    """A loop with a product runs with one stage."""
    if context.compiled.num_stages != 1 or (context.capability or 80) < 80:
        return None
    dots = [op for op, depth in context.operations if op.name.startswith("tt.dot") and depth > 0]
    loads = [op for op, depth in context.operations if op.name in ("tt.load", "tt.descriptor_load") and depth > 0]
    saving = context.saving(lambda demand: replace(demand, num_stages=np.full_like(demand.num_stages, STAGES)))
    if not dots or not loads or (saving is None and context.predicts_savings):
        return None
    return make_finding(
        context,
        "warning",
        "num_stages=1: each trip of the loop waits for its loads",
        evidence=f"{len(loads)} load{'s' if len(loads) > 1 else ''} in a loop with a product, and none is prefetched",
        remedy=f"num_stages={STAGES}, or as many as the shared memory holds",
        line=loads[0].line,
        file=loads[0].location.file if loads[0].location else None,
        saving_us=saving,
    )


@rule("Layout conversions through shared memory in the loop")
def convert_layout_in_loop(context: CompiledContext) -> Finding | None:
    """Layout conversions through shared memory in the loop."""
    if not context.facts.conversions_in_loop:
        return None
    saving = context.without(smem=work.conversion_bytes) if (work := context.work) is not None else None
    if saving is None and context.predicts_savings:
        return None  # once for each tile of a persistent kernel, say, or beside a pipeline that is busier
    line, text, _ = context.facts.conversions_in_loop[0]
    count = len(context.facts.conversions_in_loop)
    return make_finding(
        context,
        "advice",
        f"{count} layout conversion{'s' if count > 1 else ''} in a loop",
        evidence=text,
        remedy="move it out of the loop, or change the surrounding operations so that layouts agree",
        line=line,
        saving_us=saving,
    )
