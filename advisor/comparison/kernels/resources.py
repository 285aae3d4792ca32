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

import numpy as np

from advisor.advising.looked import compiled_report
from advisor.comparison.kernels.guards import Touched, of_stores, touched
from advisor.comparison.kernels.kernel_digest import own_tree
from advisor.comparison.kernels.kernel_version import KernelVersion
from advisor.comparison.kernels.one_launch import both_launches, closest, with_guess
from advisor.comparison.settings import KernelSettings
from advisor.comparison.static import static_row
from advisor.compiled.analysis import kernel_analysis
from advisor.compiled.compiler.compile import version as triton_version
from advisor.compiled.compiler.kernel import CompiledKernel, CompileError, IrError, Target
from advisor.compiled.compiler.pool import Pool, borrowed
from advisor.compiled.demand.assembly import read_facts
from advisor.compiled.demand.counted import Counted
from advisor.compiled.guesses.assumptions import shown_value
from advisor.compiled.guesses.guess_errors import certain_of_guesses
from advisor.compiled.guesses.inference import Guess, guesses
from advisor.compiled.launch_report import KernelTarget
from advisor.compiled.launches.described import described_launch
from advisor.compiled.launches.launch import Inspection, KernelLaunch, author_file, compile_launch, inputs_of, own_files
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import occupancy
from advisor.python_source.described import call_function, kernel_problem
from advisor.python_source.jit_function import MISSING
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile
from advisor.result.comparison_schema import Failure, ResourceRow, Resources, StaticRow
from advisor.result.schema import LAUNCH_OPTIONS, Configuration, Problem
from advisor.rows.launches import RecordedLaunch
from advisor.system.errors import AdvisorError
from advisor.system.settings import read_settings

