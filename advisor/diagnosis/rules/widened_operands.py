"""A quantised type has no instruction on this GPU."""

from __future__ import annotations

from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found
from advisor.pipelines.tile import EMULATED
from advisor.result.schema import Finding


class WidenedOperands:
    """fp8 or int8 operands that are converted before the product."""

    id = "widened-operands"
    title = "The GPU has no matrix instruction for the operand type"
    needs: tuple[Need, ...] = ("configuration", "dot")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where a quantised product is done in a wider type."""
        dtype, runs = context.problem.dtype, context.asked.tensor_dtype
        if runs is None or runs == dtype or dtype in EMULATED:
            return None
        return found(
            self,
            context,
            "info",
            f"{dtype} is computed in {runs} on {context.gpu.name}",
            evidence=f"the matrix pipeline of {context.gpu.name} takes {', '.join(context.gpu.tensor_flop_per_clock_per_sm)}",
            remedy=f"nothing where memory binds; for large batches compare with {runs} operands",
        )


RULE = WidenedOperands()
