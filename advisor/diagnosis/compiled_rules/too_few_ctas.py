"""There are fewer programs than SMs."""

from __future__ import annotations

from dataclasses import replace

from advisor.diagnosis.columns import first
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.diagnosis.context import THRESHOLD
from advisor.diagnosis.rule import percent
from advisor.pipelines.demand import Demand
from advisor.result.schema import Finding


class TooFewCtas:
    """SMs that get no program."""

    id = "too-few-ctas"
    title = "Some SMs get no CTA"

    def check(self, context: CompiledContext) -> Finding | None:
        """Fires where the same work, spread over all SMs, saves time."""
        found = context.analysis
        if found is None or found.predicted is None:
            return None
        ctas, sms = first(found.asked.ctas), found.gpu.num_sms
        trips = first(found.asked.k_iterations) / max(len(context.demand.loops), 1)
        saving = context.saving(lambda asked: _spread(asked, sms / ctas, max(trips, 1.0))) if ctas < sms else None
        if saving is None or saving < THRESHOLD * found.predicted.us:
            return None
        return report(
            self,
            context,
            "warning",
            f"{ctas:,.0f} CTA{'s' if ctas > 1 else ''} for {sms} SMs: {percent(1 - ctas / sms)} of the GPU idles",
            evidence=f"{sms - ctas:,.0f} SMs get none",
            remedy="give each program less: smaller blocks, or a grid that divides the loop too, its parts added up by a second launch",
            saving_us=saving,
        )


def _spread(asked: Demand, times: float, trips: float) -> Demand:
    """The same work in so many times as many CTAs, each with as much less to do: in turn, what loops of `trips` can give."""
    phases, shorter = asked.phases, min(trips, times)
    return replace(
        asked,
        per_cta={name: amount / times for name, amount in asked.per_cta.items()},
        ctas=asked.ctas * times,
        launched_ctas=asked.launched_ctas * times,
        cta_load_bytes=asked.cta_load_bytes / times,
        cta_store_bytes=asked.cta_store_bytes / times,
        k_iterations=asked.k_iterations / shorter,
        largest_cta_ratio=None,
        phases=None if phases is None else replace(phases, serial_us=phases.serial_us / shorter),
    )


RULE = TooFewCtas()
