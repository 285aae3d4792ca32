"""Fitting the order of configurations: near-optimal ones of published sweeps against the rest of what may be tried.

Fitting the constants of `order` to the configurations that won published sweeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned.forest import average
from advisor.learned.machine import Machine, machine
from advisor.learned.moe import moe_physics, order
from advisor.learned.moe.launch import as_configuration, fits, moe_launch
from advisor.learned.moe.model import Core
from advisor.learned.moe.order import Wins
from advisor.learned.moe.ranker import Ranker
from advisor.learned.moe.ranking_features import COMPARISONS, GPU_FIGURES, matrix, ranking_features, rivals
from advisor.pipelines import Array, ProblemBatch
from advisor.system import grouped
from advisor.training.data import Measured
from advisor.training.grow import grow_classifier, grow_ranker, torch_on_one_thread
from advisor.training.moe_tables import keys_of, near_optimal

STEPS = 400
PROBLEMS_PER_STEP = 150
RATE = 0.02
HOLD = 0.02
"""Weight of the prior (squared distance from where fitting starts) against the mean negative log likelihood of a problem."""

LEAST_SHARE = 1e-6
"""A problem whose winners the physics thinks hopeless counts no more than one where they have this share of all odds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Known configurations on swept problems.

    Attributes:
        columns: `order.COLUMNS`, [p, c].
        fits: Which configurations the problem's GPU can launch, [p, c].
        won: Which were near-optimal, [p, c].
    """

    columns: Mapping[str, NDArray[np.float32]]
    fits: NDArray[np.bool_]
    won: NDArray[np.bool_]


def contest(launches: Sequence[Mapping[str, Array]], fits: Sequence[NDArray[np.bool_]], won: Sequence[NDArray[np.bool_]]) -> Contest:
    """Columns [c] of each problem, stacked."""
    columns = {name: np.stack([launch[name] for launch in launches]).astype(np.float32) for name in order.COLUMNS}
    return Contest(columns=columns, fits=np.stack(fits), won=np.stack(won))


def fit(of: Contest, seed: int = 0) -> Array:
    """Parameters of `order.log_odds` that give the winners of each problem the largest share of its odds, by Adam.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    with torch_on_one_thread("training") as torch:
        return _fit(of, seed, torch)


