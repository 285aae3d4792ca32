"""The `Result` of a target: analyse, predict, diagnose, recommend. The one core behind every door."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import compress, islice

import numpy as np

from advisor import __version__
from advisor.advising.choice import (
    Choice,
    Draft,
    Measured,
    as_measured,
    choose,
    demand_totals,
    drafts_of,
    fastest_measured,
    gain_probability,
    predicted_latency,
    rank_groups,
)
from advisor.advising.exports import recommended_exports, triton_config
from advisor.advising.launch_facts import gpu_figures, occupancy, times_of, warm_cache
from advisor.advising.layers import (
    backends,
    layer_notes,
    layer_reports,
    libraries_alone,
    linear_reports,
    slower_layers,
    stack_of,
    step_notes,
    timed_like,
    version_notes,
    weighed,
)
from advisor.advising.targets import PlannedLaunch, Target
from advisor.advising.verdict import verdict
from advisor.diagnosis import UNDIAGNOSED, WORTH_CHANGING, Change, Pricing, Sharing, actions, context, diagnose, now_us, table_findings
from advisor.diagnosis.actions import MOST
from advisor.diagnosis.neighbours import Changed, changed
from advisor.diagnosis.rule import microseconds
from advisor.gpus.hardware import GpuSpec, offline
from advisor.learned.analytical import LIKELY, NOTICED
from advisor.learned.base import Prediction, Predictor, exact_products, held_by_power, predict_each, tunable_ceiling, unmeasured_vendor
from advisor.pipelines import configuration_batch, problem_batch
from advisor.result.schema import Action, Configuration, Finding, Latency, LaunchReport, Recommendation, Result, nearest_to_peak
from advisor.system import grouped
from advisor.system.errors import NothingMatchedError
from advisor.system.resources import phrase
from advisor.tables.audit import audit_table
from advisor.tables.tables import entry_of
from advisor.tables.tuned_table import SHARED


def advise_target(
    target: Target,
    predictor: Predictor,
    *,
    command: str,
    measured: Mapping[str, Measured] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Diagnose every launch of a target and recommend configurations.

    Args:
        target: What to look at.
        predictor: Where predictions come from.
        command: The command line that repeats this, for the record.
        measured: Measured latencies by launch id.
        progress: Called with (done, total) launches.

    Raises:
        NothingMatchedError: The target has no launches.
    """
    if not target.launches:
        raise NothingMatchedError(f"{target.title}: no launches to look at", None, None, "check --tokens and the table's entries")
    launches = launch_reports(target, predictor, measured=measured, progress=progress)
    launches, linears = linear_reports(target, launches, predictor, measured or {})
    layers = layer_reports(target, launches, predictor, measured or {}) or linears
    same = _either_cache(launches, predictor, target.gpu)
    unknowns = target.unknowns + warm_cache(launches, same) + _unknowns(launches) + unmeasured_vendor([target.gpu])
    unknowns += exact_products([launch.problem for launch in target.launches], target.gpu) + held_by_power(launches, target.gpu)
    unknowns += timed_like(target, layers, predictor)
    others = backends(layers, stack_of(target))
    advised = weighed(actions(launches), layers, {item.id for item in launches if item.measured is not None}) + others
    advised.sort(key=lambda action: (action.rule != "cannot-launch", -action.saving_us))
    summary = verdict(launches, unknowns, layers=layers, backend=next((action for action in advised[:1] if action in others), None))
    notes = (
        target.notes
        + summary.notes
        + ((phrase("note.cold_same"),) if same and launches[0].problem.cache == "cold" else ())
        + layer_notes(layers, others, launches)
        + version_notes(target, layers, predictor)
        + libraries_alone(target)
        + step_notes(target, layers, predictor)
    )
    if target.refused:
        summary = replace(summary, sentence=target.refused)
        split = Action(title=phrase("action.split"), detail=phrase("action.if_loaded"), saving_us=0.0, origin="predicted", launches=())
        advised.insert(0, split)
    return Result(
        tool_version=__version__,
        command=command,
        target=target.title,
        fingerprint=offline(target.gpu),
        gpu=target.gpu.name,
        gpu_figures=gpu_figures(target.gpu),
        model=target.model,
        verdict=replace(summary, notes=notes),
        actions=tuple(advised[:MOST]),
        launches=launches,
        layers=layers,
        table_findings=_table_findings(target),
        exports=recommended_exports(target, launches),
        warnings=target.warnings,
    )


