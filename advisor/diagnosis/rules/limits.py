"""Configurations that do not fit, and figures that contradict each other: a measurement, the prediction, the bound.

Bytes that go through DRAM, the L2 or shared memory more often than they have to.
"""

from __future__ import annotations

import numpy as np

from advisor.diagnosis.context import LaunchContext
from advisor.diagnosis.pricing import first
from advisor.diagnosis.rule import amount, cured, kibibytes, make_finding, microseconds, remedy_of, rule
from advisor.pipelines import least_launch_us
from advisor.pipelines.occupancy import MAX_THREADS_PER_CTA
from advisor.result.schema import Finding, Severity
from advisor.tables.launchability import least_block_k

L2_AGAIN, DRAM_AGAIN = 1.5, 1.25
"""Re-reading below these multiples of the distinct bytes is within what the re-read model can tell. Source: 800 launches of
`fused_moe_near_optimal` (see `data/README.md`), where nothing is to be won: without the limits the rule fired on 24 % of them."""


@rule("Small tiles read the operands many times", "configuration", "runs", "dot")
def operand_traffic(context: LaunchContext) -> Finding | None:
    """More bytes through the L2 or from DRAM than the problem has. Fires where larger tiles save time."""
    demand = context.launch_demand
    l2, dram, distinct = first(demand.l2_bytes), first(demand.dram_bytes), first(demand.compulsory_bytes)
    if l2 < L2_AGAIN * distinct and dram < DRAM_AGAIN * distinct:
        return None
    costs = context.costs(relax=("traffic",))
    if not context.matters(costs):
        return None
    around = context.neighbours()
    fewer = (around.column(around.demand.l2_bytes) < 0.99 * l2) | (around.column(around.demand.dram_bytes) < 0.99 * dram)
    better = around.best(fewer & ~around.only("GROUP_SIZE_M") & (around.cost("traffic") < costs))
    return cured(
        context,
        better,
        f"Every byte passes through the L2 {l2 / max(distinct, 1):.1f} times",
        evidence=f"{amount(l2)} through the L2 and {amount(dram)} of DRAM traffic for {amount(distinct)} of distinct data "
        f"(L2: {amount(context.gpu.l2_bytes)}); re-reading costs {microseconds(costs)} in all",
        costs_us=costs,
    )


@rule("The order of the tiles (GROUP_SIZE_M) loses re-use in the L2", "configuration", "runs", "tiles")
def group_size_l2(context: LaunchContext) -> Finding | None:
    """The order of the tiles costs DRAM traffic. Fires where another GROUP_SIZE_M alone saves time."""
    if context.configuration is None or "GROUP_SIZE_M" not in context.configuration.parameters:
        return None
    around = context.neighbours()
    better = around.best(around.only("GROUP_SIZE_M"))
    demand = context.launch_demand
    return cured(
        context,
        better,
        f"GROUP_SIZE_M={context.parameter('GROUP_SIZE_M')} fetches operands from DRAM again",
        evidence=f"{amount(first(demand.dram_bytes))} from and to DRAM for {amount(first(demand.compulsory_bytes))} "
        f"of distinct data, with an L2 of {amount(context.gpu.l2_bytes)}",
    )


@rule("Shared-memory bandwidth limits the launch", "configuration", "runs", "dot")
def smem_bound(context: LaunchContext) -> Finding | None:
    """Operands go through shared memory more often than the matrix pipeline needs. Fires where less shared-memory traffic saves time."""
    demand = context.launch_demand
    smem = first(demand.per_cta["smem"])
    if smem <= 0:
        return None
    none = {**demand.per_cta, "smem": np.zeros_like(demand.per_cta["smem"])}
    costs = context.costs(demand={"per_cta": none})
    if not context.matters(costs):
        return None
    total = first(demand.ctas) * smem
    around = context.neighbours()
    totals = around.column(around.demand.per_cta["smem"]) * around.column(around.demand.ctas)
    better = around.best(totals < 0.99 * total)
    return cured(
        context,
        better,
        f"{amount(total)} go through shared memory",
        evidence=f"{total / max(first(demand.l2_bytes), 1):.1f} times what is loaded; with free shared memory the launch "
        f"would take {microseconds(costs)} less",
        costs_us=costs,
    )


