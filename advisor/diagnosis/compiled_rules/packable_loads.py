"""Narrow elements that lie side by side are loaded apart."""

from __future__ import annotations

from collections import defaultdict

from advisor.compiled.demand.costs import cost, element_bytes
from advisor.compiled.demand.counts import AccessDemand
from advisor.compiled.demand.machine_work import executions_at
from advisor.compiled.demand.sectors import scattered
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.result.schema import Finding

WORD_BYTES = 4
"""What one register holds."""
DENSE = 0.9
"""Share of the bytes from the first to the last that all loads together touch, from which on they lie there whole: borders are masked."""


class PackableLoads:
    """Narrow elements that lie side by side are loaded apart."""

    id = "packable-loads"
    title = "Narrow elements that lie side by side are loaded apart"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        groups: dict[str, list[AccessDemand]] = defaultdict(list)
        for access in context.demand.accesses:
            if access.kind == "load" and element_bytes(access.element) < WORD_BYTES and access.contiguous == 1 and scattered(access):
                groups[access.name].append(access)
        found = [(each, packed) for each in groups.values() if (packed := _packed(context, each)) > 1]
        if not found:
            return None
        loads, packed = max(found, key=lambda pair: sum(access.issued_bytes for access in pair[0]))
        spared, first = 1 - 1 / packed, loads[0]
        size = element_bytes(first.element)
        places = {access.line for access in loads}
        around = [op for op in context.index_operations if op.line in places]
        alu = sum(cost(op, context.divisors).alu * executions_at(context.demand, op.line, 0.0) for op in around)
        instructions = sum(access.issued_bytes for access in loads) / size / context.compiled.target.warp_size
        return report(
            self,
            context,
            "warning",
            f"{len(loads)} loads of {first.name} take {size:g} byte{'s' if size > 1 else ''} each of words that lie there whole",
            evidence=f"neighbouring threads are {first.sector_ratio * size:.0f} bytes apart, and other loads take what lies between",
            remedy=f"load words of {packed * size:g} bytes (`ptr.to(tl.pointer_type(tl.uint{8 * packed * size:.0f}))`), and take them "
            "apart with shifts",
            line=first.line,
            file=first.file,
            saving_us=context.without(alu=alu * spared, issue=(instructions + alu / context.compiled.target.warp_size) * spared),
        )


def _packed(context: CompiledContext, loads: list[AccessDemand]) -> int:
    """Elements in a word that such loads take one by one, all of them; 1 where what lies between is not asked for, or too far apart."""
    apart = round(loads[0].sector_ratio)
    reaches = [access.reach_bytes for access in loads if access.reach_bytes is not None]
    if not 1 < apart <= WORD_BYTES / element_bytes(loads[0].element) or len(loads) < apart or len(reaches) < len(loads):
        return 1
    span = max(last for _, last in reaches) - min(first for first, _ in reaches)
    return apart if context.demand.likely_read_footprints[loads[0].name] >= DENSE * span else 1


RULE = PackableLoads()
