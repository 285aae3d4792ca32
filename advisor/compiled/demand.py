"""The demand of a launch, counted in the IR of its kernel: per pipeline, per source line, per class of programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.accesses import access_element
from advisor.compiled.costs import Cost, cost, element_bytes
from advisor.compiled.counts import AccessDemand, CertainDemand, KernelDemand, LineDemand, LoopDemand, ProgramClass
from advisor.compiled.divisors import Divisor, divisors
from advisor.compiled.evaluate import evaluate
from advisor.compiled.execution import Access, Execution, Inputs, Part
from advisor.compiled.footprints import footprints, likely_footprints, likely_unused_bytes, unlocated
from advisor.compiled.ir import Module, Operation, parse
from advisor.compiled.lattices import Sample, distinct_bytes, growth, lattices, quotients
from advisor.compiled.loops import EXACT_WORK
from advisor.compiled.places import Family, families, together
from advisor.compiled.values import MAX_DENSE
from advisor.errors import InputError

EXACT_PROGRAMS = 16_384
"""Grids up to this many programs are evaluated whole; of larger ones the ends and a sample, spread evenly."""
SAMPLED_PROGRAMS = 8_192

NOWHERE = (0, -1)
"""First and last element of an access none of whose lanes is ever active."""

COLUMNS = ("tensor", "fma", "xu", "alu", "fp64", "smem", "load", "store", "atomic", "trips", "requested_load", "requested_store")


def programs_to_evaluate(grid: tuple[int, int, int]) -> tuple[NDArray[np.int64], bool]:
    """Flat indices of the programs to evaluate, and whether they are all."""
    total = grid[0] * grid[1] * grid[2]
    if total <= EXACT_PROGRAMS:
        return np.arange(total, dtype=np.int64), True
    # A step that shares no factor with the grid's sides, so that no row or column is favoured.
    generator = np.random.default_rng(0)
    edges = np.linspace(0, total, SAMPLED_PROGRAMS + 1)
    picks = (edges[:-1] + generator.random(SAMPLED_PROGRAMS) * np.diff(edges)).astype(np.int64)
    return np.clip(picks, 0, total - 1), False


def _chunk(module: Module, programs: int) -> int:
    largest = max((t.elements for op in module.kernel.walk() for t in op.result_types), default=1)
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
    whole = tuple(int(n) for n in (*grid, 1, 1, 1)[:3])
    if any(n < 0 for n in whole) or whole[0] * whole[1] * whole[2] > 2**62:
        raise InputError("the grid is not one", str(grid), "up to three sizes of at least 0")
    full = (whole[0], whole[1], whole[2])
    indices, exact = programs_to_evaluate(full) if programs is None else (programs, True)
    total = full[0] * full[1] * full[2] if programs is None else len(programs)
    chunk = _chunk(module, len(indices))
    collected = _Collected(scale=total / max(len(indices), 1), divisors=divisors(module), indices=None if exact else indices)
    for start in range(0, len(indices), chunk):
        work = EXACT_WORK / -(-len(indices) // chunk)  # one allowance for all sets of programs
        collected.take(evaluate(module, inputs, full, indices[start : start + chunk], work))
    certain = {key for key, totals in collected.accesses.items() if totals["certain_executions"]}
    for key, access in sorted(collected.kept.items(), key=lambda item: item[0] not in certain):  # the one that is counted speaks first
        if access.unknown_extent and access.base:
            where = f"line {access.operation.location.line}" if access.operation.location else "an access"
            sized = access.base in inputs.sizes or access.base in inputs.shapes
            predicted = "takes all for distinct" if sized else "those of one program, so DRAM may carry far more"
            counted = "those of one execution" if key in certain else "none, as no execution is certain"
            assumed = f"{where}: the bound counts {counted}, the prediction {predicted}"
            collected.unknown.setdefault(f"which bytes of {access.base} are touched", assumed)
    return collected.finish(full, total, exact, inputs, module)


@dataclass(slots=True)
class _Columns:
    """What programs ask for: column of `COLUMNS` -> [programs] of each chunk; FLOP of the tensor pipeline by type, and padding, of all."""

    chunks: dict[str, list[NDArray[np.float64]]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    tensor: dict[str, float] = field(default_factory=dict)
    padding: Cost = field(default_factory=Cost)

    def start(self, programs: int) -> None:
        for chunks in self.chunks.values():
            chunks.append(np.zeros(programs))

    def add(self, name: str, amount: NDArray[np.float64]) -> None:
        self.chunks[name][-1] += amount

    def rows(self) -> dict[str, NDArray[np.float64]]:
        return {name: (np.concatenate(chunks) if chunks else np.zeros(0)) for name, chunks in self.chunks.items()}


@dataclass(slots=True)
class _Collected:
    """Sums over chunks of programs."""

    scale: float
    divisors: Mapping[int, Divisor]
    indices: NDArray[np.int64] | None  # of the programs that stand for all; None: all are counted
    all: _Columns = field(default_factory=_Columns)
    certain: _Columns = field(default_factory=_Columns)
    places: dict[Part, list[Family]] = field(default_factory=dict)
    scalar_divisors: set[int] = field(default_factory=set)
    accesses: dict[int, dict[str, float]] = field(default_factory=dict)
    kept: dict[int, Access] = field(default_factory=dict)
    extents: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    loops: dict[int, list] = field(default_factory=dict)
    lines: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict)
    executions: dict[tuple[str, int], dict[int, float]] = field(default_factory=dict)  # by line and block
    unknown: dict[str, str] = field(default_factory=dict)
    approximations: set[str] = field(default_factory=set)

    def line(self, operation: Operation, name: str, amount: float) -> None:
        if operation.location is None or not amount:
            return
        entry = self.lines.setdefault((operation.location.file, operation.location.line), {})
        entry[name] = entry.get(name, 0.0) + amount * self.scale

    def take(self, execution: Execution) -> None:
        for columns in (self.all, self.certain):
            columns.start(execution.programs)
        for (key, assumed), times in execution.blocks.items():
            block = execution.block_of[key]
            counted = (self.all,) if assumed else (self.all, self.certain)
            often = float(times.sum())
            here: set[tuple[str, int]] = set()
            for operation in block.operations:
                once = cost(operation, self.divisors)
                if operation.location is not None:
                    here.add((operation.location.file, operation.location.line))
                flop = sum(once.tensor_flop.values())
                for columns in counted:
                    for name, amount in (("tensor", flop), ("fma", once.fma), ("xu", once.xu), ("alu", once.alu), ("fp64", once.fp64),
                                         ("smem", once.smem)):  # fmt: skip
                        columns.add(name, times * amount)
                    for kind, amount in once.tensor_flop.items():
                        columns.tensor[kind] = columns.tensor.get(kind, 0.0) + amount * often * self.scale
                self.line(operation, "tensor_flop", flop * often)
                self.line(operation, "fma_flop", once.fma * often)
                self.line(operation, "fp64_flop", once.fp64 * often)
                self.line(operation, "smem_bytes", once.smem * often)
                self.line(operation, "xu_op", once.xu * often)
                self.line(operation, "alu_op", once.alu * often)
            for place in here:
                self.executions[place] = self.executions.get(place, {})
                self.executions[place][key] = self.executions[place].get(key, 0.0) + often * self.scale
        for (_, assumed), product in execution.products.items():
            padded = (product.executions - product.filled).sum() * self.scale
            for columns in (self.all,) if assumed else (self.all, self.certain):
                columns.padding.add(cost(product.operation).times(float(padded)))
        for part, access in execution.accesses.items():
            kind = access_kind(access.operation)
            size = element_bytes(access_element(access.operation))
            for columns in (self.all,) if part[1] else (self.all, self.certain):
                columns.add(kind, access.lanes * size)
                if kind != "atomic":
                    columns.add(f"requested_{kind}", access.distinct * size)
            self._access(part, access, size, kind)
        for key, loop in execution.loops.items():
            self.all.add("trips", loop.trips)
            self.certain.add("trips", loop.trips)
            entry = self.loops.setdefault(key, [loop.operation, 0.0, 0.0, set(), False])
            entry[1] += float(loop.entries.sum()) * self.scale
            entry[2] += float(loop.trips.sum()) * self.scale
            entry[3] |= loop.reasons
            entry[4] |= loop.sampled
        for reason, assumption in execution.unknown.items():
            self.unknown.setdefault(reason, assumption)
        self.approximations |= execution.approximations
        self.scalar_divisors |= execution.divisors
        for part, places in execution.places.items():
            self.places.setdefault(part, []).extend(families(places, execution.sets))

    def _access(self, part: Part, access: Access, size: float, kind: str) -> None:
        key, assumed = part
        totals = self.accesses.setdefault(key, dict.fromkeys(("executions", "lanes", "distinct", "certain_executions", "certain"), 0.0))
        executions, distinct = float(access.executions.sum()) * self.scale, float(access.distinct.sum()) * self.scale
        totals["executions"] += executions
        totals["lanes"] += float(access.lanes.sum()) * self.scale
        totals["distinct"] += distinct
        if not assumed:
            totals["certain_executions"] += executions
            totals["certain"] += distinct
        kept = self.kept.setdefault(key, access)
        kept.unknown_extent |= access.unknown_extent
        kept.unlocated |= access.unlocated
        kept.base = kept.base if kept.base == access.base else None
        if kept.contiguous is None:
            kept.contiguous, kept.sector_ratio = access.contiguous, access.sector_ratio
        self.line(access.operation, f"{kind}_bytes", float(access.lanes.sum()) * size)
        before = self.extents.get(key, NOWHERE)
        if access.unknown_extent or before is None:
            self.extents[key] = None
        elif access.low is None or access.high is None:
            self.extents[key] = before
        else:
            low, high = (access.low, access.high) if before == NOWHERE else (min(before[0], access.low), max(before[1], access.high))
            self.extents[key] = (low, high)

    def finish(
        self, grid: tuple[int, int, int], total: int, exact: bool, inputs: Inputs, module: Module
    ) -> KernelDemand:
        rows, certain = self.all.rows(), self.certain.rows()
        exact &= not self.approximations and all(np.array_equal(rows[name], certain[name]) for name in COLUMNS)
        depths = loop_depths(module)
        sample = None
        if self.indices is not None:
            sample = Sample(indices=np.unique(self.indices), grid=grid, divisors=quotients(self.scalar_divisors))
        accesses = tuple(self._access_demand(key, depths, sample) for key in self.accesses)
        loads = tuple(a for a in accesses if a.kind == "load")
        rest = tuple(a for a in accesses if a.kind != "load")
        sums, sure = ({name: float(values.sum()) * self.scale for name, values in each.items()} for each in (rows, certain))
        loops = tuple(
            LoopDemand(
                line=op.line, depth=depths.get(id(op), 1), entries=entries, trips=trips,
                mean_trips=trips / entries if entries else 0.0, reasons=tuple(sorted(reasons)), sampled=sampled,
            )
            for op, entries, trips, reasons, sampled in self.loops.values()
        )  # fmt: skip
        often = {place: max(blocks.values()) for place, blocks in self.executions.items()}
        lines = tuple(
            LineDemand(file=file, line=n, executions=often.get((file, n), 0.0), **self.lines.get((file, n), {}))
            for file, n in sorted({*self.lines, *often})
        )
        return KernelDemand(
            grid=grid, programs=total, exact=exact, scale=self.scale, per_program=rows, tensor_flop=dict(self.all.tensor),
            certain=CertainDemand(
                per_program=certain, tensor_flop=dict(self.certain.tensor), fp64_flop=sure["fp64"], fma_flop=sure["fma"],
                xu_op=sure["xu"], smem_bytes=sure["smem"], requested_load_bytes=sure["requested_load"],
                padding=self.certain.padding,
            ),
            fp64_flop=sums["fp64"], fma_flop=sums["fma"], xu_op=sums["xu"], alu_op=sums["alu"], smem_bytes=sums["smem"],
            padding=self.all.padding, load_bytes=sums["load"], store_bytes=sums["store"], atomic_bytes=sums["atomic"],
            requested_load_bytes=sums["requested_load"], requested_store_bytes=sums["requested_store"],
            footprint_bytes=footprints(accesses, inputs), read_footprints=footprints(loads, inputs),
            written_footprints=footprints(rest, inputs),
            likely_footprint_bytes=likely_footprints(accesses, inputs, total),
            likely_read_footprints=likely_footprints(loads, inputs, total),
            likely_written_footprints=likely_footprints(rest, inputs, total),
            likely_unused_bytes=likely_unused_bytes(loads, inputs, total) + likely_unused_bytes(rest, inputs, total),
            unlocated=unlocated(accesses),
            accesses=accesses, loops=loops, lines=lines,
            classes=classes(rows, self.scale), unknown=dict(self.unknown), approximations=tuple(sorted(self.approximations)),
        )  # fmt: skip

    def _access_demand(self, key: int, depths: dict[int, int], sample: Sample | None) -> AccessDemand:
        access, totals, reach = self.kept[key], self.accesses[key], self.extents[key]
        element = access_element(access.operation)
        size = element_bytes(element)
        tensor = next((t for t in access.operation.types if t.shape), None)
        lanes = tensor.elements if tensor is not None else 1
        where = access.operation.location
        step = max(round(size), 1)
        sure, assumed = self.places.get((key, False), []), self.places.get((key, True), [])
        found = together([*sure, *assumed])
        every, some = lattices(found, step, sample)
        most = 0.0 if reach is None else min(totals["distinct"], reach[1] + 1 - reach[0]) * size
        touched = (*every, *some)
        certain = touched
        if assumed:
            of_all, of_some = lattices(together(sure), step, sample)
            certain = (*of_all, *of_some)
        if some and most > 1.1 * (distinct := distinct_bytes(touched)) and distinct > distinct_bytes(every):
            line = f"line {where.line}" if where else "an access"
            counted = f"{line}: the bound counts those of the programs looked at alone, the prediction what they let expect of all"
            self.unknown.setdefault(f"which bytes of {access.base} all programs touch", counted)
        return AccessDemand(
            operation=access.operation, kind=access_kind(access.operation), argument=access.base, element=element,
            executions=totals["executions"], certain_executions=totals["certain_executions"],
            issued_bytes=totals["lanes"] * size, requested_bytes=totals["distinct"] * size, certain_bytes=totals["certain"] * size,
            reach_bytes=None if reach is None else (reach[0] * size, (reach[1] + 1) * size), touched=touched, certain=certain,
            growth=growth(found, touched, step, sample) if sample is not None and some else 1.0,
            lanes=lanes, masked=access.masked,
            active_fraction=totals["lanes"] / (totals["executions"] * lanes) if totals["executions"] else 0.0,
            contiguous=None if access.unlocated else access.contiguous, sector_ratio=access.sector_ratio,
            in_loop=depths.get(id(access.operation), 0) > 0, line=access.operation.line, file=where.file if where else None,
        )  # fmt: skip


def access_kind(operation: Operation) -> str:
    """load, store or atomic."""
    if "atomic" in operation.name or operation.name.endswith("_reduce"):
        return "atomic"
    return "load" if operation.name.endswith(("load", "gather")) else "store"


def loop_depths(module: Module) -> dict[int, int]:
    """How many loops each operation stands in (a loop itself counts)."""
    found: dict[int, int] = {}

    def visit(operation: Operation, depth: int) -> None:
        if operation.name in ("scf.for", "scf.while"):
            depth += 1
        found[id(operation)] = depth
        for region in operation.regions:
            for block in region:
                for inner in block.operations:
                    visit(inner, depth)

    for function in module.functions.values():
        for block in function.blocks:
            for operation in block.operations:
                visit(operation, 0)
    return found


def classes(rows: Mapping[str, NDArray[np.float64]], scale: float) -> tuple[ProgramClass, ...]:
    """Programs grouped by what they do; at most eight groups, the largest first, the rest together."""
    columns = np.stack([rows[n] for n in ("tensor", "fma", "load", "store", "trips")], axis=1)
    if not len(columns):
        return ()
    kinds, counts = np.unique(columns, axis=0, return_counts=True)
    work = kinds.sum(axis=1)
    most = work.max() if len(work) else 0.0
    order = np.argsort(-counts, kind="stable")
    found = []
    for i in order[:8]:
        tensor, fma, load, store, trips = (float(v) for v in kinds[i])
        label = "full" if work[i] >= most * (1 - 1e-9) else "early exit" if work[i] <= most * 0.01 else "part"
        found.append(
            ProgramClass(label=label, programs=float(counts[i]) * scale, tensor_flop=tensor, fma_flop=fma, load_bytes=load,
                         store_bytes=store, trips=trips)
        )
    rest = order[8:]
    if len(rest):
        n = float(counts[rest].sum())
        mean = (kinds[rest] * counts[rest, None]).sum(axis=0) / n
        found.append(
            ProgramClass(label="part", programs=n * scale, tensor_flop=float(mean[0]), fma_flop=float(mean[1]),
                         load_bytes=float(mean[2]), store_bytes=float(mean[3]), trips=float(mean[4]))
        )
    return tuple(found)
