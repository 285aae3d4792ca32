"""A search as the result carries it: trials, failures, the table reviewers ask for, and the winner.

The winner is chosen the same way every time, measured against what runs today, and kept only if it wins.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from advisor.pipelines.batch import repeats
from advisor.result.schema import Configuration, SearchReport, SearchTrial
from advisor.search.contest import Reading, contest
from advisor.search.prior import HEARD
from advisor.search.sampler import DIED, LOST, MAX_LOST, SKIPPED, SLOWER
from advisor.search.storage import NOT_COMPARED, NOT_RECORDED, Backend, Versus
from advisor.search.study import CLOCK, FAILURE, PARTS, PREDICTED, STOPPED, Decision, Tuner, counts, measured_latencies

if TYPE_CHECKING:
    from optuna.study import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The outcome of a search for one decision.

    Attributes:
        decision: What was searched for.
        configuration: What to run: the search's best where it won, else the incumbent; None: nothing is known to run.
        changed: Whether that differs from the incumbent.
        us: Its latency in microseconds where it was measured.
        parts_us: The same by launch.
        best: The search's best, even where it was not kept.
        best_us: Its latency in microseconds: from the comparison where there was one, else from the search.
        fastest_us: Of the search, where noise alone could have put that before `best`; None where `best` is the fastest.
        versus: How it fared against the incumbent; None: they are the same, or there is only one.
        fails: Why the incumbent cannot be launched, where that is known: it was not measured.
        note: Why, in words.
        rounds: How what lay near the best was told apart, in words; empty where nothing did.
        tried: Trials.
        stopped: Why the search ended, in words.
    """

    decision: Decision = field(compare=False)
    configuration: Configuration | None
    changed: bool
    us: float | None
    best: Configuration | None
    note: str
    best_us: float | None = None
    parts_us: Mapping[str, float] = field(default_factory=dict)
    versus: Versus | None = None
    fastest_us: float | None = None
    fails: str | None = None
    rounds: str = ""
    tried: int = 0
    stopped: str = ""

    @property
    def before_us(self) -> float | None:
        """Latency of what runs today, in microseconds, where it is known."""
        return self.versus.base_us if self.versus is not None else None if self.changed else self.us

    @property
    def speedup(self) -> float | None:
        """Before over after, where both are known."""
        return self.before_us / self.us if self.before_us and self.us else None

    @property
    def candidate(self) -> Configuration | None:
        """The search's best, where that does not come to run."""
        return None if self.best == self.configuration else self.best

    @property
    def outcome(self) -> str:
        """A verdict, or `new` where nothing runs today."""
        if self.changed:
            return "improved" if self.decision.incumbent is not None else "new"
        return "unchanged" if self.versus is None else self.versus.verdict


Latencies = Mapping[int, tuple[float, Mapping[str, float]]]
"""Microseconds of each measured configuration, and by launch."""


def best_of(
    tuner: Tuner, decision: Decision, band: float, latencies: Latencies | None = None
) -> tuple[Configuration, float, Mapping[str, float]] | None:
    """The best measured configuration of a decision, its latency and that of its parts; None: nothing was measured.

    What an earlier run of the study measured and this one may not try (w2 is held to the BLOCK_SIZE_M that w13 has by now) cannot win.
    Of those within `band` of the fastest, which noise alone could have ordered: the incumbent; then, of those that are ahead of it by
    more than `band`, so that they may win against it, the one the prior ranks first, then the one whose name comes first. So the same
    measurements, or ones that differ by noise, give the same winner.

    Args:
        tuner: The search.
        decision: What was searched for.
        band: Relative.
        latencies: What may win, where rounds told more than the trials.
    """
    latencies = _may_win(tuner, decision) if latencies is None else latencies
    if not latencies:
        return None
    incumbent = None if decision.incumbent is None else tuner.space.index_of(decision.incumbent)
    fastest = min(us for us, _ in latencies.values())
    today = latencies[incumbent][0] if incumbent is not None and incumbent in latencies else math.inf
    near = [index for index, (us, _) in latencies.items() if us <= fastest * (1 + band) and (index == incumbent or us * (1 + band) < today)]
    index = min(near, key=lambda i: (i != incumbent, float(decision.prior.mean[i]), tuner.space.configurations[i].label()))
    return tuner.space.configurations[index], *latencies[index]