def launch_reports(
    target: Target,
    predictor: Predictor,
    *,
    measured: Mapping[str, Measured] | None = None,
    progress: Callable[[int, int], None] | None = None,
    diagnosing: bool = True,
) -> tuple[LaunchReport, ...]:
    """The reports of a target's launches, in their order; arguments as of `advise_target`.

    Args:
        target: What to look at.
        predictor: Where predictions come from.
        measured: Measured latencies by launch id.
        progress: Called with (done, total) launches.
        diagnosing: Whether to try the rules and to split the gap, more than half of the work: without, no report has findings or a gap.
    """
    measured = measured or {}
    shares = grouped((launch.decision_id, launch) for launch in target.launches)
    reports: list[LaunchReport] = []
    pinned = held_configurations(target, predictor, WORTH_CHANGING, {name: item.latency.us for name, item in measured.items()})
    groups = list(shares.values())
    choices = choose(groups, rank_groups(groups, target, predictor, pinned), target, predictor, pinned)
    chosen = [(launch, choice) for group, choice in zip(groups, choices, strict=True) for launch in group]
    drafts = {draft.launch.id: draft for draft in drafts_of(chosen, measured, target, predictor)}
    pricing, around = Pricing(predictor=predictor), dict[str, Changed]()
    if diagnosing:
        now = [(draft.launch.problem, draft.current, draft.launch.frozen_parameters) for draft in drafts.values()]
        around = dict(zip(drafts, changed(now, target.gpu), strict=True))
        pricing.price([(a.problem, around[b.id].configuration) for group in groups for a in group for b in group], target.gpu)
    drafted = [[drafts[launch.id] for launch in group] for group in groups]
    warm_only = _warm_only(drafted, choices, target, predictor)
    longer = slower_layers({launch.id: choice.configuration for launch, choice in chosen}, target, predictor)
    for group, choice, only in zip(drafted, choices, warm_only, strict=True):
        held = pinned.get(group[0].launch.id)
        reports += _group(group, choice, target, predictor, pricing, around, held, not measured, only, longer)
        if progress:
            progress(len(reports), len(target.launches))
    order = {launch.id: i for i, launch in enumerate(target.launches)}
    reports.sort(key=lambda report: order[report.id])
    return tuple(reports)


def _table_findings(target: Target) -> tuple[Finding, ...]:
    """Findings of the audit in the table, apart from entries that were diagnosed as launches."""
    if target.table is None:
        return ()
    _, issues = audit_table(target.table.path)
    # What the name does not say is known all the same, or there were no report.
    evidence = f"the name says {target.table.name.device_name}, which is not described in ceilings/; this report is for {target.gpu.name}"
    issues = tuple(replace(issue, message=evidence) if issue.check == "unknown-gpu" else issue for issue in issues)
    keys_of_launches = {launch.entry_key for launch in target.launches if launch.entry_key is not None and launch.table is None}
    return table_findings(issues, keys_of_launches)


def _group(
    drafts: list[Draft],
    choice: Choice,
    target: Target,
    predictor: Predictor,
    pricing: Pricing,
    around: Mapping[str, Changed],
    held: Configuration | None,
    unmeasured: bool,
    warm_only: bool,
    longer: Mapping[str, float],
) -> list[LaunchReport]:
    """Reports of the launches that share one configuration.

    Args:
        drafts: The launches.
        choice: What is chosen for them.
        target: Their target.
        predictor: What predicts them.
        pricing: What prices changes.
        around: Launches under changed configurations, by launch id; empty where the reports are not to have findings.
        held: What the choice is like in their `fixed` parameters.
        unmeasured: Whether nothing of the target was measured.
        warm_only: Whether the choice gains by a warm cache alone.
        longer: Microseconds that whole layers take longer with their choices, by launch id (`slower_layers`).
    """
    group = [draft.launch for draft in drafts]
    reason = _kept(drafts, choice, predictor, target) if unmeasured else None
    # What another launch of the sort needs changed is changed here too.
    needed = held is not None and held != group[0].configuration
    choice = as_measured(drafts, choice)
    offered = choice if needed or _worth_changing(drafts, choice) else None
    if offered and not needed and reason is not None:
        offered = None
    able = all(draft.measured is None and np.isfinite(draft.predicted_us) for draft in drafts)
    if offered and not needed and able and (us := longer.get(group[0].id)):
        offered, reason = None, phrase("choice.layer_slower", best=choice.configuration.label(), us=microseconds(us))
    if offered and not needed and unmeasured and warm_only:
        offered, reason = None, phrase("choice.warm_only", best=choice.configuration.label())
    if (tried := fastest_measured(drafts, choice, held, target, predictor)) is not None:
        choice = offered = tried
    least = {draft.launch.id: _least(draft, choice, offered) for draft in drafts}
    sharing = [_sharing(draft, float(least[draft.launch.id].us[0])) for draft in drafts]
    reports = []
    for draft in drafts:
        name = draft.launch.id
        others = tuple(other for other in sharing if other.id != name)
        mine = replace(pricing, sharing=others, fixed=draft.launch.frozen_parameters)
        kept = reason if offered is None else None
        reports.append(_report(draft, choice, offered, least[name], mine, around.get(name), target, predictor, kept))
    return reports


