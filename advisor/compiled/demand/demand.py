"""The demand of a launch, counted in the IR of its kernel: per pipeline, per source line, per class of programs."""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.demand.accesses import access_element, unused_sector_bytes
from advisor.compiled.demand.collected import COLUMNS, AccessPart, Collected, access_kind
from advisor.compiled.demand.costs import cost, element_bytes, right_operand
from advisor.compiled.demand.counts import AccessDemand, CertainDemand, KernelDemand, LineDemand, LoopDemand, ProgramClass
from advisor.compiled.demand.evaluate import evaluate
from advisor.compiled.demand.footprints import (
    footprints,
    likely_footprints,
    likely_unused_bytes,
    not_told_apart,
    rewritten_bytes,
    unlocated,
)
from advisor.compiled.demand.likely_places import untold_place
from advisor.compiled.demand.loops import EXACT_WORK
from advisor.compiled.demand.products import Names
from advisor.compiled.ir.arithmetic import distinct_values, divisors
from advisor.compiled.ir.execution import Inputs, not_given, what_holds
from advisor.compiled.ir.ir import Module, Operation, parse
from advisor.compiled.ir.lattices import Sample, distinct_bytes, growth, lattices, quotients
from advisor.compiled.ir.places import together
from advisor.compiled.ir.slicing import MEMORY, constant_trips, needed_values
from advisor.compiled.ir.values import MAX_DENSE, far_place, one_of
from advisor.system.errors import InputError

EXACT_PROGRAMS = 16_384
"""Grids up to this many programs are evaluated whole; of larger ones the ends and a sample, spread evenly."""
EXACT_ELEMENTS, LEAST_ELEMENTS = 2**26, 256
"""The same of grids over contents that are given, where the programs' largest values have up to so many elements together, each at least
so many: what is looked up follows no rule, so that of a sample the bound knows no more than what that touches."""
SAMPLED_PROGRAMS = 8_192

DEVIATIONS = 4.0
"""Standard deviations by which the work of a sample of programs may be more than that of all of them: a chance of 1 in 30,000."""


def programs_to_evaluate(grid: tuple[int, int, int], most: int = EXACT_PROGRAMS) -> tuple[NDArray[np.int64], bool]:
    """Flat indices of the programs to evaluate, and whether they are all, as up to `most` are."""
    total = grid[0] * grid[1] * grid[2]
    if total <= most:
        return np.arange(total, dtype=np.int64), True
    # A step that shares no factor with the grid's sides, so that no row or column is favoured.
    generator = np.random.default_rng(0)
    edges = np.linspace(0, total, SAMPLED_PROGRAMS + 1)
    picks = (edges[:-1] + generator.random(SAMPLED_PROGRAMS) * np.diff(edges)).astype(np.int64)
    return np.clip(picks, 0, total - 1), False


def _largest(module: Module) -> int:
    """Elements of the largest value that is worked out, which elements of a product are not."""
    needed = needed_values(module.kernel)
    worked_out = (t for op in module.kernel.walk() for name, t in zip(op.results, op.result_types, strict=False) if name in needed)
    accessed = (t for op in module.kernel.walk() if op.name in MEMORY for t in op.types)
    return max((t.elements for t in (*worked_out, *accessed)), default=1)


