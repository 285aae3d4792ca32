"""Too few CTAs fit on an SM at once."""

from __future__ import annotations

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found, kibibytes, microseconds, remedy_of, severity_of
from advisor.schema import Finding


class LowOccupancy:
    """Resident CTAs, limited by what each of them holds."""

    id = "low-occupancy"
    title = "Too few CTAs fit on an SM to hide each other's loads"
    needs: tuple[Need, ...] = ("configuration", "runs")
    explanation = """\
## What it means
While one CTA waits for its loads another can compute, if both fit on the SM. Registers, shared memory, warps or CTA
slots limit how many do.

## How it is computed
Resident CTAs = the least of what registers, shared memory, warp slots and CTA slots allow. The cost is the difference
to as many resident CTAs as warp slots allow; the saving is what the model predicts for the best neighbouring
configuration with more resident CTAs, and at most that cost. Low occupancy alone is no fault: deep software pipelines
hide loads with one CTA.

## What to do
Free what limits: fewer `num_stages` or a smaller `BLOCK_SIZE_K` for shared memory, smaller tiles or more warps for
registers.

## Source
NVIDIA, "CUDA C++ Programming Guide", occupancy; V. Volkov, "Better performance at lower occupancy" (GTC 2010) for its
limits.
"""

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where more resident CTAs save time."""
        plan, resources, gpu = context.plan, context.asked.resources, context.gpu
        if plan.limiter_name in ("grid", "none"):
            return None
        costs = context.costs(relax=("occupancy",))
        if not context.matters(costs):
            return None
        resident = first(plan.resident)
        around = context.neighbours()
        better = around.best((around.column(around.schedule.resident) > resident) & (around.cost("occupancy") < costs))
        saving = min(costs, context.saving(better.us)) if better else 0.0
        if better is None or not context.matters(saving, better):
            return None
        warps = first(resources.num_warps)
        holds = {
            "registers": f"about {first(resources.registers):.0f} registers × {warps * gpu.warp_size:.0f} threads each "
            f"of {gpu.registers_per_sm:,}",
            "shared-memory": f"{kibibytes(first(resources.shared_memory_bytes))} shared memory each of {kibibytes(gpu.smem_bytes_per_sm)}",
            "warps": f"{warps:.0f} warps each of {gpu.max_warps_per_sm}",
            "slots": f"{gpu.max_ctas_per_sm} CTA slots",
        }[plan.limiter_name]
        return found(
            self,
            context,
            severity_of(context, saving),
            f"{resident:.0f} resident CTA{'s' if resident > 1 else ''} per SM, limited by {plan.limiter_name}",
            evidence=f"{holds}; {resident * warps:.0f} of {gpu.max_warps_per_sm} warps resident; unhidden loads cost {microseconds(costs)}",
            remedy=remedy_of(better),
            saving_us=saving,
            better=better,
        )


RULE = LowOccupancy()
