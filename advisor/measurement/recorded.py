"""Measurements that are in a file, replayed: for searches and reports without a GPU.

Read: rows with a configuration and `latency_us` (a sweep, near-optimal rows, what `advisor measure` writes), and sweep summaries
(`default_us` with its `default_…` columns).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from advisor.gpus.hardware import gpu_model
from advisor.result.schema import Configuration, Problem, result_dtype
from advisor.system.errors import InputError, UsageError

ConfigurationKey = tuple[tuple[str, object], ...]
ProblemKey = tuple[object, ...]


OPTIONAL_COLUMNS = ("weight_dtype", "output_dtype", "block_shape", "cache")
"""What tells problems apart too, in files that have the column: published rows do not say it."""


def _problem_key(problem: Problem, columns: Collection[str]) -> ProblemKey:
    """The identity of a recorded problem; `columns` are those of `OPTIONAL_COLUMNS` that the file has."""
    optional = {
        "weight_dtype": problem.weight_dtype or problem.dtype,
        "output_dtype": result_dtype(problem.dtype, problem.output_dtype),
        "block_shape": problem.block_shape,
        "cache": problem.cache,
    }
    sizes = tuple(sorted(problem.sizes.items()))
    return (problem.family, problem.op, problem.dtype, sizes, problem.routing, problem.distribution, *(optional[name] for name in columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Latencies of one GPU, in microseconds, by problem and configuration. `columns`: those of `OPTIONAL_COLUMNS` that the file has."""

    gpu: str
    source: str
    columns: tuple[str, ...] = ()
    latencies: Mapping[ProblemKey, Mapping[ConfigurationKey, tuple[float, Configuration]]]
    problems: Mapping[ProblemKey, Problem]

    def latency_us(self, problem: Problem, configuration: Configuration) -> float | None:
        """The recorded latency; None where the file has no such launch."""
        row = self.rows(problem).get(_configuration_key(configuration))
        return None if row is None else row[0]

    def configurations(self, problem: Problem) -> tuple[Configuration, ...]:
        """The recorded configurations of a problem, fastest first."""
        return tuple(configuration for _, configuration in sorted(self.rows(problem).values(), key=lambda entry: entry[0]))

    def rows(self, problem: Problem) -> Mapping[ConfigurationKey, tuple[float, Configuration]]:
        """Latency and configuration of a problem's rows; none where it was not recorded."""
        return self.latencies.get(_problem_key(problem, self.columns), {})

    def __contains__(self, problem: Problem) -> bool:
        return bool(self.rows(problem))

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.problems.values())

    def __len__(self) -> int:
        return sum(map(len, self.latencies.values()))


def _configuration_key(configuration: Configuration) -> ConfigurationKey:
    return tuple(sorted(configuration.flat().items()))


def read_recording(path: str | os.PathLike[str], gpu: str | None = None) -> Recording:
    """Reads a file of rows.

    Args:
        path: CSV, plain or gzipped.
        gpu: Which GPU's rows, where the file has several.

    Raises:
        InputError: It cannot be read, or holds no latency of a known configuration.
        UsageError: It holds several GPUs and none is named.
    """
    from advisor.measurement.measured_rows import read_measured

    source = os.path.basename(os.fspath(path))  # noqa: PTH119 - also for paths with a NUL, which Path refuses
    latencies: dict[ProblemKey, dict[ConfigurationKey, tuple[float, Configuration]]] = {}
    problems: dict[ProblemKey, Problem] = {}
    gpus: dict[str, str] = {}
    columns: tuple[str, ...] = ()
    wanted = gpu_model(gpu) if gpu else None
    before: Problem | None = None
    for row in read_measured(path):
        name = gpu_model(row.gpu)
        gpus.setdefault(name, row.gpu)
        if row.latency_us is None or row.configuration is None or (wanted is not None and name != wanted):
            continue
        if row.problem is not before:  # sweeps have the rows of a problem one after another
            before, columns = row.problem, tuple(name for name in OPTIONAL_COLUMNS if name in row.cells)
            key = _problem_key(row.problem, columns)
            problems.setdefault(key, row.problem)
            of_problem = latencies.setdefault(key, {})
        of_problem[_configuration_key(row.configuration)] = (row.latency_us, row.configuration)
    if wanted is not None and wanted not in gpus:
        expected = f"one of {', '.join(sorted(gpus.values()))}" if gpus else "rows with a configuration and a latency"
        raise UsageError(f"{source}: has no rows of this GPU", gpu, expected)
    if wanted is None and len(gpus) > 1:
        raise UsageError(
            f"{source}: has rows of several GPUs",
            ", ".join(sorted(gpus.values())),
            "one",
            "say which with --gpu NAME",
        )
    if not latencies:
        raise InputError(f"{source}: has no latency of a known configuration", None, "rows with configuration columns and latency_us")
    name = wanted if wanted is not None else next(iter(gpus))
    return Recording(gpu=name, source=source, columns=columns, latencies=latencies, problems=problems)
