"""Bytes that go through DRAM, the L2 or shared memory more often than they have to."""

from __future__ import annotations

import numpy as np

from advisor.diagnosis.context import LaunchContext
from advisor.diagnosis.pricing import first
from advisor.diagnosis.rule import amount, cured, microseconds, rule
from advisor.result.schema import Finding

L2_AGAIN, DRAM_AGAIN = 1.5, 1.25
"""Re-reading below these multiples of the distinct bytes is within what the re-read model can tell. Source: 800 launches of
`fused_moe_near_optimal` (see `data/README.md`), where nothing is to be won: without the limits the rule fired on 24 % of them."""


@rule("Small tiles read the operands many times", "configuration", "runs", "dot")
def operand_traffic(context: LaunchContext) -> Finding | None:
    """More bytes through the L2 or from DRAM than the problem has. Fires where larger tiles save time."""
    demand = context.launch_demand
    l2, dram, distinct = first(demand.l2_bytes), first(demand.dram_bytes), first(demand.compulsory_bytes)
    if l2 < L2_AGAIN * distinct and dram < DRAM_AGAIN * distinct:
        return None
    costs = context.costs(relax=("traffic",))
    if not context.matters(costs):
        return None
    around = context.neighbours()
    fewer = (around.column(around.demand.l2_bytes) < 0.99 * l2) | (around.column(around.demand.dram_bytes) < 0.99 * dram)
    better = around.best(fewer & ~around.only("GROUP_SIZE_M") & (around.cost("traffic") < costs))
    return cured(
        context,
        better,
        f"Every byte passes through the L2 {l2 / max(distinct, 1):.1f} times",
        evidence=f"{amount(l2)} through the L2 and {amount(dram)} of DRAM traffic for {amount(distinct)} of distinct data "
        f"(L2: {amount(context.gpu.l2_bytes)}); re-reading costs {microseconds(costs)} in all",
        costs_us=costs,
    )


@rule("The order of the tiles (GROUP_SIZE_M) loses re-use in the L2", "configuration", "runs", "tiles")
def group_size_l2(context: LaunchContext) -> Finding | None:
    """The order of the tiles costs DRAM traffic. Fires where another GROUP_SIZE_M alone saves time."""
    if context.configuration is None or "GROUP_SIZE_M" not in context.configuration.parameters:
        return None
    around = context.neighbours()
    better = around.best(around.only("GROUP_SIZE_M"))
    demand = context.launch_demand
    return cured(
        context,
        better,
        f"GROUP_SIZE_M={context.parameter('GROUP_SIZE_M')} fetches operands from DRAM again",
        evidence=f"{amount(first(demand.dram_bytes))} from and to DRAM for {amount(first(demand.compulsory_bytes))} "
        f"of distinct data, with an L2 of {amount(context.gpu.l2_bytes)}",
    )


@rule("Shared-memory bandwidth limits the launch", "configuration", "runs", "dot")
def smem_bound(context: LaunchContext) -> Finding | None:
    """Operands go through shared memory more often than the matrix pipeline needs. Fires where less shared-memory traffic saves time."""
    demand = context.launch_demand
    smem = first(demand.per_cta["smem"])
    if smem <= 0:
        return None
    none = {**demand.per_cta, "smem": np.zeros_like(demand.per_cta["smem"])}
    costs = context.costs(demand={"per_cta": none})
    if not context.matters(costs):
        return None
    total = first(demand.ctas) * smem
    around = context.neighbours()
    totals = around.column(around.demand.per_cta["smem"]) * around.column(around.demand.ctas)
    better = around.best(totals < 0.99 * total)
    return cured(
        context,
        better,
        f"{amount(total)} go through shared memory",
        evidence=f"{total / max(first(demand.l2_bytes), 1):.1f} times what is loaded; with free shared memory the launch "
        f"would take {microseconds(costs)} less",
        costs_us=costs,
    )
