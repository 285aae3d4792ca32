"""The entry names a BLOCK_SIZE_K that the launcher does not use."""

from __future__ import annotations

from advisor.diagnosis.context import LaunchContext, Need, parameter_of
from advisor.diagnosis.rule import found, remedy_of, severity_of
from advisor.result.schema import Finding


class ClampedBlockK:
    """The stack runs another BLOCK_SIZE_K than the entry has."""

    id = "clamped-block-k"
    title = "BLOCK_SIZE_K is clamped to the quantization block"
    needs: tuple[Need, ...] = ("configuration", "runs", "entry", "tiles")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where the launcher changes the entry."""
        written, runs = parameter_of(context.entry, "BLOCK_SIZE_K", 0), context.parameter("BLOCK_SIZE_K", 0)
        if written <= runs:
            return None
        around = context.neighbours()
        better = around.best(around.only("num_stages", "num_warps", "BLOCK_SIZE_K"))
        saving = context.saving(better.us) if better else 0.0
        worth = better is not None and context.matters(saving, better)
        remedy = f"write BLOCK_SIZE_K={runs}"
        if better is not None and worth:
            remedy += f", and take {remedy_of(better, context)}"
        return found(
            self,
            context,
            severity_of(context, saving) if worth else "info",
            f"The entry says BLOCK_SIZE_K={written}, {runs} runs",
            evidence=f"quantization block {list(context.problem.block_shape)}" if context.problem.block_shape else "the launcher clamps it",
            remedy=remedy,
            saving_us=saving if worth else None,
            better=better if worth else None,
        )


RULE = ClampedBlockK()
