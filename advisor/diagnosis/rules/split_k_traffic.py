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
    explanation = """\
## What it means
`SPLIT_K` makes more CTAs by dividing the depth, and every part stores (or adds atomically) its own partial result, in
fp32. A second kernel reads all parts and stores their sum.
Where there are CTAs enough without it, that traffic is all it does.

## How it is computed
The stores of all splits and the launch that adds them up are counted; fires where a smaller SPLIT_K, all else equal, is
predicted faster.

## What to do
Lower `SPLIT_K`, or set it to 1. vLLM's fused-MoE launcher always passes 1, whatever the table says.

## Source
The counts are tested against a brute-force count over all CTAs; vLLM 0.33, `invoke_fused_moe_triton_kernel`.
"""

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
            remedy=remedy_of(better),
            saving_us=saving,
            better=better,
        )


RULE = SplitKTraffic()
