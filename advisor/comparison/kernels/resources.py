"""Both versions of a kernel, compiled for one launch where triton is at hand: what the compiler made of them, and what that is predicted
to take. They are built from parsed source, never from the file itself.

What nothing says of the launch (types of arguments, flags) is guessed once, for both, so that a difference is the source's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.advising.looked import compiled_report
from advisor.comparison.kernels.attempts import MOST_SHOWN, Attempt, Run, alike_configurations, compiled_pair
from advisor.comparison.kernels.kernel_version import KernelVersion
from advisor.comparison.kernels.one_launch import Touched, of_stores, touched
from advisor.comparison.settings import KernelSettings
from advisor.comparison.static import static_row
from advisor.compiled.analysis import kernel_analysis
from advisor.compiled.compiler.compile import version as triton_version
from advisor.compiled.compiler.kernel import IrError, Target
from advisor.compiled.compiler.pool import Pool, borrowed
from advisor.compiled.demand.counted import Counted
from advisor.compiled.guesses.assumptions import shown_value
from advisor.compiled.guesses.guess_errors import certain_of_guesses
from advisor.compiled.launch_report import KernelTarget
from advisor.compiled.launches.launch import Inspection, author_file, inputs_of, own_files
from advisor.gpus.hardware import GpuSpec
from advisor.result.comparison_schema import Failure, ResourceRow, Resources, StaticRow
from advisor.result.schema import Problem
from advisor.rows.launches import RecordedLaunch
from advisor.system.errors import AdvisorError
from advisor.system.settings import read_settings

LARGEST_COMPILATIONS = 40
"""Per comparison: each takes a second or two."""
BUDGET_S = 60.0
"""Of all compilations and predicted tables of a comparison together: a pull request waits for it."""
SPENT = "the time that a comparison takes for that, which --compile-limit sets, is used up"
LONGEST_S = 15.0
"""Of one of them: most end within two."""
WITHOUT_GRID = 16
"""Programs for every SM of a launch whose grid is not known: enough that the last wave counts for little."""
CERTAIN = frozenset({"absent", "interfered", "refused"})
"""Kinds of `CompileError` that are the kernel's own, whatever it is given."""
CERTAIN_AS_DESCRIBED = CERTAIN | {"failed"}
"""The same where the file itself says with what the kernel is launched. Elsewhere guessed types and constants may be the cause, unless the
base compiles with the same ones (`Attempt.alike`)."""
UNFINISHED = frozenset({"timeout", "crash"})
"""Kinds of `CompileError` that say nothing of the kernel."""
UNSEEN = "As it is launched here the compiler leaves out what changed"
_STORES = re.compile(r"tt\.(?:store|atomic|descriptor_store|descriptor_reduce|experimental_descriptor_store)")
_REMARKS = re.compile(r"//.*|/\*.*?\*/|^\s*\.(?:loc|file)\b.*|^\s*;.*", re.MULTILINE)
_REFUSED = re.compile(r"line (\d+) from `def (\w+)`")
_PLACES = re.compile(r'loc\("([^"]*)":(\d+):\d+\)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What compiling both versions says of a change."""

    rows: tuple[ResourceRow, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    predicted: tuple[StaticRow, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)  # typical ones that it was judged at


def limits_s() -> tuple[float, float]:
    """Seconds that one compilation may take, and all of a comparison together; `--compile-limit` says others."""
    settings = read_settings()
    return settings.compile_limits_s if settings.compile_limit else (LONGEST_S, BUDGET_S)


@dataclass(kw_only=True)
class Compiling:
    """Whether to compile, how many compilations are left, and until when (`time.monotonic`). A context manager: within it all kernels share
    the processes that compile."""

    wanted: bool = True
    left: int = LARGEST_COMPILATIONS
    until: float = field(default_factory=lambda: time.monotonic() + limits_s()[1])
    shared: Pool | None = field(default=None, repr=False)

    def __enter__(self) -> Compiling:
        self.shared = Pool(2, limits_s()[0], self.until - time.monotonic())
        return self

    def __exit__(self, *_: object) -> None:
        if self.shared is not None:
            self.shared.close()

    def spent(self, needed: int) -> str:
        """What of the budget is used up, in words; "": there is enough left."""
        if self.left < needed:
            return f"the {LARGEST_COMPILATIONS} compilations of one comparison are used up"
        return self.late()

    def late(self) -> str:
        """That the time of a comparison is used up, in words; "": it is not."""
        return SPENT if time.monotonic() > self.until else ""


def judged(
    name: str,
    old: KernelVersion | None,
    new: KernelVersion | None,
    best: Mapping[str, Run],
    gpus: Sequence[GpuSpec],
    compiling: Compiling,
    element: str,
    problem: Problem | None = None,
    said: KernelSettings | None = None,
    *,
    predicting: bool = False,
    recorded: RecordedLaunch | None = None,
) -> Judged:
    """One row per compile target and configuration among the GPUs, why there are none where there are none, what is certain to fail of
    what did not before, and what the launch is predicted to take.

    `best` has what each GPU would run its first problem with, by name; `element` and `problem` are what it is compiled for where nothing
    is known of that; `said` is what advisor.toml says of the kernel.
    """
    if not compiling.wanted or ((old is None or new is None) and not best):
        return Judged()  # on one side only, and with nothing to say what it is launched with: no figure would mean anything
    try:
        triton_version()
    except AdvisorError as error:
        return Judged(notes=(f"Not compiled: {error}",))
    former, configuration = alike_configurations(old, new)
    unknown = Run(configuration=configuration, problem=problem, element=element, former=former, recorded=recorded)
    alike: dict[tuple[Any, ...], tuple[Run, list[GpuSpec]]] = {}
    for gpu in gpus:
        run = best.get(gpu.name, unknown)
        alike.setdefault((gpu.triton_target, repr((run.former, run.configuration))), (run, []))[1].append(gpu)
    notes: list[str] = []
    wanted: list[tuple[Run, list[GpuSpec]]] = []
    needed = (old is not None) + (new is not None)
    for run, group in alike.values():
        if spent := compiling.spent(needed):
            notes.append(f"Not compiled for {', '.join(gpu.name for gpu in group)}: {spent}.")
        else:
            compiling.left -= needed
            wanted.append((run, group))
    rows: list[ResourceRow] = []
    predicted: list[StaticRow] = []
    sizes: dict[str, int] = {}
    lines: dict[str, int | None] = {}
    refusals: dict[str, list[str]] = {}  # the GPUs for which a head is certainly refused, by why: most errors are every target's
    with borrowed(compiling.shared) as workers, ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(_compile, old, new, run, group[0], said or KernelSettings(), workers, compiling) for run, group in wanted]
        for (run, group), future in zip(wanted, asked, strict=True):
            base, head, told = future.result()
            devices = ", ".join(gpu.name for gpu in group)
            unseen = next((note for note in told if note.startswith(UNSEEN)), "")
            reason = unseen or "; ".join(f"{word}: {each.refused}" for word, each in (("base", base), ("head", head)) if each.refused)
            if base.resources is None and head.resources is None and head.kind != "interfered":
                notes.append(f"Not compiled for {group[0].name}: {reason}")
                continue
            certain = CERTAIN_AS_DESCRIBED if base.described and head.described else CERTAIN
            if head.kind == "interfered" or (base.resources is not None and (head.alike or head.kind in certain)):
                why = str(head.refused).replace(f" for {Target.of(group[0]).name}", "", 1)
                refusals.setdefault(why, []).extend(gpu.name for gpu in group)
                lines[why] = refused_line(new, head.refused)
            label = _label(run, base, head)
            if run.former is not None and new is not None and len(new.configurations) > 1 and _fits_nowhere(head.resources):
                over = run.configuration.label() if run.configuration is not None else label
                notes.append(f"Autotuning passes over {over} on {devices}: as compiled, no CTA fits an SM.")
                continue
            notes += [note for note in told if note != unseen]
            found = [_predicted(name, base, head, gpu, notes, bool(unseen)) for gpu in (group if predicting else ())]
            predicted += [row for row, _ in filter(None, found)]
            rows.append(
                ResourceRow(
                    kernel=name,
                    gpu=devices,
                    label=label,
                    base=base.resources,
                    head=head.resources,
                    reason=reason,
                    unfinished=bool({base.kind, head.kind} & UNFINISHED),
                    line=refused_line(new, head.refused),
                    work=next((work for _, work in filter(None, found)), 1.0),
                )
            )
            sizes |= {**base.sizes, **head.sizes}
    failures = (
        Failure(condition="failed", what=f"on {', '.join(dict.fromkeys(names))}", reason=why, line=lines[why])
        for why, names in refusals.items()
    )
    return Judged(rows=tuple(rows), notes=tuple(dict.fromkeys(notes)), failures=tuple(failures), predicted=tuple(predicted), sizes=sizes)


def refused_line(version: KernelVersion | None, error: AdvisorError | None) -> int | None:
    """The line of a version's file at which the compiler refuses it; None: it does not, or elsewhere."""
    found = _REFUSED.search(str(getattr(error, "got", "")))
    if version is None or found is None:
        return None
    nodes = version.source.definitions.get(found[2], ())
    return nodes[-1].lineno + int(found[1]) - 1 if nodes else None


def _label(run: Run, base: Attempt, head: Attempt) -> str:
    """With what either side was compiled: its configuration, or else what its launch passes; and what of that is a guess."""
    guesses = [each.guess for each in (base, head) if each.guess is not None]
    invented = dict.fromkeys(name for each in guesses for name in each.invented if name in each.constexprs)
    sides = [{name: value for name, value in each.launched.items() if name not in invented} for each in (base, head)]
    if run.configuration is not None and (run.problem is not None or not any(sides)):
        sides = [each.flat() for each in (run.former or run.configuration, run.configuration)]
    sizes = {**base.sizes, **head.sizes}
    names = dict.fromkeys([*sides[0], *sides[1]])
    texts = [_sided(name, sides) for name in names if name not in sizes]
    typical = [_sided(name, sides) for name in names if name in sizes]
    shown = [
        f"{name}={' → '.join(dict.fromkeys(shown_value(each.constexprs[name]) for each in guesses if name in each.constexprs))}"
        for name in list(invented)[:MOST_SHOWN]
    ]
    if len(invented) > MOST_SHOWN:
        shown.append(f"{len(invented) - MOST_SHOWN} more")
    guessed = f"{' '.join(shown)} (guessed)" if shown else ""
    assumed = f"{' '.join(typical)} (typical)" if typical else ""
    return ", ".join(filter(None, (" ".join(texts), assumed, guessed))) or "no constants"


def _sided(name: str, sides: Sequence[Mapping[str, Any]]) -> str:
    """A constant as it is on both sides, where both have it."""
    return f"{name}={' → '.join(dict.fromkeys(shown_value(side[name]) for side in sides if name in side))}"


def _fits_nowhere(resources: Resources | None) -> bool:
    return resources is not None and resources.resident_ctas_per_sm == 0


def _compile(
    old: KernelVersion | None,
    new: KernelVersion | None,
    run: Run,
    gpu: GpuSpec,
    said: KernelSettings,
    workers: Pool,
    compiling: Compiling,
) -> tuple[Attempt, Attempt, list[str]]:
    """Both versions at one launch, and what is to be said of that.

    Where they differ, and the code is the same or nothing is stored, once more with the flags that the changed lines stand under.
    """
    base, head = compiled_pair(old, new, run, gpu, said, workers, {})
    if old is None or new is None or base.compiled is None or head.compiled is None:
        return base, head, []
    change, notes = touched(old, new), []
    alike, empty = _code(base) == _code(head), not _stores(base) and not _stores(head)
    flags = {**(of_stores(old, new) if empty else {}), **(change.flags if alike or empty else {})}
    known = {**base.launched, **head.launched}
    other = " ".join(f"{name}={value}" for name, value in flags.items() if known.get(name) != value)
    if other and change.lines and not compiling.spent(2):
        compiling.left -= 2
        pair = compiled_pair(old, new, run, gpu, said, workers, flags)
        if pair[0].compiled is not None and pair[1].compiled is not None:
            base, head = pair
            notes.append(f"Compiled with {other}, for {'something to be stored' if empty else 'the changed lines to be there'}.")
        else:
            notes.append(f"With {other}, under which the changed lines stand, it was not compiled: {pair[1].refused or pair[0].refused}")
    if _code(base) == _code(head) and change.lines and not _seen(head, change):
        lines = ", ".join(map(str, sorted(change.lines)[:MOST_SHOWN]))
        notes.append(f"{UNSEEN} (line {lines}): nothing is said of it.")
    return base, head, notes


def _stores(attempt: Attempt) -> bool:
    return attempt.compiled is not None and _STORES.search(attempt.compiled.ttir) is not None


def _code(attempt: Attempt) -> str:
    """The machine code, without remarks."""
    compiled = attempt.compiled
    return _REMARKS.sub("", (compiled.sass or compiled.amdgcn or compiled.ptx)) if compiled is not None else ""


def _seen(head: Attempt, change: Touched) -> bool:
    """Whether the compiler's code has something of a line of the head that changed."""
    if head.compiled is None or head.launch is None:
        return False
    own = str(head.launch.source.path)
    places = {(author_file(head.compiled, path), int(line)) for path, line in _PLACES.findall(head.compiled.ttir)}
    return any((own, line) in places for line in change.lines)


def _predicted(name: str, base: Attempt, head: Attempt, gpu: GpuSpec, notes: list[str], unseen: bool) -> tuple[StaticRow, float] | None:
    """What both versions are predicted to take for the launch they were compiled for, and how much of it a program of the head does, to one
    of the base; None: one cannot be counted. `unseen`: what changed is not in the code."""

    def inspected(attempt: Attempt, grid: Sequence[int]) -> Inspection:
        assert attempt.launch is not None and attempt.compiled is not None and attempt.guess is not None
        launch = replace(attempt.launch, grid=tuple(grid))
        demand = Counted().demand(attempt.compiled.ttir, launch.grid or (1,), inputs_of(launch, attempt.guess), own_files(attempt.compiled))
        demand = certain_of_guesses(demand, attempt.guess)
        return Inspection(launch=launch, compiled=attempt.compiled, demand=demand, guess=attempt.guess, attempts=())

    if base.compiled is None or head.compiled is None or base.launch is None or head.launch is None:
        return None
    try:
        grids = [base.launch.grid, head.launch.grid]
        usual = grids[1] or grids[0] or (WITHOUT_GRID * gpu.num_sms,)
        pair = [inspected(each, grid or usual) for each, grid in zip((base, head), grids, strict=True)]
        stored = [each.demand.requested_store_bytes + each.demand.atomic_bytes for each in pair]
        if None in grids and all(stored):  # what a launch stores is the same, whatever its blocks: as many programs as that takes
            side = grids.index(None)
            share = stored[1 - side] / stored[side]
            if abs(share - 1) > 0.01:
                pair[side] = inspected((base, head)[side], (max(1, round(pair[side].demand.programs * share)),))
        targets = [KernelTarget(id=name, launch=each.launch, source="compiled for this launch") for each in pair]
        reports = [compiled_report(target, kernel_analysis(each, gpu), gpu) for target, each in zip(targets, pair, strict=True)]
    except (IrError, ArithmeticError, ValueError, KeyError, IndexError) as error:
        notes.append(f"Not predicted on {gpu.name}: {error}")
        return None
    sizes = {**base.sizes, **head.sizes}
    grid = " → ".join(dict.fromkeys("x".join(map(str, each.launch.grid or ())) for each in pair))
    typical = " ".join(f"{key}={value}" for key, value in sizes.items())
    label = f"grid {grid}" + (f", typical {typical}" if typical else "")
    row = static_row(f"{gpu.name}-{name}", label, gpu.name, [reports[0]], [reports[1]], compiled=True)
    if row.verdict == "predicted-unchanged" and (unseen or _code(base) != _code(head)):
        why = "what changed is not in the compiled code" if unseen else "the code differs by less than such a prediction can tell"
        row = replace(row, verdict="within-doubt", reason=why)
    counts = [each.demand.programs for each in pair]
    return replace(row, kernel=name), counts[0] / counts[1] if all(counts) else 1.0
