"""The `Result` of a kernel in source, or a record of launches: compiled code takes the place of the closed forms."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from advisor import __version__
from advisor.advising.choice import NEAR_BEST
from advisor.advising.exports import triton_config
from advisor.advising.launch_facts import gpu_figures, warm_cache
from advisor.advising.measured.profiles import timed
from advisor.advising.missing_options import Lacking, is_tuned, missing_options, options_besides, say_contents, say_missing
from advisor.advising.trials import DOUBT, LEAST_S, OTHER_WORK, Regrid, Trials
from advisor.advising.verdict import verdict
from advisor.compiled.analysis import PROBLEM_NOTE, KernelAnalysis
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.counted import Counted
from advisor.compiled.demand.likely_places import guessed_places, guessed_trips, in_words
from advisor.compiled.launch_report import (
    KernelTarget,
    Unreadable,
    analyse_targets,
    fitting,
    launch_report,
    targets_from,
    targets_recorded,
    until_sized,
)
from advisor.compiled.launches.launch_options import LaunchOptions
from advisor.compiled.launches.records import heaviest, record_target
from advisor.compiled.launches.triton_cache import UNRECORDED, staleness
from advisor.compiled.source_lines import source_texts
from advisor.diagnosis import WORTH_CHANGING, actions
from advisor.diagnosis.actions import MOST
from advisor.diagnosis.compiled_rules import COMPILED_RULES, check_compiled
from advisor.diagnosis.diagnose import NOTES
from advisor.gpus.hardware import GpuSpec, match_device_name, offline
from advisor.learned.analytical import SPREAD
from advisor.learned.caveats import exact_products, held_by_power, unmeasured_vendor
from advisor.python_source.source import SourceFile
from advisor.result.schema import (
    UNCERTAIN,
    Action,
    Configuration,
    Finding,
    Latency,
    LaunchReport,
    Recommendation,
    Result,
    SearchReport,
    SearchTrial,
    SourceText,
)
from advisor.rows.launches import is_launch_record, read_launches
from advisor.system.errors import InputError, shorten
from advisor.system.settings import read_settings


def advise_compiled(
    text: str,
    gpu: GpuSpec,
    *,
    cache: str,
    command: str,
    asked: LaunchOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
    try_s: float | None = None,
    regrid: Regrid | None = None,
    measured: str | None = None,
) -> Result:
    """Compile and count every launch that TARGET stands for, and diagnose it.

    The configurations of one kernel (its `@triton.autotune` list, those given, recorded launches that differ in nothing else) are one
    space: the best of them is the tunable ceiling. Without a grid their work cannot be told to be the same, and no ceiling is named.

    Args:
        text: FILE.py::KERNEL, a file that TorchInductor generated, a record of `advisor record`, or a cache of Triton.
        gpu: GPU to compile for.
        cache: What the L2 holds at launch, cold or warm.
        command: The command line that repeats this.
        asked: What the user says of the launch.
        progress: Called with (done, total) launches, and configurations of them that are tried.
        try_s: Seconds for trying the tunables of launches of which one configuration is known, all together; None: as the settings say.
        regrid: The grid of the one launch with other constants, where a function gives it.
        measured: A profile, for a record's launches.

    Raises:
        UsageError, InputError: It is none of these, or nothing of it can be compiled.
        MissingDependencyError: triton is not installed.
    """
    heavy, sums = heaviest(record_target(text)) if is_launch_record(text) and asked in (None, LaunchOptions()) else ([], [])
    targets, elsewhere = fitting(targets_recorded(heavy, gpu) if heavy else targets_from(text, asked, gpu), gpu)
    # Records and caches hold what there is to know, and a file of TorchInductor's says its sizes itself.
    written = all(each.cached is None and each.launch.source.kernel(each.launch.kernel).inductor is None for each in targets)
    looked = _Looked(warnings=[elsewhere] if elsewhere else [], takes_options=written and not is_launch_record(text))
    if is_launch_record(text):
        looked.warnings += dict.fromkeys(read_launches(text).problems)  # what it lacks, each once
        if measured is not None:
            targets, lacking = timed(targets, measured)
            looked.warnings += lacking
    first, rest = until_sized(targets)
    counted = Counted()
    for target, found in analyse_targets(first, gpu, cache, progress=progress, counted=counted):
        looked.take(target, found, gpu)
    failed = {looked.targets[name].space for name in looked.failed}
    for target, found in analyse_targets([each for each in rest if each.space in failed], gpu, cache, progress=progress):
        looked.take(target, found, gpu)
    looked.say_left(rest)
    if seconds := read_settings().try_s if try_s is None else try_s:
        _try(looked, gpu, cache, counted, time.monotonic() + seconds, progress, regrid)
    if not looked.reports:
        why = f": {shorten(looked.warnings[0], 400)}" if looked.warnings else ""
        remedy = None if targets and targets[0].cached else "types, constants and options can be given (`advisor inspect --help`)"
        raise InputError(
            f"{text}: no launch could be read{why}" if remedy is None else f"{text}: no launch could be compiled{why}", None, None, remedy
        )
    launches, searches = _rated(looked)
    unknowns = [PROBLEM_NOTE, *sums, *dict.fromkeys(text for report in launches for text in looked.unknowns[report.id])]
    unsized = tuple(report.id for report in launches if looked.targets[report.id].launch.grid is None)
    if unsized:
        unknowns.append("Without a grid (--grid) the work of a launch is not known, so its configurations cannot be compared.")
    elif any(report.ceiling is None for report in launches):
        unknowns.append("Where only one configuration of a kernel is known, nothing is said of what tuning could win.")
    often = {report.id: looked.targets[report.id].count for report in launches}
    if len(set(often.values())) > 1:
        most = max(often, key=lambda name: often[name])
        unknowns.append(f"Sums count each launch once, however often it was recorded: {most} ran {often[most]:,} times.")
    unknowns += warm_cache([report for report in launches if report.id not in unsized])
    unknowns += unmeasured_vendor([gpu]) + exact_products([report.problem for report in launches], gpu) + held_by_power(launches, gpu)
    shown = {report.kernel for report in launches}
    guessed = {report.id: looked.guessed[report.id] for report in launches if looked.guessed[report.id]}
    missing = (*looked.missing_first(unsized, launches, text, command), *looked.contents_first(unsized, launches, text))
    return Result(
        tool_version=__version__,
        command=command,
        target=text,
        fingerprint=offline(gpu),
        gpu=gpu.name,
        gpu_figures=gpu_figures(gpu),
        model=None,
        verdict=verdict(launches, tuple(unknowns), unsized, guessed),
        actions=(*missing, *actions(launches))[:MOST],
        launches=launches,
        table_findings=(),
        exports=(),
        sources=tuple(source for source in looked.sources if source.kernel in shown),
        warnings=tuple(looked.warnings),
        searches=searches,
    )


@dataclass(slots=True)
class _Looked:
    """Reports and findings of every target, by its id; `takes_options`: whether options can add to them, as for a kernel in a file."""

    targets: dict[str, KernelTarget] = field(default_factory=dict)
    reports: dict[str, LaunchReport] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    sources: dict[SourceText, None] = field(default_factory=dict)
    unknowns: dict[str, list[str]] = field(default_factory=dict)
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    besides: dict[str, tuple[str, ...]] = field(default_factory=dict)
    guessed: dict[str, str] = field(default_factory=dict)  # in words, as `in_words` has them
    deciding: dict[str, frozenset[str]] = field(default_factory=dict)
    takes_options: bool = True
    warnings: list[str] = field(default_factory=list)
    stopped: dict[str, str] = field(default_factory=dict)  # by space that was made by trying, why that ended

    @property
    def kernels(self) -> dict[str, SourceFile]:
        """The kernels by name."""
        return {target.launch.kernel: target.launch.source for target in self.targets.values()}

    def count(self, report: LaunchReport) -> int:
        """Configurations that are known of a launch, itself included."""
        space = self.targets[report.id].space
        return 1 if space is None else sum(target.space == space for target in self.targets.values())

    def take(self, target: KernelTarget, found: KernelAnalysis | Unreadable, gpu: GpuSpec, *, tried: bool = False) -> None:
        """Keep one target's outcome; one that was only `tried` may fail without a word."""
        self.targets[target.id] = target
        if isinstance(found, Unreadable):
            self.failed[target.id] = found.reason
            self.warnings += [] if tried else [f"{found.id}: {found.reason}"]
            return
        report = self.reports[target.id] = compiled_report(target, found, gpu)
        self.sources |= dict.fromkeys(source_texts(found.inspection, report.source_lines))
        self.unknowns[target.id] = _assumptions(target, found)
        trips = " (one trip of each loop that it decides)" if guessed_trips(found.inspection.demand) else ""
        self.guessed[target.id] = f"{in_words(found.guessed)}{trips}" if found.guessed else ""
        self.deciding[target.id] = found.guessed
        if any(part.cause == UNCERTAIN for part in found.gap_parts):  # then a distance is told, but to work that hangs on data
            self.deciding[target.id] |= {*found.inspection.demand.unknown, *guessed_places(found.inspection.demand)}
        self.missing[target.id] = missing_options(found.inspection) if self.takes_options else ()
        self.besides[target.launch.kernel] = options_besides(found.inspection)
        if target.cached is not None and (stale := staleness(target.cached, target.launch)):
            self.warnings.append(stale)

    def say_left(self, rest: Sequence[KernelTarget]) -> None:
        """Say of which kernels configurations were left for when their sizes are known."""
        for target in self.targets.values():
            left = sum(each.space == target.space and each.id not in self.targets for each in rest)
            if left and target.id in self.reports:
                counted = f"one configuration is shown, and {left} more {'is' if left == 1 else 'are'} compiled"
                self.unknowns[target.id].append(f"{self.reports[target.id].kernel}: {counted} once its grid is known, to be compared with.")

    def missing_first(self, unsized: tuple[str, ...], shown: Sequence[LaunchReport], text: str, command: str) -> tuple[Action, ...]:
        """The first action: give what launches without a grid lack, or else any that are shown, of the target `text`."""
        ids = unsized or tuple(report.id for report in shown if self.missing[report.id])
        options: dict[str, dict[str, None]] = defaultdict(dict)
        for name in ids:
            options[self.targets[name].launch.kernel] |= dict.fromkeys(self.missing[name])
        kernels = self.kernels
        names = {name: frozenset(p.name for p in kernels[name].kernel(name).parameters) for name in options}
        lacking = [
            Lacking(kernel=name, options=tuple(each), besides=self.besides[name], parameters=names[name])
            for name, each in options.items()
            if each
        ]
        return say_missing(lacking, ids, text, command, sized=not unsized, alone=len(kernels) == 1)

    def contents_first(self, unsized: tuple[str, ...], shown: Sequence[LaunchReport], text: str) -> tuple[Action, ...]:
        """To give what tensors hold, where a considerable part of the work hangs on it; of one program that is beside the point."""
        deciding: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
        for report in shown:
            if self.deciding[report.id] and not unsized:
                deciding[report.kernel][report.id] = self.deciding[report.id]
        recorded = is_launch_record(text)
        return say_contents(deciding, recorded=recorded, alone=len(self.kernels) == 1) if recorded or self.takes_options else ()


