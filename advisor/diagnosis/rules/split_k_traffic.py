"""SPLIT_K stores more than it wins."""

from __future__ import annotations

from advisor import pipelines
from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import amount, found, remedy_of, severity_of
from advisor.result.schema import Finding


class SplitKTraffic:
    """Partial results, stored once per split."""

    id = "split-k-traffic"
    title = "SPLIT_K stores its partial results too often"
    needs: tuple[Need, ...] = ("configuration", "runs", "tiles")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where fewer splits save time."""
        splits = context.parameter("SPLIT_K", 1)
        if splits <= 1:
            return None
        values = sorted({1, splits // 2, splits // 4} - {0})
        better = min((context.changed(SPLIT_K=value) for value in values), key=lambda change: change.us)
        saving = context.saving(better.us)
        if not context.matters(saving, better):
            return None
        stores = first(context.asked.cta_store_bytes * context.asked.ctas)
        output = first(pipelines.work(pipelines.problem_batch([context.problem]), context.gpu).result_bytes)
        return found(
            self,
            context,
            severity_of(context, saving),
            f"SPLIT_K={splits} stores every result {splits} times",
            evidence=f"{amount(stores)} of partial results in fp32 for {amount(output)} of output",
            remedy=remedy_of(better, context),
            saving_us=saving,
            better=better,
        )


RULE = SplitKTraffic()
