"""Two results, or two files of rows, against each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from advisor.advising import advise_target
from advisor.advising.choice import Measured
from advisor.advising.targets import PlannedLaunch, Target
from advisor.comparison.static import static_row
from advisor.gpus.hardware import GpuSpec, match_device_name
from advisor.learned.base import Predictor
from advisor.measurement.launch import Failure
from advisor.measurement.measured_rows import MeasuredRow as Row
from advisor.measurement.statistics import Side, median_interval, verdict
from advisor.pipelines.space import SPACES, problem_space
from advisor.rendering.figures import sizes_text, types_text
from advisor.result.comparison_schema import MeasuredEffect, MeasuredRow, StaticRow, StaticVerdict, Subject
from advisor.result.schema import Configuration, Finding, Fingerprint, Latency, LaunchReport, Problem, Recommendation, Result, Round
from advisor.rows.types_and_origin import simulated
from advisor.system.errors import AdvisorError, InputError

LARGEST_ROWS = 4_000


def launch_label(problem: Problem) -> str:
    """`w13 M=64 E=128 … bf16`."""
    return f"{problem.op} {sizes_text(problem)} {types_text(problem)}"


def result_subject(title: str, base: Result, head: Result) -> Subject:
    """Two results: launches are matched by what they compute, whatever they are called."""
    notes = _other_gpus("results", [base.gpu], [head.gpu])
    old, new = _by_problem(base), _by_problem(head)
    static: list[StaticRow] = []
    measured: list[MeasuredRow] = []
    for key in [*new, *(entry for entry in old if entry not in new)]:
        before, after = old.get(key), new.get(key)
        shown = after or before
        assert shown is not None
        gpu = head.gpu if after is not None else base.gpu
        label = launch_label(shown.problem)
        row = static_row(shown.id, label, gpu, [before] if before else None, [after] if after else None)
        static.append(row)
        ran = (
            ran_of_report(before, base.gpu, base.fingerprint) if before else None,
            ran_of_report(after, head.gpu, head.fingerprint) if after else None,
        )
        if any(ran):
            context = Context(bound=row.bound, ceiling=row.ceiling, cause=row.new_findings, advice=row.advice)
            measured.append(measured_row(shown.id, label, *ran, context))
    known = {(finding.rule, finding.evidence) for finding in base.table_findings}
    kept = {(finding.rule, finding.evidence) for finding in head.table_findings}
    return Subject(
        kind="result",
        title=title,
        path=title,
        change="compared",
        static=tuple(static),
        measured=tuple(measured),
        new_issues=tuple(finding for finding in head.table_findings if (finding.rule, finding.evidence) not in known),
        cured_issues=tuple(finding for finding in base.table_findings if (finding.rule, finding.evidence) not in kept),
        notes=tuple(notes),
    )


def _by_problem(result: Result) -> dict[str, LaunchReport]:
    """Reports by GPU, kernel and problem; a problem that occurs again gets a number."""
    by_problem: dict[str, LaunchReport] = {}
    for report in result.launches:
        key = f"{result.gpu}\x1f{report.kernel}\x1f{report.problem!r}"
        number = next(n for n in itertools.count() if f"{key}\x1f{n}" not in by_problem)
        by_problem[f"{key}\x1f{number}"] = report
    return by_problem


def rows_subject(title: str, base: Sequence[Row], head: Sequence[Row], predictor: Predictor) -> Subject:
    """Two files of rows. A problem with one row on each side is compared whatever its configurations; a sweep is compared
    configuration by configuration."""
    if max(len(base), len(head)) > LARGEST_ROWS:
        raise InputError(f"{title}: too many rows to compare", f"{max(len(base), len(head)):,}", f"at most {LARGEST_ROWS:,}")
    sides = [_runs(rows) for rows in (base, head)]
    notes = _other_gpus("rows", *([run.gpu for run in runs] for runs in sides))
    swept = _swept(base) | _swept(head)
    old, new = ({_key(run, swept): run for run in runs} for runs in sides)
    repeated = sum(len(runs) for runs in sides) - len(old) - len(new)
    if repeated:
        notes.append(f"{repeated} rows repeat a launch of their file; the last one counts.")
    static: list[StaticRow] = []
    measured: list[MeasuredRow] = []
    for number, (_, before, after) in enumerate(by_id(old, new)):
        shown = after or before
        assert shown is not None
        configuration = f" {shown.configuration.label()}" if _problem_key(shown) in swept and shown.configuration else ""
        label, identifier = launch_label(shown.problem) + configuration, f"row-{number}"
        reports = [_report(run, predictor) if run is not None else None for run in (before, after)]
        silent = [run for run, report in zip((before, after), reports, strict=True) if run is not None and report is None]
        context = Context()
        if any(reports):
            row = static_row(identifier, label, shown.gpu, *([item] if item else None for item in reports))
            context = Context(bound=row.bound, ceiling=row.ceiling, cause=row.new_findings, advice=row.advice)
            if not silent:  # a side of which nothing can be predicted is no side that is missing
                static.append(row)
        if any(run is not None and (run.latency or run.rounds or run.failure) for run in (before, after)):
            measured.append(measured_row(identifier, label, before, after, context))
        elif silent:
            static.append(_without_figures(identifier, label, before, after, silent[0]))
    return Subject(
        kind="rows", title=title, path=title, change="compared", static=tuple(static), measured=tuple(measured), notes=tuple(notes)
    )


def _other_gpus(what: str, base: Sequence[str], head: Sequence[str]) -> list[str]:
    """That two sides have no GPU in common, where both name one."""
    if not base or not head or set(base) & set(head):
        return []
    old, new = (", ".join(sorted(set(side))) for side in (base, head))
    return [f"The {what} are for different GPUs ({old} and {new}): no row has two sides."]


def _without_figures(identifier: str, label: str, before: Ran | None, after: Ran | None, silent: Ran) -> StaticRow:
    """The row of a problem that was not measured and of which, for a side at least, nothing can be predicted."""
    if silent.configuration is None:
        reason = "it names neither a configuration nor a latency"
    else:
        reason = "its GPU, operator or configuration has no model, and it names no latency"
    verdict: StaticVerdict = "new" if before is None else "missing" if after is None else "not comparable"
    return StaticRow(
        id=identifier,
        label=label,
        kernel=silent.kernel,
        gpu=silent.gpu,
        problems=(silent.problem,),
        base=None,
        head=None,
        default=None,
        compared_with="nothing",
        bound=None,
        ceiling=None,
        change=None,
        verdict=verdict,
        reason=reason,
        changed=False,
    )


def _runs(rows: Iterable[Row]) -> list[Ran]:
    out = []
    for row in rows:
        gpu = match_device_name(row.gpu)
        latency, faked = None, simulated(row.cells) or (row.fingerprint is not None and row.fingerprint.simulated)
        if row.latency_us is not None:
            latency = Latency(us=row.latency_us, origin="simulated" if faked else "measured", source="row")
        out.append(
            Ran(
                kernel=row.kernel or row.problem.family,
                gpu=gpu.name if gpu else row.gpu,
                problem=row.problem,
                configuration=row.configuration,
                rounds=row.rounds,
                latency=latency,
                failure=row.failure,
                fingerprint=row.fingerprint,
                session=row.session,
                noise_floor=row.noise_floor,
                source="rows",
                simulated=faked,
            )
        )
    return out


def _problem_key(run: Ran) -> str:
    return f"{run.gpu}\x1f{run.kernel}\x1f{run.problem!r}"


def _swept(rows: Sequence[Row]) -> set[str]:
    """Problems with several configurations on one side."""
    seen: dict[str, set[str]] = {}
    for run in _runs(rows):
        seen.setdefault(_problem_key(run), set()).add(repr(run.configuration))
    return {key for key, configurations in seen.items() if len(configurations) > 1}


def _key(run: Ran, swept: set[str]) -> str:
    key = _problem_key(run)
    return f"{key}\x1f{run.configuration!r}" if key in swept else key


def _report(run: Ran, predictor: Predictor) -> LaunchReport | None:
    """What is predicted of a row's launch; None where the GPU, the operator or the configuration has no model."""
    gpu: GpuSpec | None = match_device_name(run.gpu)
    if gpu is None or run.configuration is None or run.problem.family not in SPACES:
        return None
    launch = PlannedLaunch(
        id=run.kernel, kernel=run.kernel, problem=run.problem, configuration=run.configuration, source="row", decision_id="row"
    )
    measured = {run.kernel: Measured(latency=run.latency)} if run.latency is not None else {}
    try:
        target = Target(title=run.kernel, gpu=gpu, launches=(launch,), space=problem_space(run.problem, gpu.vendor))
        return advise_target(target, predictor, command="", measured=measured).launches[0]
    except (AdvisorError, KeyError, ValueError):
        return None


