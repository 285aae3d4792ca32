"""Loads are not far enough ahead of the computation."""

from __future__ import annotations

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import cured, microseconds
from advisor.result.schema import Finding


class FewStages:
    """Memory latency that a deeper software pipeline would hide."""

    id = "few-stages"
    title = "The software pipeline is too shallow to hide the loads"
    needs: tuple[Need, ...] = ("configuration", "runs", "dot")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where a deeper pipeline or longer steps save time."""
        costs = context.costs(relax=("latency",))
        if not context.matters(costs):
            return None
        stages, trips = context.parameter("num_stages", 3), first(context.asked.k_iterations)
        around = context.neighbours()
        deeper = (around.values["num_stages"] > stages) | (around.column(around.demand.k_iterations) < trips)
        better = around.best(deeper & around.only("num_stages", "BLOCK_SIZE_K", "BLOCK_N") & (around.cost("latency") < costs))
        return cured(
            self,
            context,
            better,
            f"{trips:,.0f} trips of the loop, {stages} stages deep, wait for their loads",
            evidence=f"with loads that take no time the launch would be {microseconds(costs)} faster",
            costs_us=costs,
        )


RULE = FewStages()