def _fit(of: Contest, seed: int, torch: Any) -> Array:
    columns = {name: torch.tensor(values) for name, values in of.columns.items()}
    barred, lost = torch.tensor(~of.fits), torch.tensor(~of.won)
    origin = torch.tensor(order.start(), dtype=torch.float32)
    parameters = origin.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([parameters], lr=RATE)
    rng = np.random.default_rng(seed)
    count = of.won.shape[0]
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = RATE * (1.0 if step < 0.5 * STEPS else 0.5 if step < 0.8 * STEPS else 0.2)
        some = torch.tensor(rng.choice(count, min(PROBLEMS_PER_STEP, count), replace=False))
        odds = order.log_odds({name: c[some] for name, c in columns.items()}, parameters, torch)
        odds = odds.masked_fill(barred[some], -1e9)
        every = torch.logsumexp(odds, 1)
        winners = torch.logsumexp(odds.masked_fill(lost[some], -1e9), 1)
        likelihood = torch.logaddexp(winners, every + float(np.log(LEAST_SHARE))) - every
        loss = -likelihood.mean() + HOLD * ((parameters - origin) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([parameters], 1.0)
        optimizer.step()
    return parameters.detach().numpy().astype(np.float64)


RANDOM_OTHERS = 60
HARD_OTHERS = 60
OTHERS_AFAR = 120
"""Configurations that did not win, per problem: drawn at random, those that a first look finds most promising, and, for the forest that
looks at none of these, more drawn at random. Hard ones teach the order on GPUs with sweeps; on others what is hard differs."""

TREES: dict[str, Any] = {"max_leaf_nodes": 16, "min_samples_leaf": 20, "l2_regularization": 1.0}
QUICK = TREES | {"max_iter": 60, "learning_rate": 0.2, "max_features": 0.5}
CLOSE = TREES | {"max_iter": 800, "learning_rate": 0.06, "max_features": 0.4, "min_samples_leaf": 10}
FIRST: dict[str, Any] = {"rounds": 800, "learning_rate": 0.06}
FIRST_AFAR = FIRST | {"rounds": 400}
"""More trees order the problems of known GPUs better, and those of others worse."""


def fit_ranker(data: Sequence[Measured], core: Core) -> Ranker | None:
    """The ranker, or None without sweeps."""
    exact, best = [m for m in data if m.kind == "exact"], [m for m in data if m.kind == "best"]
    keys, rows = near_optimal(exact, best)
    if not keys:
        return None
    known = np.unique(rows, axis=0)
    near = _places(known, keys, rows)
    problems = swept(best, near)
    features, names, won, problem = candidates(problems, known, core)
    rng = np.random.default_rng(0)
    some = np.flatnonzero(_drawn(won, problem, RANDOM_OTHERS, rng))
    quick = grow_classifier(features[some], won[some], _weights(won[some], problem[some]), **QUICK)
    score = np.where(won > 0, -np.inf, quick(features))
    by_score, size = np.lexsort((-score, problem)), np.bincount(problem)
    place = np.arange(by_score.size) - np.repeat(np.cumsum(size) - size, size)
    hard = by_score[(place < HARD_OTHERS) & np.isfinite(score[by_score])]
    near_by, afar = np.unique(np.concatenate([some, hard])), np.flatnonzero(_drawn(won, problem, OTHERS_AFAR, rng))
    close = grow_classifier(features[near_by], won[near_by], _weights(won[near_by], problem[near_by]), **CLOSE)
    first = grow_ranker(features[near_by], won[near_by], problem[near_by], **FIRST)
    first_afar = grow_ranker(features[afar], won[afar], problem[afar], **FIRST_AFAR)
    # Single forests differ by several points on a GPU left out: there more count, half of which do not know which GPU it is.
    figures = np.isin(names, GPU_FIGURES)
    compare = np.array([any(part in name for part in COMPARISONS) for name in names])
    first_unseen = average(
        [
            grow_ranker(np.where(hidden, 0, features[afar]), won[afar], problem[afar], seed=seed, **FIRST_AFAR)
            for seed, hidden in enumerate((np.zeros_like(figures), figures, compare, figures | compare), start=1)
        ]
    )
    constants = fit(contest_of(problems, known))
    return Ranker(
        quick=quick,
        close=close,
        first=first,
        first_afar=first_afar,
        first_unseen=first_unseen,
        known=known,
        order=constants,
        wins=published_wins(best, known, near),
    )


def _drawn(won: Array, problem: NDArray, others: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """All that won, and about so many of the others of each problem."""
    size, wins = np.bincount(problem), np.bincount(problem, weights=won)
    return (won > 0) | (rng.random(won.size) < (others / np.maximum(size - wins, 1))[problem])


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """One swept problem: a batch of one, its GPU, and the rows of its near-optimal configurations among the known ones."""

    problem: ProblemBatch
    gpu: Machine
    near: list[int]


def swept(best: Sequence[Measured], near: dict[object, list[int]]) -> list[Swept]:
    """The problems of which near-optimal configurations (`_places`) are known."""
    return [
        Swept(problem=part.problem.take(np.array([i])), gpu=machine(part.gpu, part.problem.dtype), near=near[key])
        for part in best
        for i, key in enumerate(keys_of(part))
        if key in near
    ]


def published_wins(best: Sequence[Measured], known: Array, near: dict[object, list[int]]) -> Wins:
    """For each known configuration [k, 6], whether it was near-optimal."""
    where, gpus, problem, configuration = [], [], [], []
    number = 0
    for part in best:
        launch = moe_launch(part.problem, as_configuration(known[:1]), machine(part.gpu, part.problem.dtype))
        mine = [key for key in keys_of(part) if key in near]
        chosen = np.array([key in near for key in keys_of(part)], dtype=bool)
        where.append(order.coordinates(launch)[chosen])
        gpus.append(order.machine_coordinates(launch)[chosen])
        for key in mine:
            configuration += near[key]
            problem += [number] * len(near[key])
            number += 1
    return Wins(
        problems=np.concatenate(where).astype(np.float32),
        machines=np.concatenate(gpus).astype(np.float32),
        problem=np.array(problem, dtype=np.min_scalar_type(number)),
        configuration=np.array(configuration, dtype=np.min_scalar_type(known.shape[0])),
    )


def _places(known: Array, keys: Sequence[object], rows: Array) -> dict[object, list[int]]:
    """For every problem the rows in `known` of its near-optimal configurations."""
    place = {tuple(row): i for i, row in enumerate(known.tolist())}
    near = grouped((key, place[tuple(row)]) for key, row in zip(keys, rows.tolist(), strict=True))
    return near


def candidates(problems: Sequence[Swept], known: Array, core: Core) -> tuple[Array, list[str], Array, NDArray]:
    """All known configurations that fit, for every swept problem: features [n, f], their names, whether near-optimal, [n], and the
    problem's number, [n]."""
    features, won, number = [], [], []
    names: list[str] = []
    for i, one in enumerate(problems):
        usable = np.flatnonzero(fits(one.gpu, as_configuration(known)))
        launch = moe_launch(one.problem, as_configuration(known[usable]), one.gpu)
        predicted, stack = moe_physics.terms(launch, core.physics)
        columns = ranking_features(launch, predicted, stack, rivals(launch, predicted, stack))
        names = list(columns)
        features.append(matrix(columns).astype(np.float32))
        won.append(np.isin(usable, one.near).astype(np.float64))
        number.append(np.full(usable.size, i))
    return np.concatenate(features), names, np.concatenate(won), np.concatenate(number)


def contest_of(problems: Sequence[Swept], known: Array) -> Contest:
    """All known configurations on every swept problem, for the physics of their order."""
    configuration, numbers = as_configuration(known), np.arange(known.shape[0])
    return contest(
        [order.columns(moe_launch(one.problem, configuration, one.gpu)) for one in problems],
        [fits(one.gpu, configuration) for one in problems],
        [np.isin(numbers, one.near) for one in problems],
    )


def _weights(won: Array, problem: NDArray) -> Array:
    """Winners of a problem with many count less each: w = 1 / sqrt(winners)."""
    wins = np.bincount(problem, weights=won)
    return np.where(won > 0, 1 / np.sqrt(np.maximum(wins[problem], 1)), 1.0)
