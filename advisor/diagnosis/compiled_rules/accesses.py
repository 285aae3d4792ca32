"""Loads and stores: scattered, narrow, of scalars, or of the same bytes again and again."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from advisor.compiled.demand.accesses import scattered
from advisor.compiled.demand.assembly import WORD_BYTES, loops_around_loads
from advisor.compiled.demand.costs import cost, element_bytes
from advisor.compiled.demand.counts import AccessDemand, LineDemand
from advisor.compiled.demand.machine_work import executions_at
from advisor.compiled.ir.lattices import likely_distinct_bytes
from advisor.compiled.ir.slicing import address_operands, needed_values
from advisor.compiled.launches.launch import author_file, own_files
from advisor.compiled.one_program import trips_together
from advisor.compiled.source_lines import exposed_us
from advisor.diagnosis.compiled_rules.context import BYTES_A_THREAD, CompiledContext
from advisor.diagnosis.pricing import first
from advisor.diagnosis.rule import amount, make_finding, microseconds, rule
from advisor.pipelines.bound import throughput_per_us
from advisor.pipelines.demand import Demand
from advisor.python_source.stride_use import possible_unit_strides
from advisor.result.schema import Finding
from advisor.system import grouped
from advisor.system.errors import several


@rule("Neighbouring threads touch scattered addresses")
def uncoalesced_access(context: CompiledContext) -> Finding | None:
    """Neighbouring threads touch scattered addresses. The saving is that of all such accesses: one order of threads is that of all."""
    apart = [access for access in context.demand.accesses if access.unused_bytes]
    worst = max(apart, key=lambda access: access.unused_bytes, default=None)
    if worst is None:
        return None
    unused = sum(access.unused_bytes for access in apart)
    fetched = context.demand.load_bytes + context.demand.store_bytes + unused
    share = (sum(access.issued_bytes for access in apart) + unused) / fetched
    if share < 0.05:
        return None
    used = worst.contiguous or 1
    all_unused = context.work.sector_bytes if context.work is not None else unused
    named = f"The {worst.kind} of {worst.argument or 'memory'}"
    others = len(apart) - 1
    steps = _steps(context, worst)
    return make_finding(
        context,
        "warning" if share > 0.3 else "advice",
        f"{named} and {several(others, 'other access')} are not coalesced" if others else f"{named} is not coalesced",
        evidence=f"{used} element{'s' if used > 1 else ''} of {element_bytes(worst.element):g} bytes in a row, in sectors of "
        f"{worst.sector_ratio:.1f} times the useful bytes; {100 * share:.0f} % of the bytes the kernel moves"
        + (f"; neighbouring threads lie {' and '.join(steps)} elements apart" if steps else ""),
        remedy="let the block run along the tensor's contiguous dimension, or change the tensor's layout"
        + (f" ({steps[0]}: are two strides swapped?)" if steps else ""),
        line=worst.line,
        file=worst.file,
        saving_us=context.without(
            l2_bytes=unused,
            dram_bytes=context.demand.likely_unused_bytes * unused / all_unused,
            load_bytes=sum(access.unused_bytes for access in apart if access.kind == "load"),
        ),
    )


@rule("Global accesses are narrower than 16 bytes per thread")
def narrow_access(context: CompiledContext) -> Finding | None:
    """Global accesses are narrower than 16 bytes per thread."""
    threads = context.compiled.num_warps * context.compiled.target.warp_size
    worst, narrow = None, 0
    repeated: list[AccessDemand] = []
    for access in context.demand.accesses:
        widths = context.facts.widths.get((access.kind, access.line or 0), ())
        size = element_bytes(access.element)
        if access.in_loop and 1 < access.lanes < threads and size < WORD_BYTES and (access.contiguous or 0) > 1:
            repeated.append(access)
        if not widths or access.lanes < 2 * threads or (access.contiguous or 0) < 2:
            continue
        possible = min(16, int(size * min(access.contiguous or 1, access.lanes // threads)))
        widest = max(widths)
        if widest * 2 <= possible and (worst is None or access.issued_bytes > worst.issued_bytes):
            worst, narrow = access, widest
    total = context.demand.load_bytes + context.demand.store_bytes
    if repeated and sum(access.issued_bytes for access in repeated) > 0.5 * total:
        return _repeated(context, repeated, threads)
    if worst is None or not total or worst.issued_bytes < 0.05 * total:
        return None
    work = context.work
    unspecified, typed = _untold(context, worst), _unfolded(context, worst)
    remedy = "make the size and stride multiples of 16, or assert it with tl.multiple_of / tl.max_contiguous"
    if unspecified:
        remedy = f"remove {', '.join(unspecified)} from do_not_specialize of @triton.jit: it hides multiples of 16 from the compiler; "
        remedy += "or assert them with tl.multiple_of"
    if typed:
        unspecified, which = [], ", ".join(typed)
        remedy = (
            f"leave out the type of {which} (`{typed[0]}` alone), or make it a tl.constexpr: of a 1 whose type is annotated Triton makes "
        )
        remedy += "no constant, and the compiler does not see that elements lie in a row"
    spared = work.access_instructions - work.access_instructions_widest if work is not None else 0.0
    return make_finding(
        context,
        "warning" if narrow < 4 else "advice",
        f"A {worst.kind} of {worst.argument or 'memory'} moves {narrow} bytes per thread"
        + (", for do_not_specialize" if unspecified else f", for the type of {typed[0]}" if typed else ""),
        evidence=f"{worst.contiguous} elements of {element_bytes(worst.element):g} bytes lie in a row, and each thread holds "
        f"{worst.lanes // threads}; 16 bytes were possible",
        remedy=remedy,
        line=worst.line,
        file=worst.file,
        saving_us=context.without(issue=spared),
    )


def _repeated(context: CompiledContext, accesses: Sequence[AccessDemand], threads: int) -> Finding | None:
    """Of blocks with fewer elements than the CTA has threads, in a loop: a larger block, with fewer trips, would leave no thread idle.
    None where that would save nothing."""
    access = max(accesses, key=lambda access: access.issued_bytes)
    size, again = element_bytes(access.element), context.demand.repeated(threads, least=2)
    moving = sum(item.executions * (1 - item.lanes / threads) for item in accesses) * context.compiled.num_warps
    issue = again.instructions / context.compiled.target.warp_size + moving
    saving = context.without(issue=issue, fma=again.fma, xu=again.xu, alu=again.alu, waits=1 - access.lanes / threads)
    if saving is None and context.predicts_savings:
        return None
    return make_finding(
        context,
        "warning",
        f"A {access.kind} of {access.argument or 'memory'} moves {size:g} byte{'s' if size > 1 else ''} per thread",
        evidence=f"the block has {access.lanes} elements for {threads} threads: {100 * (1 - access.lanes / threads):.0f} % of the threads "
        "repeat the work of the others",
        remedy="use a larger block, or fewer warps: 16 bytes per thread are "
        f"{round(16 / size) * threads:,} elements with {context.compiled.num_warps} warps",
        line=access.line,
        file=access.file,
        saving_us=saving,
    )


def _untold(context: CompiledContext, access: AccessDemand) -> list[str]:
    """Integer arguments whose values are multiples of 16, which the kernel keeps from the compiler, and that an access goes by."""
    launch = context.inspection.launch
    unaligned, values = launch.source.kernel(launch.kernel).unaligned, launch.given.scalars
    return _gone_by(context, access, {name for name in unaligned if type(value := values.get(name)) is int and value % 16 == 0})


def _steps(context: CompiledContext, access: AccessDemand) -> list[str]:
    """The strides, `stride_col = 4,096`, that an access goes along with neighbouring threads, as far as they are known."""
    launch = context.inspection.launch
    values = launch.given.scalars if context.inspection.likely is None else context.inspection.likely.scalars
    if (access.contiguous or 1) > 1:
        return []  # short rows
    along = _gone_by(context, access, possible_unit_strides(launch.source.kernel(launch.kernel).node))
    return [f"{name} = {value:,}" for name in along if type(value := values.get(name)) is int and value > 1]


def _unfolded(context: CompiledContext, access: AccessDemand) -> list[str]:
    """Integer arguments that are 1, of which Triton makes no constant because their type is annotated, and that an access goes by."""
    launch = context.inspection.launch
    function, values = launch.source.kernel(launch.kernel), launch.given.scalars
    ones = {name for name in function.unfolded - function.unspecialized if values.get(name) == 1}
    guess = context.inspection.guess
    return _gone_by(context, access, ones | set(guess.units if guess is not None else ()))


def _gone_by(context: CompiledContext, access: AccessDemand, arguments: Collection[str]) -> list[str]:
    """Those of some arguments that an access goes by."""
    function = context.module.kernel
    goes_by = needed_values(function, address_operands(access.operation)) if arguments else set()
    names = [name for name, kind in context.compiled.signature.items() if kind != "constexpr"]
    return [name for name, value in zip(names, function.arguments, strict=False) if name in arguments and value in goes_by]


DENSE = 0.9
"""Share of the bytes from the first to the last that all loads together touch, from which on they lie there whole: borders are masked."""


@rule("Adjacent narrow elements are loaded one by one")
def packable_loads(context: CompiledContext) -> Finding | None:
    """Adjacent narrow elements are loaded one by one."""
    groups = grouped(
        (access.name, access)
        for access in context.demand.accesses
        if access.kind == "load" and element_bytes(access.element) < WORD_BYTES and access.contiguous == 1 and scattered(access)
    )
    packable = [(group, packed) for group in groups.values() if (packed := _packed(context, group)) > 1]
    if not packable:
        return None
    loads, packed = max(packable, key=lambda pair: sum(access.issued_bytes for access in pair[0]))
    spared, first = 1 - 1 / packed, loads[0]
    size = element_bytes(first.element)
    places = {access.line for access in loads}
    around = [op for op in context.index_operations if op.line in places]
    alu = sum(cost(op, context.divisors).alu * executions_at(context.demand, op.line, 0.0) for op in around)
    instructions = sum(access.issued_bytes for access in loads) / size / context.compiled.target.warp_size
    return make_finding(
        context,
        "warning",
        f"{len(loads)} loads of {first.name} take {size:g} byte{'s' if size > 1 else ''} each of whole words",
        evidence=f"neighbouring threads are {first.sector_ratio * size:.0f} bytes apart, and other loads read the bytes in between",
        remedy=f"load words of {packed * size:g} bytes (`ptr.to(tl.pointer_type(tl.uint{8 * packed * size:.0f}))`), and take them "
        "apart with shifts",
        line=first.line,
        file=first.file,
        saving_us=context.without(alu=alu * spared, issue=(instructions + alu / context.compiled.target.warp_size) * spared),
    )


def _packed(context: CompiledContext, loads: list[AccessDemand]) -> int:
    """Elements in a word that such loads take one by one, all of them; 1 where what lies between is not asked for, or too far apart."""
    apart = round(loads[0].sector_ratio)
    reaches = [access.reach_bytes for access in loads if access.reach_bytes is not None]
    if not 1 < apart <= WORD_BYTES / element_bytes(loads[0].element) or len(loads) < apart or len(reaches) < len(loads):
        return 1
    span = max(last for _, last in reaches) - min(first for first, _ in reaches)
    return apart if context.demand.likely_read_footprints[loads[0].name] >= DENSE * span else 1


AGAIN = 1.5
"""Below this multiple of the distinct bytes loads are no cause: the limit that `operand-traffic` has for the L2."""

LEAST_SHARE_OF_REREADING = 0.05
"""Of the predicted latency: re-reading that costs less is not reported."""


@rule("Programs load the same bytes repeatedly")
def repeated_loads(context: CompiledContext) -> Finding | None:
    """More bytes loaded than there are."""
    demand, analysis = context.demand, context.analysis
    unlocated = {access.name for access in context.accesses if access.reach_bytes is None}
    located = [access for access in context.accesses if access.kind == "load" and access.name not in unlocated]
    # What programs pass over twice is another cause.
    twice = {access.name for access in _of_second_passes(context)}
    bytes_of = {n: amount for n, amount in _by_name(located).items() if n not in twice}
    # What every program needs whole beside a tensor of its own, such as the weights of a row, no order of programs spares.
    whole = {n for n, amount in bytes_of.items() if demand.likely_read_footprints[n] * demand.programs <= amount * 1.01}
    requested = {n: amount for n, amount in bytes_of.items() if n not in whole} or ({} if twice else bytes_of)
    loads = [access for access in located if access.name in requested]
    footprints = {name: demand.likely_read_footprints[name] for name in requested}
    loaded, distinct = sum(requested.values()), sum(footprints.values())
    if analysis is None or analysis.predicted is None or not loads or distinct <= 0 or loaded < AGAIN * distinct:
        return None
    again_from_dram = distinct > STAYS_IN_L2 * analysis.gpu.l2_bytes
    costs = context.saving(lambda demand: _once(demand, loaded - distinct, dram=again_from_dram))
    if costs is None or costs < LEAST_SHARE_OF_REREADING * analysis.predicted.us:
        return None
    name = max(requested, key=lambda name: requested[name] - footprints[name])
    times = {name: amount / footprints[name] for name, amount in requested.items() if footprints[name]}
    named = sorted((name for name in times if times[name] >= AGAIN), key=lambda name: -times[name])
    first, *others = (f"{name} {'is loaded ' if name == named[0] else ''}{times[name]:.1f} times" for name in named or [name])
    most = max((access for access in loads if access.name == name), key=lambda access: access.requested_bytes)
    return make_finding(
        context,
        "advice",
        f"Every byte of {' and of '.join((first, *others))}",
        evidence=f"{amount(loaded)} through the L2 for {amount(distinct)} of distinct data (L2: {amount(analysis.gpu.l2_bytes)}); "
        f"re-reading costs {microseconds(costs)} of {microseconds(analysis.predicted.us)} in all",
        remedy="use larger tiles, or order programs so that neighbours share operands (GROUP_SIZE_M)"
        if demand.total_tensor_flop
        else "order programs so that those which load the same rows run one after another, or do them in one program",
        line=most.line,
        file=most.file,
    )


def _by_name(loads: Sequence[AccessDemand]) -> dict[str, float]:
    """Bytes asked for of each argument."""
    return {name: sum(load.requested_bytes for load in loads if load.name == name) for name in (load.name for load in loads)}


STAYS_IN_L2 = 0.5
"""Of the L2: tensors that take no more of it are read again from there, whatever else the launch reads."""


def _once(demand: Demand, spared: float, waited: float = 0.0, amounts: Mapping[str, float] | None = None, *, dram: bool = True) -> Demand:
    """The demand without `spared` bytes of loads, which find them in the registers (`dram`: and which DRAM need not bring again), without
    the share `waited` of waiting for loads, and without `amounts` of the launch by pipeline."""
    return replace(
        demand,
        per_cta={name: np.maximum(amount - (amounts or {}).get(name, 0.0) / demand.ctas, 0.0) for name, amount in demand.per_cta.items()},
        l2_bytes=np.maximum(demand.l2_bytes - spared, 0.0),
        dram_bytes=np.minimum(demand.dram_bytes, np.maximum(demand.dram_bytes - spared * dram, demand.compulsory_bytes)),
        cta_load_bytes=np.maximum(demand.cta_load_bytes - spared / demand.ctas, 0.0),
        phases=demand.phases and replace(demand.phases, serial_us=demand.phases.serial_us * (1 - waited)),
    )


MOST_BYTES_OF_A_ROW = 65_536
"""Of what a program passes over twice: as much as Triton's tutorial on layer normalization keeps in one block (`MAX_FUSED_SIZE`)."""


