"""The search: one Optuna study per decision, any number of workers, resumed by name.

A decision is a configuration for one problem, or for several that share it (both GEMMs of a table entry). Its study is called
`NAME/TASK`. Everything that is known lies in the storage: whoever opens it goes on where it was left, even after a SIGKILL.

Workers on one study choose one after the other, in the order of their trials' numbers. A trial is numbered atomically by every Optuna
storage. It may settle on a configuration only when every running trial with a lower number has, so each choice sees all earlier ones and no
two are the same (a ticket lock; choosing takes milliseconds). A worker that died is recognised by its process where that can be seen from
here, else by a beat that stopped; its trial fails, marked as lost, and its configuration is free again; so does one that this process left
with an error. A worker that was only slow finds its trial ended and lets go of it.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from advisor.result.schema import Configuration
from advisor.search.prior import HEARD, RANK, Precedent, Prior, describe, precedent, remembered
from advisor.search.sampler import CHOICE, DIED, INTERRUPTED, LOST, SKIPPED, SLOWER, AdvisorSampler, RoundsPruner, Stop, StoppingRule
from advisor.search.space import SearchSpace
from advisor.search.storage import Backend, Measurement, Task, open_storage
from advisor.system import processes
from advisor.system.errors import UsageError
from advisor.system.processes import owner_name, undisturbed

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study


OWNER = "advisor:owner"  # trial attribute: who runs it
BEAT = "advisor:beat"  # study attribute per worker: when it last said that it lives, seconds since the epoch
BEAT_S = 10.0
DEAD_AFTER_S = 90.0  # without a beat: a worker that cannot be seen from here is taken for dead (clocks of machines agree to a minute)
POLL_S = 0.02


def owner() -> dict[str, Any]:
    """This process, so that others can tell whether it lives."""
    return {"name": owner_name(), "since": time.time()}


def _beat_of(who: Mapping[str, Any]) -> str:
    """The study attribute that a process beats in."""
    return f"{BEAT}:{who['name']}"


def is_alive(who: Mapping[str, Any], beat: float | None) -> bool:
    """Whether the owner of a trial still runs: as can be seen from here, else by its beat."""
    seen = processes.is_alive(who["name"])
    return time.time() - max(beat or 0.0, float(who["since"])) < DEAD_AFTER_S if seen is None else seen


def beat(study: Study) -> None:
    """Says that this process lives; a storage that does not answer now will next time."""
    with contextlib.suppress(Exception):
        study.set_user_attr(_beat_of(owner()), time.time())


@contextlib.contextmanager
def beating(study: Study) -> Iterator[None]:
    """Says every few seconds that this process lives, as long as the block runs."""
    beat(study)
    with processes.repeating(lambda: beat(study), BEAT_S):
        yield


@contextlib.contextmanager
def held(study: Study) -> Iterator[optuna.Trial]:
    """A new trial of this worker, when it is its turn to choose; left without having ended it, it is lost."""
    trial = study.ask()
    try:
        _wait_for_turn(study, trial)
        yield trial
    except BaseException as error:  # an interrupt is somebody's wish, and not the configuration's doing
        with undisturbed():  # a terminal interrupts the whole group, and the caller then tells its workers once more
            _end_as_lost(study, trial._trial_id, INTERRUPTED if isinstance(error, KeyboardInterrupt) else DIED)
        raise


def _wait_for_turn(study: Study, trial: optuna.Trial) -> None:
    study._storage.set_trial_user_attr(trial._trial_id, OWNER, owner())
    waited_since = time.monotonic()
    while True:
        ahead = [t for t in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)) if t.number < trial.number and not settled(t)]
        if not ahead:
            return
        beat(study)
        anonymous = time.monotonic() - waited_since > DEAD_AFTER_S  # died before it could say who it was
        for earlier in ahead:
            if OWNER in earlier.user_attrs or anonymous:
                end_if_lost(study, earlier, anonymous=anonymous)
        time.sleep(POLL_S)


def settled(trial: FrozenTrial) -> bool:
    """Whether the trial's worker has chosen a configuration."""
    return CHOICE in trial.system_attrs


