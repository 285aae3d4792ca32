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
    explanation = """\
## What it means
Each trip of the main loop waits for loads that started `num_stages - 1` trips earlier. With too few stages, or too
short a step, the loads are not back in time, and the SM waits although no pipeline is full.

## How it is computed
Trips × load latency / (num_stages − 1) against the busiest pipeline. The cost is the difference to loads that take no
time; the saving is what the model predicts for the best neighbour with more stages or a longer step, and at most that
cost.

## What to do
More `num_stages` as far as shared memory allows, or a larger `BLOCK_SIZE_K` (fewer trips).

## Source
Load latencies: arXiv 2402.13499 (H100, A100, RTX 4090); Little's law.
"""

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
