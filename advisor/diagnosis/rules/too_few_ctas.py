"""There are fewer CTAs than SMs."""

from __future__ import annotations

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import cured, percent
from advisor.result.schema import Finding


class TooFewCtas:
    """SMs that get no CTA."""

    id = "too-few-ctas"
    title = "Some SMs get no CTA"
    needs: tuple[Need, ...] = ("configuration", "runs")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where more CTAs save time."""
        ctas, sms = first(context.asked.ctas), context.gpu.num_sms
        if ctas >= sms:
            return None
        around = context.neighbours()
        better = around.best(around.column(around.demand.ctas) > ctas)
        return cured(
            self,
            context,
            better,
            f"{ctas:,.0f} CTAs for {sms} SMs: {percent(1 - ctas / sms)} of the GPU idles",
            evidence=f"the grid has {ctas:,.0f} CTAs that work, {sms - ctas:,.0f} SMs get none",
        )


RULE = TooFewCtas()
