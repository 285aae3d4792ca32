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
    explanation = """\
## What it means
The accumulators of a tile live in registers. What does not fit is spilled to local memory and fetched again in every
trip of the loop, often at several times the cost of the work.

## How it is computed
Accumulators BLOCK_SIZE_M × BLOCK_SIZE_N / threads, and 24 for addresses and masks, against the most registers a thread
can have, or `maxnreg`. Operands are not counted: the compiler can load them piece by piece. An estimate: `advisor
inspect` compiles the kernel and counts spills. On sm_100 the results of tcgen05 lie in tensor memory, and are not
counted. The model does not price spills, so no saving is named.

## What to do
More `num_warps`, or a smaller tile.

## Source
CUDA C++ Programming Guide (255 registers per thread); the estimate was set against Triton 3.9's output for sm_80 and
sm_90.
"""

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
