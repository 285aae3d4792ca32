"""What one CTA may have, and how many there are: launches that fail, registers that spill, programs too few or too small."""

from __future__ import annotations

import math
from dataclasses import replace

from advisor.compiled.launches.launch import JUDGED
from advisor.diagnosis.compiled_rules.context import BYTES_A_THREAD, CompiledContext
from advisor.diagnosis.context import THRESHOLD
from advisor.diagnosis.pricing import first
from advisor.diagnosis.rule import kibibytes, make_finding, microseconds, percent, rule
from advisor.diagnosis.rules import limits
from advisor.pipelines.demand import Demand
from advisor.pipelines.occupancy import MAX_THREADS_PER_CTA
from advisor.pipelines.schedule import start_us
from advisor.result.schema import Finding, Severity


@rule(limits.cannot_launch.title)
def cannot_launch(context: CompiledContext) -> Finding | None:
    """Threads, shared memory or registers of one CTA beyond the limit, as the compiler made them. Fires where not one CTA fits on an SM."""
    analysis = context.analysis
    if analysis is None or analysis.predicted is not None:
        return None
    gpu, resources = analysis.gpu, analysis.demand.resources
    warps, memory = int(resources.num_warps[0]), float(resources.shared_memory_bytes[0])
    threads = warps * gpu.warp_size
    stages = context.compiled.num_stages
    if threads > MAX_THREADS_PER_CTA:
        title = f"{threads:,} threads in a CTA, {MAX_THREADS_PER_CTA:,} are allowed"
        evidence = f"num_warps={warps} × {gpu.warp_size} threads"
        remedy = f"num_warps={MAX_THREADS_PER_CTA // gpu.warp_size} is the most on {gpu.name}"
    elif memory > gpu.smem_bytes_per_cta:
        title = f"One CTA needs {kibibytes(memory)} of shared memory, {gpu.name} allows {kibibytes(gpu.smem_bytes_per_cta)}"
        evidence = f"{memory:,.0f} bytes for num_stages={stages} against {gpu.smem_bytes_per_cta:,}"
        remedy = "lower num_stages, then halve the blocks, until it fits" if stages > 1 else "halve the blocks until it fits"
    else:
        title = f"Not one CTA fits on an SM: {analysis.occupancy.limiter}"
        evidence = f"{analysis.occupancy.registers_per_thread} registers × {threads:,} threads, {memory:,.0f} bytes of shared memory"
        remedy = "halve the blocks or num_warps until it fits"
    # What nobody said to run is no launch that fails.
    severity: Severity = "warning" if context.inspection.guess.invented else "error"
    return make_finding(context, severity, title, evidence=evidence, remedy=remedy)


COMFORTABLE = 128
"""Registers of a thread that leave room for a second CTA beside the first, and for indices."""


@rule("A block has more elements than the registers of its threads hold")
def block_exceeds_registers(context: CompiledContext) -> Finding | None:
    """A block has more elements than the registers of its threads hold."""
    compiled = context.compiled
    elements = int(compiled.metadata.get(JUDGED) or 0)
    if not elements:
        return None
    threads = compiled.num_warps * compiled.target.warp_size
    live = (compiled.resources.registers or 0) + (compiled.resources.spill_bytes or 0) / 4
    fits = 1 << int(elements * COMFORTABLE / live).bit_length() - 1
    warps = 2 ** math.ceil(math.log2(compiled.num_warps * live / COMFORTABLE))
    names = [name for name, value in compiled.constexprs.items() if value == elements]
    if warps * compiled.target.warp_size <= MAX_THREADS_PER_CTA:
        remedy = f"num_warps={warps}: {elements // (warps * compiled.target.warp_size):,} elements for each thread"
    else:
        remedy = f"blocks of {fits:,} elements, in a loop in each program (`for start in range(0, size, {names[0] if names else 'BLOCK'})`)"
    function = context.inspection.launch.source.kernel(compiled.name)
    return make_finding(
        context,
        "warning",
        f"{names[0] if names else 'A block'} of {elements:,} elements: {elements // threads:,} for each of {threads:,} threads",
        evidence=f"about {live:,.0f} registers are needed, and a thread has {compiled.resources.registers}; judged without compiling, "
        "which may take Triton minutes",
        remedy=remedy,
        line=function.line,
        saving_us=context.without_spills(),
    )


