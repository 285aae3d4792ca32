"""The `Result` of a kernel in source, or a record of launches: compiled code takes the place of the closed forms."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from advisor import __version__
from advisor.advising.choice import NEAR_BEST
from advisor.advising.exports import triton_config
from advisor.advising.kernel_launches import KernelReports
from advisor.advising.launch_facts import gpu_figures, warm_cache
from advisor.advising.measured.profiles import timed
from advisor.advising.missing_options import is_tuned
from advisor.advising.trials import DOUBT, MOST_TRIED, NO_END, OTHER_WORK, SPREAD, SURE, TOGETHER, Regrid, Trials, unsearched_text
from advisor.advising.verdict import verdict
from advisor.compiled.analysis import PROBLEM_NOTE, SOURCE, KernelAnalysis
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.demand import Counted
from advisor.compiled.guesses.inference import Given
from advisor.compiled.launch_report import (
    KernelTarget,
    analyse_targets,
    targets_from,
    targets_recorded,
)
from advisor.compiled.launches.launch import KernelLaunch
from advisor.compiled.launches.launch_options import LaunchOptions
from advisor.compiled.launches.records import heaviest, record_target
from advisor.diagnosis import LEAST_GAIN_US, WORTH_CHANGING, actions
from advisor.diagnosis.actions import MOST
from advisor.diagnosis.compiled_rules.arithmetic import mask_never_binds
from advisor.diagnosis.rule import microseconds
from advisor.gpus.hardware import GpuSpec, offline
from advisor.learned.base import exact_products, held_by_power
from advisor.learned.compiled_launch import launch_analysis
from advisor.result.schema import (
    Configuration,
    Finding,
    Latency,
    LaunchReport,
    Recommendation,
    Result,
    SearchReport,
    SearchTrial,
    Verdict,
)
from advisor.rows.launches import is_launch_record, read_launches
from advisor.system import grouped
from advisor.system.errors import InputError, shorten
from advisor.system.resources import phrase
from advisor.system.settings import read_settings


def advise_compiled(
    text: str,
    gpu: GpuSpec,
    *,
    cache: str,
    command: str,
    launch_options: LaunchOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
    try_s: float | None = None,
    regrid: Regrid | None = None,
    measured: str | None = None,
) -> Result:
    """Compile and count every launch that TARGET stands for, and diagnose it.

    The configurations of one kernel (its `@triton.autotune` list, those given, recorded launches that differ in nothing else) are one
    space: the best of them is the tunable ceiling. Without a grid their work cannot be told to be the same, and no ceiling is named.

    Args:
        text: FILE.py::KERNEL, a file that TorchInductor generated, or a record of `advisor record`.
        gpu: GPU to compile for.
        cache: What the L2 holds at launch, cold or warm.
        command: The command line that repeats this.
        launch_options: What the user says of the launch.
        progress: Called with (done, total) launches, and configurations of them that are tried.
        try_s: Seconds for trying the tunables of launches of which one configuration is known, all together; None: as the settings say, or
            as many configurations as `trials.MOST_TRIED`.
        regrid: The grid of the one launch with other constants, where a function gives it.
        measured: A profile, for a record's launches.

    Raises:
        UsageError, InputError: It is none of these, or nothing of it can be compiled.
        MissingDependencyError: triton is not installed.
    """
    heavy, sums = heaviest(record_target(text)) if is_launch_record(text) and launch_options in (None, LaunchOptions()) else ([], [])
    targets = targets_recorded(heavy) if heavy else targets_from(text, launch_options, gpu)
    # Records hold what there is to know, and a file of TorchInductor's says its sizes itself.
    written = all(item.launch.source.kernel(item.launch.kernel).inductor is None for item in targets)
    gathered = KernelReports(takes_options=written and not is_launch_record(text))
    if is_launch_record(text):
        gathered.warnings += dict.fromkeys(read_launches(text).problems)  # what it lacks, each once
        if measured is not None:
            targets, lacking = timed(targets, measured)
            gathered.warnings += lacking
    counted = Counted()
    seconds = read_settings().try_s if try_s is None else try_s
    with Pool() as workers:

        def look(several: Sequence[KernelTarget]) -> None:
            for target, analysis in analyse_targets(
                several, gpu, cache, progress=progress, workers=workers, counted=counted, judge=launch_analysis
            ):
                gathered.take(target, analysis, gpu)

        _look_through(targets, gathered, look, seconds or None)
        gathered.say_left([item for item in targets if item.space not in gathered.unsearched])
        if seconds != 0:
            _try(gathered, gpu, cache, workers, counted, seconds, progress, regrid)
    if not gathered.reports:
        why = "".join(f": {shorten(text, 800)}" for text in gathered.warned()[:1])
        raise InputError(f"{text}: no launch could be compiled{why}")
    launches, searches = _rated(gathered)
    unknowns = [PROBLEM_NOTE, *sums, *dict.fromkeys(text for report in launches for text in gathered.unknowns[report.id])]
    unsized = tuple(report.id for report in launches if gathered.targets[report.id].launch.grid is None)
    if unsized:
        unknowns.append(phrase("note.no_grid"))
    elif any(report.ceiling is None and not report.unsearched for report in launches):
        unknowns.append(phrase("note.one_configuration"))
    often = {report.id: gathered.targets[report.id].count for report in launches}
    if len(set(often.values())) > 1:
        most = max(often, key=lambda name: often[name])
        unknowns.append(phrase("note.counted_once", launch=most, count=f"{often[most]:,}"))
    warm = (phrase("note.warm"),) if cache == "warm" and not unsized else ()
    unknowns += warm_cache([report for report in launches if report.id not in unsized]) or warm
    unknowns += exact_products([report.problem for report in launches], gpu) + held_by_power(launches, gpu)
    shown = {report.kernel for report in launches}
    guessed = {report.id: gathered.guessed[report.id] for report in launches if gathered.guessed[report.id]}
    missing = (*gathered.missing_first(unsized, launches, text, command), *gathered.contents_first(unsized, launches, text, command))
    judged = tuple(report for report in launches if report.id not in gathered.one_trip)
    undecided = unsized or len(judged) < len(launches)
    before, after = (missing, ()) if undecided else ((), missing)  # without a size there is nothing else to do
    return Result(
        tool_version=__version__,
        command=command,
        target=text,
        fingerprint=offline(gpu),
        gpu=gpu.name,
        gpu_figures=gpu_figures(gpu),
        model=None,
        verdict=_with_unable(verdict(launches, tuple(unknowns), unsized, guessed, one_trip=gathered.one_trip), searches),
        actions=(*before, *actions(judged), *after)[:MOST],
        launches=launches,
        table_findings=(),
        exports=(),
        sources=tuple(source for source in gathered.sources if source.kernel in shown),
        warnings=gathered.warned(),
        searches=searches,
    )


def _look_through(
    targets: Sequence[KernelTarget], gathered: KernelReports, look: Callable[[Sequence[KernelTarget]], None], seconds: float | None
) -> None:
    """Look at launches. Of configurations that cannot be compared, for no grid is known of any, at one that compiles: that which runs
    untuned, if there is one. Of a list of more than `MOST_TRIED` at some spread evenly over it, the first among them, and then at those
    that are most like the best of these, until there are so many, or the `seconds` that a user gives are over."""
    until = time.monotonic() + (seconds or 0)
    spaces = grouped((target.space or target.id, target) for target in targets)
    sized = {name for name, group in spaces.items() if any(target.launch.grid is not None for target in group)}
    batch: list[KernelTarget] = []
    for name, group in spaces.items():
        chosen = [target for target in group if target.chosen]
        if name not in sized:
            batch.append((chosen or group)[-1 if chosen else 0])
        elif len(group) <= MOST_TRIED:
            batch += group
        else:
            spread = {group[number * len(group) // SPREAD].id for number in range(SPREAD)}
            batch += [target for target in group if target.chosen or target.id in spread]
    while batch:
        look(batch)
        batch = []
        for name, group in spaces.items():
            left = [target for target in group if target.id not in gathered.targets]
            able = [target for target in group if target.id in gathered.reports]
            looked = len(group) - len(left)
            if left and (not able if name not in sized else time.monotonic() < until if seconds else looked < MOST_TRIED):
                best = min(able, key=lambda target: _predicted_us(gathered.reports[target.id]), default=group[0])
                batch += sorted(left, key=lambda target: _apart(*(_tunables(item.launch.given) for item in (best, target))))[:TOGETHER]
            elif left and name in sized:
                gathered.unsearched[name] = unsearched_text(looked, len(left))


def _try(
    gathered: KernelReports,
    gpu: GpuSpec,
    cache: str,
    workers: Pool,
    counted: Counted,
    seconds: float | None,
    advance: Callable[[int, int], None] | None,
    regrid: Regrid | None,
) -> None:
    """Try the tunables of the launches that are one configuration of one kernel, those that take longest first; each becomes a space."""
    alone = [group[0] for group in _alike(tuple(gathered.reports.values()), gathered.targets) if len(group) == 1]
    untried = [item for item in alone if gathered.targets[item.id].launch.grid is not None]
    untried = [item for item in untried if item.predicted is not None and gathered.count(item) == 1]
    untried.sort(key=lambda report: -_predicted_us(report) * gathered.targets[report.id].count)
    trials = Trials(gpu=gpu, cache=cache, workers=workers, counted=counted, left=MOST_TRIED, regrid=regrid)
    if seconds is not None:
        trials.deadline, trials.left = time.monotonic() + seconds, math.inf
    if advance is not None:
        trials.advance = lambda tried, more: advance(len(gathered.targets) + tried, len(gathered.targets) + tried + more)
    for number, report in enumerate(untried):
        if trials.over:
            gathered.unknowns[untried[0].id].append(phrase("note.untried", count=len(untried) - number))
            return
        [(target, analysis)] = analyse_targets(
            [gathered.targets[report.id]], gpu, cache, workers=workers, counted=counted, judge=launch_analysis
        )
        tried = trials.of(target, analysis, len(untried) - number) if isinstance(analysis, KernelAnalysis) else None
        for target, outcome in tried.analyses if tried is not None else ():
            gathered.take(target, outcome, gpu)
        if tried is not None:
            gathered.stopped[report.id], gathered.unsearched[report.id] = tried.stopped, tried.unsearched
            gathered.unknowns[report.id] += [f"{report.kernel}: {text}" for text in tried.left_alone]
            for target, _ in tried.analyses[1:]:  # what is assumed of the launch holds for all of them
                gathered.unknowns[target.id], gathered.missing[target.id] = gathered.unknowns[report.id], gathered.missing[report.id]


def _rated(gathered: KernelReports) -> tuple[tuple[LaunchReport, ...], tuple[SearchReport, ...]]:
    """The launches to show with the ceilings that are known, and a search for every space that was looked through.

    A space (the list of `@triton.autotune`, those given, the file's own) stands for one launch: the one that runs untuned, or else the
    best predicted. Without a grid its configurations cannot be compared, and each stands for itself.
    """
    spaces: dict[str, list[LaunchReport]] = defaultdict(list)
    alone: list[LaunchReport] = []
    for report in gathered.reports.values():
        target = gathered.targets[report.id]
        comparable = target.space is not None and target.launch.grid is not None and report.predicted is not None
        (spaces[str(target.space)] if comparable or target.chosen else alone).append(report)
    shown: dict[str, LaunchReport] = {}
    searches = []
    for name, every in spaces.items():
        group = _by_one_model(every, gathered)
        tried = name in gathered.stopped
        launched = next((report.configuration for report in group if tried and report.id == name), None)
        best = _best(group, launched or USUAL, TIE if tried else NEAR_BEST)
        main = next((report for report in group if gathered.targets[report.id].chosen), best)
        count = sum(target.space == name for target in gathered.targets.values())
        if main is best and not gathered.targets[main.id].chosen and count > 1:
            which = "note.which_tried" if tried or name in gathered.unsearched else "note.which_configuration"
            gathered.unknowns[main.id].append(phrase(which, kernel=main.kernel, count=count, near=_near(main, group)))
            main = replace(main, configuration=None, configuration_source=f"unknown: one of {count}")
        if tried:
            gathered.unknowns[main.id].append(_outcome(main, best, group, gathered.stopped[name]))
        named = gathered.targets[main.id].launch if tried and gathered.targets[main.id].launch.line is not None else None
        shown[main.id] = _with_ceiling(main, best, count, DOUBT if tried else WORTH_CHANGING, named) if count > 1 else main
        if unsearched := gathered.unsearched.get(name):
            shown[main.id] = _of_part(shown[main.id], unsearched)
        searches += [_search(main, name, gathered)] if count > 1 else []
    shown |= {report.id: report for report in alone if gathered.targets[report.id].space not in spaces}
    for group in _alike(tuple(shown.values()), gathered.targets):
        able = _by_one_model([report for report in group if report.predicted is not None], gathered)
        # The best of a list is no worse than what else of it ran.
        group = [report for report in group if report.ceiling is None and (report in able or report.predicted is None)]
        if len(group) > 1 and able and all(gathered.targets[report.id].launch.grid is not None for report in group):
            shown |= {report.id: _with_ceiling(report, _best(able), len(group)) for report in group}
    return tuple(shown[key] for key in gathered.reports if key in shown), tuple(searches)


def _by_one_model(group: list[LaunchReport], gathered: KernelReports) -> list[LaunchReport]:
    """Of the configurations of a launch those that one model predicts, that of the one that runs, or else of most: what two say is not
    compared."""
    models = Counter(report.predicted.source for report in group if report.predicted is not None)
    if len(models) < 2:
        return group
    runs = (report.predicted.source for report in group if report.predicted is not None and gathered.targets[report.id].chosen)
    model = next(runs, models.most_common(1)[0][0])
    return [report for report in group if report.predicted is None or report.predicted.source == model]


USUAL = Configuration(parameters={})
"""The warps and stages of a launch that names neither."""


TIE = 1.01
"""Of configurations that were tried, those predicted within this of each other are the same to a user: what runs now is left as it is."""


def _best(reports: Sequence[LaunchReport], like: Configuration = USUAL, tie: float = NEAR_BEST) -> LaunchReport:
    """The least predicted latency; of those within a `tie` the one that is most `like` another, the first of equals: in what that one has,
    its warps, or else the fewest, and its stages."""

    def unlike(report: LaunchReport) -> tuple[float, int, int]:
        made = report.configuration
        if made is None:
            return math.inf, 0, 0
        warps = made.num_warps if made.num_warps != like.num_warps else 0
        return _apart(like.parameters, made.flat()), warps, abs(made.num_stages - like.num_stages)

    least = min(map(_predicted_us, reports))
    return min((report for report in reports if _predicted_us(report) <= tie * least), key=unlike)


def _apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """How unlike two sets of tunables are in what both have: by how many doublings of their numbers."""
    both = [(one[name], other[name]) for name in one.keys() & other.keys()]
    return sum(abs(math.log2(a / b)) for a, b in both if type(a) is type(b) is int and min(a, b) > 0)


def _tunables(given: Given) -> dict[str, Any]:
    return {**given.constexprs, **given.options}


NAMED = 3
"""Of configurations that are as good as the best."""
_DOUBT = f"{100 * (DOUBT - 1):.0f} %"


def _outcome(main: LaunchReport, best: LaunchReport, group: Sequence[LaunchReport], stopped: str) -> str:
    """What came of trying, in a sentence: what was tried, what of it cannot be told apart, and why it ended."""
    values: dict[str, set[int]] = defaultdict(set)
    for report in group:
        for name, value in report.configuration.flat().items() if report.configuration is not None else ():
            values[name] |= {value} if type(value) is int else set()
    ranges = ", ".join(f"{name} {min(item)}–{max(item)}" for name, item in values.items() if len(item) > 1)
    tied = main.configuration is not None and _predicted_us(main) < DOUBT * _predicted_us(best)
    outcome = phrase("note.none_faster", doubt=_DOUBT) if tied else _near(best, group)
    ranges = f" ({ranges})" if ranges else ""
    return phrase("note.tried", kernel=main.kernel, count=len(group), ranges=ranges, outcome=outcome, stopped=stopped)


def _near(best: LaunchReport, group: Sequence[LaunchReport]) -> str:
    """Which configurations of a group cannot be told apart from its `best`, in what they differ from that, the fastest first."""
    near = [report for report in group if report is not best and _predicted_us(report) <= DOUBT * _predicted_us(best)]
    others = [report.configuration for report in sorted(near, key=_predicted_us)[:NAMED] if report.configuration is not None]
    changes = [_as_arguments(_change(best.configuration, other)).replace(", ", " and ") for other in others] if best.configuration else []
    which = ", or ".join(changes) + (f", and {more} more" if (more := len(near) - len(changes)) else "")
    return phrase("note.near_best" if near else "note.none_near", doubt=_DOUBT, count=len(near), which=which)


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
        parts = [constants, launch.same, launch.sizes, launch.shapes, report.problem.sizes]
        work = repr([sorted((name, repr(value)) for name, value in item.items()) for item in parts])
        groups[(report.kernel, report.problem.op, work, report.problem.dtype)].append(report)
    return [part for group in groups.values() for part in _of_one_grid(group, targets)]


def _of_one_grid(group: Sequence[LaunchReport], targets: Mapping[str, KernelTarget]) -> list[list[LaunchReport]]:
    """The group; apart by their grids where one configuration has several."""
    launches = [targets[report.id].launch for report in group]
    grids = defaultdict(set)
    for launch in launches:
        grids[repr(sorted(launch.given.constexprs.items(), key=str))].add(launch.grid)
    if all(len(grid) == 1 for grid in grids.values()):
        return [list(group)]
    parts = grouped((launch.grid, report) for report, launch in zip(group, launches, strict=True))
    return list(parts.values())


def _search(main: LaunchReport, space: str, gathered: KernelReports) -> SearchReport:
    """Every configuration of a space as a trial: what is predicted of it, or why it cannot run."""
    trials = []
    failures: dict[str, int] = {}
    part = space in gathered.unsearched
    tried = phrase("search.neighbours") if space in gathered.stopped else phrase("search.spread") if part else phrase("search.listed")
    for number, target in enumerate(t for t in gathered.targets.values() if t.space == space):
        report = gathered.reports.get(target.id)
        us = report.predicted.us if report is not None and report.predicted is not None else None
        failure = _why_not(gathered.failed[target.id]) if report is None else "cannot launch"
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
        sampler=phrase("search.sampler", which=tried),
        stopped_because=gathered.stopped.get(space, phrase("search.time_up" if part else "search.complete")),
        trials=tuple(trials),
        failures=failures,
    )


def _with_unable(judged: Verdict, searches: Sequence[SearchReport]) -> Verdict:
    """The verdict, with a note on listed configurations that do not compile or cannot launch: autotuning leaves them out."""
    notes = list(judged.notes)
    for search in searches:
        unable = [trial for trial in search.trials if trial.state in ("failed: cannot launch", "failed: does not compile")]
        if unable and search.sampler == phrase("search.sampler", which=phrase("search.listed")):
            notes.append(phrase("note.unable", count=len(unable), whole=len(search.trials), which=unable[0].configuration.label()))
    return replace(judged, notes=tuple(notes))


def _why_not(reason: str) -> str:
    """Why nothing is predicted of a configuration, in a few words."""
    return "other work" if reason == OTHER_WORK else "no end in time" if NO_END in reason else "does not compile"


def _with_ceiling(
    report: LaunchReport, best: LaunchReport, count: int, worth: float = WORTH_CHANGING, launch: KernelLaunch | None = None
) -> LaunchReport:
    """A report with the ceiling that the `best` of `count` configurations is, and the change to that where it is `worth` it; in which line
    the configuration stands, where a `launch` names it itself."""
    if best.predicted is None or best.configuration is None:
        return report
    source = f"analytical model, best of {count} configurations: {best.configuration.label()}"
    now = before.us if (before := report.before(best.predicted)) is not None else None
    ceiling = replace(best.predicted, source=source)
    if now is not None and now < ceiling.us:  # what was measured is reached, whatever is predicted
        ceiling = Latency(us=now, origin="predicted", source=source)
    speedup, sure = now / best.predicted.us if now is not None else 1.0, max(worth, SURE) if best.predicted.source == SOURCE else worth
    recommendation, gains = None, now is None or (speedup >= sure and now - best.predicted.us >= LEAST_GAIN_US)
    if report.configuration is not None and worth <= speedup < sure:
        needed = {"gain": f"{100 * (1 - 1 / speedup):.0f} %", "needed": f"{100 * (1 - 1 / sure):.0f} %"}
        report = replace(report, kept=phrase("choice.apart", best=best.configuration.label(), **needed))
    if report.configuration is None or (best.id != report.id and gains):
        change = _change(report.configuration, best.configuration)
        recommendation = Recommendation(
            configuration=best.configuration,
            latency=best.predicted,
            speedup=speedup,
            p_speedup_10pct=None,
            reason=phrase("choice.best", count=count) + (_where(launch, change) if launch is not None else ""),
            triton_config=triton_config(best.configuration) if launch is None else _as_arguments(change),
            demand={part.pipeline: part.demand for part in best.pipelines if part.pipeline != "launch"},
        )
    if recommendation is not None:
        left, current = ({finding.rule: finding for finding in item.findings} for item in (best, report))
        cured = [phrase("choice.cures", what=item.title) for item in report.findings if item.saving_us and item.rule not in left]
        now_us = report.predicted.us if report.predicted is not None else math.inf
        both_us = {rule: best.predicted.us - (finding.saving_us or 0.0) for rule, finding in left.items()}
        cured += [phrase("remedy.instead")] * any(now_us - (item.saving_us or 0) < both_us.get(item.rule, 0) for item in report.findings)
        recommendation = replace(recommendation, reason="; ".join([recommendation.reason, *cured]))
        # A mask that binds in the blocks that are recommended is no finding.
        lasting = [item for item in report.findings if item.rule != mask_never_binds.id or item.rule in left]
        new = [item for item in best.findings if item.rule not in current and item.saving_us and item.rule in report.passed_rules]
        report = replace(
            report,
            findings=tuple(_with_change(item, left, both_us, now_us) for item in (*lasting, *new)),
            passed_rules=tuple(rule for rule in report.passed_rules if rule not in {item.rule for item in new}),
        )
    return replace(
        report,
        ceiling=ceiling,
        ceiling_configuration=best.configuration,
        headroom=now / ceiling.us - 1 if now is not None else None,
        recommendation=recommendation,
    )


def _change(now: Configuration | None, then: Configuration) -> dict[str, tuple[Any, Any]]:
    """The arguments of a launch that change: before (None: not given) and after."""
    before = now.flat() if now is not None else {}
    return {name: (before.get(name), value) for name, value in then.flat().items() if before.get(name) != value}


def _as_arguments(change: Mapping[str, tuple[Any, Any]]) -> str:
    """What to write in a launch: `BLOCK=2048, num_warps=8`."""
    return ", ".join(f"{name}={value!r}" for name, (_, value) in change.items())


def _where(launch: KernelLaunch, change: Mapping[str, tuple[Any, Any]]) -> str:
    """In which lines of the file a change is made, and which number of the grid there changes with a block."""
    in_grid = [phrase("choice.in_grid", now=now, then=then) for now, then in change.values() if now in launch.blocks_in_grid]
    assigned = grouped((launch.assigned[name], name) for name in change if name in launch.assigned)
    where = [f"{' and '.join(names)} in line {line}" for line, names in assigned.items()]
    where += [phrase("choice.at_line", line=launch.line)] * (not change.keys() <= launch.assigned.keys())
    return phrase("choice.change", where=", and ".join(where)) + "".join(in_grid[:1])


def _of_part(report: LaunchReport, unsearched: str) -> LaunchReport:
    """A report of a space of which only a part was evaluated: without a faster one in that, nothing is known of a ceiling."""
    if report.recommendation is None and report.configuration is not None:
        report = replace(report, ceiling=None, ceiling_configuration=None, headroom=None)
    return replace(report, unsearched=unsearched)


def _with_change(finding: Finding, left: Mapping[str, Finding], both_us: Mapping[str, float], now_us: float) -> Finding:
    """A finding of what takes `now_us` beside a recommended configuration, by the findings `left` in it and what that takes without them:
    one that it no longer has is part of what it saves; another says what it still saves, or that its cure alone is faster than both."""
    if finding.saving_us is None or finding.rule not in left:
        cured = f"{finding.remedy}; {phrase('remedy.cured')}"
        return finding if finding.saving_us is None else replace(finding, net_saving_us=finding.saving_us, remedy=cured)
    more, both, alone_us = left[finding.rule].saving_us or 0.0, both_us[finding.rule], now_us - finding.saving_us
    key = "after" if finding is left[finding.rule] else "alone" if alone_us < both else "besides" if more else ""
    times = {"us": microseconds(more), "then": microseconds(both), "alone": microseconds(alone_us)}
    title = phrase("remedy.title", what=finding.title) if key == "after" else finding.title
    return replace(finding, title=title, remedy=f"{finding.remedy}; {phrase(f'remedy.{key}', **times)}") if key else finding
