"""A row operator reads its rows twice."""

from __future__ import annotations

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found, remedy_of, severity_of
from advisor.result.schema import Finding


class RowsReadTwice:
    """Rows wider than the block take two passes."""

    id = "rows-read-twice"
    title = "Rows wider than BLOCK_SIZE are read twice"
    needs: tuple[Need, ...] = ("configuration", "runs")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where one pass saves time."""
        if context.problem.family != "normalization":
            return None
        length, block = context.problem.sizes["H"], context.parameter("BLOCK_SIZE", 0)
        if not 0 < block < length:
            return None
        full = 1 << (length - 1).bit_length()
        warps = context.parameter("num_warps", 4)
        choices = sorted({warps, min(2 * warps, 32), min(4 * warps, 32)})
        better = min((context.changed(BLOCK_SIZE=full, num_warps=choice) for choice in choices), key=lambda change: change.us)
        saving = context.saving(better.us)
        if not context.matters(saving, better):
            return None
        return found(
            self,
            context,
            severity_of(context, saving),
            f"Rows of {length:,} in blocks of {block:,} are read twice",
            evidence=f"{first(context.asked.k_iterations):.0f} passes over each row, reading included",
            remedy=remedy_of(better, context),
            saving_us=saving,
            better=better,
        )


RULE = RowsReadTwice()