def _kept(drafts: list[Draft], choice: Choice, predictor: Predictor, target: Target) -> str | None:
    """Why what runs is kept, in words: what was chosen is not likely enough to be faster. None where it is, or where nothing runs.

    Launches that share a configuration are told together, by the errors of the one that takes longest.
    """
    first = drafts[0].launch
    if first.configuration is None or first.configuration == choice.configuration:
        return None
    now = sum(draft.predicted_us for draft in drafts)
    then = sum(latency.us for latency in choice.latencies.values())
    if not np.isfinite(now):
        return None
    longest = max(drafts, key=lambda draft: draft.predicted_us)
    after = choice.predictions[longest.launch.id]
    p = gain_probability(longest.batch, now, then, longest.predicted, after, target.gpu, predictor)
    if p >= LIKELY:
        return None
    gain, chance = f"{100 * (NOTICED - 1):.0f} %", f"{math.floor(100 * p)} %"
    return phrase("choice.retained", gain=gain, chance=chance, needed=f"{100 * LIKELY:.0f} %", best=choice.configuration.label())


def _warm_only(groups: Sequence[list[Draft]], choices: Sequence[Choice], target: Target, predictor: Predictor) -> list[bool]:
    """Of each group of a layer's launches, whether what it gains by its choice is lost where operands come from DRAM, as within a model."""
    if target.model is None:
        return [False] * len(groups)
    able = [all(draft.launch.configuration is not None and draft.launch.problem.cache == "warm" for draft in drafts) for drafts in groups]
    launches = [
        (replace(draft.launch.problem, cache="cold"), configuration_batch([item]))
        for drafts, choice in compress(zip(groups, choices, strict=True), able)
        for item in (drafts[0].current, choice.configuration)
        for draft in drafts
    ]
    us = (float(cold.us[0]) for cold in predict_each(predictor, launches, target.gpu))
    lost = []
    for drafts, whether in zip(groups, able, strict=True):
        now, then = (sum(islice(us, len(drafts))) if whether else np.inf for _ in ("now", "then"))
        lost.append(bool(np.isfinite(now) and then >= now))
    return lost


def _worth_changing(drafts: list[Draft], choice: Choice) -> bool:
    """Whether what was chosen is faster by enough than what runs, all launches together.

    By prediction alone (like with like), and still so where a measurement says what is true now. One below the bound counts too:
    whatever is wrong with it, a promise of more than was measured is no reason to change.
    """
    unset = drafts[0].launch.configuration is None  # then the prediction is of the choice itself
    now = sum(draft.now_us for draft in drafts)
    if unset and all(draft.measured is None for draft in drafts):
        return True
    if not unset:
        now = min(now, sum(draft.predicted_us for draft in drafts))
    then = sum(latency.us for latency in choice.latencies.values())
    return not np.isfinite(now) or now >= then * WORTH_CHANGING


def _least(draft: Draft, choice: Choice, offered: Choice | None) -> Prediction:
    """The tunable ceiling as predicted: no configuration that the report names is predicted below it."""
    name = draft.launch.id
    named = [choice.ceilings[name][0]]
    if offered is not None and offered.latencies[name].origin == "predicted":
        named.append(offered.latencies[name].us)
    return tunable_ceiling(draft.ceiling, draft.analysis.bound.us, draft.predicted.us, *(np.array([us]) for us in named))


def _sharing(draft: Draft, least_us: float) -> Sharing:
    """The figures of this launch that a change for another launch of the same entry is held against."""
    us = draft.measured.latency.us if draft.measured is not None else None
    credible = now_us(draft.predicted_us, us, draft.bound_us)
    # What was measured is reached, and no ceiling is higher. Below the bound nothing is known to be saved.
    return Sharing(
        id=draft.launch.id,
        problem=draft.launch.problem,
        now_us=credible if us is None else min(credible, us),
        least_us=min(least_us, credible),
    )


