"""Fitting what is learned of library layers, and judging it on whole models and whole GPUs left out, beside a crude baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import list_gpus, load_gpu
from advisor.learned.bushy_forest import BushyForest
from advisor.learned.calibration import Calibration
from advisor.learned.library.chip import chip
from advisor.learned.library.moe_kernels import TASK, LayerSeries, LibraryLayers, features, identity
from advisor.learned.library.moe_layers import CONSTANTS, FORMATS, family, rate_of, reference
from advisor.pipelines import Array
from advisor.training import series
from advisor.training.moe_library import reading
from advisor.training.moe_library.reading import Measured
from advisor.training.one_thread import one_thread
from advisor.training.series import TREES, grow

ROUNDS, FOLD_ROUNDS = 700, 160
WHOLE = TREES | {"num_leaves": 200, "learning_rate": 0.06, "min_data_in_leaf": 20}
OF_FOLD = WHOLE | {"learning_rate": 0.12, "num_leaves": 96}
MOST_ROWS, MOST_FOLD_ROWS, MOST_JUDGED = 260_000, 60_000, 4_000
"""Rows that are fitted, of the whole; rows among which models and GPUs are left out; and rows judged of what is left out."""

FOLDS = 6
LEAST_ROWS, MOST_OF_SERIES = 60, 2_000
"""Rows of a series from which its constants are its own; rows that they are fitted to at most."""

FIRMNESS = 0.3
"""How firmly a constant is held where it starts."""


def train(
    folders: Iterable[Path | str],
    exclude_gpus: Sequence[str] = (),
    exclude_models: Sequence[tuple[int, int, int, int]] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> LibraryLayers:
    """The model of all layers in the folders, with what it held out.

    Args:
        folders: Of `rows.silicon`.
        exclude_gpus: Names of GPUs to leave out entirely.
        exclude_models: Models (E, topk, H, inter) to leave out.
        progress: Told what is being done.

    Raises:
        MissingDependencyError: Packages of the extra `train` are not installed.
    """
    gpus = [gpu.name for gpu in list_gpus() if gpu.name not in exclude_gpus]
    with one_thread():
        rows = reading.read(folders, gpus, exclude_models, progress)
        progress(f"{len(rows)} library layers of {len(rows.series)} series and {np.unique(rows.model).size} models")
        return _fit(rows, progress)


def _fit(rows: Measured, progress: Callable[[str], None]) -> LibraryLayers:
    drawn = np.random.default_rng(0).permutation(len(rows))
    whole, counts = rows, {name: _models_of(rows, rows.gpu == name) for name in np.unique(rows.gpu).tolist()}
    rows = rows.take(np.sort(drawn[:MOST_FOLD_ROWS]))
    held_out: dict[str, Any] = {}
    error, baseline = _models_left_out(rows, progress)
    held_out["models"] = figures(rows, error, baseline)
    unseen, crude = _gpus_left_out(rows, progress)
    held_out["gpus"] = figures(rows, unseen, crude)
    constants = fit_constants(whole, np.ones(len(whole), dtype=bool))
    progress(f"fitting {min(MOST_ROWS, len(whole))} of them")
    correction = grow(*table(whole.take(np.sort(drawn[:MOST_ROWS])), constants), ROUNDS, WHOLE)
    x, _ = table(rows, constants)
    spread, quantiles = series.intervals(TASK, x, error, unseen, rows.gpu)
    return LibraryLayers(
        series=rows.series,
        constants=constants,
        correction=correction,
        spread=spread,
        calibration=quantiles,
        measured=counts,
        held_out=held_out,
    )


def _models_of(rows: Measured, of: NDArray[np.bool_]) -> dict[int, int]:
    """Models measured of each series, by its place, among rows `of` [n]."""
    pairs = np.unique(np.stack([rows.which[of], rows.model[of]], axis=1), axis=0)
    which, count = np.unique(pairs[:, 0], return_counts=True)
    return dict(zip(which.tolist(), count.tolist(), strict=True))


def fit_constants(rows: Measured, of: NDArray[np.bool_]) -> Array:
    """Logarithms of the constants of every series, [series, constants], from rows `of` [n]; where there are few, of its nearest ones."""

    def us_of(index: NDArray[np.intp]) -> Callable[[Array], Array]:
        some = rows.take(index)
        return lambda logarithms: reference(some.layers, some.need, np.broadcast_to(logarithms, (len(some), logarithms.size))).us

    begin = np.log(np.array(list(CONSTANTS.values())))
    return series.fit_constants(
        rows.series,
        rows.which,
        of,
        begin,
        us_of,
        rows.latency_us,
        kin=KIN,
        least=LEAST_ROWS,
        most=MOST_OF_SERIES,
        firmness=FIRMNESS,
        steps=30,
    )


KIN: tuple[Callable[[LayerSeries], tuple[Any, ...]], ...] = (
    lambda each: (each.kernel, each.form, each.instructions),
    lambda each: (family(each.kernel), each.form, each.instructions),
    lambda each: (each.form, each.instructions),
)
"""What series of one kind share: kernel, family of kernels, format; each with the GPU's instructions."""


