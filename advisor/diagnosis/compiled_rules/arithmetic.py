"""Indices, masks and atomics: what is reckoned beside the data."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace

from advisor.compiled.demand.costs import Cost, cost, element_bytes
from advisor.compiled.demand.machine_work import executions_at
from advisor.compiled.ir.arithmetic import INTEGER
from advisor.compiled.ir.ir import Operation
from advisor.diagnosis.compiled_rules.context import CompiledContext
from advisor.diagnosis.rule import make_finding, microseconds, percent, rule
from advisor.pipelines.bound import throughput_per_us
from advisor.result.schema import Finding


@rule("Atomics in the hot loop")
def atomics_in_loop(context: CompiledContext) -> Finding | None:
    """Atomics in the hot loop, but for a lock that each program waits for once."""
    demand = context.demand
    atomics = [a for a in demand.accesses if a.kind == "atomic" and a.in_loop and a.executions > demand.programs]
    if not atomics:
        return None
    most = max(atomics, key=lambda a: a.executions * a.lanes)
    return make_finding(
        context,
        "warning",
        f"{len(atomics)} atomic operation{'s' if len(atomics) > 1 else ''} in a loop",
        evidence=f"{most.executions:,.0f} executions of {most.lanes} lanes on {most.argument or 'memory'}",
        remedy="accumulate in registers and update once after the loop, or reduce partial results in a second kernel",
        line=most.line,
        file=most.file,
    )


CONTENDED = 64.0
"""Atomics per address, from which on they wait for each other: more than split-K and stream-K make of one tile."""

LEAST_SHARE_OF_L2 = 0.1
"""Of what goes through the L2; what is less is not reported."""


@rule("Many atomics contend for the same addresses")
def contended_atomics(context: CompiledContext) -> Finding | None:
    """Programs that add to the same few addresses. The finding is for the tensor to which most is added."""
    demand, analysis = context.demand, context.analysis
    atomics = [access for access in demand.accesses if access.kind == "atomic"]
    if analysis is None or not atomics:
        return None
    most = max(atomics, key=lambda atomic: atomic.requested_bytes)
    added = sum(atomic.requested_bytes for atomic in atomics if atomic.name == most.name)
    distinct = max(demand.likely_written_footprints.get(most.name, added), element_bytes(most.element))
    share = sum(atomic.requested_bytes for atomic in atomics) / max(float(analysis.demand.l2_bytes[0]), 1.0)
    if added < CONTENDED * distinct or share < LEAST_SHARE_OF_L2:
        return None
    return make_finding(
        context,
        "warning",
        f"{added / distinct:,.0f} atomics meet at each of {distinct / element_bytes(most.element):,.0f} addresses of {most.name}",
        evidence=f"atomics are {percent(share)} of what goes through the L2; contention is not in the prediction",
        remedy="reduce more in each program before the atomic (a loop, a smaller grid); or store partial sums and add "
        "them in a second launch",
        line=most.line,
        file=most.file,
    )


@rule("Integer division in the loop")
def integer_division_in_loop(context: CompiledContext) -> Finding | None:
    """Integer division in the loop."""
    divisions = [op for op, depth in context.operations if depth > 0 and op.name in INTEGER and context.divisors[id(op)].constant is None]
    if not divisions:
        return None
    worst = max(divisions, key=lambda op: op.result.elements if op.result else 1)
    elements = worst.result.elements if worst.result else 1
    alu = xu = 0.0
    for op in divisions:
        often = executions_at(context.demand, op.location.line if op.location else None, 0.0)
        once = cost(op, context.divisors)
        alu, xu = alu + once.alu * often, xu + once.xu * often
    warp = context.compiled.target.warp_size
    saving = context.without(alu=alu, xu=xu, issue=(alu + xu) / warp) if alu else None
    if saving is None and context.predicts_savings:
        return None  # one division for each tile of a persistent kernel, say
    return make_finding(
        context,
        "advice" if elements == 1 else "warning",
        f"{len(divisions)} integer division{'s' if len(divisions) > 1 else ''} in a loop",
        evidence=f"{worst.name.split('.')[1]} of {elements:,} element{'s' if elements > 1 else ''}, divisor not a constant",
        remedy="make the divisor a tl.constexpr, update the quotient incrementally, or divide before the loop",
        saving_us=saving,
        line=worst.location.line if worst.location else None,
        file=worst.location.file if worst.location else None,
    )


LEAST_SHARE_OF_INDICES = 0.05
"""Of the predicted latency: what costs less is not reported."""

LINES = 3
"""Lines that are named, those that cost most."""

POWER_OF_TWO = 4096
"""A divisor that stands for one whose value is not given: what sizes mostly are."""

SAME_VALUE = ("tt.splat", "arith.extsi", "arith.trunci")
"""Operations whose result has the value of their operand."""

REMEDIES = {
    "divisions": "give programs rows and columns of their own (a grid of two dimensions), or increment them in a loop, instead of dividing",
    "masks": "add a path without masks for interior programs (a branch, or a second launch for the border), or pad the tensor",
    "addresses": "compute offsets once and increment them, with tl.constexpr strides, in 32 bits",
}


@rule("Integer arithmetic of indices and masks limits the kernel")
def index_arithmetic(context: CompiledContext) -> Finding | None:
    """Integer arithmetic of indices and masks limits the kernel."""
    analysis = context.analysis
    if analysis is None or analysis.predicted is None:
        return None
    lines: dict[tuple[str | None, int | None], Cost] = defaultdict(Cost)
    kinds: dict[str, float] = defaultdict(float)
    total, shifts, warp = Cost(), Cost(), context.compiled.target.warp_size
    issued = Counter(item.line for item in context.facts.code)
    counted: dict[int | None, float] = defaultdict(float)
    given, names = context.inspection.launch.given.scalars, _divisors(context)
    for op in context.index_operations:
        counted[op.line] += cost(op, context.divisors).alu
    for op in context.index_operations:
        spent = cost(op, context.divisors).times(executions_at(context.demand, op.line, 0.0))
        if issued and counted[op.line]:  # one division serves all elements that a thread loads at once
            spent = spent.times(min(issued[op.line] * context.compiled.num_warps * warp / counted[op.line], 1.0))
        lines[op.location.file if op.location else None, op.line].add(spent)
        kinds[_kind(op)] += spent.alu
        total.add(spent)
        if op.name in INTEGER and (divisor := context.divisors[id(op)]).constant is None:  # then what a constant divisor spares
            value = given.get(names.get(id(op), ""))
            constant = value if isinstance(value, int) and value else POWER_OF_TWO
            left = cost(op, {id(op): replace(divisor, constant=constant)}).alu / cost(op, context.divisors).alu
            shifts.add(spent.times(1 - left))
    main = max(kinds, key=lambda kind: kinds[kind], default="")
    least = LEAST_SHARE_OF_INDICES * analysis.predicted.us
    saving, of_shifts = (
        context.without(alu=spent.alu, xu=spent.xu, issue=(spent.alu + spent.xu) / warp) if spent.alu else None for spent in (total, shifts)
    )
    if saving is None or saving < least:
        return None
    as_constant = ""
    if main == "divisions" and names and of_shifts is not None and of_shifts >= least:
        which = " and ".join(dict.fromkeys(names.values()))
        saving, as_constant = of_shifts, f"make {which} tl.constexpr: dividing by a constant takes a shift or a multiplication; or "
    rate = throughput_per_us(analysis.gpu, analysis.demand.tensor_dtype)["alu"]
    heaviest = sorted((key for key in lines if key[1] is not None), key=lambda key: -lines[key].alu)[:LINES]
    named = ", ".join(f"line {line}: {microseconds(lines[file, line].alu / rate)}" for file, line in heaviest)
    shares = ", ".join(f"{100 * kinds[kind] / total.alu:.0f} % {kind}" for kind in sorted(kinds, key=lambda kind: -kinds[kind]))
    file, line = heaviest[0] if heaviest else (None, None)
    return make_finding(
        context,
        "warning",
        f"Index arithmetic, mostly {main}, keeps the integer units busy for {microseconds(total.alu / rate)}",
        evidence=f"{named}; {shares}, beside one addition for each address",
        remedy=f"{as_constant}{REMEDIES[main]}",
        line=line,
        file=file,
        saving_us=saving,
    )


def _divisors(context: CompiledContext) -> dict[int, str]:
    """By the `id` of a division of indices, in the order of the code, the argument that it divides by."""
    made = {name: op for op, _ in context.operations for name in op.results}
    names: dict[int, str] = {}
    for op in context.index_operations:
        if op.name in INTEGER and context.divisors[id(op)].constant is None:
            name = op.operands[1]
            while name in made and made[name].name in SAME_VALUE:
                name = made[name].operands[0]
            if name not in made:
                names[id(op)] = name.lstrip("%")
    return names


def _kind(op: Operation) -> str:
    if op.name in INTEGER:
        return "divisions"
    return "masks" if op.name == "arith.cmpi" or (op.result is not None and op.result.element == "i1") else "addresses"


LEAST_SHARE_OF_DOUBLES = 0.05
"""Of the predicted latency: what costs less is not reported."""


@rule("Double precision limits the kernel")
def double_precision(context: CompiledContext) -> Finding | None:
    """Arithmetic of doubles, for which most GPUs have a fraction of the fp32 rate; the saving is that of fp32 in its place."""
    analysis, flop = context.analysis, context.demand.fp64_flop
    if analysis is None or analysis.predicted is None or not flop:
        return None
    rates = analysis.gpu.fma_flop_per_clock_per_sm
    slower = rates["fp32"] / rates["fp64"] if rates.get("fp64") else 1.0
    saving = context.without(fma=flop * (slower - 1), changes_type=True)
    if saving is None or saving < LEAST_SHARE_OF_DOUBLES * analysis.predicted.us:
        return None
    lines = sorted((line for line in context.demand.lines if line.fp64_flop), key=lambda line: -line.fp64_flop)[:LINES]
    heaviest = lines[0] if lines else None
    return make_finding(
        context,
        "warning",
        f"fp64 arithmetic: {flop / 1e9:,.3g} GFLOP at 1/{slower:.0f} of the fp32 rate",
        evidence=", ".join(f"line {line.line}: {percent(line.fp64_flop / flop)}" for line in lines) + " of them",
        remedy="use fp32 where 24 bits suffice: remove casts to tl.float64, and make constants and arguments fp32",
        line=heaviest.line if heaviest else None,
        file=heaviest.file if heaviest else None,
        saving_us=saving,
    )


LEAST_SHARE_OF_WIDE = 0.01
"""Of the predicted latency: what saves less is not reported."""
NARROWER = 0.5
"""Share of the instructions of 64-bit arithmetic that 32-bit offsets spare: a carry and its sum become one addition."""


@rule("64-bit index arithmetic in the loop")
def wide_index_in_loop(context: CompiledContext) -> Finding | None:
    """64-bit index arithmetic in the loop."""
    loop = context.loop
    if loop is None or loop.instructions < 16:
        return None
    share = loop.wide_integer / loop.instructions
    if share < 0.15 or loop.wide_integer < 8:
        return None
    threads = context.compiled.num_warps * context.compiled.target.warp_size
    trips = executions_at(context.demand, loop.first_line, 0.0)
    spared = NARROWER * loop.wide_integer * threads * trips
    saving = context.without(alu=spared, issue=spared / context.compiled.target.warp_size)
    predicted = context.analysis.predicted if context.analysis is not None else None
    if context.predicts_savings and predicted is not None and (saving or 0.0) < LEAST_SHARE_OF_WIDE * predicted.us:
        return None  # other pipelines take longer
    return make_finding(
        context,
        "advice",
        f"{100 * share:.0f} % of the loop's instructions are 64-bit index arithmetic",
        evidence=f"{loop.wide_integer} of {loop.instructions} instructions a trip",
        remedy="advance pointers by a constant, keep offsets 32-bit where the tensor allows, or use tensor descriptors",
        line=loop.first_line,
        saving_us=saving,
    )


LEAST_MASKED = 0.25
"""Of the lanes of loads: what rounding a length up to a power of two leaves on average."""

LEAST_SHARE_OF_MASKED = 0.05
"""Of the predicted latency: what costs less is not reported."""


@rule("Many lanes do nothing of their own")
def masked_lanes(context: CompiledContext) -> Finding | None:
    """Lanes that do what nobody needs: their loads and stores are masked off, or a block is smaller than the CTA and all further warps
    repeat the work of the first.

    The saving is what the arithmetic of those lanes costs; None where that is little, or products share it.
    """
    analysis, compiled = context.analysis, context.compiled
    loads = [access for access in context.demand.accesses if access.kind == "load" and access.lanes > 1 and access.issued_bytes]
    whole = [load.executions * load.lanes * element_bytes(load.element) for load in loads]
    if analysis is None or analysis.predicted is None or not loads or context.demand.total_tensor_flop:
        return None
    most = max(loads, key=lambda load: load.executions * load.lanes)
    filled = math.ceil(most.lanes / compiled.target.warp_size)
    masked, repeated = 1 - sum(load.issued_bytes for load in loads) / sum(whole), 1 - filled / compiled.num_warps
    idle = max(masked, repeated)
    totals = {name: idle * float(analysis.demand.totals()[name][0]) for name in ("alu", "xu", "fma", "issue")}
    saving = context.without(changes_type=False, **totals) if idle >= LEAST_MASKED else None
    if saving is None or saving < LEAST_SHARE_OF_MASKED * analysis.predicted.us:
        return None
    title, evidence, remedy = (
        f"{percent(masked)} of the lanes that load are masked off",
        "they are still computed",
        f"{'' if masked < 0.5 else 'use the next power of two of the length as the block, or '}loop over smaller blocks",
    )
    if repeated > masked:
        title = f"{most.lanes} elements fill {filled} of {compiled.num_warps} warps; the others repeat their work"
        evidence, remedy = "only their stores are left out", f"use num_warps={filled}, or a block of several rows or heads"
    return make_finding(
        context,
        "warning",
        title,
        evidence=f"{evidence}; most belong to {most.name}",
        remedy=remedy,
        line=most.line,
        file=most.file,
        saving_us=saving,
    )


@rule("A mask in the loop never binds")
def mask_never_binds(context: CompiledContext) -> Finding | None:
    """A mask in the loop never binds, where no contents of tensors decide that, which no host knows before the launch."""
    if context.inspection.launch.grid is None or not context.demand.exact or context.inspection.launch.contents:
        return None
    unknown = context.demand.unknown
    idle = [
        a
        for a in context.demand.accesses
        if a.masked
        and a.in_loop
        and a.kind == "load"
        and a.executions > 1
        and a.active_fraction == 1.0
        and a.lanes > 1
        and "descriptor" not in a.operation.name
    ]
    if not idle or any("mask" in text for text in unknown.values()):
        return None
    names = ", ".join(sorted({a.argument or "memory" for a in idle}))
    return make_finding(
        context,
        "info",
        f"Masks on {names} never bind for these sizes and blocks",
        evidence=f"{len(idle)} masked load{'s' if len(idle) > 1 else ''} in a loop, all lanes active "
        + (f"in all {context.demand.programs:,} programs" if context.demand.programs != 1 else "in the one program"),
        remedy="let @triton.heuristics set a constexpr where blocks divide the sizes, and load without a mask there",
        line=idle[0].line,
        file=idle[0].file,
    )
