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