def table(rows: Measured, constants: Array) -> tuple[Array, Array]:
    """Features [n, f] and log(latency / reference) [n]."""
    found = rows.reference(constants)
    places = sorted({each.place for each in rows.series})
    kernel = np.array([places.index(each.place) for each in rows.series])[rows.which]
    x = features(rows.layers, rows.need, found, kernel, [rows.series[i] for i in rows.which.tolist()])
    names, of = np.unique(rows.gpu, return_inverse=True)
    who = np.stack([identity(load_gpu(name)) for name in names.tolist()])[of]
    return np.concatenate([x, who], axis=1), np.log(rows.latency_us / found.us)


def crude(rows: Measured) -> tuple[Array, Array]:
    """What the baseline sees, sizes, format, kernel and GPU, [n, f], and log(latency / plain roofline), [n]."""
    layers, need = rows.layers, rows.need
    names, of = np.unique(rows.gpu, return_inverse=True)
    peaks = [
        [f.rate * f.sms * f.clock for f in (chip(load_gpu(name), rate_of(load_gpu(name), form)) for form in FORMATS)]
        for name in names.tolist()
    ]
    roofline = np.maximum(need.flop / np.array(peaks)[of, layers.form], need.weights_dram + need.rows_dram) + 15
    who = np.stack([identity(load_gpu(name)) for name in names.tolist()])[of]
    sizes = [np.log(each) for each in (layers.tokens, layers.experts, layers.topk, layers.hidden, layers.inner, roofline)]
    labels = [layers.form, rows.which, layers.alpha, layers.loads.used / layers.experts]
    return np.concatenate([np.stack([*sizes, *labels], axis=1), who], axis=1), np.log(rows.latency_us / roofline)


def _models_left_out(rows: Measured, progress: Callable[[str], None]) -> tuple[Array, Array]:
    """log(predicted / measured) of rows of models left out, ours and the baseline's, [n]; NaN of rows not judged.

    Rows are judged whose kernel was measured with another model, as is whatever can be asked of a kernel.
    """
    models, drawn = np.random.default_rng(1).permutation(np.unique(rows.model)), np.random.default_rng(2).permutation(len(rows))
    plain, target = crude(rows)
    error, base = np.full((2, len(rows)), np.nan)
    for i in range(FOLDS):
        out = np.isin(rows.model, models[i::FOLDS])
        known = np.isin(rows.which, np.unique(rows.which[~out]))
        fitted, judged = np.flatnonzero(~out), drawn[(out & known)[drawn]][:MOST_JUDGED]
        x, y = table(rows, fit_constants(rows, ~out))
        error[judged] = _forest(x, y, fitted)(x[judged]) - y[judged]
        base[judged] = _forest(plain, target, fitted)(plain[judged]) - target[judged]
        progress(f"models left out, {i + 1} of {FOLDS}: {series.mape(error[judged]):.1f} %, baseline {series.mape(base[judged]):.1f} %")
    return error, base


def _gpus_left_out(rows: Measured, progress: Callable[[str], None]) -> tuple[Array, Array]:
    """The same of rows of each GPU left out, of kernels that other GPUs of its instructions ran."""
    plain, target = crude(rows)
    drawn = np.random.default_rng(3).permutation(len(rows))
    error, base = np.full((2, len(rows)), np.nan)
    for name in np.unique(rows.gpu).tolist():
        out = rows.gpu == name
        known = np.isin(rows.which, np.unique(rows.which[~out]))
        fitted, judged = np.flatnonzero(~out), drawn[(out & known)[drawn]][:MOST_JUDGED]
        if not judged.size or not fitted.size:
            continue
        x, y = table(rows, fit_constants(rows, ~out))
        told = _forest(x, y, fitted)
        error[judged] = _as_relatives(x[judged], rows, name, told) - y[judged]
        base[judged] = _forest(plain, target, fitted)(plain[judged]) - target[judged]
        progress(f"{name} left out: {series.mape(error[judged]):.1f} %, baseline {series.mape(base[judged]):.1f} %")
    return error, base


def _as_relatives(x: Array, rows: Measured, name: str, told: BushyForest) -> Array:
    """What the trees say of rows of a GPU with the identity of its relatives, their mean, [n]."""
    others = {each: {0: 1} for each in np.unique(rows.gpu).tolist() if each != name}
    model = LibraryLayers(
        series=rows.series, constants=np.zeros(0), correction=told, spread=told, calibration=Calibration(quantiles={}), measured=others
    )
    return series.as_relatives(x, told, [identity(load_gpu(each)) for each in model.relatives(load_gpu(name))])


def _forest(x: Array, y: Array, at: NDArray[np.int64]) -> BushyForest:
    return grow(x[at], y[at], FOLD_ROUNDS, OF_FOLD)


def figures(rows: Measured, error: Array, baseline: Array) -> dict[str, dict[str, float]]:
    """Mean absolute errors in percent, ours and the baseline's, median, and rows, of all, by format and by GPU."""
    form = np.array([each.name for each in FORMATS])[rows.layers.form]
    kinds = np.array([family(each.kernel) for each in rows.series])[rows.which]
    return series.figures(error, baseline, {"format": form, "GPU": rows.gpu, "kernel": kinds})
