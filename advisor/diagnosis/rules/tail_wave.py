"""The last wave leaves SMs idle."""

from __future__ import annotations

import math

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import cured, microseconds, percent
from advisor.result.schema import Finding


class TailWave:
    """CTAs left over after the full waves."""

    id = "tail-wave"
    title = "The last wave of CTAs leaves SMs idle"
    needs: tuple[Need, ...] = ("configuration", "runs")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where other blocks fill the waves better."""
        plan, ctas, sms = context.plan, first(context.asked.ctas), context.gpu.num_sms
        if ctas < sms:
            return None
        costs = context.costs(relax=("tail-wave",))
        if not context.matters(costs):
            return None
        around = context.neighbours()
        waves = first(plan.waves)
        regrouped = around.column(around.demand.ctas) != ctas
        if waves > 1:
            regrouped = regrouped | (around.column(around.schedule.resident) != first(plan.resident))
        better = around.best(regrouped & (around.cost("tail-wave") < costs))
        return cured(
            self,
            context,
            better,
            f"The last wave is {percent(first(plan.last_wave_fill))} full"
            if waves > 1
            else f"{ctas:,.0f} CTAs do not divide evenly over {sms} SMs",
            evidence=f"{ctas:,.0f} CTAs over {sms} SMs with {first(plan.resident):.0f} resident each make {waves:.2f} waves, "
            f"the busiest SM gets {math.ceil(ctas / sms)}; spread evenly they would take {microseconds(costs)} less",
            costs_us=costs,
        )


RULE = TailWave()