@rule("Programs read again what they had in registers")
def second_pass(context: CompiledContext) -> Finding | None:
    """Every program loads bytes again that it has loaded or stored before, few enough to be kept, or only to sum them up."""
    demand, analysis = context.demand, context.analysis
    again = _of_second_passes(context)
    if not again or analysis is None or analysis.predicted is None:
        return None
    requested = sum(load.requested_bytes for load in again)
    per_program = requested / max(demand.programs, 1)
    one_block = per_program <= MOST_BYTES_OF_A_ROW
    waited = _spared_waits(context, again, one_block)
    spared = _spared_lines(context, again)
    alu, fma, xu = (sum(getattr(line, name) for line in spared) for name in ("alu_op", "fma_flop", "xu_op"))
    amounts = {"alu": alu, "fma": fma, "xu": xu, "issue": (alu + xu + fma / 2) / context.compiled.target.warp_size}
    saving = context.saving(lambda work: _once(work, requested, waited, amounts))
    if saving is None or saving < LEAST_SHARE_OF_REREADING * analysis.predicted.us:
        return None
    most = max(again, key=lambda load: load.requested_bytes)
    did = "stored" if most.name in demand.stored_first else "loaded"
    elements = math.ceil(most.requested_bytes / element_bytes(most.element) / max(demand.programs, 1))
    remedy = f"take one block of {2 ** math.ceil(math.log2(elements)):,} elements for the row's {elements:,}, load it once, and keep it in "
    remedy += "registers for all passes"
    if not one_block:
        if most.loop is None or any(access.loop == most.loop for access in context.accesses if access.kind != "load"):
            return None  # what is stored of each element needs all of the first pass
        remedy = "make one loop of both, which keeps running results in each lane (online softmax, or Welford's mean and variance), and "
        remedy += "reduce them once after it"
    return make_finding(
        context,
        "advice",
        f"{most.name} is read again after the program {did} it",
        evidence=f"{amount(requested)} are read a second time, {amount(per_program)} of them by each program",
        remedy=remedy,
        line=most.line,
        file=most.file,
        saving_us=saving,
    )


