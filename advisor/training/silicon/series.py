"""What fits and judges models of published series of measurements alike: library layers, operators, and kernels of libraries.

Quantiles of errors that hold for models, or pairs of sizes, that nobody measured: groups of rows have their own, drawn toward those of
all rows by how few models they rest on, and stretched until each model's errors lie within what the other models say.

Errors of one model resemble one another, so that quantiles of rows hold too few rows of another model: split-conformal prediction of
exchangeable groups (Dunn, Wasserman and Ramdas, JASA 2023), here with the one factor that holds four of five rows of models left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import load_gpu
from advisor.learned import calibration
from advisor.learned.calibration import Calibration
from advisor.learned.forest import BushyForest, flatten
from advisor.learned.library.series_model import relatives, weighed
from advisor.learned.network import Mixed
from advisor.pipelines import Array
from advisor.system.errors import MissingDependencyError
from advisor.training.grow import fit_correction

FIRMNESS = 2.0
"""Models whose errors count as much as those of all rows: a group of so many is half its own."""

LEAST_APART, OF_FEW = 3, 1.2
"""Models from which a stretch is fitted, and the stretch where there are fewer, of which nothing says how far apart they are: quantiles of
one or two models held 70 to 78 of a hundred rows of another, where they were told apart (`ceilings/ATTEMPTS.md`)."""

STRETCHED = (0.75, 3.0)
"""Factors of quantiles, the least and the largest."""

ENDS = (0.1, 0.9)
ALL = ""
"""The group of all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Errors over their expected sizes, the number of the model (or pair of sizes) that each row belongs to, and the name of its group, [n]
    each."""

    scaled: Array
    model: NDArray[np.int64]
    group: NDArray[np.str_]

    def take(self, rows: NDArray[np.bool_]) -> Judged:
        """Some of them."""
        return Judged(scaled=self.scaled[rows], model=self.model[rows], group=self.group[rows])

    def of(self, name: str) -> NDArray[np.bool_]:
        """Where rows are of a group, [n]."""
        return np.full(self.scaled.size, True) if name == ALL else self.group == name


def tables(judged: Judged) -> Mapping[str, Array]:
    """Quantiles at `calibration.LEVELS`, of `ALL` rows and of every group of `calibration.LEAST_ROWS` and more."""
    names, rows = np.unique(judged.group, return_counts=True)
    large = names[rows >= calibration.LEAST_ROWS].tolist()
    return {name: _pooled(judged, name, calibration.LEVELS) * _stretch(judged, name) for name in (ALL, *large)}


def held(judged: Judged, split: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether 80 % intervals hold each row, [n], by the errors of the other splits; of a single split each half of its models by the
    other's."""
    parts = split if np.unique(split).size > 1 else np.unique(judged.model, return_inverse=True)[1] % 2
    inside = np.zeros(judged.scaled.size, dtype=bool)
    for part in np.unique(parts):
        mine = parts == part
        if mine.all():
            continue
        others = tables(judged.take(~mine))
        for name in np.unique(judged.group[mine]).tolist():
            rows = mine & judged.of(name)
            low, high = np.interp(ENDS, calibration.LEVELS, others.get(name, others[ALL]))
            inside[rows] = (min(low, 0.0) <= judged.scaled[rows]) & (judged.scaled[rows] <= max(high, 0.0))
    return inside


def _pooled(judged: Judged, name: str, levels: Sequence[float] | Array) -> Array:
    """Quantiles of a group, drawn toward those of all rows by how few models it has."""
    every, mine = np.asarray(np.quantile(judged.scaled, levels)), judged.of(name)
    if name == ALL or not mine.any():
        return every
    count = np.unique(judged.model[mine]).size
    return np.asarray((count * np.quantile(judged.scaled[mine], levels) + FIRMNESS * every) / (count + FIRMNESS))


def _stretch(judged: Judged, name: str) -> float:
    """The factor with which intervals by the other models' quantiles hold four of five rows of a group."""
    mine = judged.of(name)
    models = np.unique(judged.model[mine]).tolist()
    if len(models) < LEAST_APART:
        return OF_FEW
    needed = []
    for model in models:
        low, high = _pooled(judged.take(judged.model != model), name, ENDS)
        errors = judged.scaled[mine & (judged.model == model)]
        needed.append(np.where(errors < 0, errors / min(low, -1e-9), errors / max(high, 1e-9)))
    return float(np.clip(np.quantile(np.concatenate(needed), ENDS[1] - ENDS[0]), *STRETCHED))


TREES: dict[str, Any] = {
    "objective": "l1",  # interference makes some launches slower, none faster: the median is what repeats
    "num_leaves": 160,
    "max_depth": 14,
    "learning_rate": 0.06,
    "min_data_in_leaf": 10,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "feature_fraction": 0.5,
    "max_bin": 127,
    "seed": 0,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}
