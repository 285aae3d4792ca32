"""From a target to a Result: analyse, predict, diagnose, recommend. The one core behind every door."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from advisor import __version__, pipelines
from advisor.configs.audit import audit_table
from advisor.configs.names import TableName
from advisor.configs.replacing import replacement
from advisor.configs.tables import Table, entry_of, merge, render_table
from advisor.diagnosis import Change, Pricing, Sharing, actions, context, diagnose, now_us, table_findings
from advisor.errors import NothingMatchedError
from advisor.fingerprint import offline
from advisor.hardware import GpuSpec, match_device_name
from advisor.learned.base import ANALYTICAL, EXTRAPOLATED, Prediction, Predictor
from advisor.learned.caveats import unmeasured_vendor
from advisor.learned.reached import tunable_ceiling
from advisor.pipelines import Analysis, configuration_batch, problem_batch
from advisor.pipelines.bound import least_launch_us, throughput_per_us
from advisor.pipelines.cache import least_dram_bytes
from advisor.pipelines.space import configuration_at, held_to
from advisor.schema import (
    PIPELINE_UNITS,
    PIPELINES,
    Configuration,
    Export,
    Finding,
    Latency,
    LaunchReport,
    MeasuredRounds,
    Occupancy,
    PipelineTime,
    Recommendation,
    Result,
    SourcedFigure,
)
from advisor.shared_sort import held_configurations
from advisor.targets import PlannedLaunch, Target
from advisor.verdict import verdict

WORTH_CHANGING = 1.02
"""A predicted speedup below this is not recommended: the noise floor of a good measurement (report-spec: 2 %)."""

NEAR_BEST = 1.005
"""Configurations predicted within this of the best count as equal; the one closest to the current configuration is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measured latency of one launch, and its raw rounds where there are any."""

    latency: Latency
    rounds: MeasuredRounds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """The first-ranked configuration for launches that share one, with what is predicted of each of them under it."""

    configuration: Configuration
    latencies: Mapping[str, Latency]  # by launch id
    ceilings: Mapping[str, tuple[float, Configuration]]  # each launch's own first
    demands: Mapping[str, dict[str, float]]  # by launch id, then by pipeline


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
    chosen: dict[str, Configuration] = {}
    held = held_configurations(target, predictor, WORTH_CHANGING, {name: each.latency.us for name, each in measured.items()})
    for group in shares.values():
        reports += _group(group, target, predictor, measured, chosen, held.get(group[0].id))
        if progress:
            progress(len(reports), len(target.launches))
    order = {launch.id: i for i, launch in enumerate(target.launches)}
    reports.sort(key=lambda report: order[report.id])
    launches = tuple(reports)
    unknowns = target.unknowns + _unknowns(launches, predictor) + unmeasured_vendor([target.gpu])
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
        exports=_exports(target, launches),
        warnings=target.warnings,
    )


def _table_findings(target: Target) -> tuple[Finding, ...]:
    """What the audit finds in the table, the entries that were diagnosed as launches apart."""
    if target.table is None:
        return ()
    _, issues = audit_table(target.table.path)
    own = {launch.entry_key for launch in target.launches if launch.entry_key is not None and launch.table is None}
    return table_findings(issues, own)


def _group(
    group: list[PlannedLaunch],
    target: Target,
    predictor: Predictor,
    measured: Mapping[str, Measured],
    chosen: dict[str, Configuration],
    held: Configuration | None,
) -> list[LaunchReport]:
    """Reports of the launches that share one configuration; `held`: what its choice must be like in their `fixed` parameters."""
    gpu = target.gpu
    choice = _choose(group, target, predictor, held)
    drafts = []
    for launch in group:
        problem = problem_batch([launch.problem])
        current = launch.configuration or choice.configuration
        batch = configuration_batch([current])
        analysis = pipelines.analyse(problem, batch, gpu)
        predicted = predictor.predict(problem, batch, gpu)
        ceiling = predictor.ceiling(problem, gpu)
        drafts.append((launch, problem, current, analysis, predicted, ceiling))
    # By prediction alone (like with like), and still so where a measurement says what is true now. One below the bound counts too:
    # whatever is wrong with it, a promise of more than was measured is no reason to change.
    now = sum(
        measured[launch.id].latency.us if launch.id in measured else float(predicted.us[0]) for launch, _, _, _, predicted, _ in drafts
    )
    unset = group[0].configuration is None  # then the prediction is of the choice itself
    if not unset:
        now = min(now, sum(float(predicted.us[0]) for _, _, _, _, predicted, _ in drafts))
    then = sum(latency.us for latency in choice.latencies.values())
    known = not unset or any(launch.id in measured for launch in group)
    # What another launch of the sort needs changed is changed here too.
    needed = held is not None and held != group[0].configuration
    worth = not known or not np.isfinite(now) or now >= then * WORTH_CHANGING or needed
    if worth:
        chosen[group[0].share] = choice.configuration
    given = choice if worth else None
    least = {
        launch.id: _ceiling(launch, analysis, predicted, ceiling, given, choice.ceilings[launch.id])
        for launch, _, _, analysis, predicted, ceiling in drafts
    }
    sharing = []
    for launch, _, _, analysis, predicted, _ in drafts:
        us = measured[launch.id].latency.us if launch.id in measured else None
        credible = now_us(float(predicted.us[0]), us, float(analysis.bound.us[0]))
        # What was measured is reached: no ceiling is higher.
        lowest = min(float(least[launch.id].us[0]), credible)
        today = credible if us is None else min(credible, us)  # below the bound too, as above: nothing is known to be saved there
        sharing.append(Sharing(id=launch.id, problem=launch.problem, now_us=today, least_us=lowest))
    reports = []
    for draft in drafts:
        name = draft[0].id
        others = tuple(other for other in sharing if other.id != name)
        pricing = Pricing(predictor=predictor, sharing=others, fixed=draft[0].fixed)
        ranked = _ranked_change(name, pricing, choice)
        reports.append(_report(*draft, given, ranked, choice.ceilings[name], least[name], pricing, measured.get(name), target, predictor))
    return reports


def _ceiling(launch: PlannedLaunch, analysis: Analysis, predicted: Prediction, ceiling: Prediction, choice: _Choice | None,
             own_best: tuple[float, Configuration]) -> Prediction:  # fmt: skip
    """The tunable ceiling as predicted: no configuration that the report names is predicted below it."""
    named = [own_best[0], *([choice.latencies[launch.id].us] if choice is not None else [])]
    return tunable_ceiling(ceiling, analysis.bound.us, predicted.us, *(np.array([us]) for us in named))


def _ranked_change(launch: str, pricing: Pricing, choice: _Choice) -> Change:
    """What the first-ranked configuration brings a launch, and costs those that share it."""
    slower = {other.id: choice.latencies[other.id].us - other.now_us for other in pricing.sharing if np.isfinite(other.now_us)}
    return Change(parameters={}, us=choice.latencies[launch].us, slower_us=slower)


def _credible_us(measured: Measured | None, bound_us: float) -> float | None:
    """A measured latency, where there is one that can be: one below the bound is a fault, and nothing is decided by it."""
    return measured.latency.us if measured is not None and measured.latency.us >= bound_us else None


def _choose(group: list[PlannedLaunch], target: Target, predictor: Predictor, like: Configuration | None = None) -> _Choice:
    """Rank the space for all launches of a group at once; each weighs as much as the time it takes."""
    space, first = target.space, group[0]
    held = held_to(space, like, first.fixed)
    scores, seconds, ceilings = np.zeros(len(held)), [], {}
    for launch in group:
        problem = problem_batch([launch.problem])
        own = predictor.scores(problem, space, target.gpu)
        usable = np.isfinite(own)
        if not usable.any():
            raise NothingMatchedError(f"{launch.id}: no configuration of the space fits {target.gpu.name}", None, None,
                                      "describe a smaller space")  # fmt: skip
        best = int(np.argmin(own))
        at_best = predictor.predict(problem, space.take(np.array([best])), target.gpu)
        ceilings[launch.id] = (float(at_best.us[0]), configuration_at(space, best))
        seconds.append(float(at_best.us[0]))
        scores = scores + (own if held is space else predictor.scores(problem, held, target.gpu)) * seconds[-1]
    scores = scores / sum(seconds)
    best = _closest(held, scores, first.configuration)
    row = held.take(np.array([best]))
    latencies, demands = {}, {}
    for launch in group:
        problem = problem_batch([launch.problem])
        latencies[launch.id] = _latency(predictor.predict(problem, row, target.gpu), 0, predictor)
        totals = pipelines.demand(problem, row, target.gpu).totals()
        demands[launch.id] = {name: float(amount[0]) for name, amount in totals.items()}
    table = first.table or target.table
    name = table.name if table is not None else None
    configuration = replacement(configuration_at(held, best), first.configuration, table=name, vendor=target.gpu.vendor)
    return _Choice(configuration=configuration, latencies=latencies, ceilings=ceilings, demands=demands)


def _closest(space: pipelines.ConfigurationBatch, scores: pipelines.Array, current: Configuration | None) -> int:
    """Of the configurations that score within NEAR_BEST of the best, the one that changes fewest values; then the first."""
    near = np.flatnonzero(scores <= np.nanmin(scores) + np.log(NEAR_BEST))
    if current is None:
        return int(near[np.argmin(scores[near])])
    differences = np.zeros(near.size)
    for name, values in {**space.parameters, "num_warps": space.num_warps, "num_stages": space.num_stages}.items():
        now = getattr(current, name) if name in ("num_warps", "num_stages") else current.parameters.get(name)
        if now is not None:
            differences += np.broadcast_to(values, (len(space),))[near] != now
    fewest = near[differences == differences.min()]
    return int(fewest[np.argmin(scores[fewest])])


def _latency(prediction: Prediction, i: int, predictor: Predictor) -> Latency:
    source = prediction.source(i, predictor.name)
    return Latency(
        us=float(prediction.us[i]), origin="predicted", source=source, low_us=float(prediction.low_us[i]),
        high_us=float(prediction.high_us[i]), coverage=prediction.coverage,
    )  # fmt: skip


def _report(
    launch: PlannedLaunch,
    problem: pipelines.ProblemBatch,
    current: Configuration,
    analysis: Analysis,
    predicted: Prediction,
    ceiling: Prediction,
    choice: _Choice | None,
    ranked: Change,
    own_best: tuple[float, Configuration],
    least: Prediction,
    pricing: Pricing,
    measured: Measured | None,
    target: Target,
    predictor: Predictor,
) -> LaunchReport:
    gpu = target.gpu
    feasible = bool(np.isfinite(predicted.us[0]))
    predicted_latency = _latency(predicted, 0, predictor) if feasible else None
    ceiling_latency = _latency(least, 0, predictor)
    bound_us, lowest = float(analysis.bound.us[0]), float(least.us[0])
    credible = _credible_us(measured, bound_us)
    if measured is not None and credible is not None and credible < lowest:
        # What was measured is reached: the ceiling is no higher than that, whatever was predicted.
        lowest, ceiling_latency, own_best = credible, measured.latency, (credible, current)
    now = measured.latency.us if measured else (predicted_latency.us if predicted_latency else None)
    p_speedup = _p_speedup(launch, problem, current, predicted, ceiling, measured, target, predictor) if feasible or measured else 1.0
    diagnosis = diagnose(
        context(
            launch.problem, current, gpu, analysis=analysis, predicted_us=float(predicted.us[0]), ceiling_us=lowest,
            measured_us=measured.latency.us if measured else None, measured_origin=measured.latency.origin if measured else "measured",
            entry=launch.entry, entry_m=launch.entry_key, stack=target.stack, pricing=pricing, ranked=ranked,
            recommended=ranked if choice is not None and choice.configuration != launch.configuration else None,
        )
    )  # fmt: skip
    return LaunchReport(
        id=launch.id,
        kernel=launch.kernel,
        problem=launch.problem,
        configuration=current if launch.configuration is not None else None,
        configuration_source=launch.source,
        pipelines=_pipeline_times(analysis, gpu),
        binding_pipeline=analysis.bound.binding_pipeline(0),
        config_binding_pipeline=analysis.config_bound.binding_pipeline(0),
        bound=Latency(us=bound_us, origin="specified", source=f"bound from the figures of {gpu.name}"),
        config_bound=Latency(us=float(analysis.config_bound.us[0]), origin="specified",
                             source=f"bound of this configuration from the figures of {gpu.name}"),
        predicted=predicted_latency,
        ceiling=ceiling_latency,
        ceiling_configuration=own_best[1],
        measured=measured.latency if measured else None,
        measured_rounds=measured.rounds if measured else None,
        occupancy=_occupancy(analysis),
        efficiency=bound_us / now if now else None,
        headroom=now / lowest - 1 if now else None,
        p_speedup_10pct=p_speedup,
        gap=diagnosis.gap,
        findings=diagnosis.findings,
        passed_rules=diagnosis.passed,
        recommendation=_recommendation(launch, current, choice, now, p_speedup, target) if choice is not None else None,
        faults=diagnosis.faults,
        decision=launch.sort or launch.share,
    )  # fmt: skip


def _p_speedup(launch: PlannedLaunch, problem: pipelines.ProblemBatch, current: Configuration, predicted: Prediction,
               ceiling: Prediction, measured: Measured | None, target: Target, predictor: Predictor) -> float:  # fmt: skip
    """The probability that at least 10 % can be won."""
    configuration: pipelines.ConfigurationBatch | None = configuration_batch([current])
    if measured is not None and launch.configuration is None and launch.problem.family == "fused_moe":
        # What was measured is the stack's own choice, not `current`, which is then what is recommended.
        configuration, predicted = None, predictor.predict(problem, None, target.gpu)
    latency = np.array([measured.latency.us]) if measured is not None else None
    return float(predictor.p_speedup(problem, target.gpu, latency, predicted, ceiling, configuration)[0])


def _recommendation(launch: PlannedLaunch, current: Configuration, choice: _Choice, now: float | None, p_speedup: float,
                    target: Target) -> Recommendation | None:  # fmt: skip
    latency = choice.latencies[launch.id]
    configuration = choice.configuration
    if configuration == current and launch.configuration is not None:
        return None
    reason = "ranked first of the configuration space"  # in an order learned for itself: another may be predicted faster
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


def triton_config(configuration: Configuration) -> str:
    """A paste-ready `triton.Config(...)`."""
    parameters = ", ".join(f"{name!r}: {value!r}" for name, value in configuration.parameters.items())
    options = f"num_warps={configuration.num_warps}, num_stages={configuration.num_stages}"
    if configuration.num_ctas != 1:
        options += f", num_ctas={configuration.num_ctas}"
    if configuration.maxnreg is not None:
        options += f", maxnreg={configuration.maxnreg}"
    return f"triton.Config({{{parameters}}}, {options})".replace("'", '"')


def _pipeline_times(analysis: Analysis, gpu: GpuSpec) -> tuple[PipelineTime, ...]:
    rates = throughput_per_us(gpu, analysis.demand.tensor_dtype)
    totals, busiest = analysis.demand.totals(), analysis.demand.busiest_sm(gpu.num_sms)
    least = analysis.work.amounts()
    least["dram"] = least_dram_bytes(analysis.work.compulsory_bytes, gpu.l2_bytes, analysis.problem.cache)
    out = []
    for name in PIPELINES:
        if name == "launch":
            launch = least_launch_us(gpu)
            out.append(PipelineTime(pipeline=name, unit="launch", demand=1.0, problem_demand=1.0, busiest_sm_demand=None,
                                    throughput_per_s=0.0, time_us=launch, problem_time_us=launch))  # fmt: skip
            continue
        out.append(
            PipelineTime(
                pipeline=name, unit=PIPELINE_UNITS[name], demand=float(totals[name].flat[0]),
                problem_demand=float(least[name].flat[0]),
                busiest_sm_demand=float(busiest[name].flat[0]) if name in busiest else None,
                throughput_per_s=rates[name] * 1e6,
                time_us=_configuration_time(name, analysis, totals, busiest, rates, gpu),
                problem_time_us=float(analysis.bound.times_us[name].flat[0]),
            )
        )  # fmt: skip
    return tuple(out)


def _configuration_time(name: str, analysis: Analysis, totals: Mapping[str, pipelines.Array],
                        busiest: Mapping[str, pipelines.Array], rates: Mapping[str, float], gpu: GpuSpec) -> float:  # fmt: skip
    """Time of one pipeline at its full throughput: of the busiest SM where every SM has its own, with all modelled traffic."""
    if not rates[name]:
        return 0.0
    if name not in busiest:  # the L2 takes longer where another cache behind it has to deliver
        return max(float(totals[name].flat[0]) / rates[name], float(analysis.bound.times_us["l2"].flat[0]) if name == "l2" else 0.0)
    rate = rates[name] / gpu.num_sms * (float(analysis.demand.tensor_rate.flat[0]) if name == "tensor" else 1.0)
    return float(busiest[name].flat[0]) / rate


def _occupancy(analysis: Analysis) -> Occupancy:
    demand, plan = analysis.demand, analysis.schedule

    def first(values: pipelines.Array) -> float:
        return float(np.asarray(values).flat[0])

    return Occupancy(
        ctas=int(first(demand.ctas)), resident_ctas_per_sm=int(first(plan.resident)), limiter=plan.limiter_name(0),
        waves=first(plan.waves), last_wave_fill=first(plan.last_wave_fill),
        registers_per_thread=round(first(demand.resources.registers)), registers_origin="estimated",
        shared_memory_bytes=int(first(demand.resources.shared_memory_bytes)), spill_bytes=None,
        k_iterations=int(np.ceil(first(demand.k_iterations))),
    )  # fmt: skip


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


def gpu_figures(gpu: GpuSpec) -> tuple[SourcedFigure, ...]:
    """Every figure of the GPU that has a source."""
    out = []
    for field in fields(gpu):
        value = getattr(gpu, field.name)
        source = gpu.sources.get(field.name)
        if source is None or field.name == "sources" or value is None:
            continue
        values = {f"{field.name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {field.name: value}
        out += [SourcedFigure(name=name, value=v, source=source) for name, v in values.items()]
    return tuple(out)


def table_name_on(name: TableName, gpu: GpuSpec) -> TableName:
    """The name of a table for `gpu`: its own, unless that says another GPU, which would then load what was chosen for this one."""
    said = match_device_name(name.device_name)
    if said is None or said.name == gpu.name:
        return name
    return replace(name, device_name=gpu.sglang_device_name() if name.stack == "sglang" else gpu.vllm_device_name())


def _exports(target: Target, launches: tuple[LaunchReport, ...]) -> tuple[Export, ...]:
    """The recommended table (or list of triton.Config), where there is anything to change."""
    by_share: dict[str, Recommendation] = {}
    shares = {launch.id: launch for launch in target.launches}
    for report in launches:
        if report.recommendation is not None:
            by_share.setdefault(shares[report.id].share, report.recommendation)
    if not by_share:
        return ()
    out = []
    if target.table is not None:
        tables: dict[str, tuple[Table, dict[int, Configuration]]] = {}
        for launch in target.launches:
            if launch.share in by_share and launch.tokens is not None:
                table = launch.table or target.table
                tables.setdefault(table.path, (table, {}))[1][launch.tokens] = by_share[launch.share].configuration
        for table, updates in tables.values():
            name = table_name_on(table.name, target.gpu).file_name()
            out.append(Export(name=name, kind="table", content=render_table(merge(table, updates))))
    distinct = dict.fromkeys(recommendation.triton_config for recommendation in by_share.values())
    out.append(Export(name="triton.Config list", kind="triton-configs", content="[\n" + "".join(f"    {c},\n" for c in distinct) + "]\n"))
    return tuple(out)


__all__ = ["Measured", "advise", "table_name_on", "triton_config"]
