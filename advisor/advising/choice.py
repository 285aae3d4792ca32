"""One launch before anything is chosen for it, analysed and predicted, and which configuration is offered for launches that share one.

That is the first-ranked of the space, near enough to what runs today.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor import pipelines
from advisor.advising.targets import PlannedLaunch, Target
from advisor.diagnosis import WORTH_CHANGING
from advisor.diagnosis.context import Modelled
from advisor.diagnosis.pricing import take_rows
from advisor.gpus.hardware import GpuSpec
from advisor.learned.analytical import LIKELY
from advisor.learned.base import Prediction, Predictor, Ranking, predict_each
from advisor.pipelines import Analysis, ConfigurationBatch, ProblemBatch, configuration_batch, problem_batch
from advisor.pipelines.batch import by_kind
from advisor.pipelines.space import configuration_at, held_to, together
from advisor.result.schema import Configuration, Latency, MeasuredRounds, contradicts
from advisor.system.errors import NothingMatchedError
from advisor.system.resources import phrase
from advisor.tables.audit import refusal
from advisor.tables.launchability import refused_ctas
from advisor.tables.tuned_table import replacement

NEAR_BEST = 1.005
"""Configurations predicted within this of the best count as equal; the one closest to the current configuration is taken, or to the one
that the kernel's file gives untuned."""


