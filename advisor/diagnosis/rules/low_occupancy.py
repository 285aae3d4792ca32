"""Too few CTAs fit on an SM at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found, kibibytes, microseconds, remedy_of, severity_of
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines.occupancy import TENSOR_MEMORY_COLUMNS, Resources, held_registers
from advisor.result.schema import Finding

HELD: Mapping[str, Callable[[Resources, GpuSpec], str]] = {
    "registers": lambda held, gpu: (
        f"about {first(held_registers(gpu, held)):.0f} registers × {first(held.num_warps) * gpu.warp_size:.0f} threads each "
        f"of {gpu.registers_per_sm:,}"
    ),
    "shared-memory": lambda held, gpu: (
        f"{kibibytes(first(held.shared_memory_bytes))} shared memory each of {kibibytes(gpu.smem_bytes_per_sm)}"
    ),
    "warps": lambda held, gpu: f"{first(held.num_warps):.0f} warps each of {gpu.max_warps_per_sm}",
    "slots": lambda held, gpu: f"{gpu.max_ctas_per_sm} CTA slots",
    "tensor-memory": lambda held, gpu: (
        f"{0 if held.tensor_memory_columns is None else first(held.tensor_memory_columns):.0f} columns of tensor memory each "
        f"of {TENSOR_MEMORY_COLUMNS}"
    ),
}
"""What a CTA holds of what limits the resident ones, by limiter, in words; `grid` and `none` limit nothing here."""


class LowOccupancy:
    """Resident CTAs, limited by what each of them holds."""

    id = "low-occupancy"
    title = "Too few CTAs fit on an SM to hide each other's loads"
    needs: tuple[Need, ...] = ("configuration", "runs")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where more resident CTAs save time."""
        plan, resources = context.plan, context.asked.resources
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
        return found(
            self,
            context,
            severity_of(context, saving),
            f"{resident:.0f} resident CTA{'s' if resident > 1 else ''} per SM, limited by {plan.limiter_name}",
            evidence=f"{HELD[plan.limiter_name](resources, context.gpu)}; {resident * warps:.0f} of {context.gpu.max_warps_per_sm} warps "
            f"resident; unhidden loads cost {microseconds(costs)}",
            remedy=remedy_of(better, context),
            saving_us=saving,
            better=better,
        )


RULE = LowOccupancy()
