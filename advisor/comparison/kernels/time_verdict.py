"""What may be said of the time of two compiled versions of a kernel: a prediction, or without what none can be made.

Nothing is said of a time on which a guess decides: the count of a loop, the grid, a flag, a block, a type; nor of two launches that do
not do the same work.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.advising.kernel_launches import compiled_report
from advisor.comparison.kernels.attempts import Attempt
from advisor.comparison.kernels.changed_launches import ChangedLaunch
from advisor.comparison.kernels.kernel_digest import branches
from advisor.comparison.static import PREDICTED_TAU, both_near_peak, largest_step, pairs_that_stayed, pairs_that_went, static_row
from advisor.compiled.compiler.kernel import IrError
from advisor.compiled.demand.assembly import matrix_instruction
from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.demand.demand import Counted
from advisor.compiled.demand.likely_places import LOOKED_AT, looked_at
from advisor.compiled.guesses.usage import usage_of
from advisor.compiled.launch_report import KernelTarget, problem_of
from advisor.compiled.launches.launch import JUDGED, Inspection, inputs_of, inspection_of
from advisor.compiled.launches.provenance import GRID, TOLD, deciding, deciding_code, named, origins
from advisor.gpus.hardware import GpuSpec
from advisor.learned.compiled_launch import analysed_alike
from advisor.rendering.comparison_words import doubt_text
from advisor.rendering.figures import microseconds, quantity
from advisor.result.comparison_schema import SAME_CODE, Resources, StaticRow, StaticVerdict
from advisor.result.schema import Latency, LaunchReport
from advisor.system import grouped
from advisor.system.errors import agree
from advisor.system.resources import phrase

WITHOUT_GRID = 16
"""Programs for every SM of a launch whose grid is not known: enough that the last wave counts for little."""
MOST_PROGRAMS = 2**24
"""Of a launch: one of more takes seconds, and its sizes are not what they were taken for (`S` blocks that are chosen, for a length)."""
NOT_THE_SAME = "the two sides compute different things"
CHANGED_LAUNCH = "as its launch, which changed or follows from code that did, passes"
"""Begins why nothing can be told of a time that no value settles."""
STORED_ALIKE = 0.05
"""By how much of it the elements that two launches store may differ, if they are to be the same work: rounding up of masks and tails."""
MOST_NAMED = 4
"""Values that a reason names."""
CONTENTS = "contents"
"""Stands for what a tensor holds, among values that are not known."""
TIME_VERDICTS = frozenset({"predicted-improved", "predicted-regressed", "predicted-unchanged", "within-doubt"})
"""Those that say something of how long two launches take."""
_STORES = re.compile(r"tt\.(?:store|atomic|descriptor_store|descriptor_reduce|experimental_descriptor_store)")
_REMARKS = re.compile(r"//.*|/\*.*?\*/|^\s*\.(?:loc|file)\b.*|^\s*;.*", re.MULTILINE)


def stores(attempt: Attempt) -> bool:
    return attempt.compiled is not None and _STORES.search(attempt.compiled.ttir) is not None


BY_ASSEMBLY = "as it stores by inline assembly, which is not counted"


def by_assembly(attempt: Attempt) -> bool:
    """Whether code stores that no store of Triton's is: inline assembly with side effects."""
    text = attempt.compiled.ttir if attempt.compiled is not None else ""
    return any("pure = false" in line for line in text.splitlines() if "tt.elementwise_inline_asm" in line)


