"""Tiles reach beyond the edge of the matrix."""

from __future__ import annotations

import math

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import cured, microseconds
from advisor.pipelines import problem_batch
from advisor.result.schema import Finding


def product_sizes(context: LaunchContext) -> tuple[float, float, float]:
    """Rows (tokens, for experts), columns and depth of the product."""
    sizes = problem_batch([context.problem]).sizes
    if context.problem.family == "gemm":
        return first(sizes["M"]), first(sizes["N"]), first(sizes["K"])
    if context.problem.op == "w13":
        return first(sizes["M"]), 2 * first(sizes["N"]), first(sizes["H"])
    return first(sizes["M"]), first(sizes["H"]), first(sizes["N"])


class EdgePadding:
    """Masked lanes of tiles at the edges."""

    id = "edge-padding"
    title = "Tiles reach beyond the edge of the matrix"
    needs: tuple[Need, ...] = ("runs", "tiles")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where blocks that fit better save time."""
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
        fits = around.column(around.demand.useful_fraction) > first(context.asked.useful_fraction) * 1.001
        better = around.best(fits & (around.values[name] != blocks[name]))
        return cured(
            self,
            context,
            better,
            f"{name}={blocks[name]} does not divide {sizes[name]:,.0f}",
            evidence=f"{100 * wasted[name]:.1f} % of the tiles' extent lies beyond the edge; padding costs {microseconds(costs)} in all",
            costs_us=costs,
        )


RULE = EdgePadding()
