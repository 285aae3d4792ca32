"""Operands are read again and again."""

from __future__ import annotations

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import amount, cured, microseconds
from advisor.result.schema import Finding

L2_AGAIN, DRAM_AGAIN = 1.5, 1.25
"""Re-reading below these multiples of the distinct bytes is within what the re-read model can tell. Source: 800 launches of
`fused_moe_near_optimal` (see `data/README.md`), where nothing is to be won: without the limits the rule fired on 24 % of them."""


class OperandTraffic:
    """More bytes through the L2 or from DRAM than the problem has."""

    id = "operand-traffic"
    title = "Small tiles read the operands many times"
    needs: tuple[Need, ...] = ("configuration", "runs", "dot")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where larger tiles save time."""
        asked = context.asked
        l2, dram, distinct = first(asked.l2_bytes), first(asked.dram_bytes), first(asked.compulsory_bytes)
        if l2 < L2_AGAIN * distinct and dram < DRAM_AGAIN * distinct:
            return None
        costs = context.costs(relax=("traffic",))
        if not context.matters(costs):
            return None
        around = context.neighbours()
        fewer = (around.column(around.demand.l2_bytes) < 0.99 * l2) | (around.column(around.demand.dram_bytes) < 0.99 * dram)
        better = around.best(fewer & ~around.only("GROUP_SIZE_M") & (around.cost("traffic") < costs))
        return cured(
            self,
            context,
            better,
            f"Every byte passes through the L2 {l2 / max(distinct, 1):.1f} times",
            evidence=f"{amount(l2)} through the L2 and {amount(dram)} of DRAM traffic for {amount(distinct)} of distinct data "
            f"(L2: {amount(context.gpu.l2_bytes)}); re-reading costs {microseconds(costs)} in all",
            costs_us=costs,
        )


RULE = OperandTraffic()
