"""No async copy although there are several stages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.result.schema import Finding


class NoAsyncCopy:
    """No async copy although there are several stages."""

    id = "no-async-copy"
    title = "No async copy although there are several stages"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        capability = context.capability
        if capability is None or capability < 80 or context.compiled.num_stages < 2 or context.facts.async_copies:
            return None
        if not context.facts.instructions and not context.compiled.ptx:
            return None
        dots = [op for op, depth in context.operations if op.name.startswith("tt.dot") and depth > 0]
        loads = [op for op, depth in context.operations if op.name == "tt.load" and depth > 0]
        if not dots or not loads:
            return None
        stages = context.compiled.num_stages
        return report(
            self,
            context,
            "warning",
            f"num_stages={context.compiled.num_stages}, but nothing is copied asynchronously",
            evidence=f"{len(loads)} loads in loops with a dot, and no cp.async or TMA instruction",
            remedy="make the contiguous dimension and its stride multiples of 16, or use tensor descriptors",
            saving_us=context.saving(lambda asked: replace(asked, num_stages=np.full_like(asked.num_stages, stages))),
            line=loads[0].location.line if loads[0].location else None,
            file=loads[0].location.file if loads[0].location else None,
        )


RULE = NoAsyncCopy()
