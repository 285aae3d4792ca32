"""From a target to a Result: analyse, predict, diagnose, recommend. The one core behind every door."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from advisor import __version__, pipelines
from advisor.choice import Choice, choose, demand_totals, predicted_latency
from advisor.configs.audit import audit_table, refusal
from advisor.configs.replacing import replacement
from advisor.configs.tables import entry_of
from advisor.diagnosis import Change, Pricing, Sharing, actions, context, diagnose, now_us, table_findings
from advisor.diagnosis.rule import microseconds
from advisor.errors import NothingMatchedError
from advisor.exports import recommended_exports, triton_config
from advisor.fingerprint import offline
from advisor.launch_facts import gpu_figures, occupancy, pipeline_times
from advisor.learned.base import ANALYTICAL, EXTRAPOLATED, Prediction, Predictor
from advisor.learned.caveats import exact_products, unmeasured_vendor
from advisor.learned.reached import tunable_ceiling
from advisor.pipelines import Analysis, ConfigurationBatch, ProblemBatch, configuration_batch, problem_batch
from advisor.schema import Configuration, Finding, Latency, LaunchReport, MeasuredRounds, Recommendation, Result
from advisor.shared_sort import held_configurations
from advisor.targets import PlannedLaunch, Target
from advisor.verdict import verdict

WORTH_CHANGING = 1.02
"""A predicted speedup below this is not recommended: the noise floor of a good measurement (report-spec: 2 %)."""

@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measured latency of one launch, its raw rounds where there are any, and what its problem was measured to take with other
    configurations."""

    latency: Latency
    rounds: MeasuredRounds | None = None
    others: tuple[tuple[Configuration, Latency], ...] = ()


