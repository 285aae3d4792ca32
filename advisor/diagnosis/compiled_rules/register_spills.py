"""Registers spill to local memory."""

from __future__ import annotations

from advisor.compiled.launches.too_large import JUDGED
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.result.schema import Finding


class RegisterSpills:
    """Registers spill to local memory."""

    id = "register-spills"
    title = "Registers spill to local memory"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        resources = context.compiled.resources
        spilled = resources.spill_bytes or 0
        if spilled <= 0 or JUDGED in context.compiled.metadata:  # which a rule of its own says
            return None
        loop = context.loop
        inside = loop.mix.get("spill", 0) if loop is not None else 0
        if not inside and any(op.name == "tt.print" for op, _ in context.operations):
            return None  # tl.device_print hands its values over on the stack: no register spills for that
        return report(
            self,
            context,
            "warning" if inside or spilled >= 64 else "advice",
            f"{spilled} bytes per thread spill to local memory",
            evidence=f"{resources.registers} registers per thread, {resources.num_warps} warps; {inside} local-memory instructions "
            f"in the main loop, {context.facts.mix.get('spill', 0)} in all",
            remedy="use more warps, a smaller tile, or fewer stages",
            saving_us=context.without_spills(),
        )


RULE = RegisterSpills()
