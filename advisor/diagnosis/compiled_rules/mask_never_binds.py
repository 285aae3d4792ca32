"""A mask in the loop never binds."""

from __future__ import annotations

from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.result.schema import Finding


class MaskNeverBinds:
    """A mask in the loop never binds."""

    id = "mask-never-binds"
    title = "A mask in the loop never binds"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        if context.inspection.launch.grid is None or not context.demand.exact:
            return None
        unknown = context.demand.unknown
        idle = [
            a
            for a in context.demand.accesses
            if a.masked
            and a.in_loop
            and a.kind == "load"
            and a.executions > 1
            and a.active_fraction == 1.0
            and a.lanes > 1
            and "descriptor" not in a.operation.name
        ]
        if not idle or any("mask" in text for text in unknown.values()):
            return None
        names = ", ".join(sorted({a.argument or "memory" for a in idle}))
        return report(
            self,
            context,
            "info",
            f"Masks on {names} never bind for these sizes",
            evidence=f"{len(idle)} masked load{'s' if len(idle) > 1 else ''} in a loop, all lanes active "
            + (f"in all {context.demand.programs:,} programs" if context.demand.programs != 1 else "in the one program"),
            remedy="add a constexpr such as EVEN_K (with @triton.heuristics) and load without a mask where it holds",
            line=idle[0].line,
            file=idle[0].file,
        )


RULE = MaskNeverBinds()