def _spared_lines(context: CompiledContext, again: Sequence[AccessDemand]) -> list[LineDemand]:
    """The lines of the loads `again`, and those behind them that say what a line before them does: of what is kept that is there, too."""
    file, places = context.inspection.launch.source, {(load.file, load.line) for load in again}
    first, source = min((load.line or 0 for load in again), default=0), file.text.splitlines()
    lines = [
        line
        for line in context.demand.lines
        if (line.file, first) in places and author_file(context.compiled, line.file) == str(file.path) and line.line <= len(source)
    ]
    before = {source[line.line - 1].strip() for line in lines if line.line < first}
    places |= {(line.file, line.line) for line in lines if line.line >= first and source[line.line - 1].strip() in before}
    return [line for line in context.demand.lines if (line.file, line.line) in places]


def _spared_waits(context: CompiledContext, again: Sequence[AccessDemand], one_block: bool) -> float:
    """Share of what a program waits for loads that goes: for those `again`, and where one block holds the row, for all of the same loops
    in every trip but the first."""
    waits = context.analysis.chain.waits if context.analysis is not None else {}
    names, places = {load.name for load in again}, {(load.line, load.operation.text) for load in again}
    loops = {access.loop for access in context.accesses if access.name in names and access.in_loop and one_block}
    spared = 0.0
    for load in context.accesses:
        place = load.line, load.operation.text
        trips = load.executions / max(context.demand.programs, 1) if load.loop in loops else 1.0
        spared += waits.get(place, 0.0) * (1.0 if place in places else 1 - 1 / max(trips, 1.0))
    return spared / (sum(waits.values()) or 1.0)