def compiled_report(target: KernelTarget, analysis: KernelAnalysis, gpu: GpuSpec) -> LaunchReport:
    findings = check_compiled(analysis.inspection, analysis.facts, gpu, analysis)
    fired = {finding.rule for finding in findings}
    passed = tuple(rule.id for rule in COMPILED_RULES if rule.id not in fired)
    elsewhere = target.device is not None and (match_device_name(target.device) or gpu).name != gpu.name
    analysis = replace(
        analysis,
        predicted=_with_interval(analysis),
        gap_parts=tuple(replace(part, note=part.note or NOTES.get(part.cause, "")) for part in analysis.gap_parts),
    )
    # A time recorded on another GPU says nothing of this one.
    return launch_report(replace(target, measured_us=None) if elsewhere else target, analysis, findings, passed)


def _with_interval(analysis: KernelAnalysis) -> Latency | None:
    """The interval that was fitted, or else that of the analytical model, as launches in closed form have it; as wide as the doubt where
    accesses go, and never below the bound."""
    predicted = analysis.predicted
    if predicted is None:
        return None
    low, high = predicted.us * math.exp(-SPREAD), predicted.us * math.exp(SPREAD)  # SPREAD is that of the 80 % interval
    if predicted.low_us is not None and predicted.high_us is not None:
        low, high = predicted.low_us, predicted.high_us
    least_us, most_us = analysis.doubt_us or (predicted.us, predicted.us)
    low, high = low * min(least_us / predicted.us, 1.0), high * max(most_us / predicted.us, 1.0)
    low = max(low, min(analysis.config_bound.us, predicted.us))
    return replace(predicted, low_us=low, high_us=high, coverage=0.8)