def _ranked_change(launch: str, pricing: Pricing, choice: Choice) -> Change:
    """The first-ranked configuration as a change: what it gains a launch, and costs those that share it."""
    slower = {other.id: choice.latencies[other.id].us - other.now_us for other in pricing.sharing if np.isfinite(other.now_us)}
    then = choice.latencies[launch]
    limit = "" if then.origin == "predicted" else f"{microseconds(then.us)} {then.origin}"
    return Change(parameters={}, us=then.us, slower_us=slower, limit=limit)


def _report(
    draft: Draft,
    choice: Choice,
    offered: Choice | None,
    least: Prediction,
    pricing: Pricing,
    around: Changed | None,
    target: Target,
    predictor: Predictor,
    kept: str | None,
) -> LaunchReport:
    launch, analysis, measured, gpu = draft.launch, draft.analysis, draft.measured, target.gpu
    times = times_of(analysis, gpu)
    predicted = predicted_latency(draft.predicted, predictor) if np.isfinite(draft.predicted_us) else None
    ceiling, ceiling_configuration = predicted_latency(least, predictor), choice.ceilings[launch.id][1]
    for configuration, latency in ([(draft.current, measured.latency)] if measured is not None else []) + draft.reached:
        if draft.bound_us <= latency.us < ceiling.us:
            # What was measured is reached: the ceiling is no higher than that, whatever was predicted. (Below the bound it is a fault.)
            ceiling, ceiling_configuration = latency, configuration
    now = draft.now_us if measured is not None or predicted is not None else None
    then = offered.latencies[launch.id] if offered is not None else None
    before = draft.predicted_us if draft.contradicted and (then is None or then.origin == "predicted") else now
    p_speedup = draft.p_speedup if now is not None else 1.0
    if now is not None and measured is not None and any(now >= 1.1 * latency.us for _, latency in draft.reached):
        p_speedup = 1.0  # it was measured
    ranked = _ranked_change(launch.id, pricing, choice)
    diagnosis = (
        UNDIAGNOSED
        if around is None
        else diagnose(
            context(
                launch.problem,
                draft.current,
                gpu,
                modelled=draft.modelled,
                i=draft.row,
                predicted_us=draft.predicted_us,
                ceiling_us=ceiling.us,
                measured_us=measured.latency.us if measured else None,
                measured_origin=measured.latency.origin if measured else "measured",
                entry=launch.entry,
                entry_m=launch.entry_key,
                pricing=pricing,
                around=around,
                ranked=ranked,
                refused=draft.refused,
                recommended=ranked if offered is not None and offered.configuration != launch.configuration else None,
                offered=offered.configuration if offered is not None else None,
            )
        )
    )
    nearest, share = nearest_to_peak(times, now)
    return LaunchReport(
        id=launch.id,
        kernel=launch.kernel,
        problem=launch.problem,
        configuration=draft.current if launch.configuration is not None else None,
        configuration_source=launch.source,
        pipelines=times,
        binding_pipeline=analysis.bound.binding_pipeline(0),
        # Not that of the bound of the configuration, which leaves out what the L2 carries again.
        config_binding_pipeline=max(times, key=lambda time: time.time_us).pipeline,
        bound=Latency(us=draft.bound_us, origin="specified", source=f"bound from the figures of {gpu.name}"),
        config_bound=Latency(
            us=float(analysis.config_bound.us[0]), origin="specified", source=f"bound of this configuration from the figures of {gpu.name}"
        ),
        predicted=predicted,
        ceiling=ceiling,
        ceiling_configuration=ceiling_configuration,
        measured=measured.latency if measured else None,
        measured_rounds=measured.rounds if measured else None,
        occupancy=occupancy(analysis, gpu),
        efficiency=draft.bound_us / now if now else None,
        peak_pipeline=nearest,
        share_of_peak=share,
        headroom=before / ceiling.us - 1 if before else None,
        p_speedup_10pct=p_speedup,
        gap=diagnosis.gap,
        findings=tuple(_doubted(finding) if kept else finding for finding in diagnosis.findings),
        passed_rules=diagnosis.passed,
        recommendation=_recommendation(launch, offered, before, p_speedup, ceiling, target, predictor) if offered is not None else None,
        faults=diagnosis.faults,
        library=predictor.library_reference(draft.batch, gpu),
        kept=kept,
        decision=launch.row_sort_id or launch.decision_id,
    )


def _either_cache(launches: Sequence[LaunchReport], predictor: Predictor, gpu: GpuSpec) -> bool:
    """Whether each launch is predicted to take as long with the other state of the L2."""
    known = [(report, report.configuration, report.predicted.us) for report in launches if report.configuration and report.predicted]
    other = [
        (replace(report.problem, cache="warm" if report.problem.cache == "cold" else "cold"), configuration_batch([configuration]))
        for report, configuration, _ in known
    ]
    then = predict_each(predictor, other, gpu)
    return bool(known) and all(abs(after.us[0] / us - 1) < SAME for (_, _, us), after in zip(known, then, strict=True))