def _chunk(largest: int, programs: int) -> int:
    """Programs to evaluate at once: as many as the largest values allow."""
    return int(max(16, min(programs, MAX_DENSE // max(largest, 1) // 4, 8192)))


def read_demand(
    ttir: str | Module,
    grid: tuple[int, ...],
    inputs: Inputs,
    own_files: tuple[str, ...] = (),
    programs: NDArray[np.int64] | None = None,
) -> KernelDemand:
    """Count what a launch asks for.

    Args:
        ttir: The kernel's TTIR, or parsed.
        grid: Programs along each axis; missing axes are 1.
        inputs: The actual arguments.
        own_files: Names of the author's files, for the source lines.
        programs: Flat indices of the only programs to count (then totals are theirs alone); None: the whole grid.

    Raises:
        IrError: The IR cannot be read.
        InputError: The grid is not one.
    """
    module = parse(ttir, own_files) if isinstance(ttir, str) else ttir
    x, y, z = (int(n) for n in (*grid, 1, 1, 1)[:3])
    if min(x, y, z) < 0 or x * y * z > 2**62:
        raise InputError("the grid is not one", str(grid), "up to three sizes of at least 0")
    full = (x, y, z)
    largest = _largest(module)
    listed = any(np.ndim(content) for content in inputs.contents.values())
    most = max(EXACT_PROGRAMS, EXACT_ELEMENTS // max(largest, LEAST_ELEMENTS) if listed else 0)
    indices, whole = programs_to_evaluate(full, most) if programs is None else (programs, True)
    total = x * y * z if programs is None else len(programs)
    chunk = _chunk(largest, len(indices))
    collected = Collected(scale=total / max(len(indices), 1), divisors=divisors(module), spared=spared_bytes(module))
    for start in range(0, len(indices), chunk):
        work = EXACT_WORK / -(-len(indices) // chunk)  # one allowance for all sets of programs
        collected.take(evaluate(module, inputs, full, indices[start : start + chunk], work))
    sample = None
    if not whole:
        sample = Sample(indices=distinct_values(indices), grid=full, divisors=quotients(collected.scalar_divisors))
    around, trips = module.loops_around(), constant_trips(module.kernel)
    counted = [access_demand(parts, collected.scale, around, sample, trips) for parts in collected.accesses.values()]
    accesses = [access for access, _ in counted]
    left_out = [(f"the addresses of accesses to {access.argument} by all programs", more) for access, more in counted if more]
    unknown = dict(collected.unknown)
    for reason, assumption in (*_unknown_places(accesses, inputs), *left_out):
        unknown.setdefault(reason, assumption)
    accesses = [replace(item, unused_bytes=unused) for item, unused in zip(accesses, unused_sector_bytes(accesses), strict=True)]
    rewritten = rewritten_bytes(accesses, module, inputs)
    demand = _kernel_demand(collected, tuple(accesses), _loops(collected, around), unknown, full, total, whole, inputs, rewritten)
    return replace(demand, unknown={**not_told_apart(demand), **unknown}, reductions=_reductions(collected, module, around, total))


def _reductions(collected: Collected, module: Module, around: Mapping[int, tuple[int, ...]], programs: int) -> float:
    """Reductions and scans of one program, the mean of all."""
    depth = 0.0
    for operation in module.kernel.walk():
        if operation.name in ("tt.reduce", "tt.scan"):
            loop = next(iter(around.get(id(operation), ())[::-1]), None)
            sets = collected.loops.get(loop, ()) if loop is not None else ()
            trips = sum(float(item.trips.sum()) for item in sets) * collected.scale
            depth += 1.0 if loop is None else trips / max(programs, 1)
    return depth


OF_A_SAMPLE = "the bound counts sampled programs, the prediction extrapolates to all"


def _unknown_places(accesses: Sequence[AccessDemand], inputs: Inputs) -> list[tuple[str, str]]:
    """Of accesses of which it is not known which bytes they touch: which, and what is assumed of them."""
    unlocated = []
    for access in sorted(accesses, key=lambda item: not item.certain_executions):  # what is counted speaks first
        if access.reach_bytes is None:
            where = f"line {access.line}" if access.line is not None else "an access"
            sized = access.argument in inputs.sizes or access.argument in inputs.shapes
            predicted = "takes all for distinct" if sized else "those of one program, so DRAM may carry far more"
            counted = "those of one execution" if access.certain_executions else "none, as no execution is certain"
            assumed = f"the bound counts {counted}, the prediction {predicted}"
            if deciding := not_given(access.unlocated_for):
                assumed += f"; {what_holds(deciding)} decides"
            assumed += "; that atomics wait where they meet is not counted" if access.kind == "atomic" else ""
            unlocated.append((untold_place(access.argument, access.operation), f"{where}: {assumed}" if access.argument else assumed))
    return unlocated


def access_demand(
    parts: Sequence[AccessPart],
    scale: float,
    loops: Mapping[int, tuple[int, ...]],
    sample: Sample | None,
    trips: Mapping[int, int] | None = None,
) -> tuple[AccessDemand, str | None]:
    """The demand of one access, and what is assumed of bytes that programs not looked at touch.

    Args:
        parts: What it does in each set of programs.
        scale: Programs that each of them stands for.
        loops: Those around each operation.
        sample: Of the programs of a grid that is not looked at whole.
        trips: Of the loops of which they are constants of the code.
    """
    operation = parts[0].access.operation
    around, seen = loops.get(id(operation), ()), [part.access for part in parts]
    sure = [part for part in parts if not part.assumed]

    def total(name: str, of: Sequence[AccessPart]) -> float:
        return sum(float(getattr(part.access, name).sum()) for part in of) * scale

    reach = None
    if not any(access.unknown_extent for access in seen):
        touching = [(access.low, access.high) for access in seen if access.low is not None and access.high is not None]
        reach = (min((low for low, _ in touching), default=0), max((high for _, high in touching), default=-1))
    executions, issued, distinct = (total(name, parts) for name in ("executions", "lanes", "distinct"))
    contiguous = next((access for access in seen if access.contiguous is not None), seen[0])
    element = access_element(operation)
    size = element_bytes(element)
    tensor = next((t for t in operation.types if t.shape), None)
    lanes = tensor.elements if tensor is not None else 1
    step = max(round(size), 1)
    bases = {access.base for access in seen}
    argument = None if None in bases else one_of(*(base for base in bases if base is not None))
    if len(bases) > 1 and argument is not None:  # some sets of programs point into one of several arguments, others into another
        parts = [
            replace(part, families=[replace(item, shifts=item.shifts + far_place(str(part.access.base))) for item in part.families])
            for part in parts
        ]
        sure = [part for part in parts if not part.assumed]
    families = together(family for part in parts for family in part.families)
    every, some = lattices(families, step, sample)
    touched = certain = (*every, *some)
    if any(part.families for part in parts if part.assumed):
        of_all, of_some = lattices(together(family for part in sure for family in part.families), step, sample)
        certain = (*of_all, *of_some)
    most = 0.0 if reach is None else min(distinct, reach[1] + 1 - reach[0]) * size
    assumption = None
    if some and most > 1.1 * (known := distinct_bytes(touched)) and known > distinct_bytes(every):
        where = f"line {operation.line}" if operation.location else "an access"
        assumption = f"{where}: {OF_A_SAMPLE}"
    return AccessDemand(
        operation=operation,
        kind=access_kind(operation),
        argument=argument,
        element=element,
        executions=executions,
        certain_executions=total("executions", sure),
        issued_bytes=issued * size,
        requested_bytes=distinct * size,
        certain_bytes=total("distinct", sure) * size,
        reach_bytes=None if reach is None else (reach[0] * size, (reach[1] + 1) * size),
        unlocated_for=frozenset[str]().union(*(access.unlocated_for for access in seen)) if reach is None else frozenset(),
        touched=touched,
        certain=certain,
        growth=growth(families, touched, step, sample) if sample is not None and some else 1.0,
        lanes=lanes,
        masked=seen[0].masked,
        active_fraction=issued / (executions * lanes) if executions else 0.0,
        contiguous=None if any(access.unlocated for access in seen) else contiguous.contiguous,
        sector_ratio=contiguous.sector_ratio,
        unused_bytes=0.0,
        loop=around[-1] if around else None,
        line=operation.line,
        file=operation.location.file if operation.location else None,
        around=tuple((loop, (trips or {}).get(loop)) for loop in around),
    ), assumption


def _loops(collected: Collected, around: Mapping[int, tuple[int, ...]]) -> tuple[LoopDemand, ...]:
    demands = []
    for sets in collected.loops.values():
        entries = sum(float(item.entries.sum()) for item in sets) * collected.scale
        trips = sum(float(item.trips.sum()) for item in sets) * collected.scale
        operation = sets[0].operation
        demands.append(
            LoopDemand(
                line=operation.line,
                depth=len(around.get(id(operation), (0,))),
                entries=entries,
                trips=trips,
                mean_trips=trips / entries if entries else 0.0,
                reasons=tuple(sorted(set().union(*(item.reasons for item in sets)))),
                sampled=any(item.sampled for item in sets),
            )
        )
    return tuple(demands)


def _lines(collected: Collected) -> tuple[LineDemand, ...]:
    often = {line: max(blocks.values()) for line, blocks in collected.executions.items()}
    return tuple(
        LineDemand(file=file, line=number, executions=often.get((file, number), 0.0), **collected.lines.get((file, number), {}))
        for file, number in sorted({*collected.lines, *often})
    )


def _kernel_demand(
    collected: Collected,
    accesses: tuple[AccessDemand, ...],
    loops: tuple[LoopDemand, ...],
    unknown: Mapping[str, str],
    grid: tuple[int, int, int],
    programs: int,
    whole: bool,
    inputs: Inputs,
    rewritten: Mapping[str, float],
) -> KernelDemand:
    rows, certain = collected.all.rows(), collected.certain.rows()
    scale = collected.scale
    sums = {name: float(values.sum()) * scale for name, values in rows.items()}
    sure = {name: float(values.sum()) * scale * _certain_share(values, whole) for name, values in certain.items()}
    share = _certain_share(certain["tensor"], whole)
    loads = tuple(a for a in accesses if a.kind == "load")
    rest = tuple(a for a in accesses if a.kind != "load")
    alike = all(np.array_equal(rows[name], certain[name]) for name in COLUMNS if name != "smem")  # what is spared of it aside
    return KernelDemand(
        grid=grid,
        programs=programs,
        exact=whole and not collected.approximations and alike,
        scale=scale,
        per_program=rows,
        tensor_flop=dict(collected.all.tensor),
        certain=CertainDemand(
            per_program=certain,
            tensor_flop={kind: flop * share for kind, flop in collected.certain.tensor.items()},
            fp64_flop=sure["fp64"],
            fma_flop=sure["fma"],
            packed_flop=sure["packed"],
            xu_op=sure["xu"],
            smem_bytes=sure["smem"],
            requested_load_bytes=sure["requested_load"],
            padding=collected.certain.padding.times(share),
        ),
        fp64_flop=sums["fp64"],
        fma_flop=sums["fma"],
        packed_flop=sums["packed"],
        xu_op=sums["xu"],
        alu_op=sums["alu"],
        smem_bytes=sums["smem"],
        padding=collected.all.padding,
        narrow=collected.narrow,
        load_bytes=sums["load"],
        store_bytes=sums["store"],
        atomic_bytes=sums["atomic"],
        requested_load_bytes=sums["requested_load"],
        requested_store_bytes=sums["requested_store"],
        footprint_bytes=footprints(accesses, inputs),
        read_footprints=footprints(loads, inputs),
        written_footprints=footprints(rest, inputs),
        likely_footprint_bytes=likely_footprints(accesses, inputs, programs),
        likely_read_footprints=likely_footprints(loads, inputs, programs),
        likely_written_footprints=likely_footprints(rest, inputs, programs),
        reductions=0.0,
        likely_unused_bytes=likely_unused_bytes(loads, inputs, programs) + likely_unused_bytes(rest, inputs, programs),
        rewritten=rewritten,
        unlocated=unlocated(accesses),
        accesses=accesses,
        loops=loops,
        lines=_lines(collected),
        classes=classes(rows, scale),
        unknown=unknown,
        approximations=tuple(sorted(collected.approximations)),
    )


def _certain_share(values: NDArray[np.float64], whole: bool) -> float:
    """Of what programs ask for that stand for others, the share that all surely ask for: 1 where they do alike.

    Each was drawn among its neighbours, so what these differ tells how far their sum may be from that of all.
    """
    total = float(values.sum())
    if whole or total <= 0:
        return 1.0
    error = math.sqrt(float((np.diff(values) ** 2).sum()) / 2)
    return max(1.0 - DEVIATIONS * error / total, 0.0)


def classes(rows: Mapping[str, NDArray[np.float64]], scale: float) -> tuple[ProgramClass, ...]:
    """Programs grouped by what they do; at most eight groups, the largest first, the rest together."""
    columns = np.stack([rows[n] for n in ("tensor", "fma", "load", "store", "trips")], axis=1)
    if not len(columns):
        return ()
    kinds, counts = np.unique(columns, axis=0, return_counts=True)
    work = kinds.sum(axis=1)
    most = work.max() if len(work) else 0.0
    order = np.argsort(-counts, kind="stable")
    grouped = []
    for group in (*order[:8, None], *([order[8:]] if len(order) > 8 else [])):
        label = "full" if work[group[0]] >= most * (1 - 1e-9) else "little work" if work[group[0]] <= most * 0.01 else "part"
        tensor, fma, load, store, trips = map(float, np.average(kinds[group], axis=0, weights=counts[group]))
        grouped.append(
            ProgramClass(
                label=label if len(group) == 1 else "part",
                programs=float(counts[group].sum()) * scale,
                tensor_flop=tensor,
                fma_flop=fma,
                load_bytes=load,
                store_bytes=store,
                trips=trips,
            )
        )
    return tuple(grouped)


_LOADS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")
_VIEWS = ("tt.trans", "tt.reshape", "tt.bitcast", "arith.bitcast")


def spared_bytes(module: Module) -> dict[int, float]:
    """Bytes of shared memory that `costs.cost` counts for products, reductions and scans, and that need not be moved, by the `id` of the
    operation.

    Of a product it counts each operand written once and read once. What stays the same over a loop is not written in it, and may be held in
    registers; what is computed is in registers already (the probabilities of attention; wgmma and mma take it from there, tcgen05 from
    tensor memory), and may have come narrower than it is; what several products take is written once. What reductions and scans combine
    may lie within a thread, or within a warp, whose threads hand it on themselves.
    """
    around = module.loops_around()
    function = module.kernel
    by_operation = {id(op): cost(op).smem for op in function.walk() if op.name in ("tt.reduce", "tt.scan")}
    dots = [op for op in function.walk() if op.name in ("tt.dot", "tt.dot_scaled")]
    names = Names(function.blocks) if dots else None
    written: set[int] = set()
    for dot in dots:
        assert names is not None
        spared = 0.0
        for place in (0, right_operand(dot)):
            maker, kind = _maker(names, dot.operands[place]), dot.types[place]
            size = kind.elements * element_bytes(kind.element)
            if maker is None or maker.name not in _LOADS or around.get(id(maker)) != around.get(id(dot)):
                spared += 2 * size
            elif id(maker) in written:
                spared += size
            else:
                written.add(id(maker))
        by_operation[id(dot)] = spared
    return by_operation


def _maker(names: Names, name: str) -> Operation | None:
    """What makes the elements of a value, in whatever order; None: not known, or handed from trip to trip."""
    maker = names.maker(name)
    while maker is not None and maker.name in _VIEWS:
        maker = names.maker(maker.operands[0])
    return maker


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    demand: KernelDemand | None = None
    inputs: Inputs | None = None  # kept, for its contents are told apart by their `id`


@dataclass(slots=True)
class Counted:
    """Demands by all that they follow from. Threads may share it: what two ask for at once, the second waits for."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _entries: dict[Hashable, _Entry] = field(default_factory=dict)
    _modules: dict[Hashable, Module] = field(default_factory=dict)

    def module(self, ttir: str, own_files: tuple[str, ...] = ()) -> Module:
        """A text's module, of which the accesses of its demands are."""
        module = self._modules.get((ttir, own_files))
        return module or self._modules.setdefault((ttir, own_files), parse(ttir, own_files))

    def demand(
        self,
        ttir: str,
        grid: tuple[int, ...],
        inputs: Inputs,
        own_files: tuple[str, ...] = (),
        programs: NDArray[np.int64] | None = None,
    ) -> KernelDemand:
        """As `read_demand`, which raises what it raises each time anew."""
        key = (ttir, grid, _of(inputs), own_files, None if programs is None else programs.tobytes())
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
        with entry.lock:
            if entry.demand is None:
                entry.demand, entry.inputs = read_demand(self.module(ttir, own_files), grid, inputs, own_files, programs), inputs
            return entry.demand


def _of(inputs: Inputs) -> Hashable:
    """What tells arguments apart. Types count too: 1, 1.0 and True are equal, and not the same to a kernel."""
    tables = (inputs.scalars, inputs.sizes, inputs.shapes)
    scalars = tuple(tuple(sorted((name, type(value).__name__, repr(value)) for name, value in table.items())) for table in tables)
    contents = tuple(sorted((name, repr(v) if isinstance(v, (int, float)) else f"at {id(v)}") for name, v in inputs.contents.items()))
    return scalars, contents, inputs.assumed_trips, inputs.arguments