@rule("Registers spill to local memory")
def register_spills(context: CompiledContext) -> Finding | None:
    """Registers spill to local memory."""
    resources = context.compiled.resources
    spilled = resources.spill_bytes or 0
    if spilled <= 0 or JUDGED in context.compiled.metadata:  # which a rule of its own says
        return None
    loop = context.loop
    inside = loop.mix.get("spill", 0) if loop is not None else 0
    if not inside and any(op.name == "tt.print" for op, _ in context.operations):
        return None  # tl.device_print hands its values over on the stack: no register spills for that
    return make_finding(
        context,
        "warning" if inside or spilled >= 64 else "advice",
        f"{spilled} bytes per thread spill to local memory",
        evidence=f"{resources.registers} registers per thread, {resources.num_warps} warps; {inside} local-memory instructions "
        f"in the main loop, {context.facts.mix.get('spill', 0)} in all",
        remedy="use more warps, a smaller tile, or fewer stages",
        saving_us=context.without_spills(),
    )


MOST_PER_SM = 8
"""CTAs for each SM, up to which more programs are reckoned to share a loop."""
AS_GOOD = 0.97
"""Of what the best number of parts saves: fewer leave less to combine."""


@rule("Some SMs get no CTA")
def too_few_ctas(context: CompiledContext) -> Finding | None:
    """SMs that get no program. Fires where the same work, spread over all SMs, saves time: where at least half get none, with each loop
    split over as many programs as that pays for, a power of two. Not where a block is reduced outside of loops: a smaller one would hold
    part of what is reduced."""
    analysis = context.analysis
    if analysis is None or analysis.predicted is None:
        return None
    ctas, sms = first(analysis.demand.ctas), analysis.gpu.num_sms
    if ctas >= sms:
        return None
    trips = max(first(analysis.demand.k_iterations) / max(len(context.demand.loops), 1), 1.0)
    if trips < 2 and any(op.name == "tt.reduce" for op, _ in context.operations):
        return None
    parts = [2**n for n in range(1, 16) if 2 * ctas <= sms and 2**n <= trips and 2**n * ctas <= MOST_PER_SM * sms]
    spread = {n: context.saving(lambda demand, n=n: _spread(demand, n, min(n, trips))) or 0.0 for n in parts or [sms / ctas]}  # type: ignore[misc]
    if parts and analysis.split_us:
        spread = {n: analysis.predicted.us - max(us, analysis.config_bound.us) for n, us in analysis.split_us.items() if n in parts}
    saving, shared = next((us, n) for n, us in spread.items() if us >= AS_GOOD * max(spread.values()))
    if saving < THRESHOLD * analysis.predicted.us:
        return None
    return make_finding(
        context,
        "warning",
        f"{ctas:,.0f} CTA{'s' if ctas > 1 else ''} for {sms} SMs: {percent(1 - ctas / sms)} of the GPU idles",
        evidence=f"{sms - ctas:,.0f} SMs get none",
        remedy=f"split the loop over {shared if parts else 'more'} programs (split-K, split-KV), and combine the parts in a second launch"
        if trips >= 2
        else "use smaller tiles, so that there are more programs",
        saving_us=saving,
    )


def _spread(demand: Demand, times: float, shorter: float) -> Demand:
    """The same work in so many times as many CTAs (below 1: in fewer), each with as much less to do, and what it does in turn `shorter`."""
    phases = demand.phases
    return replace(
        demand,
        per_cta={name: amount / times for name, amount in demand.per_cta.items()},
        ctas=demand.ctas * times,
        launched_ctas=demand.launched_ctas * times,
        cta_load_bytes=demand.cta_load_bytes / times,
        cta_store_bytes=demand.cta_store_bytes / times,
        k_iterations=demand.k_iterations / shorter,
        largest_cta_ratio=None,
        phases=None if phases is None else replace(phases, serial_us=phases.serial_us / shorter),
    )


@rule("Starting the programs takes longer than their work")
def small_programs(context: CompiledContext) -> Finding | None:
    """The GPU starts programs one after another."""
    analysis = context.analysis
    started = context.saving(lambda demand: replace(demand, launched_ctas=demand.launched_ctas * 0))
    if analysis is None or analysis.predicted is None or started is None:
        return None
    starting, demand, us = first(start_us(analysis.demand, analysis.gpu)), analysis.demand, analysis.predicted.us
    if started < THRESHOLD * us and starting < us / 2:
        return None
    room = BYTES_A_THREAD * context.compiled.resources.num_warps * analysis.gpu.warp_size
    times = 2.0 ** max(math.floor(math.log2(room / max(first(demand.cta_load_bytes + demand.cta_store_bytes), 1.0))), 1)
    saving = context.saving(lambda demand: _spread(demand, 1 / times, 1.0))
    if saving is None or saving < THRESHOLD * us:
        return None
    fewer, then = f"{context.demand.programs / times:,.0f} programs", microseconds(us - saving)
    return make_finding(
        context,
        "warning",
        f"{context.demand.programs:,} programs take {microseconds(starting)} to start",
        evidence=f"their work excluded; {fewer} with {times:.0f} times the work each, loaded at once, would take {then}",
        remedy="use a larger block, or let a program take several rows or heads as one block",
        saving_us=saving,
    )
