"""Fitting the order of configurations: near-optimal ones of published sweeps against the rest of what may be tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned import reach, variety
from advisor.learned.data import Measured
from advisor.learned.features import matrix, ranking_features
from advisor.learned.grow import grow_classifier
from advisor.learned.launch import fits, moe_launch
from advisor.learned.machine import machine
from advisor.learned.moe import Core, Ranker, as_configuration
from advisor.learned.variety import Wins
from advisor.pipelines import Array

RANDOM_OTHERS = 60
HARD_OTHERS = 60
"""Configurations that did not win, per problem: drawn at random, and those that a first look finds most promising."""

TREES: dict[str, Any] = {"max_leaf_nodes": 16, "min_samples_leaf": 20, "l2_regularization": 1.0}
QUICK = TREES | {"max_iter": 60, "learning_rate": 0.2, "max_features": 0.5}
CLOSE = TREES | {"max_iter": 800, "learning_rate": 0.06, "max_features": 0.4, "min_samples_leaf": 10}


def fit_ranker(data: Sequence[Measured], core: Core, seeds: int = 1) -> Ranker | None:
    """The ranker, or None without sweeps."""
    from advisor.learned.moe_training import near_optimal

    exact, best = [m for m in data if m.kind == "exact"], [m for m in data if m.kind == "best"]
    keys, rows = near_optimal(exact, best)
    if not keys:
        return None
    known = np.unique(rows, axis=0)
    features, won, problem = candidates(best, known, core, keys, rows)
    rng = np.random.default_rng(0)
    size, wins = np.bincount(problem), np.bincount(problem, weights=won)
    share = RANDOM_OTHERS / np.maximum(size - wins, 1)
    drawn = (won > 0) | (rng.random(won.size) < share[problem])
    first = np.flatnonzero(drawn)
    quick = grow_classifier(features[first], won[first], _weights(won[first], problem[first]), **QUICK)
    score = np.where(won > 0, -np.inf, quick(features))
    order = np.lexsort((-score, problem))
    place = np.arange(order.size) - np.repeat(np.cumsum(size) - size, size)
    hard = order[(place < HARD_OTHERS) & np.isfinite(score[order])]
    second = np.unique(np.concatenate([first, hard]))
    close = grow_classifier(features[second], won[second], _weights(won[second], problem[second]), seeds=seeds, **CLOSE)
    return Ranker(quick=quick, close=close, known=known, wins=published_wins(best, known, keys, rows))


def published_wins(best: Sequence[Measured], known: Array, keys: Sequence[object], rows: Array) -> Wins:
    """Where each of the known configurations [k, 6] was near-optimal; `keys` and `rows` of `near_optimal`."""
    from advisor.learned.moe_training import _keys

    near = _places(known, keys, rows)
    where, gpus, problem, configuration = [], [], [], []
    number = 0
    for part in best:
        launch = moe_launch(part.problem, as_configuration(known[:1]), machine(part.gpu, part.problem.dtype))
        swept = [key for key in _keys(part) if key in near]
        chosen = np.array([key in near for key in _keys(part)], dtype=bool)
        where.append(variety.coordinates(launch)[chosen])
        gpus.append(variety.machine_coordinates(launch)[chosen])
        for key in swept:
            configuration += near[key]
            problem += [number] * len(near[key])
            number += 1
    return Wins(
        problems=np.concatenate(where).astype(np.float32), machines=np.concatenate(gpus).astype(np.float32),
        problem=np.array(problem, dtype=np.min_scalar_type(number)),
        configuration=np.array(configuration, dtype=np.min_scalar_type(known.shape[0])),
    )  # fmt: skip


def _places(known: Array, keys: Sequence[object], rows: Array) -> dict[object, list[int]]:
    """Of every problem the near-optimal configurations, by their rows in `known`."""
    place = {tuple(row): i for i, row in enumerate(known.tolist())}
    near: dict[object, list[int]] = {}
    for key, row in zip(keys, rows.tolist(), strict=True):
        near.setdefault(key, []).append(place[tuple(row)])
    return near


def candidates(best: Sequence[Measured], known: Array, core: Core, keys: Sequence[object], rows: Array) -> tuple[Array, Array, NDArray]:
    """All known configurations that fit, for every swept problem: features, whether near-optimal, and the problem's number."""
    from advisor.learned.moe_training import _keys

    near = _places(known, keys, rows)
    features, won, problem = [], [], []
    number = 0
    for part in best:
        gpu = machine(part.gpu, part.problem.dtype)
        usable = np.flatnonzero(fits(gpu, as_configuration(known)))
        for i, key in enumerate(_keys(part)):
            if key not in near:
                continue
            launch = moe_launch(part.problem.take(np.array([i])), as_configuration(known[usable]), gpu)
            predicted, stack = reach.terms(launch, core.physics)
            columns = ranking_features(launch, predicted, stack, np.full(predicted.shape, predicted.min()))
            features.append(matrix(columns).astype(np.float32))
            won.append(np.isin(usable, near[key]).astype(np.float64))
            problem.append(np.full(usable.size, number))
            number += 1
    return np.concatenate(features), np.concatenate(won), np.concatenate(problem)


def _weights(won: Array, problem: NDArray) -> Array:
    """Winners of a problem with many count less each: w = 1 / sqrt(winners)."""
    wins = np.bincount(problem, weights=won)
    return np.where(won > 0, 1 / np.sqrt(np.maximum(wins[problem], 1)), 1.0)
