"""One launch before anything is chosen for it: what runs, analysed and predicted, and what was measured of its problem."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from advisor import pipelines
from advisor.advising.choice import Choice
from advisor.advising.targets import PlannedLaunch, Target
from advisor.learned.base import Prediction, Predictor
from advisor.pipelines import Analysis, ConfigurationBatch, ProblemBatch, configuration_batch, problem_batch
from advisor.result.schema import Configuration, Latency, MeasuredRounds, contradicts
from advisor.tables.audit import refusal
from advisor.tables.launchability import refused_ctas


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measured latency of one launch, its raw rounds where there are any, and what its problem was measured to take with other
    configurations."""

    latency: Latency
    rounds: MeasuredRounds | None = None
    others: tuple[tuple[Configuration, Latency], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
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


def draft_of(launch: PlannedLaunch, choice: Choice, measured: Measured | None, target: Target, predictor: Predictor) -> Draft:
    """The launch under its configuration, or that of the choice where it has none."""
    batch = problem_batch([launch.problem])
    current = launch.configuration or choice.configuration
    configuration = configuration_batch([current])
    table = launch.table or target.table
    if launch.entry is not None and table is not None:
        refused = refusal(launch.entry, table.name, target.gpu)
    else:
        refused = refused_ctas(current.num_ctas, target.gpu.compute_capability) or ""
    predicted = predictor.predict(batch, configuration, target.gpu)
    if refused:
        never = np.full_like(predicted.us, np.inf)
        predicted = replace(predicted, us=never, low_us=never, high_us=never)
    return Draft(
        launch=launch,
        batch=batch,
        current=current,
        measured=measured,
        refused=refused,
        analysis=pipelines.analyse(batch, configuration, target.gpu),
        predicted=predicted,
        ceiling=_ceiling(batch, target, predictor),
    )


def _ceiling(problem: ProblemBatch, target: Target, predictor: Predictor) -> Prediction:
    """The best of the target's space: as learned, or where the analytical model answers, its least prediction over that very space.

    The model's own ceiling is of the family's typical kernels, which may do what this kernel cannot (several short rows per CTA). Kernels
    of the serving stacks are the typical ones: of them every command starts from the same ceiling, and lowers it to the fastest
    configuration that it predicts (`tunable_ceiling`).
    """
    typical = predictor.ceiling(problem, target.gpu)
    if target.stack is not None or not typical.analytical:
        return typical
    us = predictor.predict(problem, target.space, target.gpu).us
    best = predictor.predict(problem, target.space.take(np.array([np.argmin(us)])), target.gpu)
    return best if np.isfinite(best.us[0]) else typical


def probability(draft: Draft, target: Target, predictor: Predictor) -> float:
    """The probability that at least 10 % can be won."""
    launch, predicted = draft.launch, draft.predicted
    configuration: ConfigurationBatch | None = configuration_batch([draft.current])
    if draft.measured is not None and launch.configuration is None and launch.problem.family == "fused_moe":
        # What was measured is the stack's own choice, not `current`, which is then what is recommended.
        configuration, predicted = None, predictor.predict(draft.batch, None, target.gpu)
    latency = np.array([draft.measured.latency.us]) if draft.measured is not None and not draft.contradicted else None
    return float(predictor.p_speedup(draft.batch, target.gpu, latency, predicted, draft.ceiling, configuration)[0])
