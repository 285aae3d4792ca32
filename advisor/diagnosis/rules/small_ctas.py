"""CTAs with so little to do that starting them takes longer."""

from __future__ import annotations

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import cured, microseconds
from advisor.pipelines.schedule import start_us
from advisor.result.schema import Finding


class SmallCtas:
    """The GPU starts CTAs one after another."""

    id = "small-ctas"
    title = "Starting the CTAs takes longer than their work"
    needs: tuple[Need, ...] = ("configuration", "runs")
    explanation = """\
## What it means
One unit of the GPU hands out the CTAs of a grid to all SMs, not quite one per clock. A grid of a million CTAs takes half a
millisecond to start, and where a CTA does little, the SMs wait for the next one.

## How it is computed
CTAs of the grid, with those that exit at once, against the rate at which NVIDIA's GPUs start them (0.85 per clock,
`advisor/pipelines/schedule.py`). The saving is what the model predicts for the best neighbouring configuration with fewer
CTAs, and at most what starting them costs. Of AMD's GPUs the rate is not known.

## What to do
Give each CTA more: a larger block, several rows, or, in a kernel of your own, a loop over blocks (a persistent kernel).

## Source
github.com/te42kyfo/gpu-benches, `gpu-small-kernels`: with CTAs of 16 to 64 threads A100, H200 and L40 start 0.95, 0.84 and
0.76 per clock, however many threads these have.
"""

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where fewer CTAs that do more save time."""
        ctas, starting = first(context.asked.launched_ctas), first(start_us(context.asked, context.gpu))
        fewer = context.costs(demand={"launched_ctas": context.asked.launched_ctas * 0})
        if not context.matters(fewer):
            return None
        around = context.neighbours()
        return cured(
            self,
            context,
            around.best(around.column(around.demand.launched_ctas) < ctas),
            f"{ctas:,.0f} CTAs take {microseconds(starting)} to start",
            evidence=f"whatever they do; were that free, the launch would take {microseconds(fewer)} less",
            costs_us=fewer,
        )


RULE = SmallCtas()
