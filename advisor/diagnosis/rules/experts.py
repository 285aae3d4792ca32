"""What is about expert layers alone: rows per expert, routing, and the entry of the tuned table that runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.diagnosis.context import LaunchContext, parameter_of
from advisor.diagnosis.pricing import first
from advisor.diagnosis.rule import cured, make_finding, microseconds, percent, remedy_of, rule, severity_of
from advisor.pipelines import problem_batch
from advisor.result.schema import Finding

FAR_FROM_M = 1.5
"""Ratio of token counts from which an entry counts as far: vLLM's tuner spaces its keys by a factor of 1.33 to 2, so the nearest
key is within 1.5 everywhere inside the table."""


@rule("The entry was tuned for a very different number of tokens", "configuration", "runs", "entry_m")
def entry_far_from_m(context: LaunchContext) -> Finding | None:
    """A hole in the table, or a size beyond its end. Fires where an entry of its own would save time."""
    tokens, key = context.M, context.entry_m
    if tokens is None or key is None or max(tokens, key) <= FAR_FROM_M * min(tokens, key):
        return None
    around = context.neighbours()
    near = around.best(around.only(*around.values))
    known = [change for change in (context.recommended, near) if change is not None]
    better = min(known, key=lambda change: change.us + sum(change.slower_us.values()), default=None)
    return cured(
        context,
        better,
        f"Tokens {tokens:,} run with the entry tuned for {key:,}",
        evidence=f"the nearest key is {max(tokens, key) / min(tokens, key):.1f} times off; {microseconds(context.current_us)} predicted",
        how=f'add an entry "{tokens}" with ',
    )


@rule("BLOCK_SIZE_K is clamped to the quantization block", "configuration", "runs", "entry", "tiles")
def clamped_block_k(context: LaunchContext) -> Finding | None:
    """The stack runs another BLOCK_SIZE_K than the entry has. Fires where the launcher changes the entry."""
    written, runs = parameter_of(context.entry, "BLOCK_SIZE_K", 0), context.parameter("BLOCK_SIZE_K", 0)
    if written <= runs:
        return None
    around = context.neighbours()
    better = around.best(around.only("num_stages", "num_warps", "BLOCK_SIZE_K"))
    saving = context.saving(better.us) if better else 0.0
    worth = better is not None and context.matters(saving, better)
    remedy = f"write BLOCK_SIZE_K={runs}"
    if better is not None and worth:
        remedy += f", and take {remedy_of(better, context)}"
    return make_finding(
        context,
        severity_of(context, saving) if worth else "info",
        f"The entry has BLOCK_SIZE_K={written}, {runs} runs",
        evidence=f"quantization block {list(context.problem.block_shape)}" if context.problem.block_shape else "the launcher clamps it",
        remedy=remedy,
        saving_us=saving if worth else None,
        better=better if worth else None,
    )


@rule("Blocks of experts are padded with empty rows", "runs", "tiles", "experts")
def expert_padding(context: LaunchContext) -> Finding | None:
    """Rows of blocks of experts that hold no token slot. Fires where a smaller block saves time."""
    block = context.parameter("BLOCK_SIZE_M", 64)
    rows, count = problem_batch([context.problem]).routing
    slots = float((rows * count).sum())
    padded = float((count * np.ceil(rows / block)).sum()) * block
    costs = context.costs(relax=("padding",))
    if padded <= slots or not context.matters(costs):
        return None
    around = context.neighbours()
    better = around.best(
        (around.values["BLOCK_SIZE_M"] < block)
        & (around.column(around.demand.useful_fraction) > first(context.launch_demand.useful_fraction))
    )
    active = float((count * (rows > 0)).sum())
    return cured(
        context,
        better,
        f"{percent(1 - slots / padded)} of the rows in the blocks are padding",
        evidence=f"{slots:,.0f} token slots on {active:,.0f} active experts are padded to {padded:,.0f} rows "
        f"in blocks of {block}; padding costs {microseconds(costs)} in all",
        costs_us=costs,
    )


SMALLEST_TILE = 16
"""Rows of the smallest matrix instruction (PTX ISA, mma.sync m16n8k16), and the least BLOCK_SIZE_M of the tuners."""


@rule("Each expert's weights are read for a few rows only", "experts")
def low_rows_per_expert(context: LaunchContext) -> Finding | None:
    """The weights of every expert are read for a handful of rows. Fires where weights bind and tiles are nearly empty."""
    rows, count = problem_batch([context.problem]).routing
    active = float((count * (rows > 0)).sum())
    mean = float((rows * count).sum()) / max(active, 1.0)
    if mean >= SMALLEST_TILE / 2 or context.bound.binding_pipeline(0) not in ("dram", "l2"):
        return None
    return make_finding(
        context,
        "info",
        f"{mean:.1f} rows per active expert",
        evidence=f"{active:,.0f} of {context.problem.sizes['E']:,} experts are active; the smallest tile has "
        f"{SMALLEST_TILE} rows, and {context.bound.binding_pipeline(0)} binds",
        remedy="batches of up to 16 rows per expert cost nearly the same; no configuration changes it",
    )


@rule("The routing loads some experts far more than others", "configuration", "runs", "experts")
def uneven_routing(context: LaunchContext) -> Finding | None:
    """The given routing costs time against an even one. Fires where a given routing is slower than the uniform one."""
    loads = context.problem.routing
    if loads is None or not sum(loads):
        return None
    even = context.what_if(problem=replace(context.problem, routing=None))
    costs = context.current_us - even
    if not context.matters(costs):
        return None
    mean = sum(loads) / len(loads)
    return make_finding(
        context,
        "info",
        f"The busiest expert gets {max(loads) / mean:.1f} times the mean",
        evidence=f"{sum(1 for n in loads if not n)} of {len(loads)} experts idle; even routing would take {microseconds(even)}",
        remedy="balance the experts, and tune with the deployed routing",
    )
