"""The published sweeps as problems of a search: what was recorded of them, and what a simulation adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from advisor.gpus.hardware import load_gpu
from advisor.learned.base import Predictor
from advisor.pipelines import problem_batch
from advisor.result.schema import Problem
from advisor.rows.rows import read_rows
from advisor.search.prior import Array, Prior, prior_of
from advisor.search.space import SearchSpace

NAMES = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
SIZES = ("M", "E", "topk", "H", "N")

OWN_NOISE = 0.03
"""Standard deviation of each configuration's own part of a simulated log latency: the error of the known configurations' model."""

RECORDED_WITHIN = 1.01
"""The published rows are those within this of a sweep's best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One swept problem.

    Attributes:
        good: Latencies in microseconds of the configurations within 1 % of the best, by index in the space.
        default: Index of what runs by default; None where the space lacks it.
        simulated_us: Latencies of every configuration, [c]; None where only what was recorded counts.
    """

    gpu: str
    sizes: Mapping[str, int]
    good: Mapping[int, float]
    best_us: float
    default_us: float | None
    default: int | None
    median_us: float
    prior: Prior
    simulated_us: Array | None = None

    @property
    def model(self) -> tuple[int, ...]:
        return tuple(self.sizes[name] for name in SIZES[1:])

    @property
    def problem(self) -> Problem:
        return Problem(family="fused_moe", op="w13", sizes=dict(self.sizes))

    @property
    def incumbent(self) -> int | None:
        """What is measured first, by index in the space; nothing where only what was recorded counts."""
        return None if self.simulated_us is None else self.default

    def latency_us(self, index: int) -> float | None:
        """What a trial measures; None: slower than the best, by how much is not known."""
        if self.simulated_us is not None:
            return float(self.simulated_us[index])
        return self.good.get(index)


def read_cases(data: Path, space: SearchSpace, predictor: Predictor, models: set[tuple[int, ...]], gpus: set[str]) -> list[Case]:
    """The swept problems of the models and GPUs asked for (all where none are)."""
    near = read_rows(data / "fused_moe_near_optimal.csv.gz")
    index = {tuple(space.row(i)[name] for name in NAMES): i for i in range(len(space))}
    good: dict[tuple, dict[int, float]] = {}
    columns = {name: near.columns[name].astype(int).tolist() for name in (*SIZES, *NAMES)}
    for i, (gpu, us) in enumerate(zip(near.text["gpu"], near.columns["latency_us"].tolist(), strict=True)):
        found = index.get(tuple(columns[name][i] for name in NAMES))
        if found is not None:
            good.setdefault((gpu, *(columns[name][i] for name in SIZES)), {})[found] = us
    cases = []
    summary = read_rows(data / "fused_moe_sweep_summary.csv.gz", defaults=True)  # the default is the launch
    for i, gpu in enumerate(summary.text["gpu"]):
        sizes, default = ({name: int(summary.columns[name][i]) for name in names} for names in (SIZES, NAMES))
        key = (gpu, *sizes.values())
        if key not in good or (models and key[2:] not in models) or (gpus and gpu not in gpus):
            continue
        prior = prior_of([Problem(family="fused_moe", op="w13", sizes=sizes)], space, load_gpu(gpu), predictor)
        place, default_us = index.get(tuple(default.values())), float(summary.columns["latency_us"][i])
        runs = np.isfinite(default_us) and place is not None and np.isfinite(prior.mean[place])
        cases.append(
            Case(
                gpu=gpu,
                sizes=sizes,
                good=good[key],
                best_us=float(summary.columns["best_us"][i]),
                prior=prior,
                default=place if runs else None,
                default_us=default_us if np.isfinite(default_us) else None,
                median_us=float(summary.columns["median_us"][i]),
            )
        )
    return cases


def simulated(cases: Sequence[Case], space: SearchSpace, predictor: Predictor) -> list[Case]:
    """The cases with a latency for every configuration: recorded where it was, else as `predictor`, which saw the sweeps, says."""
    found = []
    for number, case in enumerate(cases):
        predicted = predictor.predict(problem_batch([case.problem]), space.batch, load_gpu(case.gpu)).us
        own = np.exp(OWN_NOISE * np.random.default_rng(number).standard_normal(len(space)))
        us = np.maximum(np.broadcast_to(predicted, (len(space),)) * own, RECORDED_WITHIN * case.best_us * 1.0001)
        if case.default is not None and case.default_us is not None:
            us[case.default] = case.default_us
        us[list(case.good)] = list(case.good.values())
        found.append(replace(case, simulated_us=us))
    return found


def agreement(cases: Sequence[Case]) -> str:
    """How the simulated sweeps' medians compare with the recorded ones, in words."""
    ratios = []
    for case in cases:
        if case.simulated_us is not None:
            ratios.append(float(np.median(case.simulated_us[np.isfinite(case.prior.mean)])) / case.median_us)
    low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
    return f"median latency over the recorded one {middle:.2f} (10 to 90 % of problems: {low:.2f} to {high:.2f})"
