"""The main loop has fewer trips than the software pipeline has stages."""

from __future__ import annotations

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import cured, kibibytes
from advisor.result.schema import Finding


class KLoopShorterThanPipeline:
    """Stages that never fill."""

    id = "k-loop-shorter-than-pipeline"
    title = "The loop over K ends before the software pipeline is full"
    needs: tuple[Need, ...] = ("configuration", "runs", "tiles")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where fewer stages or shorter steps save time."""
        trips, stages = first(context.asked.k_iterations), context.parameter("num_stages", 3)
        if trips >= stages:
            return None
        around, block = context.neighbours(), context.parameter("BLOCK_SIZE_K", 64)
        less = around.only("num_stages", "BLOCK_SIZE_K")
        shorter = (around.values["num_stages"] < stages) | (around.values["BLOCK_SIZE_K"] < block)
        better = around.best(less & shorter)
        return cured(
            self,
            context,
            better,
            f"{trips:.0f} trip{'s' if trips > 1 else ''} through a pipeline of {stages} stages",
            evidence=f"the loop over K has {trips:.0f} trips of {block}; its buffers take "
            f"{kibibytes(first(context.asked.resources.shared_memory_bytes))} of shared memory",
        )


RULE = KLoopShorterThanPipeline()