SPREAD_ROUNDS = 40
SPREAD_TREES = TREES | {"objective": "l2", "num_leaves": 12, "min_data_in_leaf": 200}
LEAST_ERROR = 0.004
"""Log error below which measurements do not repeat."""

EDGE = 0.1
"""Errors (log) of constants' fits from which they count in proportion, not squared."""

LEAST_JUDGED, LEAST_FITTED, LEAST_NEIGHBOURS = 20, 200, 3
"""Rows of what is left out from which it is judged, and of what is left from which it is fitted; neighbours of four that judge a row."""


def merged(keys: Array, us: Array) -> tuple[NDArray[np.intp], Array]:
    """The place of one row of each launch by its `keys` [n, k], and the median of the launch's latencies."""
    _, first, which, count = np.unique(keys, axis=0, return_index=True, return_inverse=True, return_counts=True)
    order, ends = np.lexsort((us, which.ravel())), np.cumsum(count)
    return first, (us[order[ends - count + (count - 1) // 2]] + us[order[ends - count + count // 2]]) / 2


def far_from_neighbours(residual: Array, order: NDArray[np.intp], alike: NDArray[Any], most: float) -> NDArray[np.bool_]:
    """Rows [n] whose residual is by more than `most` off the median of the two before and the two behind them in `order`, of those that are
    `alike` [n] or [n, k]."""
    r, same = residual[order], alike[order].reshape(order.size, -1)
    near = np.full((4, r.size), np.nan)
    for i, step in enumerate((-2, -1, 1, 2)):
        here, there = slice(max(0, -step), r.size - max(0, step)), slice(max(0, step), r.size - max(0, -step))
        near[i, here] = np.where((same[here] == same[there]).all(axis=1), r[there], np.nan)
    enough = np.isfinite(near).sum(axis=0) >= LEAST_NEIGHBOURS
    out = np.zeros(r.size, dtype=bool)
    out[order] = enough & (np.abs(r - np.nanmedian(np.where(enough, near, 0.0), axis=0)) > most)
    return out


def fit_constants(
    series: Sequence[Any],
    which: NDArray[np.int64],
    of: NDArray[np.bool_],
    begin: Array,
    us_of: Callable[[NDArray[np.intp]], Callable[[Array], Array]],
    measured_us: Array,
    *,
    kin: Sequence[Callable[[Any], Any]],
    least: int,
    most: int,
    firmness: float,
    steps: int,
) -> Array:
    """Logarithms of the constants of every series, [series, constants], by robust least squares; where it has few rows, from those of its
    nearest ones too.

    Args:
        series: What was measured.
        which: Place of each row's series, [n].
        of: The rows to fit to, [n].
        begin: Where the fit starts, and what is left of a series that nothing is known of.
        us_of: Of some rows: what gives their reference latencies by logarithms of constants.
        measured_us: Their latencies, [n].
        kin: What series of one kind share, from the nearest to the farthest kind.
        least: Rows from which a series' constants are its own.
        most: Rows that they are fitted to at most.
        firmness: How firmly a constant is held where it starts.
        steps: Evaluations at most.
    """
    from scipy.optimize import least_squares

    out = np.tile(begin, (len(series), 1))
    for place, item in enumerate(series):
        mine = of & (which == place)
        for shared in kin:
            if mine.sum() < least:
                mine = of & np.isin(which, [i for i, other in enumerate(series) if shared(item) == shared(other)])
        index = np.flatnonzero(mine)
        if index.size < least:
            continue
        index = np.sort(np.random.default_rng(place).permutation(index)[:most])
        us, measured = us_of(index), np.log(measured_us[index])

        def off(logarithms: Array, us: Callable[[Array], Array] = us, measured: Array = measured) -> Array:
            return np.concatenate([np.log(us(logarithms)) - measured, firmness * (logarithms - begin)])

        out[place] = least_squares(off, begin, loss="soft_l1", f_scale=EDGE, max_nfev=steps).x
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How what corrects a reference latency is fitted: trees and how they grow, steps of the network beside them (0: none), its rate and
    rows in a step, and rows at most."""

    rounds: int
    options: Mapping[str, Any]
    steps: int
    most: int
    rate: float = 2e-3
    batch: int = 1024

    def __call__(self, x: Array, y: Array, labels: int) -> BushyForest | Mixed:
        """What says `y` [n] by features `x` [n, f], of which the last `labels` are no quantities."""
        forest = grow(x, y, self.rounds, dict(self.options))
        if not self.steps:
            return forest
        return Mixed(forest=forest, network=fit_correction(x, y, labels, self.steps, self.rate, batch=self.batch), apart=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Rows that are left out together, [n], what they are called, and the identities that answer for them where they are a GPU's."""

    name: str
    out: NDArray[np.bool_]
    identities: Sequence[tuple[float, Array]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnable:
    """Measured rows of series as they are fitted and judged.

    Attributes:
        task: Their name among quantiles of errors.
        which: Place of each row's series, [n].
        gpu: Of each row, [n].
        groups: What figures are told of, by the name before that of the group, [n] each.
        alike: Names of groups whose errors are apart from the others', as formats are, [n].
        apart: By what is left out but GPUs, the number of the model, or pair of sizes, that each row belongs to, [n].
        labels: How many features, the last, are no quantities.
        crude: What the baseline sees and is to say: features [n, f], logarithms [n].
        constants: Of every series, from some of the rows, [n].
        described: Features [n, f] and log(latency / reference) [n] with such constants.
    """

    task: str
    which: NDArray[np.int64]
    gpu: NDArray[np.str_]
    groups: Mapping[str, NDArray[Any]]
    alike: NDArray[np.str_]
    apart: Mapping[str, NDArray[np.int64]]
    labels: int
    crude: tuple[Array, Array]
    constants: Callable[[NDArray[np.bool_]], Array]
    described: Callable[[Array], tuple[Array, Array]]

    def __len__(self) -> int:
        return self.which.size


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Of rows left out, log(predicted / measured), the baseline's, and the number of the split that judged each, [n]; else NaN and -1;
    `x`: the features by which they were predicted, [n, f]."""

    error: Array
    baseline: Array
    split: NDArray[np.int64]
    x: Array

    @property
    def judged(self) -> NDArray[np.intp]:
        """Places of the rows judged."""
        return np.flatnonzero(self.split >= 0)


def left_out(
    rows: Learnable, splits: Iterable[Split], how: Fit, crude: Fit, judged_at_most: int, progress: Callable[[str], None]
) -> LeftOut:
    """Errors of fits without each split. Rows are judged whose series was measured elsewhere, as is whatever can be asked; of a GPU by the
    trees alone, as it is predicted (`series_model.SeriesModel.corrected`)."""
    drawn = np.random.default_rng(2).permutation(len(rows))
    error, base = np.full((2, len(rows)), np.nan)
    by, features = np.full(len(rows), -1), np.zeros((len(rows), 0))
    plain, target = rows.crude
    for number, split in enumerate(splits):
        known = np.isin(rows.which, np.unique(rows.which[~split.out]))
        fitted, judged = drawn[~split.out[drawn]][: how.most], drawn[(split.out & known)[drawn]][:judged_at_most]
        if judged.size < LEAST_JUDGED or fitted.size < LEAST_FITTED:
            continue
        x, y = rows.described(rows.constants(~split.out))
        features = features if features.size else np.zeros(x.shape)
        correct = (replace(how, steps=0) if split.identities else how)(x[fitted], y[fitted], rows.labels)
        plainly = x[judged][:, : -split.identities[0][1].size] if split.identities else x[judged]
        error[judged] = (weighed(plainly, correct, split.identities) if split.identities else correct(plainly)) - y[judged]
        base[judged] = crude(plain[fitted], target[fitted], 0)(plain[judged]) - target[judged]
        by[judged], features[judged] = number, x[judged]
        progress(f"{rows.task}, {split.name} left out: {mape(error[judged]):.1f} %, baseline {mape(base[judged]):.1f} %")
    return LeftOut(error=error, baseline=base, split=by, x=features)


def fit(rows: Learnable, how: Fit) -> dict[str, Any]:
    """Constants, and what corrects the reference latency that they give, as arguments of `series_model.SeriesModel`."""
    constants = rows.constants(np.ones(len(rows), dtype=bool))
    x, y = rows.described(constants)
    chosen = np.sort(np.random.default_rng(0).permutation(len(rows))[: how.most])
    return {"constants": constants, "correction": how(x[chosen], y[chosen], rows.labels)}


def expected(left_out_by: Mapping[str, LeftOut], near: str, rows: Learnable) -> dict[str, Any]:
    """Sizes of errors to expect, their quantiles, and figures of what was left out, as arguments of `series_model.SeriesModel`.

    Args:
        left_out_by: Errors by what was left out: "gpus" stands for GPUs never seen (`calibration.of_left_out`), "models" for models never
            seen (`calibration.of_others`, where others are near).
        near: Whose errors are those to expect of what was seen.
        rows: What was judged.
    """
    left_out_by = {name: item for name, item in left_out_by.items() if item.judged.size}
    if not left_out_by:
        return {"held_out": {}}
    of = left_out_by.get(near) or next(iter(left_out_by.values()))
    spread = grow(of.x[of.judged], np.log(np.abs(of.error[of.judged]) + LEAST_ERROR), SPREAD_ROUNDS, SPREAD_TREES)
    quantiles: dict[tuple[str, bool], Array] = {}
    of_gpu: dict[tuple[str, str], Array] = {}
    held_out = {}
    for name, entry in left_out_by.items():
        judged, gpu = entry.judged, rows.gpu[entry.judged]
        scaled = -entry.error[judged] / np.exp(spread(entry.x[judged]))
        inside = np.full(len(rows), np.nan)
        if name == "gpus":
            task, names = calibration.of_left_out(rows.task), np.unique(gpu).tolist()
            either = {item: np.concatenate([scaled[gpu == item], -scaled[gpu == item]]) for item in names}
            quantiles[(task, True)] = calibration.table(np.concatenate(list(either.values())), np.ones(2 * judged.size))
            of_gpu |= {(task, item): calibration.table(errors, np.ones(errors.size)) for item, errors in either.items()}
            inside[judged] = held_by_relatives(scaled, gpu)
        else:
            task = calibration.of_others(rows.task) if name == "models" != near else rows.task
            errors = Judged(scaled=scaled, model=rows.apart[name][judged], group=rows.alike[judged])
            for group, table in tables(errors).items():
                quantiles[(task if group == ALL else calibration.of_group(task, group), True)] = table
            inside[judged] = held(errors, entry.split[judged])
        held_out[name] = figures(entry.error, entry.baseline, rows.groups, inside)
    return {"spread": spread, "calibration": Calibration(quantiles=quantiles, of_gpu=of_gpu), "held_out": held_out}


def held_by_relatives(scaled: Array, gpu: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Whether 80 % intervals hold errors of GPUs left out over their expected sizes, [n], by the names of the GPUs, [n]: by quantiles of
    their relatives' errors, of all others' where there are none, and of a single GPU each half of its rows by the other's. Either sign
    counts: as much as an H100 is slower than was said by an H200, an H200 is faster than is said by an H100."""
    names, halves = np.unique(gpu).tolist(), np.arange(scaled.size) % 2
    parts = [(halves == half, halves != half) for half in (0, 1)]
    if len(names) > 1:
        others = {name: [item for item in names if item != name] for name in names}
        parts = [(gpu == name, np.isin(gpu, relatives(others[name], load_gpu(name)) or others[name])) for name in names]
    out = np.zeros(scaled.size, dtype=bool)
    for mine, known in parts:
        out[mine] = np.abs(scaled[mine]) <= np.quantile(np.abs(scaled[known]), 0.8)
    return out


def mape(error: Array) -> float:
    """Mean absolute error in percent of log(predicted / measured)."""
    return 100 * float(np.abs(np.expm1(error)).mean())


def figures(error: Array, baseline: Array, groups: Mapping[str, NDArray[Any]], inside: Array | None = None) -> dict[str, dict[str, float]]:
    """Mean absolute errors in percent, ours and the baseline's, median, and rows, of all that were judged, and by what each of `groups`
    (its name before that of the group) says of the rows, [n]; with `inside`, the percent that 80 % intervals hold."""
    judged = np.isfinite(error)
    chosen = {"all": judged}
    for name, labels in groups.items():
        chosen |= {f"{name} {item}".strip(): judged & (labels == item) for item in np.unique(labels[judged]).tolist()}
    return {
        name: {
            "mape": round(mape(error[mine]), 2),
            "median": round(100 * float(np.median(np.abs(np.expm1(error[mine])))), 2),
            "baseline": round(mape(baseline[mine]), 2),
            "rows": int(mine.sum()),
        }
        | ({} if inside is None or np.isnan(inside[mine]).any() else {"held": round(100 * float(inside[mine].mean()), 1)})
        for name, mine in chosen.items()
    }


def grow(features: Array, target: Array, rounds: int, options: dict[str, Any] = TREES) -> BushyForest:
    """A forest that LightGBM fits, to the bit the same on one machine.

    Raises:
        MissingDependencyError: LightGBM, or the OpenMP library that it needs, is not installed.
    """
    try:
        import lightgbm
    except (ImportError, OSError):  # its wheel leaves OpenMP to the system
        remedy = "pip install 'triton-advisor[train]', and on Linux the system's libgomp (apt-get install libgomp1)"
        raise MissingDependencyError("training needs LightGBM", remedy=remedy) from None
    rows = lightgbm.Dataset(features.astype(np.float32), target, params={"verbose": -1, "max_bin": options["max_bin"]})
    model = lightgbm.train(options, rows, rounds)
    return flatten(model.dump_model()["tree_info"], features.shape[1])