def _of_second_passes(context: CompiledContext) -> list[AccessDemand]:
    """Loads of bytes that their programs had before: each byte once, of those that an access before them touched once."""
    branches = [op for op, _ in context.operations if op.name == "scf.if"]
    in_a_branch = {name for branch in branches for op in branch.walk() for name in op.results}
    passes = [access for access in context.accesses if _is_pass(access, in_a_branch)]
    return [
        load
        for place, load in enumerate(passes)
        if load.kind == "load"
        and any(
            before.name == load.name
            and abs(before.requested_bytes / load.requested_bytes - 1) < 0.01
            and likely_distinct_bytes((*before.touched, *load.touched)) < 1.01 * likely_distinct_bytes(load.touched)
            for before in passes[:place]
        )
    ]


def _is_pass(access: AccessDemand, in_a_branch: Set[str]) -> bool:
    """Whether an access touches each of its bytes once in the whole launch, as what programs share is not; and that for certain, or
    wherever the program did not end before, as what stands in one of two branches does not."""
    certain = access.certain_bytes > 0.99 * access.requested_bytes
    certain = certain or (access.kind == "load" and in_a_branch.isdisjoint(access.operation.results))
    if access.kind == "atomic" or access.unlocated_for or not certain:
        return False
    distinct = likely_distinct_bytes(access.touched) * access.growth
    return distinct > 0 and abs(access.requested_bytes / distinct - 1) < 0.01