def _try(
    looked: _Looked,
    gpu: GpuSpec,
    cache: str,
    counted: Counted,
    deadline: float,
    advance: Callable[[int, int], None] | None,
    regrid: Regrid | None,
) -> None:
    """Try the tunables of the launches that are one configuration of one kernel, those that take longest first; each becomes a space."""
    alone = [group[0] for group in _alike(tuple(looked.reports.values()), looked.targets) if len(group) == 1]
    untried = [each for each in alone if looked.targets[each.id].launch.grid is not None and looked.targets[each.id].cached is None]
    untried = [each for each in untried if each.predicted is not None and looked.count(each) == 1]
    untried.sort(key=lambda report: -_predicted_us(report) * looked.targets[report.id].count)
    with Pool() as workers:
        trials = Trials(gpu=gpu, cache=cache, workers=workers, counted=counted, deadline=deadline, regrid=regrid)
        if advance is not None:
            trials.advance = lambda tried, more: advance(len(looked.targets) + tried, len(looked.targets) + tried + more)
        for number, report in enumerate(untried):
            left = deadline - time.monotonic()
            if left <= 0:
                rest = f"Of {len(untried) - number} of the launches no other configuration was tried"
                looked.unknowns[untried[0].id].append(f"{rest}, for want of time (--try-for).")
                return
            [(target, analysis)] = analyse_targets([looked.targets[report.id]], gpu, cache, workers=workers, counted=counted)
            until = time.monotonic() + max(left / (len(untried) - number), LEAST_S)
            tried = trials.of(target, analysis, until) if isinstance(analysis, KernelAnalysis) else None
            for target, found in tried.found if tried is not None else ():
                looked.take(target, found, gpu, tried=True)
            if tried is not None:
                looked.stopped[report.id] = tried.stopped
                looked.unknowns[report.id] += [f"{report.kernel}: {text}." for text in tried.left_alone]
                for target, _ in tried.found[1:]:  # what is assumed of the launch holds for all of them
                    looked.unknowns[target.id], looked.missing[target.id] = looked.unknowns[report.id], looked.missing[report.id]


