"""Layout conversions through shared memory in the loop."""

from __future__ import annotations

from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.result.schema import Finding


class ConvertLayoutInLoop:
    """Layout conversions through shared memory in the loop."""

    id = "convert-layout-in-loop"
    title = "Layout conversions through shared memory in the loop"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        if not context.facts.conversions_in_loop:
            return None
        saving = context.without(smem=work.conversion_bytes) if (work := context.work) is not None else None
        if saving is None and context.predicts_savings:
            return None  # once for each tile of a persistent kernel, say, or beside a pipeline that is busier
        line, text, _ = context.facts.conversions_in_loop[0]
        count = len(context.facts.conversions_in_loop)
        return report(
            self,
            context,
            "advice",
            f"{count} layout conversion{'s' if count > 1 else ''} in a loop",
            evidence=text,
            remedy="move it out of the loop, or change what is computed before and after it so that the layouts agree",
            line=line,
            saving_us=saving,
        )


RULE = ConvertLayoutInLoop()
