"""There are fewer CTAs than SMs."""

from __future__ import annotations

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import cured, percent
from advisor.result.schema import Finding


class TooFewCtas:
    """SMs that get no CTA."""

    id = "too-few-ctas"
    title = "Some SMs get no CTA"
    needs: tuple[Need, ...] = ("configuration", "runs")
    explanation = """\
## What it means
With fewer CTAs than SMs, part of the GPU does nothing from the start, and the SMs that work draw less than the whole
bandwidth.

## How it is computed
CTAs that work (those that exit at once do not count) against the number of SMs. The saving is what the model predicts
for the best neighbouring configuration with more CTAs.

## What to do
Smaller `BLOCK_SIZE_N` or `BLOCK_SIZE_M`; in a GEMM `SPLIT_K`, in attention decoding more `NUM_KV_SPLITS`. For very
small problems nothing helps but doing several at once.

## Source
NVIDIA, "CUDA C++ Best Practices Guide", section on occupancy: more blocks than multiprocessors.
"""

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where more CTAs save time."""
        ctas, sms = first(context.asked.ctas), context.gpu.num_sms
        if ctas >= sms:
            return None
        around = context.neighbours()
        better = around.best(around.column(around.demand.ctas) > ctas)
        return cured(
            self,
            context,
            better,
            f"{ctas:,.0f} CTAs for {sms} SMs: {percent(1 - ctas / sms)} of the GPU idles",
            evidence=f"the grid has {ctas:,.0f} CTAs that work, {sms - ctas:,.0f} SMs get none",
        )


RULE = TooFewCtas()