def machine_code(attempt: Attempt) -> str:
    """The machine code, without remarks, and without the lines that hold nothing else."""
    compiled = attempt.compiled
    text = _REMARKS.sub("", compiled.sass or compiled.amdgcn or compiled.ptx) if compiled is not None else ""
    return "\n".join(line for line in text.splitlines() if line.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What both versions are predicted to take, how much of it a thread of the head does, to one of the base, and the values that have
    to be known for a verdict and are not, with what was taken for them. `one_guess`: the same was taken for what a changed launch passes,
    which is `passed` (as is a grid that changed, which no one value is), and they differ in nothing else. `thread_bytes`: what a thread of
    the head moves in a trip of its longest loop."""

    row: StaticRow
    work: float
    thread_bytes: float
    lacking: Mapping[str, Any] = field(default_factory=dict)
    one_guess: bool = False
    passed: frozenset[str] = frozenset()


def _launched(side: Attempt) -> tuple[Any, ...]:
    """All that decides what a launch does, but for its grid: its code, and its arguments, given or guessed."""
    launch, guess = side.launch, side.guess
    assert launch is not None and guess is not None
    return machine_code(side), inputs_of(launch, guess), guess.signature, guess.constexprs, guess.options


def time_verdict(
    name: str,
    base: Attempt,
    head: Attempt,
    gpu: GpuSpec,
    notes: list[str],
    *,
    counted: Counted,
    unseen: bool,
    same: bool,
    relaunched: Sequence[ChangedLaunch],
) -> Prediction | None:
    """What both versions are predicted to take for the launch they were compiled for; None: one cannot be counted. `counted`: what was
    already; `unseen`: what changed is not in the code; `same`: the kernel's source is on both sides, and that of its helpers; `relaunched`:
    how it is launched changed: what that changes and is guessed need not be the same on both sides."""

    def inspected(few: bool) -> list[Inspection]:
        """Both sides, counted whole or by a few programs, spread evenly; the same launch once."""
        one_launch = grids[0] == grids[1] and _launched(base) == _launched(head)
        pair: list[Inspection] = []
        for attempt, grid in ((base, grids[0] or usual), (head, grids[1] or usual)):
            assert attempt.launch is not None and attempt.compiled is not None and attempt.guess is not None
            programs = looked_at(math.prod(grid)) if few and math.prod(grid) > LOOKED_AT else None
            launch = replace(attempt.launch, grid=tuple(grid))
            again = replace(pair[0], launch=launch) if one_launch and pair else None
            pair.append(again or inspection_of(launch, attempt.compiled, attempt.guess, counted=counted, programs=programs))
        return pair

    if base.compiled is None or head.compiled is None or base.launch is None or head.launch is None:
        return None
    grids = [base.launch.grid, head.launch.grid]
    usual = grids[1] or grids[0] or (WITHOUT_GRID * gpu.num_sms,)
    reports: list[LaunchReport] = []
    alone: list[Latency | None] = []
    try:
        pair = inspected(few=True)
        if not _deciding(base, head, pair):  # else no time is told
            pair = inspected(few=False)
            targets = [KernelTarget(id=name, launch=side.launch, source="compiled for this launch") for side in pair]
            analyses, alone = analysed_alike(pair, gpu)
            reports = [_of_both(compiled_report(target, item, gpu), pair) for target, item in zip(targets, analyses, strict=True)]
    except (IrError, ArithmeticError, ValueError, KeyError, IndexError) as error:
        notes.append(f"Not predicted on {gpu.name}: {error}")
        return None
    alike = not unseen and machine_code(base) == machine_code(head) and base.launch.grid == head.launch.grid
    alike = alike and (base.launch.grid is not None or base.grid_text == head.grid_text)
    alike = alike and (same or JUDGED not in head.compiled.metadata)  # else there is no code that could be the same
    reports = reports[1:] * 2 if alike else reports  # what the IR tells of lines and places makes no difference then
    sizes = {**base.sizes, **head.sizes}
    grid = " → ".join(dict.fromkeys("x".join(map(str, grid)) if grid else "unknown" for grid in grids))
    typical = " ".join(f"{key}={value}" for key, value in sizes.items())
    values = {**pair[1].launch.given.scalars, **pair[1].launch.contents}
    known = [
        f"{key}={value}" for key, value in values.items() if key not in sizes and "stride" not in key and type(value) is int and value > 1
    ]
    label = f"grid {grid}" + (f", {' '.join(known[:MOST_NAMED])}" if known else "") + (f", typical {typical}" if typical else "")
    row = StaticRow(
        id=f"{gpu.name}-{name}",
        label=label,
        kernel=name,
        gpu=gpu.name,
        problems=(problem_of(pair[1], "warm"),),
        base=None,
        head=None,
        default=None,
        compared_with="base",
        bound=None,
        ceiling=None,
        change=None,
        verdict="cannot-tell",
        reason="",
        changed=False,
    )
    if reports:
        row = replace(static_row(row.id, label, gpu.name, [reports[0]], [reports[1]], compiled=True), kernel=name)
        as_many = math.prod(grids[0] or usual) == math.prod(grids[1] or usual)
        row = replace(row, new_findings=tuple(item for item in row.new_findings if not (as_many and item.rule == TOO_FEW)))
    work = _work_of_a_thread(base, head, pair, relaunched) if same or not _programs_part(base, head) else 0.0
    lacking = {**_deciding(base, head, pair), **_lacking_types(base, head, pair)}
    for item in (item for launch in relaunched for item in launch.types):
        lacking |= dict.fromkeys([item.like], kind) if (kind := _assumed_type(base, item.name) or _assumed_type(head, item.name)) else {}
    programs = [math.prod(grid) for grid in grids if grid]
    if not alike and all(grids) and not gpu.num_sms <= min(programs) <= max(programs) <= MOST_PROGRAMS:  # then no size is typical
        lacking = {**sizes, **lacking}
    if not alike and (apart := base.sizes.keys() ^ head.sizes.keys()) and _other_work(pair[0].demand, pair[1].demand):
        lacking = {name: sizes[name] for name in sizes if name in apart} | lacking  # `rows` where it was `seq_len`
    passed = {name for item in relaunched for name in item.names}
    guessed = {name: value for name, value in head.invented.items() if name in passed and base.invented.get(name) == value}
    lacking |= guessed if same else {}
    whence = [(name, origin) for side in pair for name, origin in origins(side.launch, side.guess).items() if name in passed - {GRID}]
    if alike:  # a typical block is none of either launch, where the code changed that works it out
        sides = [side.launch.given.by_default for side in pair if side.launch is not None]
        lacking |= {
            name: lacking.get(name) for name, origin in whence if origin == "typical" and name not in frozenset.intersection(*sides)
        }
    lacking = dict(sorted(lacking.items(), key=lambda item: item[0] not in passed))  # what the change is about comes first
    overruled = sorted({name for name, origin in whence if origin == "said"})
    by_guess = bool(lacking) and any(item.code for item in relaunched)
    by_guess = by_guess or not passed.isdisjoint(lacking) or (GRID in passed and None in grids)
    changed = by_guess or bool(overruled)
    if alike and not changed and (same or not guessed_code(base, head)):
        row = without_time(row, "predicted-unchanged", SAME_CODE) if lacking else replace(row, reason=SAME_CODE)
    elif lacking or not (stores(base) and stores(head)):
        worked_out = [name for name in lacking if name in passed]
        why = f"{CHANGED_LAUNCH} {named(worked_out)}, which {agree(len(worked_out), 'does', 'do')} not follow from the file"
        without = _without(lacking, alike and not changed, stores(base) and stores(head))
        if not (stores(base) and stores(head)) and all(stores(side) or by_assembly(side) for side in (base, head)):
            without, worked_out = BY_ASSEMBLY, []
        row = without_time(row, "cannot-tell", why if worked_out else without)
    elif alike and overruled:
        row = without_time(row, "cannot-tell", f"{CHANGED_LAUNCH} {named(dict.fromkeys(overruled))}, whatever advisor.toml says")
    elif other := _other_work(pair[0].demand, pair[1].demand):
        row = without_time(row, "not comparable", other)
    elif unseen or (row.verdict == "predicted-unchanged" and not alike):
        why = "what changed is not in the compiled code" if unseen else _why_near(row, reports)
        row = replace(row, verdict="within-doubt", reason=why)
    configured = same and bool(relaunched) and not _other_work(pair[0].demand, pair[1].demand, SAME_WORK)
    configured = configured and not any(item.types for item in relaunched)
    doubtful = row.verdict == "within-doubt" and not unseen
    if row.verdict in ("predicted-improved", "predicted-regressed") or doubtful:
        started = _started(reports, pair)
        demands = pair[0].demand, pair[1].demand
        read = "" if doubtful else _read_again(*demands, fewer=row.verdict == "predicted-improved")
        read = read or _in_sectors(*demands)
        cause, behind = started or read, _finding_behind(row)
        stored = _stored(pair[1].demand) / gpu.warp_size if configured else None
        moved = [] if started else _moved(reports, pair, stored, ["dram"] if cause else [])
        code = [] if cause or behind or moved else _changes_of_code(base, head, slower=(row.change or 0.0) > 0)
        few = _few_ctas(base, head, gpu)
        first, last = (few, "") if math.prod(grids[0] or usual) != math.prod(grids[1] or usual) else ("", few)
        types = dict.fromkeys(item.retyped for item in relaunched)
        unexplained = doubtful and configured and not (started or moved or code)
        amounts = _moved(reports, pair, stored, ["l2", "dram"]) if unexplained else moved
        row = replace(row, cause="; ".join(filter(None, (first, *types, cause or behind, *amounts, *code, last))))
        notes += filter(None, (_near_spilling(head.resources, gpu) if not _near_spilling(base.resources, gpu) else "",))
    if doubtful and not configured:
        row = replace(row, reason="; ".join(filter(None, (row.reason, row.cause))))
    elif configured and row.verdict in ("predicted-improved", "predicted-regressed"):
        notes += [f"{went[0].upper()}{went[1:]}."] if (went := pairs_that_went(row.change)) else []
    elif doubtful:
        went = pairs_that_went(row.change)
        step = largest_step(([reports[0]], [reports[1]]), row.change or 0.0) if went and not (moved or behind) else ""
        row = replace(
            row, reason="; ".join(filter(None, (went, step, row.cause) if went else (row.reason, row.cause, pairs_that_stayed())))
        )
    if row.change is not None:
        notes += [
            phrase("answer.alone", gpu=gpu.name, us=f"{microseconds(latency.us)} µs", side=side)
            for side, latency in zip(("base", "head"), alone, strict=True)
            if latency is not None
        ]
    return Prediction(
        row=row,
        work=work,
        thread_bytes=_thread_bytes(pair[1]),
        lacking=lacking,
        one_guess=bool(guessed) or (alike and changed),
        passed=frozenset(passed if alike else {*guessed, *passed & {GRID}}),
    )


def _thread_bytes(side: Inspection) -> float:
    """Bytes that a thread loads and stores, in a trip of the loop of most trips where there is one."""
    demand, resources = side.demand, side.compiled.resources
    trips = max((loop.trips / max(demand.programs, 1) for loop in demand.loops), default=1.0)
    moved = demand.requested_load_bytes + demand.requested_store_bytes
    return moved / max(demand.programs, 1) / max(trips, 1.0) / (32 * resources.num_warps)


NEAR_SPILLING = 220 / 255
"""Share of the registers that a thread can have from which on a larger block is likely to spill."""
WHOLE = 0.1
"""How far the times that a tensor is read may lie from a whole number."""


TIMES = {1: "once", 2: "twice"}


def _started(reports: Sequence[LaunchReport], pair: Sequence[Inspection]) -> str:
    """How many programs two launches have, where starting them limits the slower and is `MOST` of the difference; "": it is not."""
    before, after = (side.demand.programs for side in pair)
    starts = [sum(part.time_us for part in report.pipelines if part.pipeline == "launch") for report in reports]
    times = [report.predicted.us if report.predicted is not None else 0.0 for report in reports]
    slower = times.index(max(times))
    apart = starts[slower] - starts[1 - slower]
    if reports[slower].config_binding_pipeline != "launch" or before == after or apart < MOST * (max(times) - min(times)):
        return ""
    return phrase("answer.programs", before=f"{before:,}", after=f"{after:,}")


def _read_again(base: KernelDemand, head: KernelDemand, fewer: bool) -> str:
    """The tensors that the head reads fewer (else more) times over, in words: `reads x_ptr and y_ptr 3 times → once, 1.57 GB → 524 MB
    requested`; of several such changes that of which most comes or goes; "": there is none, or not whole times."""
    changes: dict[tuple[int, int], dict[str, list[float]]] = {}
    for name in (name for name in base.likely_read_footprints if name in head.likely_read_footprints):
        whole, read = [], []
        for side in (base, head):
            read.append(sum(item.requested_bytes for item in side.accesses if item.kind == "load" and item.name == name))
            times = read[-1] / max(side.likely_read_footprints[name], 1.0)
            whole.append(round(times) if abs(times - round(times)) <= WHOLE else 0)
        if all(whole) and (whole[1] < whole[0] if fewer else whole[1] > whole[0]):
            changes.setdefault((whole[0], whole[1]), {})[name] = read
    totals = {times: [sum(side) for side in zip(*read.values(), strict=True)] for times, read in changes.items()}
    if not totals:
        return ""
    most = max(totals, key=lambda times: abs(totals[times][0] - totals[times][1]))
    if abs(totals[most][0] - totals[most][1]) < MOST * abs(sum(_fetched(head).values()) - sum(_fetched(base).values())):
        return ""
    before, after = (TIMES.get(times, f"{times:,} times") for times in most)
    return phrase("answer.reads", name=named(changes[most]), before=before, after=after, amounts=_amounts(totals[most]))


def _fetched(demand: KernelDemand) -> dict[str, float]:
    """Bytes of the sectors that loads of each tensor ask the L2 for."""
    loads = [access for access in demand.accesses if access.kind == "load"]
    return {
        name: sum(load.requested_bytes * load.sector_ratio for load in items) for name, items in grouped((a.name, a) for a in loads).items()
    }


def _in_sectors(base: KernelDemand, head: KernelDemand) -> str:
    """The tensor of which other shares of its sectors are used, where that is most of what the L2 is asked for more or less, in words."""
    before, after = _fetched(base), _fetched(head)
    both = {name: (before[name], after[name]) for name in before if name in after}
    if not both:
        return ""
    name = max(both, key=lambda item: abs(both[item][1] - both[item][0]))
    change, all_changes = abs(both[name][1] - both[name][0]), abs(sum(after.values()) - sum(before.values()))
    ratios = [
        max((item.sector_ratio for item in side.accesses if item.name == name and item.kind == "load"), default=1.0)
        for side in (base, head)
    ]
    if change < MOST * all_changes or max(ratios) < OTHER_SECTORS * min(ratios):
        return ""
    return phrase("answer.sectors", name=name, amounts=_amounts(both[name]))


OTHER_SECTORS = 1.5
"""Times as many bytes of sectors for as many that are asked for, from which on neighbouring threads touch other places."""


def _near_spilling(held: Resources | None, gpu: GpuSpec) -> str:
    """That a thread which spills nothing has most of the registers there are, a sentence; "": it has not."""
    near = held is not None and not held.spill_bytes and (held.registers_per_thread or 0) >= NEAR_SPILLING * gpu.max_registers_per_thread
    registers = held.registers_per_thread if held is not None else 0
    return phrase("answer.near_spilling", gpu=gpu.name, registers=registers, most=gpu.max_registers_per_thread) if near else ""


def _amounts(sides: Sequence[float]) -> str:
    return " → ".join(dict.fromkeys(quantity(amount, "bytes") for amount in sides))


MOST = 0.5
"""Share of a difference from which on a cause is most of it."""
ISSUING = 0.8
"""Share of the slower side's time that issuing its instructions takes from which on their number is given for what moves."""


LEAST_STEP = 0.005
"""Of a time: of a change that is smaller no part is named."""


def _why_near(row: StaticRow, reports: Sequence[LaunchReport]) -> str:
    """Why two codes that are predicted to take nearly as long are not told apart: they keep one unit as busy, else the model's doubt, and
    which part of the prediction changes most."""
    doubt = f"less than the model's doubt of ±{doubt_text(row)[1]}"
    change = row.change or 0.0
    step = largest_step(([reports[0]], [reports[1]]), change) if abs(change) >= LEAST_STEP else ""
    return both_near_peak(*reports) or ", ".join(filter(None, (doubt, step)))


def _moved(reports: Sequence[LaunchReport], pair: Sequence[Inspection], stored: float | None, always: Sequence[str]) -> list[str]:
    """What two launches ask of the L2 and of DRAM, where the slower asks for `MATTERS` more, in words. Then what they issue for each of the
    elements that they store (`stored` warps of them), where it is more on the slower side and takes `ISSUING` of its time, else what they
    wait for loads, where that is `MOST` of the difference, and the trips of their loops. None stored: of DRAM alone. Of `always` it says
    whatever it is."""
    parts = [{part.pipeline: part for part in report.pipelines} for report in reports]
    amounts = {name: [side[name].demand if name in side else 0.0 for side in parts] for name in ("l2", "dram", "issue")}
    matter = {name: abs(after - before) > MATTERS * before for name, (before, after) in amounts.items()}
    times = [report.predicted.us if report.predicted is not None else 0.0 for report in reports]
    slower = times.index(max(times))
    more = {name: sides[slower] > sides[1 - slower] for name, sides in amounts.items()}
    sentences = [
        phrase(f"answer.{name}", amounts=_amounts(amounts[name]))
        for name in ("l2", "dram")
        if (matter[name] and more[name] and (stored or name == "dram")) or name in always
    ]
    if not stored:
        return sentences
    issued = amounts["issue"]
    if matter["issue"] and more["issue"] and parts[slower]["issue"].time_us >= ISSUING * times[slower]:
        before, after = (quantity(amount / stored) for amount in issued)
        return [*sentences, phrase("answer.issue", before=before, after=after)]
    waits = [sum(part.us for part in report.gap if part.cause == "latency") for report in reports]
    apart = times[slower] - times[1 - slower]
    if waits[slower] - waits[1 - slower] >= max(MOST * apart, PREDICTED_TAU * times[slower]) > 0:
        sentences.append(phrase("answer.waits", before=microseconds(waits[0]), after=microseconds(waits[1])))
    trips = [max(_trips(side.demand), 1.0) for side in pair]  # the compiler leaves no loop of one trip
    if trips[slower] > LOOPS_MORE * trips[1 - slower]:
        before, after = (quantity(count) for count in trips)
        sentences.append(phrase("answer.trips", count=max(len(side.demand.loops) for side in pair), before=before, after=after))
    return sentences


TOO_FEW = "too-few-ctas"
"""The finding that SMs have no program: no cause of a change where both sides have as many."""


def _finding_behind(row: StaticRow) -> str:
    """The finding of a head that is slower which its base has not, and that costs `MOST` of the difference, in words; "": there is none."""
    times = [side.predicted.us for side in (row.base, row.head) if side is not None and side.predicted is not None]
    if len(times) < 2 or times[1] <= times[0]:
        return ""
    title = next((item.title for item in row.new_findings if (item.saving_us or 0.0) >= MOST * (times[1] - times[0])), "")
    return title[:1].lower() + title[1:] if title[1:2].islower() else title


def _few_ctas(base: Attempt, head: Attempt, gpu: GpuSpec) -> str:
    """How many CTAs either launch has, in words, where one has fewer than there are SMs; "": none has, or a grid is not known."""
    ctas = [
        math.prod(side.launch.grid) * side.compiled.num_ctas
        for side in (base, head)
        if side.launch is not None and side.launch.grid and side.compiled is not None
    ]
    if len(ctas) < 2 or min(ctas) >= gpu.num_sms:
        return ""
    key = "answer.few_ctas" if ctas[0] != ctas[1] else "answer.few_ctas_alike"
    return phrase(key, before=f"{ctas[0]:,}", after=f"{ctas[1]:,}", sms=gpu.num_sms)


def _changes_of_code(base: Attempt, head: Attempt, slower: bool) -> list[str]:
    """What the compiler made otherwise that a time may come from, in words: `matrix instruction wgmma → mma.sync`; of buffers and resident
    CTAs fewer where the head is slower, else more."""
    if base.compiled is None or head.compiled is None:
        return []
    compiled = base.compiled, head.compiled
    matrix = [INSTRUCTION_NAMES.get(name := matrix_instruction(side) or "", name) for side in compiled]
    amounts = {"buffers": [max(map(int, _BUFFERS.findall(side.ttgir)), default=0) for side in compiled]}
    if base.compiled.resources.num_warps == head.compiled.resources.num_warps:  # of CTAs of other sizes their number says nothing
        amounts["resident"] = [side.resources.resident_ctas_per_sm or 0 for side in (base, head) if side.resources is not None]
    changes = [phrase("answer.matrix", before=matrix[0], after=matrix[1])] if all(matrix) and matrix[0] != matrix[1] else []
    return changes + [
        phrase(f"answer.{kind}", before=sides[0], after=sides[1])
        for kind, sides in amounts.items()
        if len(sides) == 2 and all(sides) and (sides[1] < sides[0] if slower else sides[1] > sides[0])
    ]


INSTRUCTION_NAMES = {"mma": "mma.sync"}
"""What NVIDIA calls a matrix instruction, where it is called otherwise here."""
_BUFFERS = re.compile(r"ttg\.local_alloc\b.*-> !ttg\.memdesc<(\d+)x\d+x\d+x")
"""How many tiles a loop's loads are kept in, which Triton writes first of an allocation's dimensions."""


def _of_both(report: LaunchReport, pair: Sequence[Inspection]) -> LaunchReport:
    """With the constants alone that both sides take: of another there is no change of its value."""
    assert report.configuration is not None
    constants = [side.guess.constexprs for side in pair if side.guess is not None]
    parameters = {name: value for name, value in report.configuration.parameters.items() if all(name in values for values in constants)}
    return replace(report, configuration=replace(report.configuration, parameters=parameters))


def _without(lacking: Mapping[str, Any], alike: bool, stored: bool) -> str:
    """Why nothing can be told of a time, in words."""
    more = f" and {len(lacking) - MOST_NAMED} more" if len(lacking) > MOST_NAMED else ""
    names = [f"{name}'s type" if str(value).startswith("*") else name for name, value in lacking.items()][:MOST_NAMED]
    without = f"without {', '.join(names)}{more}" if more else f"without {named(names)}" if names else ""
    code = "(as guessed its code is the same)" if alike and stored else "" if stored else "(with what is known it stores nothing)"
    return " ".join(filter(None, (without, code)))


def without_time(row: StaticRow, verdict: StaticVerdict, reason: str) -> StaticRow:
    """The row without any figure of time: what stands on a guess is no prediction."""
    return replace(
        row,
        base=None,
        head=None,
        bound=None,
        ceiling=None,
        change=None,
        verdict=verdict,
        reason=reason,
        changed=False,
        new_findings=(),
        cured_findings=(),
        advice=None,
    )


def _deciding(base: Attempt, head: Attempt, pair: Sequence[Inspection]) -> dict[str, Any]:
    """The values that decide and are guessed, or not known, of either side, each with what advisor.toml may say of it."""
    lacking: dict[str, Any] = {}
    for attempt, side in zip((base, head), pair, strict=True):
        assert attempt.launch is not None and attempt.guess is not None
        for name in deciding(attempt.launch, attempt.guess, side.demand):
            kind = attempt.guess.signature.get(name, "")
            if name == GRID and attempt.grid_names:
                lacking |= {item: attempt.guess.constexprs.get(item) for item in attempt.grid_names if item not in lacking}
            elif kind.startswith("tensordesc"):
                lacking[name] = kind
            else:
                written = {item: "None" if value is None else value for item, value in attempt.guess.constexprs.items()}
                values = {**attempt.guess.options, **written}
                lacking.setdefault(name, values.get(name, CONTENTS if kind.startswith("*") else None))
    constants = [side.guess.constexprs if side.guess is not None else {} for side in (base, head)]
    # one value is none of two
    one = {name for name in constants[0].keys() & constants[1].keys() if constants[0][name] != constants[1][name]}
    return {name: value for name, value in lacking.items() if name not in one}


_INTEGERS = re.compile(r"\*[iu](?!1$)")
"""Begins the type of a tensor that is taken to be of integers, by its use or its name."""
_NARROW_NAME = re.compile(r"fp8|float8|e4m3|e5m2|int8|(?:^|_)i8|w8a8|w4a\d+|int4|fp4|mx(?:fp|int)?\d", re.IGNORECASE)
"""In the name of a kernel of elements of one byte or less."""
_NARROW_TYPE = re.compile(r"\*(?:[iu]8|fp8\w*)$")
MATTERS = 0.1
"""Of the bytes that a launch asks for: whatever the type of a tensor that is less of them, it takes as long."""


def _lacking_types(base: Attempt, head: Attempt, pair: Sequence[Inspection]) -> dict[str, str]:
    """The tensors of whose type nothing says anything where a typical one is none that decides: those that one side alone is passed, and
    those that the kernel itself converts, whatever they are, those of integers as wide as nothing says, and all where the kernel's name
    speaks of narrow ones and none is, each with what was taken for it."""
    lacking: dict[str, str] = {}
    sides: list[dict[str, str]] = []
    for attempt, side in zip((base, head), pair, strict=True):
        assert attempt.launch is not None and attempt.guess is not None
        function = attempt.launch.source.kernel(attempt.launch.kernel)
        whence, usage = origins(attempt.launch, attempt.guess), usage_of(attempt.launch.source, function)
        kinds = {name: kind for name, kind in attempt.guess.signature.items() if kind.startswith("*") and name in function.reads}
        sides.append({name: kind if whence[name] not in TOLD else "" for name, kind in kinds.items()})
        narrow = any(_NARROW_TYPE.match(kind) for kind in attempt.guess.signature.values())
        wider = _NARROW_NAME.search(function.name) is not None and not narrow  # than the kernel's name says
        open_ = {
            name: kind
            for name, kind in sides[-1].items()
            if usage[name].adapted
            or wider
            or (_INTEGERS.match(kind) and not usage[name].written and not usage[name].addresses)  # which have 8 bytes
        }
        requested = Counter[str]()
        for item in side.demand.accesses:
            requested[item.name] += round(item.requested_bytes)
        for bytes_by_tensor in (requested, side.demand.likely_read_footprints):
            least = MATTERS * sum(bytes_by_tensor.values())
            lacking |= {name: kind for name, kind in open_.items() if kind and bytes_by_tensor.get(name, 0.0) > least}
    if sorted(sides[0].values()) != sorted(sides[1].values()):
        lacking |= {name: kind for one, other in (sides, sides[::-1]) for name, kind in one.items() if name not in other and kind}
    return lacking


def _assumed_type(side: Attempt, name: str) -> str:
    """What is taken for the type of a tensor; "": it is known."""
    assert side.launch is not None and side.guess is not None
    origin = origins(side.launch, side.guess).get(name)
    return "" if origin in TOLD else side.guess.signature.get(name, "")


OTHER_WORK = 4.0
"""From how many times as many FLOP of products, or distinct bytes read, on two launches are taken for other work, though they store as
much. A rewrite that saves half of them, or three quarters, still has a verdict."""


def _stored(side: KernelDemand, *, atomics: bool = True) -> float:
    """Elements that a launch stores, with or without `atomics`."""
    return sum(
        item.requested_bytes / element_bytes(item.element)
        for item in side.accesses
        if item.kind == "store" or (atomics and item.kind != "load")
    )


SAME_WORK = 1.2
"""Times as much up to which two launches are two configurations of one problem: blocks at an edge or on a diagonal."""


def _alike(stored: Sequence[float]) -> bool:
    """Whether two launches store as much."""
    return abs(math.log(stored[1] / stored[0])) <= math.log1p(STORED_ALIKE) if all(stored) else stored[0] == stored[1]


def _other_work(base: KernelDemand, head: KernelDemand, most: float = OTHER_WORK) -> str:
    """That two launches do not do the same, in words: they do not store as much, or multiply or read many times as much; "": they do."""
    stored = [_stored(side) for side in (base, head)]
    places = [sum(side.likely_written_footprints.values()) for side in (base, head)]
    again = all(places) and _alike(places)
    added = again and _alike([_stored(side, atomics=False) for side in (base, head)])  # to the same places, by more or fewer programs
    if not _alike(stored) and not added:
        what = "one side stores some elements again" if again else NOT_THE_SAME
        return f"{what}: {stored[0]:,.0f} elements are stored in the base, {stored[1]:,.0f} in the head"
    flop = [side.total_tensor_flop for side in (base, head)]
    if all(flop) and max(flop) > most * min(flop):
        return f"{NOT_THE_SAME}: products of {flop[0]:,.0f} FLOP in the base, of {flop[1]:,.0f} in the head"
    read = [sum(side.likely_read_footprints.values()) for side in (base, head)]
    if all(read) and max(read) > most * min(read):
        return f"{NOT_THE_SAME}: {read[0]:,.0f} distinct bytes are read in the base, {read[1]:,.0f} in the head"
    return ""


def guessed_code(*attempts: Attempt) -> tuple[str, ...]:
    """The guessed constants and options that decide what code there is."""
    guessed = ((item.launch, item.guess) for item in attempts if not item.described)
    return tuple(dict.fromkeys(name for launch, guess in guessed if launch and guess for name in deciding_code(launch, guess)))


LOOPS_MORE = 1.5
"""Times as many trips from which on one trip is no measure of another; less is what programs of a sample differ in."""


def _trips(demand: KernelDemand) -> float:
    """Trips of all loops in one program."""
    outermost = min((loop.depth for loop in demand.loops), default=0)
    entered = max((loop.entries for loop in demand.loops if loop.depth == outermost), default=1.0) or 1.0
    return sum(loop.entries * loop.mean_trips for loop in demand.loops) / entered


def _programs_part(base: Attempt, head: Attempt) -> bool:
    """Whether the grid changed of a kernel whose programs do not all do the same: they meet a condition that no constant decides."""
    sides = [side.launch for side in (base, head) if side.launch is not None]
    if len({math.prod(launch.grid) if launch.grid is not None else None for launch in sides}) == 1:
        return False
    return any(branches(launch.source.kernel(launch.kernel)) for launch in sides)


def _work_of_a_thread(base: Attempt, head: Attempt, pair: Sequence[Inspection], relaunched: Sequence[ChangedLaunch]) -> float:
    """What a thread of the head does, to one of the base; 0: the instructions of the code are no measure of it."""
    assert base.launch is not None and head.launch is not None
    threads = pair[1].compiled.resources.num_warps / pair[0].compiled.resources.num_warps
    trips = [_trips(side.demand) for side in pair]
    if max(trips) > LOOPS_MORE * min(trips):
        return 0.0  # the code of a trip says nothing of all
    if base.launch.grid is not None and head.launch.grid is not None:
        words = {word for item in relaunched if GRID in item.names for word in re.findall(r"\w+", item.words)}
        alone = words & (base.sizes.keys() ^ head.sizes.keys())  # of two typical sizes, which are of no one problem
        programs = [math.prod(attempt.launch.grid) for attempt in (base, head) if attempt.launch is not None and attempt.launch.grid]
        return (1 if alone else programs[0] / programs[1]) / threads
    constants = [side.guess.constexprs if side.guess is not None else {} for side in (base, head)]
    if all(constants[0][name] == constants[1][name] for name in constants[0].keys() & constants[1].keys()):
        return 1 / threads
    stored = [side.demand.requested_store_bytes + side.demand.atomic_bytes for side in pair]
    return stored[1] / stored[0] / threads if all(stored) else 1.0
