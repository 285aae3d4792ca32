"""mma.sync where a warp-group instruction was possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.result.schema import Finding


class MmaInsteadOfWgmma:
    """mma.sync where a warp-group instruction was possible."""

    id = "mma-instead-of-wgmma"
    title = "mma.sync where a warp-group instruction was possible"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        capability = context.capability
        if capability is None or capability // 10 not in (9, 10) or context.facts.matrix_instruction != "mma":
            return None
        dots = [op for op, _ in context.operations if op.name in ("tt.dot", "tt.dot_scaled") and op.result is not None]
        if not dots:
            return None
        dot = max(dots, key=lambda op: op.result.elements if op.result else 0)
        rows = dot.result.shape[-2] if dot.result and len(dot.result.shape) >= 2 else 0
        warps = context.compiled.num_warps
        why = f"{rows} rows" if rows < 64 else f"{warps} warps" if warps % 4 else "operands or layouts the instruction does not take"
        better = "tcgen05" if capability >= 100 else "wgmma"
        return report(
            self,
            context,
            "advice",
            f"The dot uses mma.sync, not {better}",
            evidence=f"tile of {rows} x {dot.result.shape[-1] if dot.result else 0} with {warps} warps on "
            f"{context.compiled.target.name}: {why}",
            remedy=f"give {better} 64 rows and four warps; with few rows, swap the operands so that the long side is M",
            saving_us=context.saving(lambda asked: replace(asked, tensor_rate=np.ones_like(asked.tensor_rate))),
            line=dot.location.line if dot.location else None,
            file=dot.location.file if dot.location else None,
        )


RULE = MmaInsteadOfWgmma()
