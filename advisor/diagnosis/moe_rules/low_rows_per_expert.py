"""Experts get so few rows that only their weights matter."""

from __future__ import annotations

from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found
from advisor.pipelines import problem_batch
from advisor.result.schema import Finding

SMALLEST_TILE = 16
"""Rows of the smallest matrix instruction (PTX ISA, mma.sync m16n8k16), and the least BLOCK_SIZE_M of the tuners."""


class LowRowsPerExpert:
    """The weights of every expert are read for a handful of rows."""

    id = "low-rows-per-expert"
    title = "Each expert's weights are read for a few rows only"
    needs: tuple[Need, ...] = ("experts",)

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where weights bind and tiles are nearly empty."""
        rows, count = problem_batch([context.problem]).routing
        active = float((count * (rows > 0)).sum())
        mean = float((rows * count).sum()) / max(active, 1.0)
        if mean >= SMALLEST_TILE / 2 or context.bound.binding_pipeline(0) not in ("dram", "l2"):
            return None
        return found(
            self,
            context,
            "info",
            f"{mean:.1f} rows per active expert",
            evidence=f"{active:,.0f} of {context.problem.sizes['E']:,} experts are active; the smallest tile has "
            f"{SMALLEST_TILE} rows, and {context.bound.binding_pipeline(0)} binds",
            remedy="more tokens per batch are nearly free up to 16 rows per expert; no configuration changes it",
        )


RULE = LowRowsPerExpert()