def _may_win(tuner: Tuner, decision: Decision) -> dict[int, tuple[float, Mapping[str, float]]]:
    """The least latency of each measured configuration that may be launched, and that of its parts."""
    sampler = tuner.sampler(decision.task.id)
    fastest: dict[int, tuple[float, Mapping[str, float]]] = {}
    incumbent = None if decision.incumbent is None else tuner.space.index_of(decision.incumbent)
    for trial, us, parts in measured_latencies(tuner.study(decision.task.id)):
        index = sampler.index_of(trial)
        if index is None or not (index == incumbent or math.isfinite(decision.prior.mean[index])):
            continue
        if index not in fastest or us < fastest[index][0]:
            fastest[index] = (us, parts)
    return fastest


def decide(tuner: Tuner, decision: Decision, backend: Backend, deadline: float | None = None) -> Winner:
    """Chooses the winner and measures it against the incumbent, in the same rounds; what is not compared by `deadline` did not win."""
    latencies, rounds = _in_rounds(tuner, decision, backend, deadline)
    best = best_of(tuner, decision, tuner.noise_floor(decision.task.id), latencies)
    winner = Winner(decision=decision, configuration=decision.incumbent, changed=False, us=None, best=None, note="no trial gave a latency")
    if best is not None:
        winner = _decided(tuner, decision, backend, deadline, latencies, best)
    study, usable = tuner.study(decision.task.id), np.isfinite(tuner.sampler(decision.task.id).prior.mean).sum()
    stopped = f"{stopped_because(study)}; {usable} of {len(tuner.space)} configurations can be tried"
    return replace(winner, rounds=rounds, tried=sum(counts(t) for t in study.get_trials(deepcopy=False)), stopped=stopped)


def _in_rounds(tuner: Tuner, decision: Decision, backend: Backend, deadline: float | None) -> tuple[Latencies, str]:
    """What may win, with what lies near the best measured again, alternately, until it is told apart; and what that was, in words."""
    latencies = _may_win(tuner, decision)
    sampler, first = tuner.sampler(decision.task.id), dict[int, Reading]()
    for trial, us, _ in measured_latencies(tuner.study(decision.task.id)):
        index = sampler.index_of(trial)
        if index in latencies and us == latencies[index][0]:
            first[index] = Reading(us=us, clock_mhz=trial.user_attrs.get(CLOCK))
    again = getattr(backend, "again", None)  # a backend of one's own need not have it
    if again is None:
        return latencies, ""
    verdict = contest(first, lambda index: again(decision.task, tuner.space.configurations[index], deadline))
    if not verdict.measurements and verdict.judged != "rested":
        return latencies, str(verdict)
    for index, us in verdict.us.items():
        before, parts = latencies[index]
        latencies[index] = us, {name: part * us / before for name, part in parts.items()}
    return latencies, str(verdict)


def _decided(
    tuner: Tuner,
    decision: Decision,
    backend: Backend,
    deadline: float | None,
    latencies: Latencies,
    winner: tuple[Configuration, float, Mapping[str, float]],
) -> Winner:
    """The winner, where the search's best is `winner`."""
    today = decision.incumbent
    best, us, parts = winner
    least = min(us for us, _ in latencies.values())
    fastest = least if least < us else None
    if today is None:
        return Winner(decision=decision, configuration=best, changed=True, us=us, parts_us=parts, best=best, note="nothing ran before")
    if decision.incumbent_fails is not None:
        return Winner(
            decision=decision,
            configuration=best,
            changed=True,
            us=us,
            parts_us=parts,
            best=best,
            fastest_us=fastest,
            fails=decision.incumbent_fails,
            note=f"what runs today fails: {decision.incumbent_fails}",
        )
    if best == today or tuner.space.index_of(best) == tuner.space.index_of(today):
        return Winner(
            decision=decision,
            configuration=today,
            changed=False,
            us=us,
            parts_us=parts,
            best=today,
            note="nothing that was measured beats what runs today by more than the noise",
        )
    if tuner.space.index_of(today) in tuner.sampler(decision.task.id).deadly(tuner.study(decision.task.id).get_trials(deepcopy=False)):
        return Winner(
            decision=decision,
            configuration=today,
            changed=False,
            us=None,
            best=best,
            best_us=us,
            note=f"kept, and not compared with the search's best: the worker that measured it died {MAX_LOST} times",
        )
    versus = backend.compare(decision.task, today, best, deadline)
    best_us = versus.head_us if versus.head_us is not None else us
    if versus.verdict == "improved":
        return Winner(
            decision=decision,
            configuration=best,
            changed=True,
            us=best_us,
            best=best,
            best_us=best_us,
            parts_us=versus.head_parts_us or parts,
            versus=versus,
            fastest_us=fastest,
            note=versus.reason,
        )
    unknown = versus.verdict in (NOT_RECORDED, NOT_COMPARED)
    return Winner(
        decision=decision,
        configuration=today,
        changed=False,
        us=versus.base_us,
        parts_us=versus.base_parts_us,
        best=best,
        best_us=best_us,
        versus=versus,
        note=f"{versus.reason}; what runs today is kept" if unknown else f"the search's best did not win ({versus.reason})",
    )


