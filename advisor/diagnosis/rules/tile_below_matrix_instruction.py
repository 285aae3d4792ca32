"""The tile is too small for the GPU's fastest matrix instruction."""

from __future__ import annotations

import numpy as np

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found, percent, remedy_of, severity_of
from advisor.result.schema import Finding
from advisor.tables.launchability import swaps_operands


class TileBelowMatrixInstruction:
    """Fewer than 64 rows or four warps where wgmma wants them."""

    id = "tile-below-matrix-instruction"
    title = "The tile is too small for the fastest matrix instruction"
    needs: tuple[Need, ...] = ("configuration", "runs", "dot")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where a tile for the faster instruction saves time."""
        rate = first(context.asked.tensor_rate)
        if rate >= 1 or context.asked.tensor_dtype is None:
            return None
        # wgmma reads its operands from shared memory by itself: with the lower rate goes the reading through registers.
        free = {**context.asked.per_cta, "smem": np.zeros_like(context.asked.per_cta["smem"])}
        costs = context.costs(demand={"tensor_rate": np.ones_like(context.asked.tensor_rate), "per_cta": free})
        if not context.matters(costs):
            return None
        around = context.neighbours()
        better = around.best(around.column(around.demand.tensor_rate) > rate)
        saving = min(costs, context.saving(better.us)) if better else 0.0
        if better is None or not context.matters(saving, better):
            return None
        rows = context.parameter("BLOCK_SIZE_M", context.parameter("BLOCK_M", 64))
        # Columns matter where the kernel would swap them to the rows; wide enough, they would have been.
        swaps = first(swaps_operands(context.problem.family, context.problem.dtype, context.gpu.compute_capability, rows, 64)) > 0
        columns = f" and {context.parameter('BLOCK_SIZE_N', 64)} columns" if swaps else ""
        return found(
            self,
            context,
            severity_of(context, saving),
            f"A tile of {rows} rows{columns} with {context.parameter('num_warps', 4)} warps runs on mma.sync",
            evidence=f"mma.sync reaches at most {percent(rate)} of the matrix pipeline of {context.gpu.name}; "
            f"the faster instruction needs 64 rows{' or columns' if swaps else ''} and 4 warps",
            remedy=remedy_of(better, context),
            saving_us=saving,
            better=better,
        )


RULE = TileBelowMatrixInstruction()
