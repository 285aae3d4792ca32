"""How the CTAs fill the GPU: SMs without one, the last wave, those resident together, and what it costs to start them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from advisor.diagnosis.context import LaunchContext
from advisor.diagnosis.pricing import first
from advisor.diagnosis.rule import cured, kibibytes, make_finding, microseconds, percent, rule
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import least_launch_us
from advisor.pipelines.occupancy import TENSOR_MEMORY_COLUMNS, Resources, held_registers
from advisor.result.schema import Finding


@rule("Some SMs get no CTA", "configuration", "runs")
def too_few_ctas(context: LaunchContext) -> Finding | None:
    """SMs that get no CTA. Fires where more CTAs save time."""
    ctas, sms = first(context.launch_demand.ctas), context.gpu.num_sms
    if ctas >= sms:
        return None
    around = context.neighbours()
    better = around.best(around.column(around.demand.ctas) > ctas)
    return cured(
        context,
        better,
        f"{ctas:,.0f} CTAs for {sms} SMs: {percent(1 - ctas / sms)} of the GPU idles",
        evidence=f"the grid has {ctas:,.0f} CTAs that work, {sms - ctas:,.0f} SMs get none",
    )


@rule("The last wave of CTAs leaves SMs idle", "configuration", "runs")
def tail_wave(context: LaunchContext) -> Finding | None:
    """CTAs left over after the full waves. Fires where other blocks fill the waves better."""
    plan, ctas, sms = context.plan, first(context.launch_demand.ctas), context.gpu.num_sms
    if ctas < sms:
        return None
    costs = context.costs(relax=("tail-wave",))
    if not context.matters(costs):
        return None
    around = context.neighbours()
    waves = first(plan.waves)
    regrouped = around.column(around.demand.ctas) != ctas
    if waves > 1:
        regrouped = regrouped | (around.column(around.schedule.resident) != first(plan.resident))
    better = around.best(regrouped & (around.cost("tail-wave") < costs))
    return cured(
        context,
        better,
        f"The last wave is {percent(first(plan.last_wave_fill))} full"
        if waves > 1
        else f"{ctas:,.0f} CTAs on {sms} SMs leave the last wave partly empty",
        evidence=f"{ctas:,.0f} CTAs over {sms} SMs with {first(plan.resident):.0f} resident each make {waves:.2f} waves, "
        f"the busiest SM runs {math.ceil(ctas / sms)}; an even spread would take {microseconds(costs)} less",
        costs_us=costs,
    )


NEAR_LAUNCH = 2.0
"""Multiple of launch and work up to which the launch is the main part of the latency: where this rule looks, it is at least half of
the two."""


@rule("The launch takes longer than the work")
def launch_bound(context: LaunchContext) -> Finding | None:
    """Too little work for a launch of its own. Fires where a launch costs more than the work."""
    launch = context.gpu.launch_latency_us
    work = context.bound_us - least_launch_us(context.gpu)
    near = context.runs and context.current_us <= NEAR_LAUNCH * (launch + work)  # else there is something to win first
    if launch <= work or (context.configuration is not None and not near):
        return None
    return make_finding(
        context,
        "info",
        f"{percent(launch / (launch + work))} of the time is the launch itself",
        evidence=f"launch in a stream {microseconds(launch)}, work at full throughput {microseconds(work)}",
        remedy="fuse it with a neighbouring kernel, or batch more work into one launch; no configuration helps",
    )


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


@rule("Too few CTAs fit on an SM to hide each other's loads", "configuration", "runs")
def low_occupancy(context: LaunchContext) -> Finding | None:
    """Resident CTAs, limited by what each of them holds. Fires where more resident CTAs save time."""
    plan, resources = context.plan, context.launch_demand.resources
    if plan.limiter_name in ("grid", "none"):
        return None
    costs = context.costs(relax=("occupancy",))
    if not context.matters(costs):
        return None
    resident = first(plan.resident)
    around = context.neighbours()
    better = around.best((around.column(around.schedule.resident) > resident) & (around.cost("occupancy") < costs))
    warps = first(resources.num_warps)
    return cured(
        context,
        better,
        f"{resident:.0f} resident CTA{'s' if resident > 1 else ''} per SM, limited by {plan.limiter_name}",
        evidence=f"{HELD[plan.limiter_name](resources, context.gpu)}; {resident * warps:.0f} of {context.gpu.max_warps_per_sm} warps "
        f"resident; unhidden loads cost {microseconds(costs)}",
        costs_us=costs,
    )