def advise(
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
    measured = measured or {}
    shares: dict[str, list[PlannedLaunch]] = defaultdict(list)
    for launch in target.launches:
        shares[launch.share].append(launch)
    reports: list[LaunchReport] = []
    held = held_configurations(target, predictor, WORTH_CHANGING, {name: each.latency.us for name, each in measured.items()})
    for group in shares.values():
        reports += _group(group, target, predictor, measured, held.get(group[0].id))
        if progress:
            progress(len(reports), len(target.launches))
    order = {launch.id: i for i, launch in enumerate(target.launches)}
    reports.sort(key=lambda report: order[report.id])
    launches = tuple(reports)
    unknowns = target.unknowns + _unknowns(launches, predictor) + unmeasured_vendor([target.gpu])
    unknowns += exact_products([each.problem for each in target.launches], target.gpu)
    return Result(
        tool_version=__version__,
        command=command,
        target=target.title,
        fingerprint=offline(target.gpu),
        gpu=target.gpu.name,
        gpu_figures=gpu_figures(target.gpu),
        model=target.model,
        verdict=verdict(launches, unknowns),
        actions=actions(launches),
        launches=launches,
        table_findings=_table_findings(target),
        exports=recommended_exports(target, launches),
        warnings=target.warnings,
    )


def _table_findings(target: Target) -> tuple[Finding, ...]:
    """What the audit finds in the table, the entries that were diagnosed as launches apart."""
    if target.table is None:
        return ()
    _, issues = audit_table(target.table.path)
    # What the name does not say is known all the same, or there were no report.
    said = f"the name says {target.table.name.device_name}, which is not described in ceilings/; this report is for {target.gpu.name}"
    issues = tuple(replace(issue, message=said) if issue.check == "unknown-gpu" else issue for issue in issues)
    own = {launch.entry_key for launch in target.launches if launch.entry_key is not None and launch.table is None}
    return table_findings(issues, own)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A launch under the configuration that runs (or else the one chosen), analysed and predicted; `refused`: why it raises an error
    although it fits, empty where it does not."""

    launch: PlannedLaunch
    batch: ProblemBatch
    current: Configuration
    analysis: Analysis
    predicted: Prediction
    ceiling: Prediction
    measured: Measured | None
    refused: str

    @property
    def predicted_us(self) -> float:
        return float(self.predicted.us[0])

    @property
    def bound_us(self) -> float:
        return float(self.analysis.bound.us[0])

    @property
    def now_us(self) -> float:
        """As measured, or else as predicted; inf where it cannot launch."""
        return self.measured.latency.us if self.measured is not None else self.predicted_us

    @property
    def reached(self) -> list[tuple[Configuration, Latency]]:
        """What other configurations were measured to take, less what is faster than the bound, a fault."""
        return [each for each in self.measured.others if each[1].us >= self.bound_us] if self.measured is not None else []

    def tried(self, configuration: Configuration) -> Latency | None:
        """What a configuration was measured to take; None where it was not."""
        return next((latency for its, latency in self.reached if its == configuration), None)


def _draft(launch: PlannedLaunch, choice: Choice, measured: Measured | None, target: Target, predictor: Predictor) -> _Draft:
    batch = problem_batch([launch.problem])
    current = launch.configuration or choice.configuration
    configuration = configuration_batch([current])
    table = launch.table or target.table
    refused = refusal(launch.entry, table.name, target.gpu) if launch.entry is not None and table is not None else ""
    predicted = predictor.predict(batch, configuration, target.gpu)
    if refused:
        never = np.full_like(predicted.us, np.inf)
        predicted = replace(predicted, us=never, low_us=never, high_us=never)
    return _Draft(
        launch=launch, batch=batch, current=current, measured=measured, refused=refused,
        analysis=pipelines.analyse(batch, configuration, target.gpu), predicted=predicted, ceiling=_ceiling(batch, target, predictor),
    )  # fmt: skip


def _ceiling(problem: ProblemBatch, target: Target, predictor: Predictor) -> Prediction:
    """The best of the target's space: as learned, or where the analytical model answers, its least prediction over that very space.

    The model's own ceiling is of the family's typical kernels, which may do what this kernel cannot (several short rows per CTA).
    """
    typical = predictor.ceiling(problem, target.gpu)
    if not typical.analytical:
        return typical
    us = predictor.predict(problem, target.space, target.gpu).us
    best = predictor.predict(problem, target.space.take(np.array([np.argmin(us)])), target.gpu)
    return best if np.isfinite(best.us[0]) else typical


def _group(
    group: list[PlannedLaunch],
    target: Target,
    predictor: Predictor,
    measured: Mapping[str, Measured],
    held: Configuration | None,
) -> list[LaunchReport]:
    """Reports of the launches that share one configuration; `held`: what its choice must be like in their `fixed` parameters."""
    choice = choose(group, target, predictor, held)
    drafts = [_draft(launch, choice, measured.get(launch.id), target, predictor) for launch in group]
    # What another launch of the sort needs changed is changed here too.
    needed = held is not None and held != group[0].configuration
    choice = _as_measured(drafts, choice)
    offered = choice if needed or _worth_changing(drafts, choice) else None
    if (tried := _fastest_measured(drafts, choice, held, target, predictor)) is not None:
        choice = offered = tried
    least = {draft.launch.id: _least(draft, choice, offered) for draft in drafts}
    sharing = [_sharing(draft, float(least[draft.launch.id].us[0])) for draft in drafts]
    reports = []
    for draft in drafts:
        others = tuple(other for other in sharing if other.id != draft.launch.id)
        pricing = Pricing(predictor=predictor, sharing=others, fixed=draft.launch.fixed)
        reports.append(_report(draft, choice, offered, least[draft.launch.id], pricing, target, predictor))
    return reports


def _as_measured(drafts: list[_Draft], choice: Choice) -> Choice:
    """The choice with what its configuration was measured to take, where it was."""
    known = {draft.launch.id: us for draft in drafts if (us := draft.tried(choice.configuration)) is not None}
    return replace(choice, latencies={**choice.latencies, **known})


def _fastest_measured(
    drafts: list[_Draft], choice: Choice, held: Configuration | None, target: Target, predictor: Predictor
) -> Choice | None:  # fmt: skip
    """The configuration that was measured fastest, for all launches that share one; None where none beats what runs by more than noise.

    Launches of which nothing was measured count with what is predicted of them under either.
    """
    known = [draft for draft in drafts if draft.measured is not None]
    if not known or any(draft.now_us < draft.bound_us for draft in known):
        return None
    first, like = drafts[0].launch, held or drafts[0].launch.configuration
    best, least_us = None, np.inf
    for configuration, _ in known[0].reached:
        latencies: dict[str, Latency] = {}
        for draft in drafts:
            found = draft.tried(configuration)
            if draft.measured is None:
                found = predicted_latency(predictor.predict(draft.batch, configuration_batch([configuration]), target.gpu), predictor)
            if found is not None:
                latencies[draft.launch.id] = found
        total = sum(latency.us for latency in latencies.values())
        kept = like is None or all(configuration.parameters.get(name) == like.parameters.get(name) for name in first.fixed)
        if kept and len(latencies) == len(drafts) and total < least_us:
            best, least_us = (configuration, latencies), total
    floors = [draft.measured.rounds.noise_floor or 0.0 for draft in known if draft.measured is not None and draft.measured.rounds]
    if best is None or not sum(draft.now_us for draft in drafts) >= least_us * max(WORTH_CHANGING, 1 + max(floors, default=0.0)):
        return None
    configuration, latencies = best
    table = first.table or target.table
    row = configuration_batch([configuration])
    return replace(
        choice, latencies=latencies, demands={draft.launch.id: demand_totals(draft.batch, row, target.gpu) for draft in drafts},
        configuration=replacement(configuration, first.configuration, table=table.name if table is not None else None,
                                  vendor=target.gpu.vendor, searched=("num_ctas", "maxnreg")),
        reason=f"the fastest of {len(known[0].reached) + 1} configurations {latencies[known[0].launch.id].origin}",
    )  # fmt: skip


def _worth_changing(drafts: list[_Draft], choice: Choice) -> bool:
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


def _least(draft: _Draft, choice: Choice, offered: Choice | None) -> Prediction:
    """The tunable ceiling as predicted: no configuration that the report names is predicted below it."""
    name = draft.launch.id
    named = [choice.ceilings[name][0]]
    if offered is not None and offered.latencies[name].origin == "predicted":
        named.append(offered.latencies[name].us)
    return tunable_ceiling(draft.ceiling, draft.analysis.bound.us, draft.predicted.us, *(np.array([us]) for us in named))


def _sharing(draft: _Draft, least_us: float) -> Sharing:
    """What a change for another launch of the same entry has to reckon with here."""
    us = draft.measured.latency.us if draft.measured is not None else None
    credible = now_us(draft.predicted_us, us, draft.bound_us)
    # What was measured is reached, and no ceiling is higher. Below the bound nothing is known to be saved.
    return Sharing(
        id=draft.launch.id, problem=draft.launch.problem, now_us=credible if us is None else min(credible, us),
        least_us=min(least_us, credible),
    )  # fmt: skip


def _ranked_change(launch: str, pricing: Pricing, choice: Choice) -> Change:
    """What the first-ranked configuration brings a launch, and costs those that share it."""
    slower = {other.id: choice.latencies[other.id].us - other.now_us for other in pricing.sharing if np.isfinite(other.now_us)}
    then = choice.latencies[launch]
    limit = "" if then.origin == "predicted" else f"{microseconds(then.us)} {then.origin}"
    return Change(parameters={}, us=then.us, slower_us=slower, limit=limit)


def _report(
    draft: _Draft, choice: Choice, offered: Choice | None, least: Prediction, pricing: Pricing, target: Target, predictor: Predictor
) -> LaunchReport:
    launch, analysis, measured, gpu = draft.launch, draft.analysis, draft.measured, target.gpu
    times = pipeline_times(analysis, gpu)
    predicted = predicted_latency(draft.predicted, predictor) if np.isfinite(draft.predicted_us) else None
    ceiling, ceiling_configuration = predicted_latency(least, predictor), choice.ceilings[launch.id][1]
    for configuration, latency in ([(draft.current, measured.latency)] if measured is not None else []) + draft.reached:
        if draft.bound_us <= latency.us < ceiling.us:
            # What was measured is reached: the ceiling is no higher than that, whatever was predicted. (Below the bound it is a fault.)
            ceiling, ceiling_configuration = latency, configuration
    now = draft.now_us if measured is not None or predicted is not None else None
    p_speedup = _p_speedup(draft, target, predictor) if now is not None else 1.0
    if now is not None and measured is not None and any(now >= 1.1 * latency.us for _, latency in draft.reached):
        p_speedup = 1.0  # it was measured
    ranked = _ranked_change(launch.id, pricing, choice)
    diagnosis = diagnose(
        context(
            launch.problem, draft.current, gpu, analysis=analysis, predicted_us=draft.predicted_us, ceiling_us=ceiling.us,
            measured_us=measured.latency.us if measured else None, measured_origin=measured.latency.origin if measured else "measured",
            entry=launch.entry, entry_m=launch.entry_key, stack=target.stack, pricing=pricing, ranked=ranked,
            refused=draft.refused, recommended=ranked if offered is not None and offered.configuration != launch.configuration else None,
        )
    )  # fmt: skip
    return LaunchReport(
        id=launch.id,
        kernel=launch.kernel,
        problem=launch.problem,
        configuration=draft.current if launch.configuration is not None else None,
        configuration_source=launch.source,
        pipelines=times,
        binding_pipeline=analysis.bound.binding_pipeline(0),
        # Not that of the bound of the configuration, which leaves out what the L2 carries again.
        config_binding_pipeline=max(times, key=lambda each: each.time_us).pipeline,
        bound=Latency(us=draft.bound_us, origin="specified", source=f"bound from the figures of {gpu.name}"),
        config_bound=Latency(us=float(analysis.config_bound.us[0]), origin="specified",
                             source=f"bound of this configuration from the figures of {gpu.name}"),
        predicted=predicted,
        ceiling=ceiling,
        ceiling_configuration=ceiling_configuration,
        measured=measured.latency if measured else None,
        measured_rounds=measured.rounds if measured else None,
        occupancy=occupancy(analysis),
        efficiency=draft.bound_us / now if now else None,
        headroom=now / ceiling.us - 1 if now else None,
        p_speedup_10pct=p_speedup,
        gap=diagnosis.gap,
        findings=diagnosis.findings,
        passed_rules=diagnosis.passed,
        recommendation=_recommendation(launch, offered, now, p_speedup, target) if offered is not None else None,
        faults=diagnosis.faults,
        decision=launch.sort or launch.share,
    )  # fmt: skip


def _p_speedup(draft: _Draft, target: Target, predictor: Predictor) -> float:
    """The probability that at least 10 % can be won."""
    launch, predicted = draft.launch, draft.predicted
    configuration: ConfigurationBatch | None = configuration_batch([draft.current])
    if draft.measured is not None and launch.configuration is None and launch.problem.family == "fused_moe":
        # What was measured is the stack's own choice, not `current`, which is then what is recommended.
        configuration, predicted = None, predictor.predict(draft.batch, None, target.gpu)
    latency = np.array([draft.measured.latency.us]) if draft.measured is not None else None
    return float(predictor.p_speedup(draft.batch, target.gpu, latency, predicted, draft.ceiling, configuration)[0])


def _recommendation(launch: PlannedLaunch, choice: Choice, now: float | None, p_speedup: float, target: Target) -> Recommendation | None:
    if choice.configuration == launch.configuration:
        return None
    latency, configuration = choice.latencies[launch.id], choice.configuration
    reason = choice.reason
    if len(choice.latencies) > 1:
        reason += f", for the {len(choice.latencies)} launches that share this entry together"
    if now is None:
        reason += "; the current configuration cannot launch"
    entry = launch.entry
    return Recommendation(
        configuration=configuration,
        latency=latency,
        speedup=now / latency.us if now is not None else 1.0,  # nothing to compare with
        p_speedup_10pct=p_speedup,
        reason=reason,
        triton_config=triton_config(configuration),
        table_entry=dict(entry_of(configuration, entry_of(entry) if entry else None)) if target.table is not None else None,
        demand=choice.demands[launch.id],
    )


def _unknowns(launches: tuple[LaunchReport, ...], predictor: Predictor) -> tuple[str, ...]:
    out = []
    if not any(report.measured for report in launches):
        out.append("Nothing was measured: every latency here is a prediction (give --measured ROWS.csv, or run advisor measure).")
    sources = [r.predicted.source for r in launches if r.predicted is not None]
    if fallen := sum(source == ANALYTICAL for source in sources) if predictor.name != ANALYTICAL else 0:
        out.append(f"{fallen} of {len(launches)} launches lie far outside what was learned; the analytical model answers for them.")
    if beyond := sum(source.endswith(EXTRAPOLATED) for source in sources):
        out.append(f"{beyond} of {len(launches)} launches lie outside what was learned (sizes, or a cold cache): their latencies are "
                   "extrapolated, with intervals that nothing measured has checked.")
    return tuple(out)