MOST_ASSUMPTIONS = 12
"""Of one launch; `advisor inspect` shows all."""


def _assumptions(target: KernelTarget, analysis: KernelAnalysis) -> list[str]:
    """Sentences on what of a launch is unknown or assumed, each with the kernel's name."""
    if target.cached is not None:
        return [UNRECORDED]
    name = analysis.inspection.compiled.name
    found = [text for text in analysis.inspection.assumptions if not text.startswith("Assumed the first configuration of @triton.autotune")]
    if not found:
        return []
    if target.launch.grid is None and not target.launch.assumed:
        guessed = f"{name}: its arguments and grid are guessed from the source (--arg, --constexpr, --signature and --grid say them)."
        return [guessed, *(f"{name}: {text[0].lower()}{text[1:]}" for text in target.launch.notes)]
    taken = [text.removeprefix("Assumed ").removesuffix(".") for text in found if text.startswith("Assumed ")]
    # Of one program, counted to show something, what is not known is beside the point: what is missing is said as the first thing to do.
    untold = ("Assumed ", "Not known: ") if target.launch.grid is None else ("Assumed ",)
    rest = [f"{name}: {text[0].lower()}{text[1:]}" for text in found if not text.startswith(untold)]
    return [*([f"{name}: assumed {'; '.join(taken)}."] if taken else []), *rest[:MOST_ASSUMPTIONS]]