FIRST = phrase("choice.first")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The first-ranked configuration for launches that share one, with what is predicted of each of them under it.

    Attributes:
        configuration: The configuration.
        row: The same as it was searched for, a batch of one.
        predictions: What each launch is predicted to take under it, by launch id.
        latencies: The same as results have it, or what it was measured to take.
        ceilings: Each launch's own first-ranked configuration with the microseconds predicted, by launch id.
        reason: Why it is this one, in words.
    """

    configuration: Configuration
    row: ConfigurationBatch
    predictions: Mapping[str, Prediction]
    latencies: Mapping[str, Latency]
    ceilings: Mapping[str, tuple[float, Configuration]]
    reason: str = FIRST  # in an order learned for itself: another may be predicted faster


def rank_groups(
    groups: Sequence[Sequence[PlannedLaunch]], target: Target, predictor: Predictor, like: Mapping[str, Configuration]
) -> list[Ranking]:
    """The target's space ranked for launches that share a configuration, each weighing as much as the time it takes; all groups at once.

    Args:
        groups: The launches.
        target: Their target, with the space.
        predictor: What ranks it.
        like: By launch id, the configuration whose values a group's `frozen_parameters` keep: scores are of that part of the space.

    Raises:
        NothingMatchedError: No configuration of the space fits the GPU.
    """
    space = target.space
    problems = [[problem_batch([launch.problem]) for launch in group] for group in groups]
    rankings = predictor.rankings(problems, space, target.gpu)
    for i, (group, ranking) in enumerate(zip(groups, rankings, strict=True)):
        if not np.isfinite(ranking.scores).any():
            raise NothingMatchedError(
                f"{group[0].id}: no configuration of the space fits {target.gpu.name}", None, None, "describe a smaller space"
            )
        restricted = held_to(space, like.get(group[0].id), group[0].frozen_parameters)
        if restricted is not space:
            rankings[i] = replace(ranking, scores=predictor.scores(problems[i], restricted, target.gpu))
    return rankings


def choose(
    groups: Sequence[Sequence[PlannedLaunch]],
    rankings: Sequence[Ranking],
    target: Target,
    predictor: Predictor,
    like: Mapping[str, Configuration],
) -> list[Choice]:
    """What is chosen for the launches of each group, which share one configuration, of the group's ranking; arguments as of
    `rank_groups`."""
    space, gpu = target.space, target.gpu
    picked: list[tuple[ConfigurationBatch, Configuration]] = []
    queries, untuned = [], []
    for group, ranking in zip(groups, rankings, strict=True):
        first = group[0]
        restricted = held_to(space, like.get(first.id), first.frozen_parameters)
        best = _closest(restricted, ranking.scores, first.configuration or first.default_configuration)
        picked.append((restricted.take(np.array([best])), configuration_at(restricted, best)))
        for launch, i in zip(group, ranking.first, strict=True):
            queries.append((launch.problem, together([picked[-1][0], space.take(np.array([i]))])))
        default = first.default_configuration
        if first.configuration is None and default is not None and picked[-1][1] != default and restricted is space:
            untuned += [(launch, configuration_batch([default])) for launch in group]
    predictions = iter(predict_each(predictor, queries, gpu))
    defaults = predict_each(predictor, [(launch.problem, row) for launch, row in untuned], gpu)
    of_default = {launch.id: prediction for (launch, _), prediction in zip(untuned, defaults, strict=True)}
    choices = []
    for group, ranking, (row, chosen) in zip(groups, rankings, picked, strict=True):
        first, reason, both = group[0], FIRST, [next(predictions) for _ in group]
        then = [prediction.take(slice(0, 1)) for prediction in both]
        if (default := first.default_configuration) is not None and first.id in of_default:
            now = [of_default[launch.id] for launch in group]
            if not _likely_faster([problem_batch([launch.problem]) for launch in group], now, then, gpu, predictor):
                row, chosen, then, reason = configuration_batch([default]), default, now, phrase("choice.default")
        table = first.table or target.table
        name = table.name if table is not None else None
        choices.append(
            Choice(
                configuration=replacement(chosen, first.configuration, table=name, gpu=gpu),
                row=row,
                predictions={launch.id: prediction for launch, prediction in zip(group, then, strict=True)},
                latencies={launch.id: predicted_latency(prediction, predictor) for launch, prediction in zip(group, then, strict=True)},
                ceilings={
                    launch.id: (float(prediction.us[1]), configuration_at(space, i))
                    for launch, prediction, i in zip(group, both, ranking.first, strict=True)
                },
                reason=reason,
            )
        )
    return choices


def _likely_faster(
    problems: list[ProblemBatch], before: list[Prediction], after: list[Prediction], gpu: GpuSpec, predictor: Predictor
) -> bool:
    """Whether the launches of `problems` are likely enough to be faster, together, with a configuration than with another."""
    if not all(np.isfinite(item.us[0]) for item in before):
        return True
    longest = int(np.argmax([item.us[0] for item in before]))
    return (
        gain_probability(
            problems[longest],
            sum(float(item.us[0]) for item in before),
            sum(float(item.us[0]) for item in after),
            before[longest],
            after[longest],
            gpu,
            predictor,
        )
        >= LIKELY
    )


def gain_probability(
    problem: ProblemBatch, now_us: float, then_us: float, before: Prediction, after: Prediction, gpu: GpuSpec, predictor: Predictor
) -> float:
    """Probability that launches which take `now_us` together are 2 % faster in the `then_us` that are predicted, by the errors of the one
    that takes longest (`before` and `after`)."""
    factor = now_us / then_us * after.us / before.us
    same = replace(before, us=before.us * factor, low_us=before.low_us * factor, high_us=before.high_us * factor)
    return predictor.p_gain(problem, gpu, same, after)


def demand_totals(problem: pipelines.ProblemBatch, row: pipelines.ConfigurationBatch, gpu: GpuSpec) -> dict[str, float]:
    """Total demand of one launch, by pipeline."""
    return {name: float(amount[0]) for name, amount in pipelines.demand(problem, row, gpu).totals().items()}


def _closest(space: pipelines.ConfigurationBatch, scores: pipelines.Array, current: Configuration | None) -> int:
    """The configuration within NEAR_BEST of the best score that changes fewest values; of several, the first."""
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


def predicted_latency(prediction: Prediction, predictor: Predictor) -> Latency:
    """The first of a prediction, with its interval and where it comes from."""
    source = prediction.source(0, predictor.name)
    return Latency(
        us=float(prediction.us[0]),
        origin="predicted",
        source=source,
        low_us=float(prediction.low_us[0]),
        high_us=float(prediction.high_us[0]),
        coverage=prediction.coverage,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measured latency of one launch, its raw rounds where there are any, and what its problem was measured to take with other
    configurations."""

    latency: Latency
    rounds: MeasuredRounds | None = None
    others: tuple[tuple[Configuration, Latency], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A launch under the configuration that runs (or else the one chosen), analysed and predicted.

    Attributes:
        launch: The launch.
        batch: Its problem, a batch of one.
        current: The configuration.
        modelled: The launch as the analytical model has it, with others, at `row`.
        row: Its row.
        analysis: That row alone.
        predicted: The prediction; inf where it cannot launch.
        ceiling: The best of the target's space.
        p_speedup: Probability that at least 10 % can be won.
        measured: What was measured of it.
        refused: Why it raises an error although it fits; empty where it does not.
    """

    launch: PlannedLaunch
    batch: ProblemBatch
    current: Configuration
    modelled: Modelled
    row: int
    analysis: Analysis
    predicted: Prediction
    ceiling: Prediction
    p_speedup: float = 1.0
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
        """Microseconds as measured, else as predicted; inf where it cannot launch."""
        return self.measured.latency.us if self.measured is not None else self.predicted_us

    @property
    def contradicted(self) -> bool:
        """Whether the measurement contradicts the prediction."""
        high = float(self.predicted.high_us[0])
        predicted = Latency(us=self.predicted_us, origin="predicted", source="", high_us=high)
        return self.measured is not None and contradicts(self.measured.latency, predicted)

    @property
    def reached(self) -> list[tuple[Configuration, Latency]]:
        """Measured latencies of other configurations, without those below the bound, which are faults."""
        return [other for other in self.measured.others if other[1].us >= self.bound_us] if self.measured is not None else []

    def tried(self, configuration: Configuration) -> Latency | None:
        """The measured latency of a configuration; None where it was not measured."""
        return next((latency for its, latency in self.reached if its == configuration), None)


def drafts_of(
    launches: Sequence[tuple[PlannedLaunch, Choice]], measured: Mapping[str, Measured], target: Target, predictor: Predictor
) -> list[Draft]:
    """The launches under their configurations, or that of the choice where one has none; `measured` by launch id."""
    gpu = target.gpu
    current = [launch.configuration or choice.configuration for launch, choice in launches]
    queries = [(launch.problem, configuration_batch([item])) for (launch, _), item in zip(launches, current, strict=True)]
    drafts: dict[int, Draft] = {}
    for kind in by_kind(queries):
        problem, configuration = kind.problem, kind.configuration
        modelled = Modelled(pipelines.analyse(problem, configuration, gpu), gpu)
        predicted = predictor.predict(problem, configuration, gpu)
        typical = predictor.ceiling(problem, gpu)
        p_speedup = predictor.p_speedup(problem, gpu, None, predicted, typical, configuration)
        for row, place in enumerate(kind.places):
            launch, rows = launches[place][0], slice(row, row + 1)
            draft = Draft(
                launch=launch,
                batch=problem_batch([launch.problem]),
                current=current[place],
                modelled=modelled,
                row=row,
                analysis=take_rows(modelled.analysis, rows),
                predicted=predicted.take(rows),
                ceiling=typical.take(rows),
                p_speedup=float(p_speedup[row]),
                measured=measured.get(launch.id),
                refused=_refused(launch, current[place], target),
            )
            drafts[place] = _settled(draft, target, predictor)
    return [drafts[place] for place in range(len(launches))]


def _refused(launch: PlannedLaunch, current: Configuration, target: Target) -> str:
    """Why a launch raises an error although its configuration fits; empty where it does not."""
    table = launch.table or target.table
    if launch.entry is not None and table is not None:
        return refusal(launch.entry, table.name, target.gpu)
    return refused_ctas(current.num_ctas, target.gpu.compute_capability) or ""


def _settled(draft: Draft, target: Target, predictor: Predictor) -> Draft:
    """A draft with what only it has: a refusal, a space of its own, a measurement."""
    predicted, ceiling = draft.predicted, draft.ceiling
    if draft.refused:
        never = np.full_like(predicted.us, np.inf)
        predicted = replace(predicted, us=never, low_us=never, high_us=never)
    if target.stack is None and ceiling.analytical:
        ceiling = _least_of_space(draft.batch, target, predictor) or ceiling
    if predicted is draft.predicted and ceiling is draft.ceiling and draft.measured is None:
        return draft
    draft = replace(draft, predicted=predicted, ceiling=ceiling)
    return replace(draft, p_speedup=_probability(draft, target, predictor))


def _least_of_space(problem: ProblemBatch, target: Target, predictor: Predictor) -> Prediction | None:
    """The least prediction over the target's very space; None where nothing of it can launch.

    The ceiling of the analytical model is of the family's typical kernels, which may do what this kernel cannot (several short rows per
    CTA). Kernels of the serving stacks are the typical ones: of them every command starts from the same ceiling, and lowers it to the
    fastest configuration that it predicts (`tunable_ceiling`).
    """
    us = predictor.predict(problem, target.space, target.gpu).us
    best = predictor.predict(problem, target.space.take(np.array([np.argmin(us)])), target.gpu)
    return best if np.isfinite(best.us[0]) else None


def _probability(draft: Draft, target: Target, predictor: Predictor) -> float:
    """The probability that at least 10 % can be won."""
    launch, predicted = draft.launch, draft.predicted
    configuration: ConfigurationBatch | None = configuration_batch([draft.current])
    if draft.measured is not None and launch.configuration is None and launch.problem.family == "fused_moe":
        # What was measured is the stack's own choice, not `current`, which is then what is recommended.
        configuration, predicted = None, predictor.predict(draft.batch, None, target.gpu)
    latency = np.array([draft.measured.latency.us]) if draft.measured is not None and not draft.contradicted else None
    return float(predictor.p_speedup(draft.batch, target.gpu, latency, predicted, draft.ceiling, configuration)[0])


def as_measured(drafts: list[Draft], choice: Choice) -> Choice:
    """The choice with what its configuration was measured to take, where it was."""
    known = {draft.launch.id: us for draft in drafts if (us := draft.tried(choice.configuration)) is not None}
    return replace(choice, latencies={**choice.latencies, **known})


def fastest_measured(
    drafts: list[Draft], choice: Choice, held: Configuration | None, target: Target, predictor: Predictor
) -> Choice | None:
    """The configuration that was measured fastest, for all launches that share one; None where none beats what runs by more than noise.

    Launches of which nothing was measured count with what is predicted of them under either.
    """
    known = [draft for draft in drafts if draft.measured is not None]
    if not known or any(draft.now_us < draft.bound_us for draft in known):
        return None
    first, like = drafts[0].launch, held or drafts[0].launch.configuration
    best, least_us, measured = None, np.inf, 1  # what runs was
    for configuration, _ in known[0].reached:
        latencies: dict[str, Latency] = {}
        for draft in drafts:
            tried = draft.tried(configuration)
            if draft.measured is None:
                tried = predicted_latency(predictor.predict(draft.batch, configuration_batch([configuration]), target.gpu), predictor)
            if tried is not None:
                latencies[draft.launch.id] = tried
        total = sum(latency.us for latency in latencies.values())
        same_shared = like is None or all(
            configuration.parameters.get(name) == like.parameters.get(name) for name in first.frozen_parameters
        )
        if not same_shared or len(latencies) < len(drafts):
            continue
        measured += 1
        if total < least_us:
            best, least_us = (configuration, latencies), total
    floors = [draft.measured.rounds.noise_floor or 0.0 for draft in known if draft.measured is not None and draft.measured.rounds]
    if best is None or not sum(draft.now_us for draft in drafts) >= least_us * max(WORTH_CHANGING, 1 + max(floors, default=0.0)):
        return None
    configuration, latencies = best
    table = first.table or target.table
    word = "simulated" if any(latencies[draft.launch.id].origin == "simulated" for draft in known) else "measured"
    reason = f"the fastest of {measured} configurations {word}"
    if guessed := [draft.launch.id for draft in drafts if draft.measured is None]:
        reason += f" for {', '.join(draft.launch.id for draft in known)} ({', '.join(guessed)} as predicted)"
    return replace(
        choice,
        latencies=latencies,
        row=configuration_batch([configuration]),
        configuration=replacement(
            configuration,
            first.configuration,
            table=table.name if table is not None else None,
            gpu=target.gpu,
            searched=("num_ctas", "maxnreg"),
        ),
        reason=reason,
    )
