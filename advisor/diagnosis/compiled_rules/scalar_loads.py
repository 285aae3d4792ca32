"""Scalars are loaded by every thread again and again."""

from __future__ import annotations

from advisor.compiled.launches.launch import author_file
from advisor.compiled.source_lines import exposed_us
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.diagnosis.rule import microseconds
from advisor.pipelines.bound import throughput_per_us
from advisor.result.schema import Finding

LEAST_SHARE = 0.02
"""Of the predicted latency: what costs less is not reported."""
MOST = 4
"""Scalars that a program may load without a word: which rows are its own, say."""


class ScalarLoads:
    """Scalars are loaded by every thread again and again."""

    id = "scalar-loads"
    title = "Scalars are loaded by every thread again and again"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        analysis, warps = context.analysis, context.compiled.num_warps
        loads = [access for access in context.demand.accesses if access.kind == "load" and access.lanes == 1]
        if analysis is None or analysis.predicted is None or not loads:
            return None
        instructions = sum(access.executions for access in loads) * warps
        issuing = instructions / throughput_per_us(analysis.gpu, analysis.asked.tensor_dtype)["issue"]
        waits = exposed_us(analysis)
        waiting = sum(
            waits.get(place, 0.0) for place in {(author_file(context.compiled, each.file) or "", each.line or 0) for each in loads}
        )
        often = sum(access.executions for access in loads) / max(context.demand.programs, 1)
        saving = min((issuing + waiting) * (1 - 1 / often), analysis.predicted.us - analysis.bound.us) if often >= MOST else 0.0
        if saving < LEAST_SHARE * analysis.predicted.us:
            return None
        most = max(loads, key=lambda access: access.executions)
        return report(
            self,
            context,
            "advice",
            f"{often:,.0f} scalar loads in a program, each issued by all {warps * context.compiled.target.warp_size} threads",
            evidence=f"most of {most.name}; issuing them takes {microseconds(issuing)}, and {microseconds(waiting)} they are waited for",
            remedy="load the values as one block before they are needed, pass them as arguments or tl.constexpr, or use fewer warps",
            line=most.line,
            file=most.file,
            saving_us=saving if context.predicts_savings else None,
        )


RULE = ScalarLoads()
