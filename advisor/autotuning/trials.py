"""Which configurations are measured next, and when it is enough: the order of the model, moved by what was measured."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.autotuning.ranking import GROUPS, LEAST, Ranking
from advisor.result.schema import LAUNCH_OPTIONS
from advisor.search.prior import ANALYTICAL, LENGTH_SCALE, Prior, beliefs, coordinates
from advisor.search.surrogate import Observation, expected_gain, posterior

UNLEARNED_SIGMA = 0.3
"""Standard deviation of the log of measured over predicted latency where that is of the code alone (public kernels: `MODEL_CARD.md`)."""
GAIN, GAIN_MORE = 0.005, 0.0025
"""Relative: less than that another trial need not promise, for so near is a tie (`noise` of the decorator); and how much more each that
follows, for a first key, where all have to be compiled, and the model learned from such kernels. Of 612 first keys of products of an A100,
an H100 and a V100 that the weights had not seen (`dejavu`, lists of some 40 configurations) 4.8 are then measured in the mean and 99.0 % of
the choices are within 2 % of the best; with the same promise for all 5.1 and 99.2 %; with 0.01 for all 4.7, and one choice more is 4 %
behind; with three in place of four measured whatever they promise 4.3 and 98.9 %, but 97.9 instead of 98.3 % of the further keys."""
COMPILING, COMPILING_MORE = 0.02, 0.08
"""Relative, for a further key: what a configuration that is not compiled must promise beyond others to be worth a compilation of the list's
mean effort, and how much more for each such that the key has spent. Of 416 further keys of products of the same GPUs, left out, 0.36 of a
mean compilation is then spent and 97.4 % of the choices are within 2 % of the best, 0.8 % behind it in the mean; where all compilations
count alike, and a promise is compared with what was measured alone, 0.44, 96.9 % and 0.9 %."""
FIRST_COMPILED = 2
"""Of what is compiled so many are measured before anything else is chosen, for a further key: where they say that something else is much
faster, a measurement must be left for it. Of 519 further keys of products of an A100, an H100 and a V100 that the weights had not seen
(`dejavu`, lists of some 40 configurations), 0.5 were then compiled, 98.1 % of the choices within 2 % of the best and the worst 1.11 of it;
with 4 (and 0.01 for the first) 97.1 % and 1.35; where nothing is known to be compiled 1.2, 98.7 % and 1.11."""
LEAST_SIDE = 16
"""The least number in a configuration that is taken for a side of a tile."""


@dataclass(kw_only=True)
class Trials:
    """The trials of one decision.

    Attributes:
        ranked: The order of the model.
        configurations: Parameters and options of each, by name.
        most: How many are measured at most.
        compiled: Places whose code another key of the kernel has asked for, so that measuring them costs little; empty for a first key.
    """

    ranked: Ranking
    configurations: Sequence[Mapping[str, Any]]
    most: int
    compiled: Collection[int] = ()
    tried: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        ranked, count = self.ranked, len(self.configurations)
        self.order = [place for place in ranked.order if place not in ranked.unfit] or list(ranked.order)
        self.more = GAIN_MORE if ranked.learned and not self.compiled else 0.0
        scores = np.array(ranked.scores or np.arange(count), dtype=np.float64)
        usable = np.isfinite(scores)
        self.effort = efforts(self.configurations) if self.compiled else np.zeros(count)  # of compiling what is not
        self.effort[[*self.compiled]] = 0.0
        self.prior: Prior | None = None
        if not ranked.modelled or not usable.any():
            return
        predicted_us = np.array([ranked.predicted_us.get(place, math.inf) for place in range(count)])
        best_us = ranked.predicted_us.get(ranked.order[0]) or 1.0
        if ranked.by_code:
            mean, sigma, shares, reach = np.log(np.where(usable, scores, np.inf)), UNLEARNED_SIGMA, ANALYTICAL, LENGTH_SCALE
        else:
            mean, sigma, shares, reach = beliefs(scores, predicted_us, usable, learned=ranked.learned, spread=ranked.spread)
        names = dict.fromkeys(name for configuration in self.configurations for name in configuration)
        columns = {name: tuple(configuration.get(name) for configuration in self.configurations) for name in names}
        self.prior = Prior(
            mean=mean,
            sigma=sigma,
            features=coordinates(columns) * (LENGTH_SCALE / reach),
            where=(),
            bound_us=np.zeros(count),
            ceiling_us=(best_us, best_us, best_us),
            stopped_by={},
            predicted_us=predicted_us,
            shares=shares,
            launch=np.arange(count),
        )

    def next(self, measured_us: Mapping[int, float], at_once: int) -> list[int]:
        """The configurations to measure now, in that order; none: it is enough.

        Args:
            measured_us: Latencies by place, of all that were measured.
            at_once: How many are compiled at once.
        """
        left = [place for place in self.order if place not in self.tried]
        if not measured_us:  # nothing works yet: the next as many
            begun = [place for place in left if place in self.compiled] or left
            count = min(at_once, FIRST_COMPILED) if begun is not left else at_once
            chosen = begun[: self.most if self.prior is None else max(1, min(count, self.most))]
        else:
            worked = sum(place in measured_us for place in self.tried)
            most = min(self.most - worked, 2 * self.most - len(self.tried))  # what fails is made up for, so often
            chosen = [] if self.prior is None or most <= 0 else self._promising(measured_us, left, min(at_once, most))
        self.tried += chosen
        return chosen

    def _promising(self, measured_us: Mapping[int, float], left: list[int], count: int) -> list[int]:
        """The configurations that are expected to gain most over the best beyond what compiling them costs, of those that promise more than
        the noise."""
        assert self.prior is not None
        seen = [Observation(index=place, kind="measured", log_us=math.log(us)) for place, us in measured_us.items()]
        chosen: list[int] = []
        usable = np.isin(np.arange(len(self.configurations)), left) & np.isfinite(self.prior.mean)
        best = math.log(min(measured_us.values()))
        while usable.any() and len(chosen) < count:
            mean, deviation = posterior(self.prior, seen)
            spent = self.effort[[*self.tried, *chosen]].sum()
            gain = expected_gain(mean, deviation, best) - (COMPILING + spent * COMPILING_MORE) * self.effort
            place = int(np.argmax(np.where(usable, gain, -np.inf)))
            further = len(self.tried) + len(chosen) - LEAST
            if gain[place] < (GAIN + further * self.more if further >= 0 else 0.0):
                break
            chosen.append(place)
            usable[place] = False
            seen.append(Observation(index=place, kind="running"))
            best = min(best, float(mean[place]))  # what is compiled along with it has to promise more than it does
        return chosen


def efforts(configurations: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """What compiling each configuration takes, relative to the mean, [c]: as the root of the volume of its tile for each warp.

    CPU time of 46 compilations of a product for an H100 (Triton 3.9: 16 x 64 x 64 on four warps 0.34 s, 128 x 256 x 64 2.6 s) goes along
    with that: correlation of their logarithms 0.95, with the area for each warp 0.89.
    """
    volumes = []
    for configuration in configurations:
        sides = [value for name, value in configuration.items() if name not in LAUNCH_OPTIONS and not GROUPS.search(name)]
        volumes.append(math.prod(side for side in sides if type(side) is int and side >= LEAST_SIDE))
    warps = [configuration.get("num_warps") or 4 for configuration in configurations]
    effort = np.sqrt(np.array(volumes, dtype=np.float64) / np.array(warps, dtype=np.float64))
    return effort / effort.mean()
