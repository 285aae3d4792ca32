"""Small searches for the tests: a space, a prior that is wrong in a known way, a table of latencies."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import numpy as np

from advisor.result.schema import Configuration
from advisor.search.prior import ANALYTICAL, Prior
from advisor.search.sampler import StoppingRule
from advisor.search.space import SearchSpace
from advisor.search.storage import Measurement, Task, Versus, Watch, not_recorded, recorded_versus
from advisor.search.study import Budget, Decision, Tuner

RANGES = {"BLOCK_SIZE_M": (16, 32, 64, 128), "BLOCK_SIZE_N": (32, 64, 128), "num_warps": (4, 8), "num_stages": (2, 3)}
FEW = {**RANGES, "num_warps": (4,)}
"""For storages of which each trial takes long."""
EXHAUSTIVE = StoppingRule(margin=-1.0, noise_floor=0.0, least_gain=0.0)
"""Stops only when nothing is left."""


def small_space(ranges: dict[str, tuple[int, ...]] = RANGES) -> SearchSpace:
    """48 configurations, unless others are given."""
    return SearchSpace.from_ranges(ranges)


def truth(space: SearchSpace, place: float = 0.0) -> np.ndarray:
    """Latencies in microseconds, [c]: smooth in the parameters, the optimum moving with the size, and a little of each one's own."""
    rng = np.random.default_rng(7)
    m, n = (np.log2([space.row(i)[name] for i in range(len(space))]) for name in ("BLOCK_SIZE_M", "BLOCK_SIZE_N"))
    warps, stages = (np.array([space.row(i)[name] for i in range(len(space))], dtype=float) for name in ("num_warps", "num_stages"))
    smooth = 0.06 * (m - 5 - place) ** 2 + 0.05 * (n - 6) ** 2 + 0.02 * (warps == 8) - 0.03 * (stages - 2)
    return 20.0 * np.exp(smooth + 0.01 * rng.standard_normal(len(space)))


def small_prior(space: SearchSpace, place: float = 0.0, *, wrong: float = 0.15, cannot: tuple[int, ...] = ()) -> Prior:
    """The truth, with a smooth error of `wrong`, and bounds 10 % below it."""
    latency = truth(space, place)
    m = np.log2([space.row(i)["BLOCK_SIZE_M"] for i in range(len(space))])
    mean = np.log(latency) + wrong * (m - 5.5) / 1.5
    mean[list(cannot)] = math.inf
    values = np.array([[np.log2(float(v)) for v in space.row(i).values()] for i in range(len(space))])
    return Prior(
        mean=mean,
        sigma=0.15,
        features=values / 2,
        where=(place,),
        bound_us=0.9 * latency,
        predicted_us=np.exp(mean),
        ceiling_us=(float(latency.min()), 0.9 * float(latency.min()), 1.1 * float(latency.min())),
        stopped_by={},
        shares=ANALYTICAL,
        launch=np.arange(len(space)),
    )


def table_of(space: SearchSpace, tasks: dict[str, float]) -> dict[str, dict[str, float]]:
    """Latencies by task and label; `tasks` by the place of their problem."""
    return {
        task: {c.label(): float(us) for c, us in zip(space.configurations, truth(space, place), strict=True)}
        for task, place in tasks.items()
    }


class TableBackend:
    """Latencies from a table in memory, microseconds by task and configuration label.

    Args:
        latencies: By task id, then `Configuration.label()`.
        name: What results call it.
        absent_is_slower: A configuration the table lacks is taken to be slower than the best; else it is a failure.
    """

    noise_floor: float | None = 0.0

    def __init__(self, latencies: Mapping[str, Mapping[str, float]], name: str = "a table", *, absent_is_slower: bool = False) -> None:
        self.latencies, self.name, self.absent_is_slower = latencies, name, absent_is_slower

    def measure(self, task: Task, configuration: Configuration, watch: Watch) -> Measurement:
        """Looks the configuration up."""
        us = self.latencies.get(task.id, {}).get(configuration.label())
        if us is None:
            return not_recorded(self.absent_is_slower)
        if watch(1, us):
            return Measurement(us=us, stopped=True)
        return Measurement(us=us, parts_us={launch: us / len(task.launches) for launch in task.launches})

    def compare(self, task: Task, base: Configuration, head: Configuration, deadline: float | None = None) -> Versus:
        """Compares the table's numbers."""
        before, after = (self.latencies.get(task.id, {}).get(c.label()) for c in (base, head))
        return recorded_versus(before, after)


class SlowTable(TableBackend):
    """A table that takes its time, so that a worker can be killed in the middle."""

    def __init__(self, latencies: dict[str, dict[str, float]], seconds: float) -> None:
        super().__init__(latencies)
        self.seconds = seconds

    def measure(self, task, configuration, watch) -> Measurement:  # type: ignore[no-untyped-def]
        time.sleep(self.seconds)
        return super().measure(task, configuration, watch)


def make_tuner(
    storage: str,
    *,
    trials: int | None = None,
    stopping: StoppingRule = EXHAUSTIVE,
    tasks: tuple[float, ...] = (0.0,),
    cannot: tuple[int, ...] = (),
    name: str = "test",
    incumbent: int | None = None,
    ranges: dict[str, tuple[int, ...]] = RANGES,
) -> Tuner:
    """A search over the small space; one decision per place."""
    space = small_space(ranges)
    decisions = [
        Decision(
            task=Task(id=f"M{16 * 2 ** int(place)}", launches=(f"w13-M{16 * 2 ** int(place)}",)),
            prior=small_prior(space, place, cannot=cannot),
            incumbent=None if incumbent is None else space.configurations[incumbent],
        )
        for place in tasks
    ]
    return Tuner(space=space, decisions=decisions, storage=storage, name=name, stopping=stopping, budget=Budget(trials=trials))


def slow_worker(storage: str, seconds: float, ranges: dict[str, tuple[int, ...]] = RANGES) -> None:
    """A worker process on the small search."""
    tuner = make_tuner(storage, ranges=ranges)
    tuner.run(SlowTable(table_of(tuner.space, {"M16": 0.0}), seconds))
