"""When enough is enough: cuts a measurement short that already loses, and ends a search that has little left to win."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from advisor.search.prior import Array
from advisor.search.surrogate import expected_gain

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
