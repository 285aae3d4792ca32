"""The space of a search: the configurations of a kernel, which of them can launch, and which cannot win any more."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import ConfigurationBatch, column, configuration_batch, problem_batch
from advisor.pipelines.occupancy import LIMITERS
from advisor.pipelines.space import configuration_at, problem_space
from advisor.result.schema import LAUNCH_OPTIONS, Configuration, Problem
from advisor.system.errors import UsageError

if TYPE_CHECKING:
    import optuna


MAX_CONFIGURATIONS = 200_000

Value = int | bool | str


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """An explicit list of distinct configurations that all name the same values; `columns` holds those, by name."""

    configurations: tuple[Configuration, ...]
    batch: ConfigurationBatch
    columns: Mapping[str, tuple[Value, ...]]

    def __len__(self) -> int:
        return len(self.configurations)

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters and launch options, in the order in which they are suggested."""
        return tuple(self.columns)

    def choices(self, name: str) -> tuple[Value, ...]:
        """The distinct values of one parameter, sorted."""
        return tuple(sorted(set(self.columns[name]), key=lambda value: (isinstance(value, str), value)))

    def row(self, index: int) -> dict[str, Value]:
        """Configuration `index`, flat."""
        return {name: values[index] for name, values in self.columns.items()}

    def find(self, values: Mapping[str, Any]) -> int | None:
        """The index of the configuration with these flat values (others are ignored); None where there is none."""
        try:
            return self._index.get(tuple(values[name] for name in self.names))
        except (KeyError, TypeError):
            return None

    def index_of(self, configuration: Configuration) -> int | None:
        """The index of a configuration; None where it is not in the space."""
        return self.find(configuration.flat(all_options=True))

    def matching(self, values: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Which configurations have all of these values, [c]; names the space does not have are ignored."""
        fits = np.ones(len(self), dtype=bool)
        for name, value in values.items():
            if name in self.columns:
                fits &= np.array([column == value for column in self.columns[name]])
        return fits

    def among(self, configurations: Iterable[Configuration]) -> NDArray[np.bool_]:
        """Which configurations of the space are among these, named alike, [c]."""
        listed = ((self.index_of(configuration), configuration.flat(all_options=True)) for configuration in configurations)
        same = [place for place, flat in listed if place is not None and self.configurations[place].flat(all_options=True) == flat]
        return np.isin(np.arange(len(self)), same)

    def suggest(self, trial: optuna.Trial) -> Configuration:
        """Asks a trial for every value of the space, and returns the configuration they make.

        Raises:
            UsageError: A sampler that does not know the space chose values that are not together in it.
        """
        chosen = {name: trial.suggest_categorical(name, self.choices(name)) for name in self.names}
        index = self.find(chosen)
        if index is None:
            raise UsageError(
                "the trial's values are no configuration of the space",
                chosen,
                "a configuration of it",
                "use AdvisorSampler, or prune the trial",
            )
        return self.configurations[index]

    def fingerprint(self) -> str:
        """A short name for exactly this list."""
        text = json.dumps([self.row(i) for i in range(len(self))], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @cached_property
    def _index(self) -> dict[tuple[Value, ...], int]:
        return {key: i for i, key in enumerate(zip(*self.columns.values(), strict=True))}

    @classmethod
    def of(cls, configurations: Iterable[Configuration]) -> SearchSpace:
        """A space of configurations, duplicates left out.

        Raises:
            UsageError: There are none or too many, or they do not name the same values.
        """
        distinct: dict[tuple[Any, ...], Configuration] = {}
        names: tuple[str, ...] | None = None
        options = set(LAUNCH_OPTIONS[:2])
        members = list(configurations)
        for name, default in (("num_ctas", 1), ("maxnreg", None)):
            if any(getattr(configuration, name) != default for configuration in members):
                options.add(name)
        for configuration in members:
            values = {
                name: value for name, value in configuration.flat(all_options=True).items() if name not in LAUNCH_OPTIONS or name in options
            }
            if names is None:
                names = tuple(values)
            if set(values) != set(names):
                odd = ", ".join(sorted(set(values) ^ set(names)))
                raise UsageError("configurations of one space must name the same values", odd, "every value in every configuration")
            distinct.setdefault(tuple(values[name] for name in names), configuration)
        if names is None or len(distinct) > MAX_CONFIGURATIONS:
            raise UsageError("a search space", f"{len(distinct)} configurations", f"1 to {MAX_CONFIGURATIONS}")
        columns = {name: tuple(key[i] for key in distinct) for i, name in enumerate(names)}
        listed = tuple(distinct.values())
        return cls(configurations=listed, batch=_batch(listed), columns=columns)

    @classmethod
    def from_ranges(cls, ranges: Mapping[str, Sequence[Value]]) -> SearchSpace:
        """All combinations of the values, the last parameter fastest.

        Raises:
            UsageError: There are none, or too many.
        """
        count = int(np.prod([len(values) for values in ranges.values()], dtype=np.int64)) if ranges else 0
        if not 0 < count <= MAX_CONFIGURATIONS:
            raise UsageError("a search space", f"{count} combinations", f"1 to {MAX_CONFIGURATIONS}", "narrow the ranges")
        rows = (dict(zip(ranges, values, strict=True)) for values in itertools.product(*ranges.values()))
        return cls.of(map(Configuration.from_flat, rows))

    @classmethod
    def of_problem(cls, problem: Problem, vendor: str) -> SearchSpace:
        """The configurations that a problem may be launched with on a GPU of `vendor` (`pipelines.space.problem_space`)."""
        return cls.from_batch(problem_space(problem, vendor))

    @classmethod
    def from_batch(cls, batch: ConfigurationBatch) -> SearchSpace:
        """The space of a batch's configurations."""
        return cls.of(configuration_at(batch, i) for i in range(len(batch)))


def _batch(configurations: Sequence[Configuration]) -> ConfigurationBatch:
    """Configurations as columns; values that are not numbers are left out: no model reads them."""
    numeric = [n for n, v in configurations[0].parameters.items() if isinstance(v, (int, float))]
    if len(numeric) == len(configurations[0].parameters):
        return configuration_batch(configurations)
    return ConfigurationBatch(
        parameters={name: column([float(c.parameters[name]) for c in configurations]) for name in numeric},
        num_warps=column([c.num_warps for c in configurations]),
        num_stages=column([c.num_stages for c in configurations]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Feasibility:
    """Which configurations can launch for a problem on a GPU, what stops the others, and how fast they can be at best.

    `stopped_by` counts by limiter (shared-memory, registers, …). `bound_us` [c] is the least latency of each configuration, and
    `problem_bound_us` that of any; microseconds.
    """

    launches: NDArray[np.bool_]
    stopped_by: Mapping[str, int]
    bound_us: NDArray[np.float64]
    problem_bound_us: float


def feasibility(space: SearchSpace, problem: Problem, gpu: GpuSpec) -> Feasibility:
    """Shared memory (exact), registers, warps and slots through `pipelines.occupancy`; bounds through `pipelines.config_bound`."""
    analysis = pipelines.analyse(problem_batch([problem]), space.batch, gpu)
    shape = (len(space),)
    resident = np.broadcast_to(analysis.schedule.resident, shape)
    launches = (resident > 0) & np.isfinite(np.broadcast_to(analysis.latency_us, shape))
    limiter = np.broadcast_to(analysis.schedule.limiter, shape)[~launches]
    stopped = {name: int((limiter == i).sum()) for i, name in enumerate(LIMITERS) if (limiter == i).any()}
    return Feasibility(
        launches=launches,
        stopped_by=stopped,
        bound_us=np.broadcast_to(analysis.config_bound.us, shape).astype(np.float64),
        problem_bound_us=float(analysis.bound.us[0]),
    )