LEAST_SHARE_OF_TURNS = 0.1
"""Of the predicted latency, that several rows at a time save."""


@rule("A loop waits for one row after another")
def loads_in_turn(context: CompiledContext) -> Finding | None:
    """A loop that counts by ones loads a row in each trip, few bytes for every thread. Fires where waiting for several at a time saves
    time; of products, whose operands are staged ahead, never."""
    analysis, programs = context.analysis, max(context.demand.programs, 1)
    if analysis is None or analysis.predicted is None or context.demand.total_tensor_flop:
        return None
    by_ones = context.loops_by_ones
    loads = [access for access in context.accesses if access.kind == "load" and access.loop in by_ones]
    rows = [access for access in loads if access.lanes > 1 and access.reach_bytes is not None]
    if not rows or len(rows) < len([access for access in loads if access.lanes > 1]):
        return None  # where the next row is may hang on this one
    trips = min(access.executions for access in rows) / programs
    a_trip = sum(access.requested_bytes / access.executions for access in rows)
    at_once = min(BYTES_A_THREAD * first(analysis.demand.resources.num_warps) * analysis.gpu.warp_size / a_trip, trips)
    times = 2.0 ** math.floor(math.log2(max(at_once, 1.0)))
    around = loops_around_loads(context.compiled.ptx, set(own_files(context.compiled)))
    now = min(trips_together(access, around) for access in rows)  # waits for so many rows at a time
    names = " and ".join(dict.fromkeys(access.name for access in rows))
    waits = analysis.chain.waits
    waited = sum(waits.get(place, 0.0) for place in {(load.line, load.operation.text) for load in loads}) / (sum(waits.values()) or 1.0)
    saving = context.without(waits=waited * max(1 - now / times, 0.0))
    if saving is None or saving < LEAST_SHARE_OF_TURNS * analysis.predicted.us:
        return None
    most = max(rows, key=lambda access: access.requested_bytes)
    remedy = f"load {times:.0f} rows as one block of two dimensions, and keep a block of running results in the loop; "
    remedy += "reduce it along the rows once after the loop, or let more programs share the rows"
    return make_finding(
        context,
        "warning",
        f"Each program waits {trips / now:,.0f} times for loads of {names}, {now} row{'s' * (now > 1)} ({amount(a_trip * now)}) at a time",
        evidence=f"{times:.0f} rows at a time are {amount(a_trip * times)}, {BYTES_A_THREAD} bytes for a thread at most",
        remedy=remedy,
        line=most.line,
        file=most.file,
        saving_us=saving,
    )


