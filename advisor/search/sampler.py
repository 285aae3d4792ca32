"""An Optuna sampler that knows the space and what the model predicts; usable in anyone's own study.

    sampler = AdvisorSampler.for_problem(problem, gpu=load_gpu("H200"))
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: latency_us(sampler.space.suggest(trial)), n_trials=20)

`trial.suggest_*` with the space's names works as well: the sampler settles on a whole configuration when a trial asks for its first
value, and answers every further question with that configuration's values. The objective must be a latency, to be minimised.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.search.precedents import Precedent
from advisor.search.prior import Array, Prior, Shares, prior_of
from advisor.search.space import SearchSpace
from advisor.search.surrogate import Observation, posterior, propose
from advisor.system.errors import UsageError

if TYPE_CHECKING:
    from advisor.gpus.hardware import GpuSpec
    from advisor.learned.base import Predictor
    from advisor.result.schema import Problem

CHOICE = "advisor:choice"  # trial attribute: index of the configuration the sampler settled on
SLOWER = "advisor:slower"  # trial attribute: no latency, but known to lose
LOST = "advisor:lost"  # trial attribute: why it says nothing of its configuration, which may be tried again
DIED, INTERRUPTED = True, "interrupted"  # or the class of a failure that is not the configuration's
SKIPPED = "advisor:skipped"  # trial attribute: it was never begun

MAX_LOST = 3
"""A configuration whose worker died this often is not tried again: it may be what kills them."""

_CHOOSING = threading.Lock()
"""Held until a choice is in the storage: threads of one study (`n_jobs`) must not settle on the same. A sampler with a lock of its own
could not be pickled."""


class AdvisorSampler(BaseSampler):
    """Proposes the configuration with the largest expected gain over the best measured so far (`surrogate.propose`).

    Args:
        space: What may be tried.
        prior: What is believed of it (`prior_of`).
        neighbours: Called for what is known from studies of neighbouring problems.
        precedents: Called for what won for other problems on the same GPU.
        unit_us: Microseconds in one unit of the objective: 1000 where it returns milliseconds.
        seed: Of what it falls back on for parameters that are not in the space.
        shares: How the model's error splits, where not as the prior has it.
    """

    def __init__(
        self,
        space: SearchSpace,
        prior: Prior,
        *,
        neighbours: Callable[[], Sequence[Observation]] | None = None,
        precedents: Callable[[], Sequence[Precedent]] | None = None,
        unit_us: float = 1.0,
        seed: int | None = None,
        shares: Shares | None = None,
    ) -> None:
        if len(prior.mean) != len(space):
            raise UsageError("the prior belongs to another space", f"{len(prior.mean)} configurations", f"{len(space)}")
        self.space, self.prior = space, prior
        self.neighbours, self.precedents = neighbours or tuple, precedents or tuple
        self.unit_us, self.shares = unit_us, shares or prior.shares
        self._fallback = RandomSampler(seed=seed)
        self._warned = False

    @classmethod
    def for_problem(
        cls,
        problem: Problem,
        *,
        gpu: GpuSpec | str,
        space: SearchSpace | None = None,
        predictor: Predictor | None = None,
        unit_us: float = 1.0,
    ) -> AdvisorSampler:
        """A sampler for one problem on a GPU, by any name of it; the family's space and the shipped predictor unless others are given."""
        gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
        space = space or SearchSpace.of_problem(problem, gpu.vendor)
        return cls(space, prior_of([problem], space, gpu, predictor or load_predictor()), unit_us=unit_us)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Nothing: values are given as they are asked for, so that any distribution that holds them will do."""
        return {}

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        """Nothing, as above."""
        return {}

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution) -> Any:
        """The value of the trial's configuration; random where the space does not name the parameter.

        A configuration that has a value the distribution does not hold is not settled on, or is given up for another one that agrees
        with what the trial was given so far.

        Raises:
            optuna.TrialPruned: Nothing is left to try.
            UsageError: The distribution holds no value of the space, or the study does not minimise one value.
        """
        _check_minimises_one(study)
        if param_name not in self.space.columns:
            return self._fallback.sample_independent(study, trial, param_name, param_distribution)
        allowed = self._allowed(param_name, param_distribution)
        if not allowed.any():
            values = ", ".join(map(str, self.space.choices(param_name)))
            raise UsageError(
                f"{param_name}: the trial's distribution holds no value of the space",
                str(param_distribution),
                f"at least one of {values}",
                "suggest with space.suggest(trial), or describe the space as it is",
            )
        index = trial.system_attrs.get(CHOICE)
        fixed = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
        if index is None or not (self.space.matching(fixed) & allowed)[index]:
            with _CHOOSING:
                index = self.choose(study, trial, fixed=fixed, allowed=allowed)
                study._storage.set_trial_system_attr(trial._trial_id, CHOICE, index)
            trial.system_attrs[CHOICE] = index
        return self.space.columns[param_name][index]

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Warns once where what a study asks for is not what the space names: those values are random."""
        self._fallback.after_trial(study, trial, state, values)
        others = [name for name in trial.params if name not in self.space.columns]
        absent = [name for name in self.space.names if name not in trial.params]
        if state == TrialState.COMPLETE and others and absent and not self._warned:
            self._warned = True
            warnings.warn(
                f"the space does not name {', '.join(others)}, which get random values, and the study did not ask for "
                f"{', '.join(absent)}: suggest with space.suggest(trial), or by the space's names",
                stacklevel=2,
            )

    def _allowed(self, name: str, distribution: BaseDistribution) -> np.ndarray:
        """Which configurations [c] have a value of one parameter that a distribution holds."""
        held = {value for value in self.space.choices(name) if _holds(distribution, value)}
        return np.array([value in held for value in self.space.columns[name]])

    def _asked_for(self, trials: Sequence[FrozenTrial]) -> np.ndarray:
        """Which configurations [c] the last finished trial could have had: who narrowed the space then does so again."""
        last = next((t for t in reversed(trials) if t.state.is_finished() and t.distributions), None)
        found = np.ones(len(self.space), dtype=bool)
        for name, distribution in (last.distributions if last is not None else {}).items():
            if name in self.space.columns:
                found &= self._allowed(name, distribution)
        return found

    def reseed_rng(self) -> None:
        """Seeds the sampler anew, for Optuna's own parallel runs."""
        self._fallback.reseed_rng()

    def observations(self, trials: Iterable[FrozenTrial], besides: int | None = None) -> list[Observation]:
        """Observations of this study's trials, less those neither done nor settled on a configuration."""
        found = []
        for trial in trials:
            index = self._likeliest(trial)
            if index is None or trial.number == besides or LOST in trial.user_attrs or SKIPPED in trial.user_attrs:
                continue
            if trial.state == TrialState.COMPLETE and trial.value is not None:
                found += self._observed(index, trial.value)
            elif trial.state == TrialState.PRUNED and trial.intermediate_values and SLOWER not in trial.user_attrs:
                found += self._observed(index, trial.intermediate_values[max(trial.intermediate_values)])
            elif SLOWER in trial.user_attrs:
                found.append(Observation(prior=self.prior, index=index, kind="slower"))
            elif trial.state == TrialState.RUNNING:
                found.append(Observation(prior=self.prior, index=index, kind="running"))
        return found

    def _observed(self, index: int, value: float) -> list[Observation]:
        """The observation of a value, if any: none where it is infinite or no number, as autotuners have it for a launch that failed."""
        if value <= 0:
            raise UsageError("the objective must be a latency", value, "a positive number, to be minimised")
        if not math.isfinite(value):
            return []
        return [Observation(prior=self.prior, index=index, kind="measured", log_us=math.log(value * self.unit_us))]

    def index_of(self, trial: FrozenTrial) -> int | None:
        """The configuration of a trial, where it has settled on one."""
        found = self.space.find(trial.params)
        return found if found is not None else trial.system_attrs.get(CHOICE)

    def _likeliest(self, trial: FrozenTrial) -> int | None:
        """The configuration of a trial; for one that another sampler gave some of the values, the best predicted that has those."""
        index = self.index_of(trial)
        if index is not None or trial.state != TrialState.COMPLETE or not self._named(trial):
            return index
        fits = np.flatnonzero(self.space.matching(trial.params))
        return int(fits[np.argmin(self.prior.mean[fits])]) if fits.size else None

    def belief(self, trials: Iterable[FrozenTrial], besides: int | None = None) -> tuple[Array, Array, float | None]:
        """Mean and deviation of the log latency of every configuration (`surrogate.posterior`), and the best measured log latency."""
        own = self.observations(trials, besides)
        expected = self.prior.after(self.precedents(), (o.index for o in own))
        mean, deviation = posterior(self.prior, [*self.neighbours(), *own], self.shares, expected)
        best = min((o.log_us for o in own if o.kind == "measured" and o.log_us is not None), default=None)
        return mean, deviation, best

    def tried(self, trials: Iterable[FrozenTrial], besides: int | None = None) -> set[int]:
        """Configurations that need not be tried (again): settled on by a trial whose worker did not die, or by `MAX_LOST` whose did."""
        others = [t for t in trials if t.number != besides]
        return self._launched(others) | self.deadly(others)

    def _launched(self, trials: Sequence[FrozenTrial]) -> set[int]:
        """Configurations that launch what a trial launched: a kernel takes no notice of values that its study does not ask for.

        A trial that asked for more than the space names stands for itself alone: the rest of the space may go by those names.
        """
        named = {t.number: self._named(t) if t.params.keys() <= self.space.columns.keys() else () for t in trials}
        # Only of those that came to their end: one that failed or was pruned may have stopped before it asked for the rest.
        asked = max((named[t.number] for t in trials if t.state == TrialState.COMPLETE), key=len, default=())
        found: set[int] = set()
        points: dict[tuple[str, ...], set[tuple[Any, ...]]] = defaultdict(set)
        for trial in trials:
            if LOST in trial.user_attrs or SKIPPED in trial.user_attrs:
                continue
            index, names = self.index_of(trial), named[trial.number]
            if trial.state == TrialState.COMPLETE and 0 < len(names) < len(self.space.names):
                points[names].add(tuple(trial.params[name] for name in names))
            elif index is not None:  # which may have ended, or still be, in the midst of asking
                found.add(index)
                points[asked].add(tuple(self.space.columns[name][index] for name in asked))
        for names, values in points.items():
            if 0 < len(names) < len(self.space.names):
                rows = zip(*(self.space.columns[name] for name in names), strict=True)
                found |= {index for index, row in enumerate(rows) if row in values}
        return found

    def _named(self, trial: FrozenTrial) -> tuple[str, ...]:
        """The names of the space's parameters that a trial asked for."""
        return tuple(name for name in self.space.names if name in trial.params)

    def deadly(self, trials: Iterable[FrozenTrial]) -> set[int]:
        """Configurations whose worker died so often that they are not tried again."""
        died = Counter(self.index_of(t) for t in trials if t.user_attrs.get(LOST) == DIED)
        return {index for index, times in died.items() if index is not None and times >= MAX_LOST}

    def open_to_trial(self, trials: Sequence[FrozenTrial], besides: int | None = None) -> np.ndarray:
        """Which configurations are worth a trial, [c]: they can launch, their launch was not tried, and they are not `hopeless`."""
        usable = np.isfinite(self.prior.mean)
        usable &= ~self.prior.repeats(self.tried(trials, besides))
        return usable & ~self.hopeless(trials, besides)

    def hopeless(self, trials: Sequence[FrozenTrial], besides: int | None = None) -> np.ndarray:
        """Which configurations cannot be faster than the best measured, by their bound, [c].

        Where a measurement lies below its own configuration's bound, the bound (or the measurement) is at fault and rules nothing out.
        """
        seen = [(o.index, math.exp(o.log_us)) for o in self.observations(trials, besides) if o.kind == "measured" and o.log_us is not None]
        if not seen or any(us < self.prior.bound_us[index] for index, us in seen):
            return np.zeros(len(self.space), dtype=bool)
        return self.prior.bound_us >= min(us for _, us in seen)

    def choose(self, study: Study, trial: FrozenTrial, *, fixed: Mapping[str, Any] | None = None, allowed: np.ndarray | None = None) -> int:
        """The configuration to try next.

        Args:
            study: The study.
            trial: The trial it is for.
            fixed: Values that it must have.
            allowed: Which configurations [c] may be chosen, where not all.

        Raises:
            optuna.TrialPruned: Nothing is left to try.
            UsageError: The study does not minimise one value.
        """
        _check_minimises_one(study)
        trials = study.get_trials(deepcopy=False)
        open_to_it = self.space.matching(fixed or {})
        if allowed is not None:
            open_to_it &= allowed
        usable = self.open_to_trial(trials, trial.number) & open_to_it
        if not usable.any():
            if trial.system_attrs.get("fixed_params") and open_to_it.any():  # somebody enqueued it: their wish
                return int(np.flatnonzero(open_to_it)[0])
            raise optuna.TrialPruned("no configuration is left to try")
        narrow = usable & self._asked_for(trials)
        own = self.observations(trials, trial.number)
        return propose(self.prior, self.neighbours(), own, narrow if narrow.any() else usable, self.shares, self.precedents())


def _check_minimises_one(study: Study) -> None:
    if study.directions != [StudyDirection.MINIMIZE]:
        raise UsageError(
            "the study must minimise a latency",
            ", ".join(each.name.lower() for each in study.directions),
            "minimize",
            "create it with direction='minimize', and have the objective return the latency alone",
        )


def _holds(distribution: BaseDistribution, value: Any) -> bool:
    """Whether a distribution holds a value; a categorical one raises where it does not."""
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except ValueError:
        return False


def known_elsewhere(samplers: Iterable[AdvisorSampler], studies: Iterable[Study]) -> list[Observation]:
    """Observations of studies of neighbouring problems: measured and losing configurations, running ones left out."""
    found = []
    for sampler, study in zip(samplers, studies, strict=True):
        found += [o for o in sampler.observations(study.get_trials(deepcopy=False)) if o.kind != "running"]
    return found
