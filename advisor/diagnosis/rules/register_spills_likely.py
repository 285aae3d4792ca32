"""The accumulators and operands do not fit the registers."""

from __future__ import annotations

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found, microseconds
from advisor.schema import Finding


class RegisterSpillsLikely:
    """More registers per thread than there are."""

    id = "register-spills-likely"
    title = "The tile needs more registers than a thread can have"
    needs: tuple[Need, ...] = ("configuration", "runs", "tiles")
    explanation = """\
## What it means
The accumulators of a tile live in registers. What does not fit is spilled to local memory and fetched again in every
trip of the loop, often at several times the cost of the work.

## How it is computed
Accumulators BLOCK_SIZE_M × BLOCK_SIZE_N / threads, plus operand fragments (mma.sync only) and addresses, against the
most registers a thread can have, or `maxnreg`. An estimate: `advisor inspect` compiles the kernel and counts spills.
The model does not price spills, so no saving is named.

## What to do
More `num_warps`, or a smaller tile.

## Source
CUDA C++ Programming Guide (255 registers per thread); the estimate was set against Triton 3.9's output for sm_80 and
sm_90.
"""

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where the estimate exceeds the limit."""
        gpu, configuration = context.gpu, context.configuration
        needed = first(context.asked.resources.registers)
        cap = gpu.max_registers_per_thread
        threads = context.parameter("num_warps", 4) * gpu.warp_size
        held = context.parameter("BLOCK_SIZE_M", 64) * context.parameter("BLOCK_SIZE_N", 64) / threads
        if configuration is not None and configuration.maxnreg is not None:
            cap = min(cap, configuration.maxnreg)
        if needed <= cap or gpu.vendor == "amd":  # AMD adds 256 accumulation registers, which the estimate does not know
            return None
        around = context.neighbours()
        better = around.best(around.column(around.demand.resources.registers) <= cap)
        return found(
            self,
            context,
            "warning" if held + 24 > cap else "advice",
            f"About {needed:.0f} registers per thread, {cap} are there",
            evidence=f"accumulators alone take {held:.0f} per thread with {context.parameter('num_warps', 4)} warps "
            "(estimated, not compiled)",
            remedy=f"{better.text()} fits: {microseconds(better.us)} predicted, without the spills"
            if better
            else "raise num_warps or halve a block",
        )


RULE = RegisterSpillsLikely()