LEAST_SHARE_OF_SCALARS = 0.02
"""Of the predicted latency: what costs less is not reported."""

MOST_SCALARS = 4
"""Scalars that a program may load without a word: which rows are its own, say."""


@rule("Every thread loads the same scalars repeatedly")
def scalar_loads(context: CompiledContext) -> Finding | None:
    """Every thread loads the same scalars repeatedly."""
    analysis, warps = context.analysis, context.compiled.num_warps
    loads = [access for access in context.demand.accesses if access.kind == "load" and access.lanes == 1]
    if analysis is None or analysis.predicted is None or not loads:
        return None
    instructions = sum(access.executions for access in loads) * warps
    issuing = instructions / throughput_per_us(analysis.gpu, analysis.demand.tensor_dtype)["issue"]
    waits = exposed_us(analysis)
    waiting = sum(waits.get(place, 0.0) for place in {(author_file(context.compiled, load.file) or "", load.line or 0) for load in loads})
    often = sum(access.executions for access in loads) / max(context.demand.programs, 1)
    saving = min((issuing + waiting) * (1 - 1 / often), analysis.predicted.us - analysis.bound.us) if often >= MOST_SCALARS else 0.0
    if saving < LEAST_SHARE_OF_SCALARS * analysis.predicted.us:
        return None
    most = max(loads, key=lambda access: access.executions)
    return make_finding(
        context,
        "advice",
        f"{often:,.0f} scalar loads in a program, each issued by all {warps * context.compiled.target.warp_size} threads",
        evidence=f"most of {most.name}; issuing them takes {microseconds(issuing)}, and {microseconds(waiting)} they are waited for",
        remedy="load the values as one block before they are needed, pass them as arguments or tl.constexpr, or use fewer warps",
        line=most.line,
        file=most.file,
        saving_us=saving if context.predicts_savings else None,
    )