SAME = 0.005
"""A difference of two predictions below this is none on any surface."""


def _doubted(finding: Finding) -> Finding:
    """A finding of a launch whose configuration is kept: its remedy, where it is another one, is not recommended."""
    return finding if finding.net_saving_us is None else replace(finding, remedy=f"{finding.remedy}; {phrase('remedy.unsure')}")


NOTABLE = 1.1
"""A first-ranked configuration that is predicted this many times the ceiling is told with the reason: nobody takes it for that of the
ceiling."""


def _recommendation(
    launch: PlannedLaunch, choice: Choice, now: float | None, p_speedup: float, ceiling: Latency, target: Target, predictor: Predictor
) -> Recommendation | None:
    if choice.configuration == launch.configuration:
        return None
    latency, configuration = choice.latencies[launch.id], choice.configuration
    above = min(choice.ceilings[launch.id][0], latency.us) >= NOTABLE * ceiling.us and latency.origin == ceiling.origin == "predicted"
    reasons = (
        choice.reason,
        phrase("choice.shared", count=len(choice.latencies)) if len(choice.latencies) > 1 else "",
        phrase("choice.cannot_launch") if now is None else "",
        phrase("choice.above_ceiling", share=f"{100 * (latency.us / ceiling.us - 1):.0f} %") if above else "",
    )
    entry = launch.entry
    return Recommendation(
        configuration=configuration,
        latency=latency,
        speedup=now / latency.us if now is not None else 1.0,  # nothing to compare with
        p_speedup_10pct=p_speedup,
        reason="; ".join(filter(None, reasons)),
        triton_config=triton_config(configuration),
        table_entry=dict(entry_of(configuration, entry_of(entry) if entry else None)) if target.stack is not None else None,
        demand=demand_totals(problem_batch([launch.problem]), choice.row, target.gpu),
        record=predictor.record(problem_batch([launch.problem]), target.gpu) if latency.origin == "predicted" else "",
    )


def _unknowns(launches: tuple[LaunchReport, ...]) -> tuple[str, ...]:
    return () if any(report.measured for report in launches) else (phrase("note.not_measured"),)


def held_configurations(
    target: Target, predictor: Predictor, worth: float, measured_us: Mapping[str, float]
) -> Mapping[str, Configuration]:
    """What the choice for a launch is held to in its `fixed` parameters, by launch id: today's configuration, with the BLOCK_SIZE_M that
    suits all launches of its sort best, where that makes them `worth` times as fast together as today's does.

    Args:
        target: All launches.
        predictor: What ranks the space.
        worth: The least speedup that is worth a change.
        measured_us: Measured latencies by launch id: what runs faster than any other BLOCK_SIZE_M is predicted to keeps its own.
    """
    sorts = grouped((launch.row_sort_id or launch.id, launch) for launch in target.launches if launch.frozen_parameters)
    pinned: dict[str, Configuration] = {}
    for group in sorts.values():
        now = sum(measured_us.get(launch.id, np.inf) for launch in group)
        rows = _rows(group, target, predictor, worth, now) if group[0].row_sort_id is not None else None
        for launch in group:
            if launch.configuration is not None:
                changed = {} if rows is None else {SHARED: rows}
                pinned[launch.id] = replace(launch.configuration, parameters={**launch.configuration.parameters, **changed})
    return pinned


def _rows(group: list[PlannedLaunch], target: Target, predictor: Predictor, worth: float, now_us: float) -> int | None:
    """The BLOCK_SIZE_M that suits a group best, each launch with the best of the rest of the space; None: today's is as good.

    `now_us` is what the group was measured to take, inf where that is not known.
    """
    column = np.broadcast_to(target.space.parameters[SHARED], (len(target.space),))
    values = np.unique(column)
    total = np.zeros(values.size)
    for launch in group:
        problem = problem_batch([launch.problem])
        scores = predictor.scores(problem, target.space, target.gpu)
        first = [int(np.flatnonzero(column == value)[np.argmin(scores[column == value])]) for value in values]
        total = total + predictor.predict(problem, target.space.take(np.array(first)), target.gpu).us
    best = int(np.argmin(total))
    today = group[0].configuration.parameters[SHARED] if group[0].configuration is not None else None
    as_good = now_us < total[best] * worth or bool((total[values == today] < total[best] * worth).any())
    return None if as_good or not np.isfinite(total[best]) else int(values[best])
