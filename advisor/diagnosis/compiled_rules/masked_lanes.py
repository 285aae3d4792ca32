"""Lanes that do what nobody needs, for their loads and stores are masked off."""

from __future__ import annotations

from advisor.compiled.demand.costs import element_bytes
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.diagnosis.rule import percent
from advisor.result.schema import Finding

LEAST_MASKED = 0.25
"""Of the lanes of loads: what rounding a length up to a power of two leaves on average."""
LEAST_SHARE = 0.05
"""Of the predicted latency: what costs less is not reported."""


class MaskedLanes:
    """Lanes that do what nobody needs, for their loads and stores are masked off."""

    id = "masked-lanes"
    title = "Many lanes are masked off"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, with what the arithmetic of those lanes costs; None where that is little, or products share it."""
        found = context.analysis
        loads = [each for each in context.demand.accesses if each.kind == "load" and each.lanes > 1 and each.issued_bytes]
        whole = [each.executions * each.lanes * element_bytes(each.element) for each in loads]
        if found is None or found.predicted is None or not loads or context.demand.total_tensor_flop:
            return None
        masked = 1 - sum(each.issued_bytes for each in loads) / sum(whole)
        totals = {name: masked * float(found.asked.totals()[name][0]) for name in ("alu", "xu", "fma", "issue")}
        saving = context.without(**totals) if masked >= LEAST_MASKED else None
        if saving is None or saving < LEAST_SHARE * found.predicted.us:
            return None
        most = max(loads, key=lambda each: each.executions * each.lanes)
        return report(
            self,
            context,
            "warning",
            f"{percent(masked)} of the lanes that load are masked off",
            evidence=f"they are computed for all the same; most are those of {most.name}",
            remedy="take a block no larger than the length it covers needs: its next power of two, or a smaller block in a loop",
            line=most.line,
            file=most.file,
            saving_us=saving,
        )


RULE = MaskedLanes()