LARGEST_COMPILATIONS = 40
"""Per comparison: each takes a second or two."""
KEPT_COMPILATIONS = 12
"""Of these, for kernels that are still to come, where one kernel runs with more than one configuration on a GPU."""
BUDGET_S = 60.0
"""Of all compilations and predicted tables of a comparison together: a pull request waits for it."""
SPENT = "the time that a comparison takes for that, which --compile-limit sets, is used up"
LONGEST_S = 15.0
"""Of one of them: most end within two."""
MOST_CONFIGURATIONS = 3
"""Of a kernel on a GPU: those of the first, the last and the middle one of its problems, where they differ."""
WITHOUT_GRID = 16
"""Programs for every SM of a launch whose grid is not known: enough that the last wave counts for little."""
CERTAIN = frozenset({"absent"})
"""Kinds of `CompileError` that are the kernel's own, whatever it is given."""
CERTAIN_AS_DESCRIBED = CERTAIN | {"failed"}
"""The same where the file itself says with what the kernel is launched. Elsewhere guessed types and constants may be the cause, unless the
base compiles with the same ones (`Attempt.alike`)."""
UNFINISHED = frozenset({"timeout", "crash"})
"""Kinds of `CompileError` that say nothing of the kernel."""
OF_VALUES = ("CompileTimeAssertionFailure", "PTXASError")
"""What says of guessed constants that they are other ones, and of one of several configurations that an autotuner passes over it
(`Autotuner._bench`, Triton 3.9)."""
UNSEEN = "As it is launched here the compiler leaves out what changed"
MOST_SHOWN = 4
"""Guesses that a reason names."""
_STORES = re.compile(r"tt\.(?:store|atomic|descriptor_store|descriptor_reduce|experimental_descriptor_store)")
_REMARKS = re.compile(r"//.*|/\*.*?\*/|^\s*\.(?:loc|file)\b.*|^\s*;.*", re.MULTILINE)
_REFUSED = re.compile(r"line (\d+) from `def (\w+)`")
_PLACES = re.compile(r'loc\("([^"]*)":(\d+):\d+\)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """With what a problem is computed on a GPU. `configuration` None: the kernel lists none; `element`: triton's name of the type;
    `former`: what the base is compiled with, where that is another configuration."""

    configuration: Configuration | None
    problem: Problem | None
    element: str
    former: Configuration | None = None
    recorded: RecordedLaunch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of compiling one version.

    Attributes:
        resources: Of what was compiled.
        refused: Why nothing was.
        described: Whether the kernel's file gives every argument of the launch, so that nothing was guessed.
        launch: What was to be compiled.
        guess: With what it was.
        compiled: What came of it.
        sizes: Values of the launch that are typical ones, for nothing says what they are.
        grid_known: Whether the launch's grid is.
        alike: Of a head that was refused: whether it was with what the base compiles with, too.
    """

    resources: Resources | None = None
    refused: AdvisorError | None = None
    described: bool = False
    launch: KernelLaunch | None = None
    guess: Guess | None = None
    compiled: CompiledKernel | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    grid_known: bool = False
    alike: bool = False

    @property
    def kind(self) -> str:
        """Of the error, where there is one."""
        return getattr(self.refused, "kind", "")

    @property
    def launched(self) -> dict[str, Any]:
        """Constants and options with which it was compiled, without what was guessed."""
        if self.launch is None or self.described:
            return {}
        given, invented = self.launch.given, set(self.guess.invented) if self.guess is not None else set()
        constants = dict(self.guess.constexprs) if self.guess is not None else dict(given.constexprs)
        names = {each.name for each in self.launch.source.kernel(self.launch.kernel).parameters if each.is_constexpr}
        told = {name: value for name, value in constants.items() if name in names and name not in invented and "stride" not in name}
        options = self.guess.options if self.guess is not None else given.options
        return {**told, **{name: value for name, value in options.items() if (name, value) != ("num_ctas", 1)}}


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
    best: Mapping[str, Sequence[Run]],
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

    `best` has what each GPU would run problems with, by its name; `element` and `problem` are what it is compiled for where nothing is
    known of that; `said` is what advisor.toml says of the kernel.
    """
    if not compiling.wanted or ((old is None or new is None) and not best):
        return Judged()  # on one side only, and with nothing to say what it is launched with: no figure would mean anything
    try:
        triton_version()
    except AdvisorError as error:
        return Judged(notes=(f"Not compiled: {error}",))
    former, configuration = alike_configurations(old, new)
    unknown = Run(configuration=configuration, problem=problem, element=element, former=former, recorded=recorded)
    runs = {gpu.name: _distinct(best.get(gpu.name, ())) or [unknown] for gpu in gpus}
    alike: dict[tuple[Any, ...], tuple[Run, int, list[GpuSpec]]] = {}
    for place in range(MOST_CONFIGURATIONS):  # the first of every GPU first
        for gpu in gpus:
            for run in runs[gpu.name][place : place + 1]:
                alike.setdefault((gpu.triton_target, repr((run.former, run.configuration))), (run, place, []))[2].append(gpu)
    left_out = sum(max(0, len(each) - MOST_CONFIGURATIONS) for each in runs.values())
    notes: list[str] = []
    wanted: list[tuple[Run, list[GpuSpec]]] = []
    needed = (old is not None) + (new is not None)
    for run, place, group in alike.values():
        if place and compiling.left - needed < KEPT_COMPILATIONS:
            left_out += 1
        elif spent := compiling.spent(needed):
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
            if base.resources is None and head.resources is None:
                notes.append(f"Not compiled for {group[0].name}: {reason}")
                continue
            certain = CERTAIN_AS_DESCRIBED if base.described and head.described else CERTAIN
            if base.resources is not None and (head.alike or head.kind in certain):
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
    if left_out > 0 and rows:
        notes.append("Compiled with some of the configurations that its problems are predicted to run with, not with all.")
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


def alike_configurations(old: KernelVersion | None, new: KernelVersion | None) -> tuple[Configuration | None, Configuration | None]:
    """What the base is compiled with where that is another configuration, and what the head is.

    One that both may be launched with, if there is any, so that what differs is the kernel; where the kernels are the same, the first that
    autotuning no longer tries and the first that it tries in its place.
    """
    sides = [version.configurations if version is not None else () for version in (old, new)]
    if old is None or new is None or not all(sides):
        return None, next((each for side in reversed(sides) for each in side), None)
    labels = [{each.label() for each in side} for side in sides]
    gone = next((each for each in sides[0] if each.label() not in labels[1]), None)
    came = next((each for each in sides[1] if each.label() not in labels[0]), None)
    both = next((each for each in sides[1] if each.label() in labels[0]), None)
    tuned = old.function.autotune is not None and new.function.autotune is not None
    if gone is not None and came is not None and tuned and (both is None or _same_body(old, new)):
        return gone, came
    if both is None and gone is not None and came is not None:
        return gone, came
    return None, both or sides[1][0]


def _same_body(old: KernelVersion, new: KernelVersion) -> bool:
    return own_tree(old.function.node) == own_tree(new.function.node)


def _distinct(runs: Sequence[Run]) -> list[Run]:
    """Those of different configurations: the first, the last, the middle one, and the others."""
    known: dict[str, Run] = {}
    for run in runs:
        known.setdefault(repr(run.configuration), run)
    found = list(known.values())
    places = dict.fromkeys([0, len(found) - 1, len(found) // 2, *range(len(found))]) if found else ()
    return [found[place] for place in places]


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
    base, head = _pair(old, new, run, gpu, said, workers, {})
    if old is None or new is None or base.compiled is None or head.compiled is None:
        return base, head, []
    change, notes = touched(old, new), []
    alike, empty = _code(base) == _code(head), not _stores(base) and not _stores(head)
    flags = {**(of_stores(old, new) if empty else {}), **(change.flags if alike or empty else {})}
    known = {**base.launched, **head.launched}
    other = " ".join(f"{name}={value}" for name, value in flags.items() if known.get(name) != value)
    if other and change.lines and not compiling.spent(2):
        compiling.left -= 2
        pair = _pair(old, new, run, gpu, said, workers, flags)
        if pair[0].compiled is not None and pair[1].compiled is not None:
            base, head = pair
            notes.append(f"Compiled with {other}, for {'something to be stored' if empty else 'the changed lines to be there'}.")
        else:
            notes.append(f"With {other}, under which the changed lines stand, it was not compiled: {pair[1].refused or pair[0].refused}")
    if _code(base) == _code(head) and change.lines and not _seen(head, change):
        lines = ", ".join(map(str, sorted(change.lines)[:MOST_SHOWN]))
        notes.append(f"{UNSEEN} (line {lines}): nothing is said of it.")
    return base, head, notes


def _pair(
    old: KernelVersion | None,
    new: KernelVersion | None,
    run: Run,
    gpu: GpuSpec,
    said: KernelSettings,
    workers: Pool,
    flags: Mapping[str, Any],
) -> tuple[Attempt, Attempt]:
    """Both versions, compiled with the same: what is guessed of the head counts for the base, and where that fails, the reverse."""
    versions = (old, new)
    try:
        configurations = _configurations(versions, run, gpu, said, flags)
        launches = _launches(versions, configurations, run, gpu, said, flags)
    except AdvisorError as error:
        refused = Attempt(refused=error)
        return (refused if old is not None else Attempt()), (refused if new is not None else Attempt())
    if old is None or new is None:
        only = [_attempt(each, gpu, workers) if each.launch is not None else each for each in launches]
        return only[0], only[1]
    first = _attempt(launches[1], gpu, workers)
    second = _attempt(_guessed_as(launches[0], first, old), gpu, workers)
    if second.refused is None or (first.guess is None and second.refused is not None):
        base, head = second, first
    else:  # what was guessed of the head is not what the base takes
        base = _attempt(launches[0], gpu, workers)
        again = _attempt(_guessed_as(launches[1], base, new), gpu, workers)
        head = again if again.refused is None else first
    if base.guess is None or head.refused is None or head.kind != "failed" or (base.described and head.described):
        return base, head
    return base, _refused_alike(base, launches[1], head, new, gpu, workers)


def _configurations(
    versions: Sequence[KernelVersion | None], run: Run, gpu: GpuSpec, said: KernelSettings, flags: Mapping[str, Any]
) -> tuple[Configuration | None, Configuration | None]:
    """What either side is compiled with: where only one of them is tuned, of its configurations the nearest to the other's launch."""
    listed = [bool(version is not None and version.configurations) for version in versions]
    if run.problem is not None or None in versions or listed[0] == listed[1]:
        return run.former or run.configuration, run.configuration
    alone = tuple(None if has else version for has, version in zip(listed, versions, strict=True))
    launch = next(
        each.launch for each in both_launches(alone, (None, None), gpu, run.element, None, said, run.recorded, flags) if each is not None
    )
    found = [
        closest(version.configurations, launch, gpu) if version is not None and has else None
        for has, version in zip(listed, versions, strict=True)
    ]
    return found[0], found[1]


def _refused_alike(base: Attempt, launch: Attempt, head: Attempt, new: KernelVersion, gpu: GpuSpec, workers: Pool) -> Attempt:
    """The attempt at a head that was refused, once more with what was guessed of a base that compiles.

    Where the two are not inferred to take the same arguments of the same types, what the one was given says nothing of the other.
    """
    assert base.launch is not None and base.guess is not None and launch.launch is not None
    inferred = []
    for each in (base.launch, launch.launch):
        source = each.source.on(*gpu.triton_target[:2])
        inferred.append(dict(next(guesses(source, source.kernel(each.kernel), each.given)).signature))
    again = _attempt(_guessed_as(launch, base, new), gpu, workers)
    if again.refused is None:
        return again
    error = again.refused
    odd = again.kind != "failed" or any(text in str(getattr(error, "got", "")) for text in OF_VALUES)
    if odd or inferred[0] != inferred[1] or not isinstance(error, CompileError):
        return head
    remedy = f"the base compiles with the same {_named(base.guess, base.sizes)}"
    return replace(head, refused=CompileError(error.what, error.got, None, remedy, error.kind), alike=True)


def _guessed_as(launch: Attempt, other: Attempt, version: KernelVersion) -> Attempt:
    if launch.launch is None or other.guess is None or launch.described:
        return launch
    names = [each.name for each in version.function.parameters]
    return replace(launch, launch=with_guess(launch.launch, other.guess, names))


def _launches(
    versions: Sequence[KernelVersion | None],
    configurations: Sequence[Configuration | None],
    run: Run,
    gpu: GpuSpec,
    said: KernelSettings,
    flags: Mapping[str, Any],
) -> list[Attempt]:
    """What is to be compiled of either side: what its file describes, or else the one launch of both."""
    found: list[Attempt | None] = []
    for version, configuration in zip(versions, configurations, strict=True):
        described: Mapping[str, Any] | None = None
        if version is not None and configuration is not None and run.problem is not None:
            described = described_arguments(version.source, version.entry, run.problem, configuration, gpu.compute_capability)
        if version is None or described is None or configuration is None:
            found.append(Attempt() if version is None else None)
            continue
        known = {parameter.name for parameter in version.function.parameters}
        values = {key: value for key, value in configuration.flat().items() if key in known or key in LAUNCH_OPTIONS}
        launch = described_launch(version.source, version.function.name, {**described, **flags}, values)
        given = {*launch.given.types, *launch.given.scalars, *launch.given.constexprs}
        whole = all(each.name in given or each.default is not MISSING for each in version.function.parameters)
        found.append(Attempt(described=whole, launch=launch))
    if None in found:
        sized = both_launches(versions, configurations, gpu, run.element, run.problem, said, run.recorded, flags)
        for side, each in enumerate(sized):
            if found[side] is None and each is not None:
                found[side] = Attempt(launch=each.launch, sizes=each.sizes, grid_known=each.grid_known)
    return [_with_precision(each or Attempt(), version, run.element) for each, version in zip(found, versions, strict=True)]


def _with_precision(attempt: Attempt, version: KernelVersion | None, element: str) -> Attempt:
    """With the constant that has `tl.dot`'s input precision (triton_kernels/README.md)."""
    if attempt.launch is None or version is None:
        return attempt
    precision, given = version.entry.get("precision"), attempt.launch.given
    constants = dict(given.constexprs)
    if isinstance(precision, str) and precision not in constants:
        constants[precision] = "ieee" if element == "fp32" else "tf32"
    return replace(attempt, launch=replace(attempt.launch, given=replace(given, constexprs=constants, element=element)))


def _attempt(attempt: Attempt, gpu: GpuSpec, workers: Pool) -> Attempt:
    assert attempt.launch is not None
    try:
        compiled, guess, _ = compile_launch(attempt.launch, Target.of(gpu), workers)
    except AdvisorError as error:
        return replace(attempt, refused=error)
    return replace(attempt, resources=_held(compiled, gpu), guess=guess, compiled=compiled, refused=None)


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

    sides = [each if each.compiled is not None else None for each in (base, head)]
    if None in sides:
        return None
    try:
        grids = [each.launch.grid if each.launch is not None else None for each in (base, head)]
        lead = 1 if grids[1] is not None or grids[0] is None else 0
        programs: tuple[int, ...] = grids[lead] or (WITHOUT_GRID * gpu.num_sms,)
        pair: list[Inspection | None] = [None, None]
        pair[lead] = first = inspected((base, head)[lead], programs)
        other: Sequence[int] = grids[1 - lead] or programs
        pair[1 - lead] = second = inspected((base, head)[1 - lead], other)
        if grids[1 - lead] is None:  # what a launch stores is the same, whatever its blocks: as many programs as that takes
            amounts = [each.demand.requested_store_bytes + each.demand.atomic_bytes for each in (first, second)]
            if all(amounts) and abs(amounts[0] / amounts[1] - 1) > 0.01:
                pair[1 - lead] = inspected((base, head)[1 - lead], (max(1, round(second.demand.programs * amounts[0] / amounts[1])),))
        reports = []
        for inspection in pair:
            assert inspection is not None
            target = KernelTarget(id=name, launch=inspection.launch, source="compiled for this launch")
            reports.append(compiled_report(target, kernel_analysis(inspection, gpu), gpu))
    except (IrError, ArithmeticError, ValueError, KeyError, IndexError) as error:
        notes.append(f"Not predicted on {gpu.name}: {error}")
        return None
    sizes = {**base.sizes, **head.sizes}
    grid = " → ".join(dict.fromkeys("x".join(map(str, each.launch.grid or ())) for each in pair if each is not None))
    typical = " ".join(f"{key}={value}" for key, value in sizes.items())
    label = f"grid {grid}" + (f", typical {typical}" if typical else "")
    row = static_row(f"{gpu.name}-{name}", label, gpu.name, [reports[0]], [reports[1]], compiled=True)
    if row.verdict == "predicted-unchanged" and (unseen or _code(base) != _code(head)):
        why = "what changed is not in the compiled code" if unseen else "the code differs by less than such a prediction can tell"
        row = replace(row, verdict="within-doubt", reason=why)
    counts = [each.demand.programs for each in pair if each is not None]
    return replace(row, kernel=name), counts[0] / counts[1] if all(counts) else 1.0


def _named(guess: Guess, sizes: Mapping[str, int]) -> str:
    """What was guessed, constants first, and sizes taken for typical."""
    known = [f"{name} = {shown_value(guess.constexprs[name])}" for name in guess.invented if name in guess.constexprs]
    known += [f"{name} = {size}" for name, size in sizes.items()]
    known += [f"{name}: {guess.signature[name]}" for name in guess.signature if name in guess.guessed]
    more = f" and {len(known) - MOST_SHOWN} more" if len(known) > MOST_SHOWN else ""
    return f"guesses ({', '.join(known[:MOST_SHOWN])}{more})" if known else "arguments"


def _held(compiled: CompiledKernel, gpu: GpuSpec) -> Resources:
    """What a CTA of a compiled kernel holds."""
    mix: dict[str, int] = {}
    try:
        mix = {str(kind): int(count) for kind, count in read_facts(compiled).mix.items()}
    except (AdvisorError, KeyError, ValueError):
        mix = {}  # the machine code is not one that can be read yet (AMD)
    held = compiled.resources
    return Resources(
        origin="compiled",
        registers_per_thread=held.registers,
        spill_bytes=held.spill_bytes,
        shared_memory_bytes=held.shared_memory_bytes,
        resident_ctas_per_sm=_resident(held, gpu),
        instruction_mix=mix,
    )


def _resident(held: Any, gpu: GpuSpec) -> int | None:
    """Resident CTAs per SM of what was compiled; None where the registers are not known."""
    if not held.registers:
        return None
    amounts = (held.registers, held.shared_memory_bytes, held.num_warps)
    registers, shared, warps = (np.array([float(amount)]) for amount in amounts)
    asked = occupancy.Resources(registers=registers, shared_memory_bytes=shared, num_warps=warps)
    return int(occupancy.resident_ctas(gpu, asked)[0][0])


def described_arguments(
    source: SourceFile, entry: Mapping[str, Any], problem: Problem, configuration: Configuration, compute_capability: str
) -> dict[str, Any] | None:
    """Every argument of a call but the configuration's: pointers as Triton types, the rest as values; None: not known."""
    flat = kernel_problem(problem, compute_capability)
    options = {"num_warps": configuration.num_warps, "num_stages": configuration.num_stages}
    try:
        found = call_function(source, entry.get("arguments"), flat, {**configuration.parameters, **options})
    except NotLiteralError:
        return None
    return found if isinstance(found, dict) and all(isinstance(name, str) for name in found) else None
