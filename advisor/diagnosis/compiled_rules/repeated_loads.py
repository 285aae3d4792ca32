"""Programs load the same bytes again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.compiled.demand.counts import AccessDemand
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.diagnosis.rule import amount, microseconds
from advisor.pipelines.demand import Demand
from advisor.result.schema import Finding

AGAIN = 1.5
"""Below this multiple of the distinct bytes loads are no cause: the limit that `operand-traffic` has for the L2."""

LEAST_SHARE = 0.05
"""Of the predicted latency: re-reading that costs less is not reported."""


class RepeatedLoads:
    """More bytes loaded than there are."""

    id = "repeated-loads"
    title = "Programs load the same bytes again and again"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        demand, analysis = context.demand, context.analysis
        located = [access for access in demand.accesses if access.kind == "load" and access.name not in demand.unlocated]
        asked_of = _by_name(located)
        # What every program needs whole beside a tensor of its own, such as the weights of a row, no order of programs spares.
        whole = {n for n, asked in asked_of.items() if demand.likely_read_footprints[n] * demand.programs <= asked * 1.01}
        requested = {n: asked for n, asked in asked_of.items() if n not in whole} or asked_of
        loads = [access for access in located if access.name in requested]
        elsewhere = demand.requested_load_bytes - sum(access.requested_bytes for access in loads)
        footprints = {name: demand.likely_read_footprints[name] for name in requested}
        loaded, distinct = sum(requested.values()), sum(footprints.values())
        if analysis is None or analysis.predicted is None or not loads or distinct <= 0 or loaded < AGAIN * distinct:
            return None
        costs = context.saving(lambda asked: _once(asked, elsewhere))
        if costs is None or costs < LEAST_SHARE * analysis.predicted.us:
            return None
        name = max(requested, key=lambda name: requested[name] - footprints[name])
        most = max((access for access in loads if access.name == name), key=lambda access: access.requested_bytes)
        return report(
            self,
            context,
            "advice",
            f"Every byte is loaded {loaded / distinct:.1f} times",
            evidence=f"{amount(loaded)} through the L2 for {amount(distinct)} of distinct data (L2: {amount(analysis.gpu.l2_bytes)}); "
            f"re-reading costs {microseconds(costs)} of {microseconds(analysis.predicted.us)} in all",
            remedy="larger tiles, or an order of the programs in which neighbours share operands (GROUP_SIZE_M)",
            line=most.line,
            file=most.file,
        )


def _by_name(loads: Sequence[AccessDemand]) -> dict[str, float]:
    """Bytes asked for of each argument."""
    found: dict[str, float] = {}
    for access in loads:
        found[access.name] = found.get(access.name, 0.0) + access.requested_bytes
    return found


def _once(asked: Demand, elsewhere: float) -> Demand:
    """The demand with every distinct byte read once, besides what is loaded `elsewhere`: from nobody knows where."""
    least = asked.compulsory_bytes + elsewhere
    return replace(
        asked,
        l2_bytes=np.minimum(asked.l2_bytes, least),
        dram_bytes=np.minimum(asked.dram_bytes, least),
        cta_load_bytes=np.minimum(asked.cta_load_bytes, least / asked.ctas),
    )


RULE = RepeatedLoads()
