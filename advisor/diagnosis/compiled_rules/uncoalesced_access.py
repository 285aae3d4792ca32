"""Neighbouring threads touch scattered addresses."""

from __future__ import annotations

from advisor.compiled.demand.costs import element_bytes
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.result.schema import Finding


class UncoalescedAccess:
    """Neighbouring threads touch scattered addresses."""

    id = "uncoalesced-access"
    title = "Neighbouring threads touch scattered addresses"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        worst = None
        for access in context.demand.accesses:
            if not access.unused_bytes:
                continue
            if worst is None or access.unused_bytes > worst.unused_bytes:
                worst = access
        if worst is None:
            return None
        fetched = context.demand.load_bytes + context.demand.store_bytes + sum(a.unused_bytes for a in context.demand.accesses)
        share = (worst.issued_bytes + worst.unused_bytes) / fetched
        if share < 0.05:
            return None
        unused = worst.unused_bytes
        used = worst.contiguous or 1
        all_unused = context.work.sector_bytes if context.work is not None else unused
        return report(
            self,
            context,
            "warning" if share > 0.3 else "advice",
            f"A {worst.kind} of {worst.argument or 'memory'} is not coalesced",
            evidence=f"{used} element{'s' if used > 1 else ''} of {element_bytes(worst.element):g} bytes in a row, in sectors of "
            f"{worst.sector_ratio:.1f} times the bytes asked for; {100 * share:.0f} % of the bytes the kernel moves",
            remedy="let the last dimension of the block run along memory, or change the tensor's layout",
            line=worst.line,
            file=worst.file,
            saving_us=context.without(
                l2_bytes=unused,
                dram_bytes=context.demand.likely_unused_bytes * unused / all_unused,
                load_bytes=unused if worst.kind == "load" else 0.0,
            ),
        )


RULE = UncoalescedAccess()
