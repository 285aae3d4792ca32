"""The outcome of a search as a result: launches as they run today, measured where that is known, and what was found for them.

The report is made by `advise_target`, with the measurements of the search; what it predicted about other configurations is then replaced
by what became of them. A prediction that the search has put to the test stands nowhere in it as a promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.advising import advise_target
from advisor.advising.choice import Measured
from advisor.advising.exports import triton_config
from advisor.advising.targets import PlannedLaunch, Target
from advisor.advising.verdict import verdict
from advisor.diagnosis import actions
from advisor.measurement.statistics import CONFIDENCE, median_interval
from advisor.pipelines import configuration_batch, problem_batch
from advisor.rendering.figures import microseconds
from advisor.result.schema import (
    Action,
    Configuration,
    Finding,
    Latency,
    LaunchReport,
    MeasuredRounds,
    Origin,
    Recommendation,
    Result,
    SearchReport,
)
from advisor.search.search_report import Winner, decide, search_reports
from advisor.search.storage import NOT_COMPARED, NOT_RECORDED, Backend
from advisor.search.study import STOPPED_CAUSE, Decision, Tuner, measured_latencies
from advisor.system.resources import phrase
from advisor.tables.tables import entry_of
from advisor.tuning.backends import MeasuringBackend, RecordedBackend
from advisor.tuning.export import TunedTable, exports, tuned_table
from advisor.tuning.plan import Plan

WORTH_NAMING = 1.1
"""The speedup that `p_speedup_10pct` is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What came out: the result, the outcome of every decision, where latencies came from, what was tuned for which GPU, the study's name,
    the table, if there is one, and what to warn of in what is exported (the result warns of it too)."""

    result: Result
    winners: tuple[Winner, ...]
    source: str
    about: str
    study: str
    table: TunedTable | None = None
    warnings: tuple[str, ...] = ()


def report(plan: Plan, tuner: Tuner, backend: Backend, command: str, deadline: float | None = None) -> Tuned:
    """Decides what won, measuring it against what runs today, and tells it.

    Args:
        plan: What was searched for.
        tuner: The search.
        backend: What measures.
        command: The command line that repeats it.
        deadline: On `time.monotonic`; what is not compared by then has not won.
    """
    winners: dict[str, Winner] = {}
    searches: list[SearchReport] = []
    for decision in plan.decisions:
        winners[decision.task.id] = decide(tuner, decision, backend, deadline)
        searches += search_reports(tuner, decision, plan.predictor.name)
    table = tuned_table(plan, winners)[0]
    artefacts, warnings = exports(plan, winners)
    if table is not None and table.beside:
        warnings = (*warnings, table.beside)
    origin: Origin = "simulated" if isinstance(backend, (MeasuringBackend, RecordedBackend)) and backend.simulated else "measured"
    measured = _measured(plan, winners, backend.name, origin)
    result = advise_target(_as_it_runs(plan, winners), plan.predictor, command=command, measured=measured)
    exhausted = {decision.task.id: us for decision in plan.decisions if (us := _best_of_all(tuner, decision)) is not None}
    launches = tuple(
        _searched(plan, launch, launch_report, winners[launch.decision_id], exhausted.get(launch.decision_id), backend.name, origin)
        for launch, launch_report in zip(plan.target.launches, result.launches, strict=True)
    )
    any_measured = any(trial.latency_us is not None for search in searches for trial in search.trials)
    unknowns = tuple(unknown for unknown in result.verdict.unknowns if not (any_measured and unknown == phrase("note.not_measured")))
    settled = {launch.id for launch in plan.target.launches if winners[launch.decision_id].best is not None}
    result = replace(
        result,
        launches=launches,
        verdict=verdict(launches, unknowns),
        exports=artefacts,
        searches=tuple(searches),
        actions=(*actions(launches, settled), *_first_choices(launches, winners, plan.target.launches, origin)),
        fingerprint=backend.scheduler.description.fingerprint if isinstance(backend, MeasuringBackend) else result.fingerprint,
        warnings=(*result.warnings, *warnings, *_not_compared(plan, winners)),
    )
    return Tuned(
        result=result,
        winners=tuple(winners.values()),
        source=backend.name,
        about=plan.about,
        study=plan.name,
        table=table,
        warnings=warnings,
    )


def _not_compared(plan: Plan, winners: Mapping[str, Winner]) -> tuple[str, ...]:
    """Sentences on the decisions whose best was not compared with what runs today: the time was up, or no row is of what runs."""
    limit = f"the time limit of {plan.order.time_limit_s or 0:g} s ended first"
    ended = f"{limit}; run it again with a longer one, which goes on with the search"
    unrecorded = "no recorded row is of what runs, so that nothing says whether the search's best is faster; record it too"
    return tuple(filter(None, (_left(winners, NOT_COMPARED, ended), _left(winners, NOT_RECORDED, unrecorded))))


def _left(winners: Mapping[str, Winner], outcome: str, why: str) -> str:
    """A clause on the decisions that ended with that outcome: how many, which, and why; empty where none did."""
    left = [task for task, winner in winners.items() if winner.versus is not None and winner.versus.verdict == outcome]
    shown = ", ".join(left[:6]) + (", …" if len(left) > 6 else "")
    return f"{len(left)} of {len(winners)} decisions were not compared with what runs today, which is kept ({shown}): {why}" if left else ""


def _as_it_runs(plan: Plan, winners: Mapping[str, Winner]) -> Target:
    """The target over the space that was searched; where nothing ran before, with what was found."""
    launches = []
    for launch in plan.target.launches:
        chosen = winners[launch.decision_id].configuration
        if launch.configuration is None and chosen is not None:
            launch = replace(launch, configuration=chosen, source="found by the search")
        launches.append(launch)
    return replace(plan.target, launches=tuple(launches), space=plan.space.batch)


def _measured(plan: Plan, winners: Mapping[str, Winner], source: str, origin: Origin) -> dict[str, Measured]:
    """Measured latencies of the launches as they run (`_as_it_runs`), by launch."""
    us: dict[str, float] = {}
    rounds: dict[str, MeasuredRounds] = {}
    for decision in plan.decisions:
        winner = winners[decision.task.id]
        if winner.versus is not None:
            us |= winner.versus.base_parts_us
            rounds |= winner.versus.base_rounds
        elif not winner.changed or decision.incumbent is None:
            us |= winner.parts_us
    return {
        launch: Measured(latency=_latency(total_us, rounds.get(launch), origin, source), rounds=rounds.get(launch))
        for launch, total_us in us.items()
    }


def _latency(us: float, measured: MeasuredRounds | None, origin: Origin, source: str) -> Latency:
    """A measured latency, with the interval of its rounds where they are known."""
    interval = median_interval(measured.rounds) if measured is not None else None
    if interval is None:
        return Latency(us=us, origin=origin, source=source)
    return Latency(us=us, origin=origin, source=source, low_us=interval[1], high_us=interval[2], coverage=CONFIDENCE)


def _best_of_all(tuner: Tuner, decision: Decision) -> float | None:
    """The best latency of a search that tried everything which could win, microseconds; None: it stopped before, or a part is not known.

    Launches that share a configuration have ceilings of their own, which no search for both of them finds.
    """
    study = tuner.study(decision.task.id)
    if study.user_attrs.get(STOPPED_CAUSE) != "tried all" or len(decision.task.launches) > 1:
        return None
    return min((us for _, us, _ in measured_latencies(study)), default=None)


def _searched(
    plan: Plan, launch: PlannedLaunch, report: LaunchReport, winner: Winner, exhausted_us: float | None, source: str, origin: Origin
) -> LaunchReport:
    """A launch's report with what the search found in place of what was predicted of other configurations."""
    if winner.best is None:
        return replace(report, recommendation=None)  # whatever is predicted best was tried, or is not what gets written
    report = replace(report, findings=tuple(_settled(finding, winner) for finding in report.findings))
    if winner.fails is not None:
        report = replace(
            report,
            predicted=None,
            efficiency=None,
            headroom=None,
            p_speedup_10pct=1.0,
            gap=(),
            findings=(_failing(launch, winner.fails), *(f for f in report.findings if f.rule != "cannot-launch")),
        )
    elif report.measured is not None and exhausted_us is not None:
        us = min(exhausted_us, report.measured.us)
        ceiling = Latency(us=us, origin=origin, source=f"best of an exhaustive search, {source}")
        report = replace(report, ceiling=ceiling, ceiling_configuration=winner.best, headroom=report.measured.us / us - 1)
    us_then = winner.parts_us.get(report.id)
    if not winner.changed or winner.configuration is None or us_then is None or launch.configuration is None:
        won = None
    else:
        won = _recommendation(plan, launch, report, winner, Latency(us=us_then, origin=origin, source=source))
    if won is not None and report.ceiling is not None and won.latency.us < report.ceiling.us:  # what was measured is reached
        now = report.measured or report.predicted
        report = replace(
            report,
            ceiling=won.latency,
            ceiling_configuration=won.configuration,
            headroom=now.us / won.latency.us - 1 if now is not None else None,
        )
    if report.measured is not None:  # the search has answered it, as far as anybody knows
        report = replace(report, p_speedup_10pct=1.0 if won is not None and won.speedup >= WORTH_NAMING else None)
    return replace(report, recommendation=won)


