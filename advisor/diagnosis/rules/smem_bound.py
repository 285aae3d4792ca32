"""Shared memory is the busiest pipeline."""

from __future__ import annotations

import numpy as np

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import amount, cured, microseconds
from advisor.result.schema import Finding


class SmemBound:
    """Operands go through shared memory more often than the matrix pipeline needs."""

    id = "smem-bound"
    title = "Shared-memory bandwidth limits the launch"
    needs: tuple[Need, ...] = ("configuration", "runs", "dot")
    explanation = """\
## What it means
Tiles are staged in shared memory and read from there by every warp that needs them. Narrow tiles over many warps read
the same bytes again and again, until shared memory, not the matrix pipeline or DRAM, sets the pace.

## How it is computed
Bytes written and read per trip of the loop and warp layout, on the busiest SM. The cost is the difference to shared
memory that takes no time; the saving is what the model predicts for the best neighbour with less of it, and at most
that cost.

## What to do
Squarer tiles, fewer warps per tile; on Hopper a tile that wgmma can read straight from shared memory (64 rows, 4
warps).

## Source
32 banks of 4 bytes per clock and SM (CUDA C++ Programming Guide); warp layout as Triton 3.9 chooses it.
"""

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where less shared-memory traffic saves time."""
        asked = context.asked
        smem = first(asked.per_cta["smem"])
        if smem <= 0:
            return None
        none = {**asked.per_cta, "smem": np.zeros_like(asked.per_cta["smem"])}
        costs = context.costs(demand={"per_cta": none})
        if not context.matters(costs):
            return None
        total = first(asked.ctas) * smem
        around = context.neighbours()
        totals = around.column(around.demand.per_cta["smem"]) * around.column(around.demand.ctas)
        better = around.best(totals < 0.99 * total)
        return cured(
            self,
            context,
            better,
            f"{amount(total)} go through shared memory",
            evidence=f"{total / max(first(asked.l2_bytes), 1):.1f} times what is loaded; with free shared memory the launch "
            f"would take {microseconds(costs)} less",
            costs_us=costs,
        )


RULE = SmemBound()
