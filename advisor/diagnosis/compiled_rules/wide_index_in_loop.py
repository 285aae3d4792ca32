"""64-bit index arithmetic in the loop."""

from __future__ import annotations

from advisor.compiled.demand.machine_work import executions_at
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.result.schema import Finding

NARROWER = 0.5
"""Share of the instructions of 64-bit arithmetic that 32-bit offsets spare: a carry and its sum become one addition."""


class WideIndexInLoop:
    """64-bit index arithmetic in the loop."""

    id = "wide-index-in-loop"
    title = "64-bit index arithmetic in the loop"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        loop = context.loop
        if loop is None or loop.instructions < 16:
            return None
        share = loop.wide_integer / loop.instructions
        if share < 0.15 or loop.wide_integer < 8:
            return None
        threads = context.compiled.num_warps * context.compiled.target.warp_size
        trips = executions_at(context.demand, loop.first_line, 0.0)
        spared = NARROWER * loop.wide_integer * threads * trips
        return report(
            self,
            context,
            "advice",
            f"{100 * share:.0f} % of the loop's instructions are 64-bit index arithmetic",
            evidence=f"{loop.wide_integer} of {loop.instructions} instructions a trip",
            remedy="advance pointers by a constant, keep offsets 32-bit where the tensor allows, or use tensor descriptors",
            line=loop.first_line,
            saving_us=context.without(alu=spared, issue=spared / context.compiled.target.warp_size),
        )


RULE = WideIndexInLoop()