def _recommendation(plan: Plan, launch: PlannedLaunch, report: LaunchReport, winner: Winner, reached: Latency) -> Recommendation:
    """The search's best against what runs today: measured against measured, else predicted against predicted."""
    assert winner.configuration is not None
    configuration = plan.launched(winner.configuration, launch.id)
    origin = "best of the search"
    if winner.fastest_us is not None:
        together = " for all that run with it" if len(winner.parts_us) > 1 else ""
        origin = f"within noise of the search's fastest ({microseconds(winner.fastest_us)} µs{together}), and ranked before it"
    won = f"faster than the present configuration ({winner.note})" if winner.fails is None else winner.note
    reason = "; ".join(filter(None, (origin, winner.rounds, won)))
    if report.measured is not None:
        speedup = report.measured.us / reached.us
    elif report.predicted is not None:
        speedup = max(report.predicted.us / _predicted_us(plan, launch, winner.configuration), 1.0)
        reason += "; the present one was not measured, so that the speedup is a prediction"
    else:
        speedup = 1.0  # nothing to compare with
    table = plan.target.table is not None or plan.base_table is not None
    return Recommendation(
        configuration=configuration,
        latency=reached,
        speedup=speedup,
        p_speedup_10pct=None,
        reason=reason,
        triton_config=triton_config(configuration),
        table_entry=dict(entry_of(configuration, entry_of(launch.entry) if launch.entry else None)) if table else None,
    )


