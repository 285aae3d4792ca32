"""A block has more elements than the registers of its threads hold."""

from __future__ import annotations

from advisor.compiled.launches.too_large import JUDGED
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.result.schema import Finding

COMFORTABLE = 128
"""Registers of a thread that leave room for a second CTA beside the first, and for indices."""


class BlockExceedsRegisters:
    """A block has more elements than the registers of its threads hold."""

    id = "block-exceeds-registers"
    title = "A block has more elements than the registers of its threads hold"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        compiled = context.compiled
        elements = int(compiled.metadata.get(JUDGED) or 0)
        if not elements:
            return None
        threads = compiled.num_warps * compiled.target.warp_size
        live = (compiled.resources.registers or 0) + (compiled.resources.spill_bytes or 0) / 4
        fits = 1 << int(elements * COMFORTABLE / live).bit_length() - 1
        names = [name for name, value in compiled.constexprs.items() if value == elements]
        function = context.inspection.launch.source.kernel(compiled.name)
        return report(
            self,
            context,
            "warning",
            f"{names[0] if names else 'A block'} of {elements:,} elements: {elements // threads:,} for each of {threads:,} threads",
            evidence=f"about {live:,.0f} registers are needed, and a thread has {compiled.resources.registers}; judged without compiling, "
            "which takes Triton minutes",
            remedy=f"blocks of {fits:,} elements: more programs, or a loop over the blocks in each program (`for start in range(0, size, "
            f"{names[0] if names else 'BLOCK'})`)",
            line=function.line,
            saving_us=context.without_spills(),
        )


RULE = BlockExceedsRegisters()
