"""Programs that add to the same few addresses."""

from __future__ import annotations

from advisor.compiled.demand.costs import element_bytes
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.diagnosis.rule import percent
from advisor.result.schema import Finding

MANY = 64.0
"""Atomics per address, from which on they wait for each other: more than split-K and stream-K make of one tile."""
LEAST_SHARE = 0.1
"""Of what goes through the L2; what is less is not reported."""


class ContendedAtomics:
    """Programs that add to the same few addresses."""

    id = "contended-atomics"
    title = "Many atomics meet at the same addresses"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding for the tensor to which most is added, or None."""
        demand, found = context.demand, context.analysis
        atomics = [each for each in demand.accesses if each.kind == "atomic"]
        if found is None or not atomics:
            return None
        most = max(atomics, key=lambda each: each.requested_bytes)
        added = sum(each.requested_bytes for each in atomics if each.name == most.name)
        distinct = max(demand.likely_written_footprints.get(most.name, added), element_bytes(most.element))
        share = sum(each.requested_bytes for each in atomics) / max(float(found.asked.l2_bytes[0]), 1.0)
        if added < MANY * distinct or share < LEAST_SHARE:
            return None
        return report(
            self,
            context,
            "warning",
            f"{added / distinct:,.0f} atomics meet at each of {distinct / element_bytes(most.element):,.0f} addresses of {most.name}",
            evidence=f"atomics are {percent(share)} of what goes through the L2; that they wait for each other is not in the prediction",
            remedy="add up more in a program before it adds (rows or blocks in a loop, a smaller grid), or store partial sums and add "
            "them in a second launch",
            line=most.line,
            file=most.file,
        )


RULE = ContendedAtomics()