def common_fingerprint(rows: Sequence[Row]) -> Fingerprint | None:
    """The fingerprint that all rows have; None where they differ, or some have none."""
    first = rows[0].fingerprint if rows else None
    return first if all(row.fingerprint == first for row in rows) else None


def title_of(path: str) -> str:
    """The file's name."""
    return PurePath(path).name


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A launch that was run (or failed to) on one side. `latency` may be there without rounds: then nothing can be decided."""

    kernel: str
    gpu: str
    problem: Problem
    configuration: Configuration | None
    rounds: tuple[Round, ...] = ()
    latency: Latency | None = None
    failure: Failure | None = None
    fingerprint: Fingerprint | None = None
    session: str | None = None
    noise_floor: float | None = None
    source: str = ""
    simulated: bool = False  # nothing was run for it: it came from a fake device, or from rows that say so


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What static analysis adds to a measured row, to explain it: never a measured figure."""

    bound: Latency | None = None
    ceiling: Latency | None = None
    cause: tuple[Finding, ...] = ()
    advice: Recommendation | None = None


def ran_of_report(report: LaunchReport, gpu: str, fingerprint: Fingerprint) -> Ran | None:
    """The measured part of a launch report; None where nothing was measured."""
    if report.measured is None and report.measured_rounds is None:
        return None
    rounds = report.measured_rounds
    known = fingerprint.mode == "gpu" or fingerprint.simulated  # else of where the report was made, not of where this was measured
    simulated = fingerprint.simulated or (report.measured is not None and report.measured.origin == "simulated")
    return Ran(
        kernel=report.kernel,
        gpu=gpu,
        problem=report.problem,
        configuration=report.configuration,
        rounds=rounds.rounds if rounds else (),
        latency=report.measured,
        fingerprint=fingerprint if known else None,
        noise_floor=rounds.noise_floor if rounds else None,
        source=rounds.source if rounds else "",
        simulated=simulated,
    )


