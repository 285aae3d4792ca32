"""The accumulators and operands do not fit the registers."""

from __future__ import annotations

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.neighbours import OTHER_REGISTERS, accumulators
from advisor.diagnosis.rule import found, promised
from advisor.pipelines import configuration_batch
from advisor.result.schema import Finding


class RegisterSpillsLikely:
    """More registers per thread than there are."""

    id = "register-spills-likely"
    title = "The tile needs more registers than a thread can have"
    needs: tuple[Need, ...] = ("configuration", "runs", "dot")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where the accumulators alone leave too few registers."""
        gpu, warps = context.gpu, context.parameter("num_warps", 4)
        if context.configuration is None or gpu.vendor == "amd":  # accumulators may lie in 256 registers of their own
            return None
        cap = gpu.max_registers_per_thread
        if context.configuration.maxnreg is not None:
            cap = min(cap, context.configuration.maxnreg)
        held = first(accumulators(context.problem, configuration_batch([context.configuration]), gpu))
        if held + OTHER_REGISTERS <= cap:
            return None
        around = context.neighbours()
        better = around.best(around.held + OTHER_REGISTERS <= cap, may_lose=True)
        return found(
            self,
            context,
            "warning",
            f"The results of a tile take {held:.0f} of {cap} registers per thread",
            evidence=f"spread over {warps} warps; {OTHER_REGISTERS} more go to addresses and masks (estimated, not compiled)",
            remedy=f"{better.text()} fits: {promised(better)}, without the spills" if better else "raise num_warps or halve a block",
        )


RULE = RegisterSpillsLikely()