SAMPLER = "advisor (prior: {prior}; posterior: Gaussian process on its error{precedents})"


def search_reports(tuner: Tuner, decision: Decision, predictor: str) -> tuple[SearchReport, ...]:
    """One report per launch of a decision."""
    study, sampler = tuner.study(decision.task.id), tuner.sampler(decision.task.id)
    trials = study.get_trials(deepcopy=False)
    failures = Counter(state.removeprefix("failed: ") for state in map(state_of, trials) if state.startswith("failed: "))
    usable = np.isfinite(sampler.prior.mean)
    reason = stopped_because(study)
    reason += f"; of {len(tuner.space)} configurations {int((~usable).sum())} cannot be tried"
    if sampler.prior.stopped_by:
        reason += f" ({', '.join(f'{name} {count}' for name, count in sampler.prior.stopped_by.items())})"
    again = repeats(sampler.prior.launch[usable])
    reason += f", {int(again.sum())} make the launch of another" if again.any() else ""
    hopeless = int(sampler.hopeless(trials)[usable][~again].sum())  # each is counted once, by the first that keeps it from a trial
    reason += f" and {hopeless} cannot be faster than the best found, by their bound"
    deadly = len(sampler.deadly(trials))
    reason += f"; {deadly} of them not tried again: the worker that tried it died {MAX_LOST} times" if deadly else ""
    precedents = max((trial.user_attrs.get(HEARD, 0) for trial in trials), default=0)
    how = SAMPLER.format(prior=predictor, precedents=f"; precedents: {precedents}" if precedents else "")
    settled = [(trial, index) for trial in trials if (index := sampler.index_of(trial)) is not None]
    only = len(decision.task.launches) == 1
    return tuple(
        SearchReport(
            launch=launch,
            sampler=how,
            stopped_because=reason,
            trials=tuple(
                SearchTrial(
                    number=trial.number,
                    configuration=tuner.space.configurations[index],
                    state=state_of(trial),
                    latency_us=_part_us(trial, launch, only) if trial.state == TrialState.COMPLETE else None,
                    predicted_us=trial.user_attrs.get(PREDICTED) if only else None,
                )
                for trial, index in settled
            ),
            failures=dict(failures),
            study_name=study.study_name,
        )
        for launch in decision.task.launches
    )


def _part_us(trial: FrozenTrial, launch: str, only: bool) -> float | None:
    """Microseconds of one launch of a finished trial; `only`: the trial has no other."""
    return trial.user_attrs.get(PARTS, {}).get(launch, trial.value if only else None)


def stopped_because(study: Study) -> str:
    """Why the search of a study ended, in words."""
    return str(study.user_attrs.get(STOPPED) or "interrupted; run it again to go on")


def state_of(trial: FrozenTrial) -> str:
    """complete, pruned, skipped, or `failed: CLASS`."""
    if SKIPPED in trial.user_attrs:
        return "skipped"
    if SLOWER in trial.user_attrs:
        return "failed: not-recorded"
    if FAILURE in trial.user_attrs:
        return f"failed: {trial.user_attrs[FAILURE]}"
    if LOST in trial.user_attrs:
        return "failed: worker-lost" if trial.user_attrs[LOST] == DIED else f"failed: {trial.user_attrs[LOST]}"
    if trial.state == TrialState.RUNNING:
        return "failed: unfinished"
    if trial.state == TrialState.FAIL:
        return "failed: unknown"
    return "complete" if trial.state == TrialState.COMPLETE else "pruned"
