"""A loop with a product runs with one stage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.result.schema import Finding

STAGES = 3
"""Triton's own `num_stages`."""


class SingleStageLoop:
    """A loop with a product runs with one stage."""

    id = "single-stage-loop"
    title = "A loop with a product waits for its loads"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        if context.compiled.num_stages != 1 or (context.capability or 80) < 80:
            return None
        dots = [op for op, depth in context.operations if op.name.startswith("tt.dot") and depth > 0]
        loads = [op for op, depth in context.operations if op.name in ("tt.load", "tt.descriptor_load") and depth > 0]
        saving = context.saving(lambda asked: replace(asked, num_stages=np.full_like(asked.num_stages, STAGES)))
        if not dots or not loads or (saving is None and context.predicts_savings):
            return None
        return report(
            self,
            context,
            "warning",
            "num_stages=1: each trip of the loop waits for its loads",
            evidence=f"{len(loads)} load{'s' if len(loads) > 1 else ''} in a loop with a product, and none is made ahead of it",
            remedy=f"num_stages={STAGES}, or as many as the shared memory holds",
            line=loads[0].line,
            file=loads[0].location.file if loads[0].location else None,
            saving_us=saving,
        )


RULE = SingleStageLoop()
