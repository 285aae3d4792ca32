"""Atomics in the hot loop."""

from __future__ import annotations

from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.result.schema import Finding


class AtomicsInLoop:
    """Atomics in the hot loop."""

    id = "atomics-in-loop"
    title = "Atomics in the hot loop"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        atomics = [a for a in context.demand.accesses if a.kind == "atomic" and a.in_loop]
        if not atomics:
            return None
        most = max(atomics, key=lambda a: a.executions * a.lanes)
        return report(
            self,
            context,
            "warning",
            f"{len(atomics)} atomic operation{'s' if len(atomics) > 1 else ''} in a loop",
            evidence=f"{most.executions:,.0f} executions of {most.lanes} lanes on {most.argument or 'memory'}",
            remedy="accumulate in registers and update once after the loop, or reduce partial results in a second kernel",
            line=most.line,
            file=most.file,
        )


RULE = AtomicsInLoop()