def _rated(looked: _Looked) -> tuple[tuple[LaunchReport, ...], tuple[SearchReport, ...]]:
    """The launches to show with the ceilings that are known, and a search for every space that was looked through.

    A space (the list of `@triton.autotune`, those given, the file's own) stands for one launch: the one that runs untuned, or else the
    best predicted. Without a grid its configurations cannot be compared, and each stands for itself.
    """
    spaces: dict[str, list[LaunchReport]] = defaultdict(list)
    alone: list[LaunchReport] = []
    for report in looked.reports.values():
        target = looked.targets[report.id]
        comparable = target.space is not None and target.launch.grid is not None and report.predicted is not None
        (spaces[str(target.space)] if comparable or target.chosen else alone).append(report)
    shown: dict[str, LaunchReport] = {}
    searches = []
    for name, group in spaces.items():
        tried = name in looked.stopped
        best = _best(group, next((report.configuration for report in group if tried and report.id == name), None) or USUAL)
        main = next((report for report in group if looked.targets[report.id].chosen), best)
        count = sum(target.space == name for target in looked.targets.values())
        if main is best and not looked.targets[main.id].chosen and count > 1:
            near = sum(_predicted_us(report) <= NEAR_BEST * _predicted_us(main) for report in group) - 1
            alike = f", from which {near} more cannot be told apart" if near else ""
            looked.unknowns[main.id].append(
                f"{main.kernel}: which of its {count} configurations runs is not known; the best predicted is shown{alike}."
            )
            main = replace(main, configuration=None, configuration_source=f"not known: one of {count}")
        if tried:
            looked.unknowns[main.id].append(_outcome(main, best, group, looked.stopped[name]))
        shown[main.id] = _with_ceiling(main, best, count, DOUBT if tried else WORTH_CHANGING) if count > 1 else main
        searches += [_search(main, name, looked)] if count > 1 else []
    shown |= {report.id: report for report in alone if looked.targets[report.id].space not in spaces}
    for group in _alike(tuple(shown.values()), looked.targets):
        able = [report for report in group if report.predicted is not None]
        group = [report for report in group if report.ceiling is None]  # the best of a list is no worse than what else of it ran
        if len(group) > 1 and able and all(looked.targets[report.id].launch.grid is not None for report in group):
            shown |= {report.id: _with_ceiling(report, _best(able), len(group)) for report in group}
    return tuple(shown[key] for key in looked.reports if key in shown), tuple(searches)


USUAL = Configuration(parameters={})
"""The warps and stages of a launch that names neither."""


def _best(reports: Sequence[LaunchReport], like: Configuration = USUAL) -> LaunchReport:
    """The least predicted latency; of those that cannot be told apart (`NEAR_BEST`) the one that is most `like` another, the first of
    equals: in its warps and stages, and in what else that one has."""

    def unlike(report: LaunchReport) -> tuple[float, int]:
        made = report.configuration
        if made is None:
            return math.inf, 0
        blocks = [(made.parameters.get(name), value) for name, value in like.parameters.items() if type(value) is int and value > 0]
        apart = sum(abs(math.log2(one / other)) for one, other in blocks if type(one) is int and one > 0)
        return apart + abs(math.log2(made.num_warps / like.num_warps)), abs(made.num_stages - like.num_stages)

    least = min(map(_predicted_us, reports))
    return min((report for report in reports if _predicted_us(report) <= NEAR_BEST * least), key=unlike)


def _outcome(main: LaunchReport, best: LaunchReport, group: Sequence[LaunchReport], stopped: str) -> str:
    """What came of trying, in a sentence: what was tried, what of it cannot be told apart, and why it ended."""
    values: dict[str, set[int]] = defaultdict(set)
    for report in group:
        for name, value in report.configuration.flat().items() if report.configuration is not None else ():
            values[name] |= {value} if type(value) is int else set()
    ranges = ", ".join(f"{name} {min(each)}–{max(each)}" for name, each in values.items() if len(each) > 1)
    near = sum(_predicted_us(report) <= DOUBT * _predicted_us(best) for report in group if report is not best)
    doubt = f"the model's doubt ({100 * (DOUBT - 1):.0f} %)"
    if main.configuration is not None and _predicted_us(main) < DOUBT * _predicted_us(best):
        found = f"none is predicted to be faster than what is launched by more than {doubt}"
    else:
        found = f"{near or 'none'} of the others {'is' if near < 2 else 'are'} within {doubt} of the best"
    return f"{main.kernel}: {len(group)} configurations were tried ({ranges}); {found}; {stopped}."


def _predicted_us(report: LaunchReport) -> float:
    return report.predicted.us if report.predicted is not None else math.inf


def _alike(reports: tuple[LaunchReport, ...], targets: Mapping[str, KernelTarget]) -> list[list[LaunchReport]]:
    """Launches that differ in nothing but their configuration: with another function, type, absent argument or number that is not tuned,
    other tensors, or one tensor in place of two, the work is another; so it is with another grid and the same configuration."""
    groups: dict[tuple[object, ...], list[LaunchReport]] = defaultdict(list)
    for report in reports:
        launch = targets[report.id].launch
        tuned = launch.tunable or {name for name in launch.given.constexprs if is_tuned(name)}
        constants = {
            name: value for name, value in launch.given.constexprs.items() if not isinstance(value, (int, str)) or name not in tuned
        }
        told = [constants, launch.same, launch.sizes, launch.shapes, report.problem.sizes]
        work = repr([sorted((name, repr(value)) for name, value in each.items()) for each in told])
        groups[(report.kernel, report.problem.op, work, report.problem.dtype)].append(report)
    return [part for group in groups.values() for part in _of_one_grid(group, targets)]


