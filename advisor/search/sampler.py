"""An Optuna sampler that knows the space and what the model predicts, usable in anyone's own study; and when enough is enough: a pruner
that cuts a measurement short that already loses, and the rule that ends a search with little left to win.

    sampler = AdvisorSampler.for_problem(problem, gpu=load_gpu("H200"))
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: latency_us(sampler.space.suggest(trial)), n_trials=20)

`trial.suggest_*` with the space's names works as well: the sampler settles on a whole configuration when a trial asks for its first
value, and answers every further question with that configuration's values. The study has to ask for all of the space's names, and to
minimise a latency.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.search.prior import Array, Precedent, Prior, prior_of
from advisor.search.space import SearchSpace
from advisor.search.surrogate import Observation, best_of, expected_gain, posterior, propose
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
        precedents: Called for what won for other problems on the same GPU.
        unit_us: Microseconds in one unit of the objective: 1000 where it returns milliseconds.
        seed: Of what it falls back on for parameters that are not in the space.

    >>> import advisor
    >>> problem = advisor.Problem(family="gemm", op="gemm", sizes={"M": 64, "N": 4096, "K": 4096})
    >>> sampler = advisor.AdvisorSampler.for_problem(problem, gpu="H100")
    >>> len(sampler.space) > 100
    True
    """

    def __init__(
        self,
        space: SearchSpace,
        prior: Prior,
        *,
        precedents: Callable[[], Sequence[Precedent]] | None = None,
        unit_us: float = 1.0,
        seed: int | None = None,
    ) -> None:
        if len(prior.mean) != len(space):
            raise UsageError("the prior belongs to another space", f"{len(prior.mean)} configurations", f"{len(space)}")
        self.space, self.prior = space, prior
        self.precedents = precedents or tuple
        self.unit_us = unit_us
        self._fallback = RandomSampler(seed=seed)

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

    def _allowed(self, name: str, distribution: BaseDistribution) -> np.ndarray:
        """Which configurations [c] have a value of one parameter that a distribution holds."""
        choices = {value for value in self.space.choices(name) if _holds(distribution, value)}
        return np.array([value in choices for value in self.space.columns[name]])

    def reseed_rng(self) -> None:
        """Seeds the sampler anew, for Optuna's own parallel runs."""
        self._fallback.reseed_rng()

    def observations(self, trials: Iterable[FrozenTrial], besides: int | None = None) -> list[Observation]:
        """Observations of this study's trials, less those neither done nor settled on a configuration."""
        observed = []
        for trial in trials:
            index = self.index_of(trial)
            if index is None or trial.number == besides or LOST in trial.user_attrs or SKIPPED in trial.user_attrs:
                continue
            if trial.state == TrialState.COMPLETE and trial.value is not None:
                observed += self._observed(index, trial.value)
            elif trial.state == TrialState.PRUNED and trial.intermediate_values and SLOWER not in trial.user_attrs:
                observed += self._observed(index, trial.intermediate_values[max(trial.intermediate_values)])
            elif SLOWER in trial.user_attrs:
                observed.append(Observation(index=index, kind="slower"))
            elif trial.state == TrialState.RUNNING:
                observed.append(Observation(index=index, kind="running"))
        return observed

    def _observed(self, index: int, value: float) -> list[Observation]:
        """The observation of a value, if any: none where it is infinite or no number, as autotuners have it for a launch that failed."""
        if value <= 0:
            raise UsageError("the objective must be a latency", value, "a positive number, to be minimised")
        if not math.isfinite(value):
            return []
        return [Observation(index=index, kind="measured", log_us=math.log(value * self.unit_us))]

    def index_of(self, trial: FrozenTrial) -> int | None:
        """The configuration of a trial, where it has settled on one."""
        index = self.space.find(trial.params)
        return index if index is not None else trial.system_attrs.get(CHOICE)

    def belief(self, trials: Iterable[FrozenTrial]) -> tuple[Array, Array, float | None]:
        """Mean and deviation of the log latency of every configuration (`surrogate.posterior`), and the best measured log latency."""
        observed = self.observations(trials)
        expected = self.prior.after(self.precedents(), (o.index for o in observed))
        mean, deviation = posterior(self.prior, observed, expected)
        return mean, deviation, best_of(observed)

    def tried(self, trials: Iterable[FrozenTrial], besides: int | None = None) -> set[int]:
        """Configurations that need not be tried (again): settled on by a trial whose worker did not die, or by `MAX_LOST` whose did."""
        others = [trial for trial in trials if trial.number != besides]
        conclusive = [trial for trial in others if LOST not in trial.user_attrs and SKIPPED not in trial.user_attrs]
        return {index for trial in conclusive if (index := self.index_of(trial)) is not None} | self.deadly(others)

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
        observed = self.observations(trials, trial.number)
        return propose(self.prior, observed, usable, self.precedents())


