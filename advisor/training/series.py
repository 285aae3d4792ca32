"""What fits and judges models of published series of measurements alike: library layers, operators, and kernels of libraries."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned import bushy_forest, calibration
from advisor.learned.bushy_forest import BushyForest
from advisor.learned.calibration import Calibration
from advisor.pipelines import Array
from advisor.system.errors import MissingDependencyError

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

LEAST_NEIGHBOURS = 3
"""Neighbours of four that a row needs to be judged by them."""


def numbers(*columns: NDArray[Any], unit: float = 1.0) -> NDArray[np.int64]:
    """A number for each distinct row of the columns in steps of 1 / `unit`, the same in every run, [n]."""
    rows = (np.stack(columns, axis=1) * unit).astype(np.int64)
    distinct, which = np.unique(rows, axis=0, return_inverse=True)
    return np.array([zlib.crc32(each.tobytes()) for each in distinct], dtype=np.int64)[which.ravel()]


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
    for place, each in enumerate(series):
        mine = of & (which == place)
        for shared in kin:
            if mine.sum() < least:
                mine = of & np.isin(which, [i for i, other in enumerate(series) if shared(each) == shared(other)])
        index = np.flatnonzero(mine)
        if index.size < least:
            continue
        index = np.sort(np.random.default_rng(place).permutation(index)[:most])
        us, measured = us_of(index), np.log(measured_us[index])

        def off(logarithms: Array, us: Callable[[Array], Array] = us, measured: Array = measured) -> Array:
            return np.concatenate([np.log(us(logarithms)) - measured, firmness * (logarithms - begin)])

        out[place] = least_squares(off, begin, loss="soft_l1", f_scale=EDGE, max_nfev=steps).x
    return out


def intervals(
    task: str, x: Array, near: Array, far: Array | None, gpu: NDArray[np.str_], least: int = 1
) -> tuple[BushyForest, Calibration]:
    """What errors to expect by features [n, f], and their quantiles: of seen GPUs by errors log(predicted / measured) of rows left out
    `near` [n], of others by those `far` [n]; NaN where a row was not judged. A GPU has quantiles of its own from `least` rows on."""
    known = np.flatnonzero(np.isfinite(near))
    spread = grow(x[known], np.log(np.abs(near[known]) + LEAST_ERROR), SPREAD_ROUNDS, SPREAD_TREES)
    scaled, one = -near[known] / np.exp(spread(x[known])), np.ones(known.size)
    quantiles = {(task, True): calibration.table(scaled, one)}
    rows = np.flatnonzero(np.isfinite(far)) if far is not None else np.zeros(0, dtype=np.intp)
    if far is not None and rows.size:
        quantiles[(task, False)] = calibration.table(-far[rows] / np.exp(spread(x[rows])), np.ones(rows.size))
    by_gpu = {name: gpu[known] == name for name in np.unique(gpu[known]).tolist()}
    of_gpu = {(task, name): calibration.table(scaled[mine], one[mine]) for name, mine in by_gpu.items() if mine.sum() >= least}
    return spread, Calibration(quantiles=quantiles, of_gpu=of_gpu)


def as_relatives(x: Array, told: Callable[[Array], Array], identities: Sequence[Array]) -> Array:
    """What trees say of rows with the identity of other GPUs, their last columns, in the mean, [n]."""
    return np.mean(
        [told(np.concatenate([x[:, : -each.size], np.broadcast_to(each, (len(x), each.size))], axis=1)) for each in identities], axis=0
    )


def mape(error: Array) -> float:
    """Mean absolute error in percent of log(predicted / measured)."""
    return 100 * float(np.abs(np.expm1(error)).mean())


def figures(error: Array, baseline: Array, groups: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, float]]:
    """Mean absolute errors in percent, ours and the baseline's, median, and rows, of all that were judged, and by what each of `groups`
    (its name before that of the group) says of the rows, [n]."""
    judged = np.isfinite(error)
    chosen = {"all": judged}
    for name, labels in groups.items():
        chosen |= {f"{name} {each}".strip(): judged & (labels == each) for each in np.unique(labels[judged]).tolist()}
    return {
        name: {
            "mape": round(mape(error[mine]), 2),
            "median": round(100 * float(np.median(np.abs(np.expm1(error[mine])))), 2),
            "baseline": round(mape(baseline[mine]), 2),
            "rows": int(mine.sum()),
        }
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
    return bushy_forest.flatten(model.dump_model()["tree_info"], features.shape[1])