def _of_one_grid(group: Sequence[LaunchReport], targets: Mapping[str, KernelTarget]) -> list[list[LaunchReport]]:
    """The group; apart by their grids where one configuration has several."""
    launches = [targets[report.id].launch for report in group]
    grids = defaultdict(set)
    for launch in launches:
        grids[repr(sorted(launch.given.constexprs.items(), key=str))].add(launch.grid)
    if all(len(each) == 1 for each in grids.values()):
        return [list(group)]
    parts: dict[object, list[LaunchReport]] = defaultdict(list)
    for report, launch in zip(group, launches, strict=True):
        parts[launch.grid].append(report)
    return list(parts.values())


def _search(main: LaunchReport, space: str, looked: _Looked) -> SearchReport:
    """Every configuration of a space as a trial: what is predicted of it, or why it cannot run."""
    trials = []
    failures: dict[str, int] = {}
    tried = "the neighbours of what is launched, and of the best of them" if space in looked.stopped else ""
    for number, target in enumerate(t for t in looked.targets.values() if t.space == space):
        report = looked.reports.get(target.id)
        us = report.predicted.us if report is not None and report.predicted is not None else None
        failure = _why_not(looked.failed[target.id]) if report is None else "cannot launch"
        state = "complete" if us is not None else f"failed: {failure}"
        if us is None:
            failures[failure] = failures.get(failure, 0) + 1
        given = target.launch.given
        names = target.launch.tunable or frozenset(given.constexprs)
        configuration = (report.configuration if report is not None else None) or Configuration(
            parameters={n: v for n, v in given.constexprs.items() if n in names and isinstance(v, (int, bool, str))},
            num_warps=int(given.options.get("num_warps") or 4),
            num_stages=int(given.options.get("num_stages") or 3),
        )
        trials.append(SearchTrial(number=number, configuration=configuration, state=state, predicted_us=us))
    return SearchReport(
        launch=main.id,
        sampler=f"{tried or 'all that are listed'}, by the analytical model on the compiled code of each",
        stopped_because=looked.stopped.get(space, "every configuration was looked at"),
        trials=tuple(trials),
        failures=failures,
    )


def _why_not(reason: str) -> str:
    """Why nothing is predicted of a configuration, in a few words."""
    return "other work" if reason == OTHER_WORK else "no end in time" if "was not compiled" in reason else "does not compile"


def _with_ceiling(report: LaunchReport, best: LaunchReport, count: int, worth: float = WORTH_CHANGING) -> LaunchReport:
    if best.predicted is None or best.configuration is None:
        return report
    source = f"analytical model, best of {count} configurations: {best.configuration.label()}"
    before = report.before(best.predicted)
    now = before.us if before is not None else None
    ceiling = replace(best.predicted, source=source)
    if now is not None and now < ceiling.us:  # what was measured is reached, whatever is predicted
        ceiling = Latency(us=now, origin="predicted", source=source)
    speedup = now / best.predicted.us if now is not None else 1.0
    recommendation = None
    if report.configuration is None or (best.id != report.id and (now is None or speedup >= worth)):
        recommendation = Recommendation(
            configuration=best.configuration,
            latency=best.predicted,
            speedup=speedup,
            p_speedup_10pct=None,
            reason=f"best predicted of {count} configurations",
            triton_config=triton_config(best.configuration),
            demand={part.pipeline: part.demand for part in best.pipelines if part.pipeline != "launch"},
        )
    cured = {finding.rule for finding in report.findings} - {finding.rule for finding in best.findings}
    return replace(
        report,
        findings=report.findings if recommendation is None else tuple(_cured(each, each.rule in cured) for each in report.findings),
        ceiling=ceiling,
        ceiling_configuration=best.configuration,
        headroom=now / ceiling.us - 1 if now is not None else None,
        recommendation=recommendation,
    )


def _cured(finding: Finding, cured: bool) -> Finding:
    """A finding that the recommended configuration no longer has: what it would save is part of what that saves."""
    if not cured or finding.saving_us is None:
        return finding
    return replace(finding, net_saving_us=finding.saving_us, remedy=f"{finding.remedy}; the recommended configuration has it no longer")