def end_if_lost(study: Study, trial: FrozenTrial, *, anonymous: bool = False) -> bool:
    """Fails a running trial whose worker is dead; whether it was."""
    who = trial.user_attrs.get(OWNER)
    if "name" not in (who or {}):  # nobody said that it is theirs, or an older version did
        who = None
    if who is None and not anonymous:
        return False
    if who is not None and is_alive(who, study.user_attrs.get(_beat_of(who))):
        return False
    _end_as_lost(study, trial._trial_id, study._storage.get_trial(trial._trial_id).user_attrs.get(LOST, DIED))  # or as it said itself
    return True


def _end_as_lost(study: Study, trial_id: int, why: bool | str) -> None:
    with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):  # it ended by itself, or another worker did this
        study._storage.set_trial_user_attr(trial_id, LOST, why)
        study._storage.set_trial_state_values(trial_id, TrialState.FAIL)


def reap(study: Study, *, anonymous: bool = False) -> int:
    """Fails every running trial whose worker is dead, and on demand those of which nobody said that they are theirs; how many."""
    return sum(end_if_lost(study, trial, anonymous=anonymous) for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))


FAILURE = "advisor:failure"  # trial attributes
MESSAGE = "advisor:message"
PARTS = "advisor:parts_us"
PREDICTED = "advisor:predicted_us"
CLOCK = "advisor:clock_mhz"
STOPPED = "advisor:stopped"  # study attributes
STOPPED_CAUSE = "advisor:stopped-cause"
STOPPED_WITHIN = "advisor:stopped-within"
SPACE = "advisor:space"
NOISE_FLOOR = "advisor:noise-floor"

GIVE_UP = 100
"""Trials without a latency after which a search gives up: the kernel does not run, or the recording lacks the space's better part."""


class TakenForDeadError(Exception):
    """Others ended this worker's trial, because they took it for dead; what it measured since is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One thing to decide: what shares a configuration, what is believed of it, and what runs today.

    `incumbent` may lie outside the space. None: nothing runs today. `identity` names what the latencies depend on besides the
    configuration (problem, GPU, where they come from): a study is resumed only by a decision of the same identity.
    `kind` names what decisions must have in common for what wins in one to say something of the other (GPU, kernel, types).
    `incumbent_fails`: why the incumbent cannot be launched, where that is known: it is not measured, and anything that runs is better.
    """

    task: Task
    prior: Prior
    incumbent: Configuration | None = None
    identity: str = ""
    kind: str = ""
    incumbent_fails: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """At most this many trials per decision and seconds in all; None: no limit."""

    trials: int | None = None
    time_limit_s: float | None = None


