"""Some experts get far more rows than others."""

from __future__ import annotations

from dataclasses import replace

from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found, microseconds
from advisor.result.schema import Finding


class UnevenRouting:
    """The given routing costs time against an even one."""

    id = "uneven-routing"
    title = "The routing loads some experts far more than others"
    needs: tuple[Need, ...] = ("configuration", "runs", "experts")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where a given routing is slower than the uniform one."""
        loads = context.problem.routing
        if loads is None or not sum(loads):
            return None
        even = context.what_if(problem=replace(context.problem, routing=None))
        costs = context.current_us - even
        if not context.matters(costs):
            return None
        mean = sum(loads) / len(loads)
        return found(
            self,
            context,
            "info",
            f"The busiest expert gets {max(loads) / mean:.1f} times the mean",
            evidence=f"{sum(1 for n in loads if not n)} of {len(loads)} experts idle; even routing would take {microseconds(even)}",
            remedy="balance the experts, and tune with the routing that is served",
        )


RULE = UnevenRouting()
