"""CTAs with so little to do that starting them takes longer."""

from __future__ import annotations

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import cured, microseconds
from advisor.pipelines.schedule import start_us
from advisor.result.schema import Finding


class SmallCtas:
    """The GPU starts CTAs one after another."""

    id = "small-ctas"
    title = "Starting the CTAs takes longer than their work"
    needs: tuple[Need, ...] = ("configuration", "runs")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where fewer CTAs that do more save time."""
        ctas, starting = first(context.asked.launched_ctas), first(start_us(context.asked, context.gpu))
        fewer = context.costs(demand={"launched_ctas": context.asked.launched_ctas * 0})
        if not context.matters(fewer):
            return None
        around = context.neighbours()
        return cured(
            self,
            context,
            around.best(around.column(around.demand.launched_ctas) < ctas),
            f"{ctas:,.0f} CTAs take {microseconds(starting)} to start",
            evidence=f"whatever they do; were that free, the launch would take {microseconds(fewer)} less",
            costs_us=fewer,
        )


RULE = SmallCtas()