@dataclass(slots=True)
class Tuner:
    """Searches for decisions, one after the other. Every worker makes one of its own, on the same storage and name.

    Args:
        space: What may be tried.
        decisions: In the order in which to decide: what won for one is tried sooner for the next.
        storage: A path, a URL or a storage.
        name: Of the study.
        stopping: When to stop.
        budget: When to stop at the latest.
        watch: Told (task, trials so far, best so far in microseconds) after each trial.
    """

    space: SearchSpace
    decisions: Sequence[Decision]
    storage: str | BaseStorage
    name: str
    stopping: StoppingRule = field(default_factory=StoppingRule)
    budget: Budget = field(default_factory=Budget)
    watch: Callable[[str, int, float | None], None] | None = None
    clock: Callable[[], float] = time.monotonic
    _samplers: dict[str, AdvisorSampler] = field(default_factory=dict)
    _studies: dict[str, Study] = field(default_factory=dict)
    _kinds: dict[str, str] = field(default_factory=dict)
    _remembered: dict[str, list[Precedent]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        if isinstance(self.storage, str):
            self.storage = open_storage(self.storage)
        for decision in self.decisions:
            self._open(decision)
        names = {study.study_name for study in self._studies.values()}
        for kind in set(self._kinds.values()) - {""}:
            self._remembered[kind] = remembered(self.storage, kind, self.space, besides=names)

    def _open(self, decision: Decision) -> None:
        task = decision.task.id
        sampler = AdvisorSampler(self.space, decision.prior, precedents=lambda: self.precedents(task), seed=0)
        study = optuna.create_study(
            storage=self.storage,
            study_name=f"{self.name}/{task}",
            sampler=sampler,
            pruner=RoundsPruner(),
            direction="minimize",
            load_if_exists=True,
        )
        known, identity = study.user_attrs.get(SPACE), f"{self.space.fingerprint()} {decision.identity}".strip()
        if known is None:
            study.set_user_attr(SPACE, identity)
        elif known != identity:
            what = f"study {self.name}/{task} is of another space, problem, GPU or source"
            wanted, made = identity.split("; "), known.split("; ")
            got, limit = ("; ".join(part for part in parts if part not in other) for parts, other in ((wanted, made), (made, wanted)))
            raise UsageError(what, got, f"as it was made: {limit}", "give another --study name, or another --storage")
        describe(study, decision.kind, decision.prior.where)
        self._samplers[task], self._studies[task], self._kinds[task] = sampler, study, decision.kind

    def precedents(self, task: str) -> list[Precedent]:
        """Winners of the other decisions of this search, and of earlier searches of its kind that the storage keeps."""
        kind = self._kinds[task]
        winners = [
            precedent(self._studies[other].get_trials(deepcopy=False), self._samplers[other].prior.where, self.space)
            for other in self._studies
            if other != task and self._kinds[other] == kind
        ]
        return [*self._remembered.get(kind, ()), *(winner for winner in winners if winner is not None)]

    def study(self, task: str) -> Study:
        """The Optuna study of a decision."""
        return self._studies[task]

    def sampler(self, task: str) -> AdvisorSampler:
        """Its sampler."""
        return self._samplers[task]

    def noise_floor(self, task: str) -> float:
        """Relative: latencies of a decision that differ by less are as good. As its first trial measured it, whoever asks and when."""
        return max(self._studies[task].user_attrs.get(NOISE_FLOOR, 0.0), self.stopping.noise_floor)

    def run(self, backend: Backend, end: float | None = None) -> None:
        """Searches until every decision has a reason to stop. What is there is kept, whatever ends it.

        Args:
            backend: What measures.
            end: On `clock`, where the time limit began before this run, or for other workers as well; None: it begins now.
        """
        if end is None and self.budget.time_limit_s is not None:
            end = self.clock() + self.budget.time_limit_s
        for number, decision in enumerate(self.decisions):
            # What is left is shared out evenly, so that the last decision gets its share too.
            share = None if end is None else self.clock() + max(0.0, end - self.clock()) / (len(self.decisions) - number)
            self._search(decision, backend, share)

    def _search(self, decision: Decision, backend: Backend, deadline: float | None) -> None:
        study, sampler = self._studies[decision.task.id], self._samplers[decision.task.id]
        if self._closed(study):
            return
        with beating(study):
            waiting_since = math.inf
            while True:
                reap(study, anonymous=self.clock() - waiting_since > DEAD_AFTER_S)
                trials = study.get_trials(deepcopy=False)
                reason = self._reason(decision, sampler, trials, deadline)
                if reason is not None:
                    # Others may still be measuring: what they find counts, and their reason is as good.
                    if not any(t.state == TrialState.RUNNING for t in trials):
                        self._close(study, reason)
                        return
                    if deadline is not None and self.clock() >= deadline:
                        return
                    waiting_since = min(waiting_since, self.clock())
                    time.sleep(POLL_S)
                    continue
                waiting_since = math.inf
                if study.user_attrs.get(STOPPED) is not None:  # an earlier run's, which this one goes on with
                    self._close(study, None)
                with contextlib.suppress(TakenForDeadError):
                    self._trial(decision, study, sampler, backend)
                if self.watch is not None:
                    done = [t for t in study.get_trials(deepcopy=False) if counts(t)]
                    values = [t.value for t in done if t.value is not None and t.state == TrialState.COMPLETE]
                    self.watch(decision.task.id, len(done), min(values, default=None))

    def _closed(self, study: Study) -> bool:
        """Whether a run with at least this budget has ended already.

        A larger budget goes on with a study that ran out of it, and a smaller margin with one that was near enough to the ceiling.
        """
        cause = study.user_attrs.get(STOPPED_CAUSE)
        if cause is None:
            return False
        nearer = cause == "ceiling" and self.stopping.margin < study.user_attrs.get(STOPPED_WITHIN, 0.0)
        if not (cause in ("trials", "time") or nearer):
            return True
        spent = self._out_of_trials(sum(counts(t) for t in study.get_trials(deepcopy=False)))
        if spent is not None and spent.why != study.user_attrs.get(STOPPED):
            self._close(study, spent)
        return spent is not None

    def _close(self, study: Study, reason: Stop | None) -> None:
        """Writes down why a study ended; None: it goes on."""
        study.set_user_attr(STOPPED_WITHIN, self.stopping.margin)
        study.set_user_attr(STOPPED_CAUSE, None if reason is None else reason.cause)
        study.set_user_attr(STOPPED, None if reason is None else reason.why)

    def _out_of_trials(self, begun: int) -> Stop | None:
        limit = self.budget.trials
        return Stop("trials", f"the limit of {limit} trial{'s' if limit > 1 else ''}") if limit is not None and begun >= limit else None

    def _reason(self, decision: Decision, sampler: AdvisorSampler, trials: Sequence[FrozenTrial], deadline: float | None) -> Stop | None:
        if deadline is not None and self.clock() >= deadline:
            return Stop("time", f"the time limit of {self.budget.time_limit_s:g} s for all decisions")
        begun = sum(counts(t) or t.state == TrialState.RUNNING for t in trials)
        if (spent := self._out_of_trials(begun)) is not None:
            return spent
        mean, deviation, best = sampler.belief(trials)
        if best is None and sum(counts(t) for t in trials) >= GIVE_UP:
            return Stop("no latency", f"none of {GIVE_UP} trials gave a latency; another --study starts anew")
        tried = sum(o.kind != "running" for o in sampler.observations(trials))
        rule = replace(self.stopping, noise_floor=self.noise_floor(decision.task.id))
        usable = sampler.open_to_trial(trials)
        if self._incumbent_index(decision, trials) is not None:
            return None
        best_us = None if best is None else math.exp(best)
        # What an analytical model takes for the best is off by a third, and says nothing of what is left to try.
        ceiling = decision.prior.ceiling_us if decision.prior.ceiling_learned else (0.0, 0.0, 0.0)
        return rule.reason(best_us=best_us, ceiling_us=ceiling, mean=mean, deviation=deviation, usable=usable, tried=tried)

    def _incumbent_index(self, decision: Decision, trials: Sequence[FrozenTrial]) -> int | None:
        """The index of what runs today, where it is in the space and must be tried first; else None."""
        if decision.incumbent is None or decision.incumbent_fails is not None:
            return None
        index = self.space.index_of(decision.incumbent)
        sampler = self._samplers[decision.task.id]
        if index is None or not math.isfinite(sampler.prior.mean[index]) or index in sampler.tried(trials):
            return None
        return index

    def _trial(self, decision: Decision, study: Study, sampler: AdvisorSampler, backend: Backend) -> None:
        """One trial, from its number to what became of it.

        Raises:
            TakenForDeadError: Somebody else ended it in the meantime.
        """
        with contextlib.ExitStack() as stack:
            with _ended_by_others(study) as ours:
                ours.append(trial := stack.enter_context(held(study)))
                configuration = self._settle(decision, study, sampler, trial)
                if configuration is None:
                    trial.set_user_attr(SKIPPED, True)
                    study.tell(trial, state=TrialState.FAIL)
                    return
                index = self.space.index_of(configuration)
                assert index is not None
                trial.set_user_attr(PREDICTED, float(decision.prior.predicted_us[index]))
                trial.set_user_attr(RANK, decision.prior.rank(index))
                trial.set_user_attr(HEARD, len(self.precedents(decision.task.id)))

            def watch(rounds: int, us: float) -> bool:
                with _ended_by_others(study, trial):
                    trial.report(us, step=rounds)
                    return trial.should_prune()

            measurement = backend.measure(decision.task, configuration, watch)
            if backend.noise_floor is not None and NOISE_FLOOR not in study.user_attrs:  # another process measures another one, or none
                study.set_user_attr(NOISE_FLOOR, backend.noise_floor)
            with _ended_by_others(study, trial):
                _tell(study, trial, measurement)

    def _settle(self, decision: Decision, study: Study, sampler: AdvisorSampler, trial: optuna.Trial) -> Configuration | None:
        """The configuration of a trial; None where others have spent the budget, or taken the last one, while it waited."""
        trials = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        earlier = sum((counts(t) or t.state == TrialState.RUNNING) and t.number < trial.number for t in trials)
        if self.budget.trials is not None and earlier >= self.budget.trials:
            return None
        first = self._incumbent_index(decision, trials)
        if first is not None:
            study._storage.set_trial_system_attr(trial._trial_id, CHOICE, first)
        try:
            return self.space.suggest(trial)
        except optuna.TrialPruned:
            return None


@contextlib.contextmanager
def _ended_by_others(study: Study, *trials: optuna.Trial) -> Iterator[list[optuna.Trial]]:
    """Turns a storage's complaint about a trial that was ended elsewhere into TakenForDeadError."""
    ours = list(trials)
    try:
        yield ours
    except (optuna.exceptions.UpdateFinishedTrialError, ValueError) as error:
        if ours and study._storage.get_trial(ours[0]._trial_id).state.is_finished():
            raise TakenForDeadError from error
        raise


def counts(trial: FrozenTrial) -> bool:
    """Whether a trial counts against the budget: it ended, was begun, and its worker did not die of something else."""
    return trial.state.is_finished() and LOST not in trial.user_attrs and SKIPPED not in trial.user_attrs


def _tell(study: Study, trial: optuna.Trial, measurement: Measurement) -> None:
    """Writes down what became of a trial; a trial that others ended in the meantime stays as it is."""
    if measurement.parts_us:
        trial.set_user_attr(PARTS, dict(measurement.parts_us))
    if measurement.clock_mhz is not None:
        trial.set_user_attr(CLOCK, measurement.clock_mhz)
    if measurement.message:
        trial.set_user_attr(MESSAGE, measurement.message)
    if measurement.failure is not None:
        trial.set_user_attr(FAILURE, measurement.failure)
        if measurement.slower:
            trial.set_user_attr(SLOWER, True)
        if measurement.again:
            trial.set_user_attr(LOST, measurement.failure)
        study.tell(trial, state=TrialState.PRUNED if measurement.slower else TrialState.FAIL)
    elif measurement.stopped or measurement.us is None:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, measurement.us)


def measured_latencies(study: Study) -> Iterator[tuple[FrozenTrial, float, Mapping[str, float]]]:
    """Finished trials with a latency: trial, microseconds, and the same by launch."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        if trial.value is not None:
            yield trial, trial.value, trial.user_attrs.get(PARTS, {})
