"""The author's source with what every line asks of the pipelines: for the page, the terminal and the result JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from advisor.compiled.analysis import KernelAnalysis
from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.launches.launch import Inspection, author_file
from advisor.pipelines.bound import throughput_per_us
from advisor.python_source.source import MAX_FILE_BYTES, SourceFile
from advisor.python_source.syntax import function_lines
from advisor.result.schema import SourceLine, SourceText

LONGEST_LINES = 3_000
"""Lines of source that one kernel may bring along."""

KEPT = 1 / 16
"""Of the L2: so much that many programs load, such as the weights of a norm, is never long enough unused to be lost."""

COLUMNS: dict[str, tuple[str, ...]] = {
    "tensor": ("tensor_flop",),
    "fma": ("fma_flop",),
    "xu": ("xu_op",),
    "alu": ("alu_op",),
    "smem": ("smem_bytes",),
}
"""Pipeline -> columns of `LineDemand` that it serves; the l2 is counted in the accesses, which know their distinct bytes."""


def source_lines(analysis: KernelAnalysis) -> tuple[SourceLine, ...]:
    """What each line of the author's asks for, the whole launch together, in the order of the source."""
    inspection, gpu = analysis.inspection, analysis.gpu
    rates = throughput_per_us(gpu, analysis.demand.tensor_dtype)
    fp64 = gpu.fma_flop_per_clock_per_sm.get("fp64") or gpu.fma_flop_per_clock_per_sm["fp32"]
    demand: dict[tuple[str, int], dict[str, float]] = {}

    def add(file: str | None, line: int | None, pipeline: str, amount: float) -> None:
        if file is not None and line is not None and amount > 0:
            entry = demand.setdefault((author_file(inspection.compiled, file) or file, line), {})
            entry[pipeline] = entry.get(pipeline, 0.0) + amount

    for each in inspection.demand.lines:
        for pipeline, names in COLUMNS.items():
            add(each.file, each.line, pipeline, sum(getattr(each, name) for name in names))
        add(each.file, each.line, "fma", each.fp64_flop * gpu.fma_flop_per_clock_per_sm["fp32"] / fp64)
    for access in inspection.demand.accesses:
        add(
            access.file, access.line, "l2", access.issued_bytes if access.kind == "atomic" else access.requested_bytes + access.unused_bytes
        )
    memory = next((part.demand for part in analysis.pipelines if part.pipeline == "dram"), 0.0)
    accesses, distinct = inspection.demand.accesses, _distinct_bytes(inspection.demand)
    whole = sum(distinct) or 1.0
    kept = {name for name, amount in inspection.demand.likely_read_footprints.items() if amount <= KEPT * gpu.l2_bytes}
    again = [
        access.requested_bytes - own if access.kind == "load" and access.name not in kept else 0.0
        for access, own in zip(accesses, distinct, strict=True)
    ]
    again = again if sum(again) > 0 else distinct
    for access, own, more in zip(accesses, distinct, again, strict=True):  # what is more than distinct is loaded again
        moved = min(memory, whole) * own / whole + max(memory - whole, 0.0) * more / (sum(again) or 1.0)
        add(access.file, access.line, "dram", moved)
    waits = exposed_us(analysis)
    return tuple(
        SourceLine(
            file=file,
            line=line,
            demand=amounts,
            exposed_us=waits.get((file, line), 0.0),
            time_us={name: amount / rates[name] for name, amount in amounts.items() if rates.get(name)},
        )
        for (file, line), amounts in sorted(demand.items())
    )


def _distinct_bytes(demand: KernelDemand) -> list[float]:
    """Of each access, its part of the distinct bytes of its argument, which accesses of one kind share as they ask for them: what all
    programs load again, such as the weights of a norm, DRAM moves once; what they read after they stored it, perhaps never."""
    asked: dict[tuple[str, bool], float] = {}
    for access in demand.accesses:
        key = (access.name, access.kind == "load")
        asked[key] = asked.get(key, 0.0) + access.requested_bytes
    read_first = {**demand.likely_read_footprints, **dict.fromkeys(demand.stored_first, 0.0)}
    found = []
    for access in demand.accesses:
        loads = access.kind == "load"
        footprints = read_first if loads else demand.likely_written_footprints
        whole = asked[access.name, loads]
        found.append(access.requested_bytes * min(footprints.get(access.name, whole) / whole, 1.0) if whole else 0.0)
    return found


def exposed_us(analysis: KernelAnalysis) -> Mapping[tuple[str, int], float]:
    """The latency that the prediction leaves exposed, on the loads that are waited for: those in loops, or all where no loop loads."""
    hidden = sum(part.us for part in analysis.gap_parts if part.cause == "latency")
    compiled = analysis.inspection.compiled
    loads = [a for a in analysis.inspection.demand.accesses if a.kind == "load" and a.line is not None and a.executions > 0]
    loads = [a for a in loads if a.in_loop] or loads
    waits = [analysis.chain.waits.get((a.line, a.operation.text), 0.0) if analysis.chain.waits else a.executions for a in loads]
    exposed: dict[tuple[str, int], float] = {}
    for access, wait in zip(loads, waits, strict=True):
        key = (author_file(compiled, access.file) or "", access.line or 0)
        exposed[key] = exposed.get(key, 0.0) + hidden * wait / (sum(waits) or 1.0)
    return exposed


def source_texts(inspection: Inspection, lines: tuple[SourceLine, ...]) -> tuple[SourceText, ...]:
    """The kernel's own source, and that of every function in which a line of `lines` stands; nothing of files that are not known."""
    launch = inspection.launch
    own = str(launch.source.path)
    wanted: dict[str, set[int]] = {own: set()}
    for line in lines:
        wanted.setdefault(line.file, set()).add(line.line)
    if launch.kernel in launch.source.functions:
        wanted[own].add(launch.source.functions[launch.kernel].line)
    found: list[SourceText] = []
    left = LONGEST_LINES
    for file, numbers in wanted.items():
        text = source_text(inspection, file)
        if text is None:
            continue
        rows = text.splitlines()
        for first, last in _functions(text, numbers):
            piece = tuple(rows[first - 1 : min(last, first - 1 + left)])
            left -= len(piece)
            if piece:
                found.append(SourceText(kernel=inspection.compiled.name, file=file, first_line=first, lines=piece))
    return tuple(sorted(found, key=lambda piece: (piece.file != own, piece.file, piece.first_line)))


def source_text(inspection: Inspection, file: str) -> str | None:
    """The text of a file that the kernel was compiled from; None where it is none of those, or is gone."""
    source: SourceFile = inspection.launch.source
    if file == str(source.path):
        return source.text
    if file in source.siblings:
        return source.siblings[file]
    if file not in inspection.compiled.origins.values():
        return None
    path = Path(file)
    try:
        if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _functions(text: str, numbers: set[int]) -> Iterator[tuple[int, int]]:
    """First and last line of every outermost function that one of the lines stands in, decorators included."""
    try:
        spans = function_lines(text)
    except (SyntaxError, ValueError):
        return
    outer = [s for s in spans if not any(o != s and o[0] <= s[0] and s[1] <= o[1] for o in spans)]
    for first, last in sorted(set(outer)):
        if any(first <= number <= last for number in numbers):
            yield first, last