def _predicted_us(plan: Plan, launch: PlannedLaunch, configuration: Configuration) -> float:
    """The predicted latency of one launch, microseconds."""
    prediction = plan.predictor.predict(problem_batch([launch.problem]), configuration_batch([configuration]), plan.target.gpu)
    return float(prediction.us[0])


def _failing(launch: PlannedLaunch, why: str) -> Finding:
    """The finding of an entry that nothing could be measured of."""
    return Finding(
        rule="cannot-launch",
        severity="error",
        title="The table's entry cannot be launched",
        evidence=why,
        remedy="take what the search found",
        scope="launch" if launch.entry_key is None else f"entry M={launch.entry_key}",
    )


def _settled(finding: Finding, winner: Winner) -> Finding:
    """A finding whose remedy was another configuration, predicted to be faster: the search has looked, and says what to do."""
    if finding.net_saving_us is None:
        return finding
    assert winner.best is not None
    if winner.changed:
        outcome = f"{winner.best.label()} is what it found"
    elif winner.versus is not None and winner.versus.verdict in (NOT_RECORDED, NOT_COMPARED):
        outcome = f"{winner.best.label()} is its best, which was not compared with what runs"
    else:
        outcome = "it found nothing better than what runs"
    return replace(finding, remedy=f"the search has tried other configurations: {outcome}", saving_us=None, net_saving_us=None)


def _first_choices(
    launches: Sequence[LaunchReport], winners: Mapping[str, Winner], planned: Sequence[PlannedLaunch], origin: Origin
) -> tuple[Action, ...]:
    """Where nothing ran before there is nothing to save, and all the same something to do."""
    new = [
        report
        for report, launch in zip(launches, planned, strict=True)
        if launch.configuration is None and winners[launch.decision_id].changed and report.configuration is not None
    ]
    if not new:
        return ()
    configs = list(dict.fromkeys(triton_config(report.configuration) for report in new if report.configuration is not None))
    return (
        Action(
            title="Use the configuration" + ("s" if len(configs) > 1 else "") + " that the search found",
            detail=f"nothing ran before to compare with; {new[0].id}: {new[0].configuration.label() if new[0].configuration else ''}",
            saving_us=0.0,
            origin=origin,
            launches=tuple(report.id for report in new),
            snippet=",\n".join(configs),
        ),
    )
