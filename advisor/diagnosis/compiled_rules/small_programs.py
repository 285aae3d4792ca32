"""Programs with so little to do that starting them takes longer."""

from __future__ import annotations

from dataclasses import replace

from advisor.diagnosis.columns import first
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.diagnosis.context import THRESHOLD
from advisor.diagnosis.rule import microseconds
from advisor.pipelines.schedule import start_us
from advisor.result.schema import Finding


class SmallPrograms:
    """The GPU starts programs one after another."""

    id = "small-programs"
    title = "Starting the programs takes longer than their work"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        found = context.analysis
        saving = context.saving(lambda asked: replace(asked, launched_ctas=asked.launched_ctas * 0))
        if found is None or found.predicted is None or saving is None or saving < THRESHOLD * found.predicted.us:
            return None
        starting = first(start_us(found.asked, found.gpu))
        return report(
            self,
            context,
            "warning",
            f"{context.demand.programs:,} programs take {microseconds(starting)} to start",
            evidence=f"whatever they do; were that free, the launch would take {microseconds(found.predicted.us - saving)}",
            remedy="give each program more: a larger block, or a loop over several blocks with a smaller grid",
            saving_us=saving,
        )


RULE = SmallPrograms()