def _check_minimises_one(study: Study) -> None:
    if study.directions != [StudyDirection.MINIMIZE]:
        raise UsageError(
            "the study must minimise a latency",
            ", ".join(direction.name.lower() for direction in study.directions),
            "minimize",
            "create it with direction='minimize', and have the objective return the latency alone",
        )


def _holds(distribution: BaseDistribution, value: Any) -> bool:
    """Whether a distribution holds a value; a categorical one raises where it does not."""
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except ValueError:
        return False


PRUNED_MARGIN = 0.05
"""A median of three rounds lies within this of the median of ten, in more than 99 of 100 cases, on a GPU whose clock is stable: what
is further behind after the first rounds does not catch up."""


class RoundsPruner(BasePruner):
    """Prunes a trial whose rounds so far are slower than the best finished trial by more than `margin`.

    Report the median latency of the rounds so far with `trial.report(latency, step=rounds)`.

    Args:
        margin: Relative; what noise cannot make up for.
        first: Rounds before which nothing is pruned.
    """

    def __init__(self, margin: float = PRUNED_MARGIN, first: int = 3) -> None:
        self.margin, self.first = margin, first

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial has lost."""
        rounds = trial.last_step
        if rounds is None or rounds < self.first:
            return False
        done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        best = min((t.value for t in done if t.value is not None), default=math.inf)
        return trial.intermediate_values[rounds] > best * (1 + self.margin)


NOISE_FLOOR = 0.005
"""Relative difference of two measurements of one configuration where the backend does not know its own: the A/A floor that
`advisor measure` writes down lies between 0.1 and 1 % on a GPU at a steady clock."""

LEAST_GAIN = 0.01
"""Relative: a search looks for a configuration within 1 % of the best, so that an expected gain of less is not worth a trial."""

MARGIN = 0.01
"""Relative, of the ceiling; the same 1 %."""

LEAST_TRIALS = 4
"""Before it has measured as much, a search does not know how far the predictions are off. On simulated sweeps of GPUs left out, 2
and a margin of 2 % kept 0.4 to 0.8 % less of the speedup."""

Cause = Literal["ceiling", "gain", "tried all", "trials", "time", "no latency"]


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a search ended: a cause for programs, and the same in words."""

    cause: Cause
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """Stops a search that has reached the ceiling, or expects nothing of the next trial.

    Attributes:
        margin: Stop within this of the ceiling, relative.
        noise_floor: Relative; an expected gain below it could not be told from noise.
        least_gain: Relative; an expected gain below it is not worth a trial.
        least_trials: Trials before which only a reached ceiling stops it.
    """

    margin: float = MARGIN
    noise_floor: float = NOISE_FLOOR
    least_gain: float = LEAST_GAIN
    least_trials: int = LEAST_TRIALS

    def reason(
        self,
        *,
        best_us: float | None,
        ceiling_us: tuple[float, float, float],
        mean: Array,
        deviation: Array,
        usable: np.ndarray,
        tried: int,
    ) -> Stop | None:
        """Why to stop now; None: go on.

        Args:
            best_us: Best measured latency, microseconds.
            ceiling_us: The predicted ceiling and its interval, microseconds.
            mean, deviation: What is believed of every configuration's log latency, [c].
            usable: Which of them are worth a trial, [c].
            tried: Trials that gave a latency, or at least that their configuration loses.
        """
        if not usable.any():
            return Stop("tried all", "every configuration that could win was tried")
        if best_us is None:
            return None
        # Measurements calibrate the predicted ceiling: where they say that something left is expected to be faster, that counts.
        # And where the best lies below the ceiling's interval, the ceiling is refuted and stops nothing.
        ceiling = min(ceiling_us[0], float(np.exp(mean[usable].min())))
        if ceiling_us[1] <= best_us <= (1 + self.margin) * ceiling:
            nearness = "at the ceiling" if best_us <= ceiling else f"within {100 * self.margin:g} % of the ceiling"
            return Stop("ceiling", f"{nearness} ({best_us:.4g} µs found, {ceiling:.4g} µs predicted)")
        gain = float(expected_gain(np.where(usable, mean, np.inf), deviation, math.log(best_us)).max())
        limit = max(self.noise_floor, self.least_gain)
        if tried >= self.least_trials and gain < limit:
            name = "the noise floor" if self.noise_floor >= self.least_gain else "what is worth one"
            digits = next((count for count in range(2, 17) if f"{100 * gain:.{count}g}" != f"{100 * limit:.{count}g}"), 17)
            gained = f"{100 * gain:.{digits}g} %" if gain >= 1e-4 else "less than 0.01 %"
            return Stop("gain", f"the expected gain of another trial, {gained}, is below {name}, {100 * limit:.{digits}g} %")
        return None