def measured_row(identifier: str, label: str, base: Ran | None, head: Ran | None, context: Context | None = None) -> MeasuredRow:
    """One row; at least one side is there."""
    shown = head or base
    assert shown is not None
    context = context or Context()
    floors = [side.noise_floor for side in (base, head) if side is not None and side.noise_floor is not None]
    judgement = verdict(_side(base), _side(head), floor=max(floors) if floors else None)
    reason = judgement.reason
    if judgement.verdict == "inconclusive" and judgement.effect is None and not _has_rounds(base, head):
        reason = "a latency without rounds says nothing of its noise: measure both sides with `advisor measure`"
    sides = [_latency(side) for side in (base, head)]
    return MeasuredRow(
        id=identifier,
        label=label,
        kernel=shown.kernel,
        gpu=shown.gpu,
        problem=shown.problem,
        base=sides[0],
        head=sides[1],
        base_configuration=base.configuration if base else None,
        head_configuration=head.configuration if head else None,
        effect=MeasuredEffect(
            relative=judgement.effect.relative, low=judgement.effect.low, high=judgement.effect.high, rounds=judgement.effect.rounds
        )
        if judgement.effect is not None
        else None,
        tau=judgement.tau,
        verdict=judgement.verdict,
        reason=reason,
        bound=context.bound,
        ceiling=context.ceiling,
        faults=_faults(sides, context.bound),
        likely_cause=context.cause if judgement.verdict == "regressed" else (),
        advice=context.advice,
    )


def _has_rounds(*sides: Ran | None) -> bool:
    return all(side is not None and bool(side.rounds) for side in sides)


def _side(ran: Ran | None) -> Side | None:
    return Side(rounds=ran.rounds, failure=ran.failure, fingerprint=ran.fingerprint, session=ran.session) if ran is not None else None


def _latency(ran: Ran | None) -> Latency | None:
    """The median over rounds with its 99 % interval; the plain latency where there are no rounds; none where it failed."""
    if ran is None or ran.failure is not None:
        return None
    interval = median_interval(ran.rounds)
    if interval is None:
        return ran.latency if ran.latency is None or not ran.simulated else replace(ran.latency, origin="simulated")
    source = ran.source or "measured rounds"
    return Latency(
        us=interval[0],
        origin="simulated" if ran.simulated else "measured",
        source=source,
        low_us=interval[1],
        high_us=interval[2],
        coverage=0.99,
    )


def _faults(sides: list[Latency | None], bound: Latency | None) -> tuple[str, ...]:
    """A measurement below the bound is a fault of the model or of the measurement, and is said."""
    if bound is None:
        return ()
    return tuple(
        f"{name}: {latency.origin} {latency.us:.2f} µs is below the bound {bound.us:.2f} µs: model or measurement fault"
        for name, latency in zip(("base", "head"), sides, strict=True)
        if latency is not None and latency.us < bound.us
    )


def by_id(runs: Mapping[str, Ran], other: Mapping[str, Ran]) -> list[tuple[str, Ran | None, Ran | None]]:
    """Both sides by identifier, in the order of head, then what only base has."""
    names = [*other, *(name for name in runs if name not in other)]
    return [(name, runs.get(name), other.get(name)) for name in names]