@rule("The configuration cannot launch on this GPU", "configuration")
def cannot_launch(context: LaunchContext) -> Finding | None:
    """Shared memory, registers or threads of one CTA beyond the limit, a kernel that does not compile, or options that are refused."""
    gpu, resources, warps = context.gpu, context.launch_demand.resources, context.parameter("num_warps", 4)
    threads = warps * gpu.warp_size
    severity: Severity = "error"
    memory = first(resources.shared_memory_bytes)
    if threads > MAX_THREADS_PER_CTA:
        title = f"{threads:,} threads in a CTA, {MAX_THREADS_PER_CTA:,} are allowed"
        evidence = f"num_warps={warps} × {gpu.warp_size} threads"
    elif warps & (warps - 1):
        title = f"num_warps={warps} is not a power of two"
        evidence = "every Triton back end asserts it at compile time"
    elif resources.compiles is not None and not first(resources.compiles):
        title = f"BLOCK_SIZE_K={context.parameter('BLOCK_SIZE_K', 64)} is too small to compile"
        evidence = f"tl.dot takes {least_block_k(context.problem.dtype, gpu.vendor)} or more of {context.problem.dtype} operands"
    elif memory > gpu.smem_bytes_per_cta:
        title = f"One CTA needs {kibibytes(memory)} of shared memory, {gpu.name} allows {kibibytes(gpu.smem_bytes_per_cta)}"
        stages = context.parameter("num_stages", 3)
        evidence = f"{memory:,.0f} bytes for num_stages={stages} against {gpu.smem_bytes_per_cta:,}"
    elif first(context.plan.resident) < 1:
        title = f"Not one CTA fits on an SM: {context.plan.limiter_name}"
        evidence = (
            f"about {first(resources.registers):.0f} registers × {threads:,} threads (estimated, not compiled) against "
            f"{gpu.registers_per_sm:,} registers per SM"
        )
        if context.plan.limiter_name == "registers":
            severity = "warning"  # an estimate: the compiler may cap the registers, and spill, instead of failing
    elif context.refused:
        remedy = "remove it" if context.recommended is None else f"{remedy_of(context.recommended, context)}, and is launched; or remove it"
        title = f"The launcher rejects {context.refused.partition(':')[0]}"
        return make_finding(context, severity, title, evidence=context.refused, remedy=remedy)
    else:
        return None
    around = context.neighbours()
    held = around.values["num_warps"].astype(np.int64)
    better = around.best((held * gpu.warp_size <= MAX_THREADS_PER_CTA) & (held & (held - 1) == 0))
    if context.recommended is not None:
        remedy = f"{remedy_of(context.recommended, context)}, and fits"
    elif better is not None:
        remedy = f"{better.text()} fits, and is the fastest such neighbour by prediction"
    else:
        remedy = "halve the blocks or num_stages until it fits, or tune on this GPU"
    return make_finding(context, severity, title, evidence=evidence, remedy=remedy)


@rule("A measured latency is below the bound", "measured")
def below_bound(context: LaunchContext) -> Finding | None:
    """A fault of the model or of the measurement. Fires where the measurement beats a bound."""
    measured = context.measured_us
    if measured is None:
        return None
    origin = context.measured_origin
    made = "measurement" if origin == "measured" else "simulation"
    launch = least_launch_us(context.gpu)
    limits = [("the bound", context.bound_us, context.bound.binding_pipeline(0), "routing and cache")]
    if context.config_bound is not None:
        config = context.config_bound
        also = "routing, cache and configuration"
        limits.append(("the bound of its configuration", first(config.us), config.binding_pipeline(0), also))
    for name, limit, pipeline, also in limits:
        if measured < limit:
            return make_finding(
                context,
                "error",
                f"{origin.capitalize()} {microseconds(measured)} is below {name}, {microseconds(limit)}",
                evidence=f"{pipeline} alone takes {microseconds(limit - launch)} after a launch of "
                f"{microseconds(launch)} at least, cache {context.problem.cache}",
                remedy=f"a fault of the model or of the {made}: check GPU, sizes, type, {also} of the row",
            )
    return None


FAR_SLOWER = 1.5
"""Ratio from which the model cannot be merely imprecise; its 90th-percentile error on the sweeps of `data/README.md` is below."""


@rule("The measured latency is far above the predicted one", "configuration", "runs", "measured")
def slower_than_predicted(context: LaunchContext) -> Finding | None:
    """Something the model does not know costs time. Fires where the measurement is half as slow again as predicted."""
    measured, predicted = context.measured_us, context.current_us
    if measured is None or measured <= FAR_SLOWER * predicted:
        return None
    return make_finding(
        context,
        "advice",
        f"{context.measured_origin.capitalize()} {microseconds(measured)}, {measured / predicted:.1f} times the predicted "
        f"{microseconds(predicted)}",
        evidence=f"{microseconds(measured - predicted)} are unexplained",
        remedy="look for spills with `advisor inspect`, measure again with clocks recorded, check alignment",
    )
