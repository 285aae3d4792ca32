"""Fitting what is learned of library layers, and judging it on whole models and whole GPUs left out, beside a crude baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import list_gpus, load_gpu
from advisor.learned.layers.moe_layer import nemotron
from advisor.learned.library.chip import chip
from advisor.learned.library.moe_kernels import LABELS, TASK, LayerSeries, LibraryLayers, features, identity
from advisor.learned.library.moe_layers import CONSTANTS, FORMATS, family, rate_of, reference
from advisor.learned.library.series_model import equally, relatives
from advisor.pipelines import Array
from advisor.training import series
from advisor.training.moe_library import reading
from advisor.training.moe_library.reading import Measured
from advisor.training.one_thread import one_thread
from advisor.training.series import TREES, Fit, Learnable, Split

TREES_OF_LAYERS = TREES | {"num_leaves": 200, "learning_rate": 0.06, "min_data_in_leaf": 20}
QUICK = TREES_OF_LAYERS | {"learning_rate": 0.14, "num_leaves": 96}
WHOLE = Fit(rounds=400, options=TREES_OF_LAYERS, steps=4000, most=180_000)
OF_FOLD = Fit(rounds=250, options=TREES_OF_LAYERS, steps=4000, most=150_000)
"""Nearly as much as what serves: with a third of the rows and steps, models left out were 6.9 instead of 5.9 % off."""

FEW, LEAST_OF_FEW = 5_000, 20
"""Rows up to which trees answer alone, without a network beside them, and from which a series' constants are then its own: series with
fewer have those of their stack, not of their format."""

CRUDE = replace(OF_FOLD, rounds=120, options=QUICK, steps=0)
MOST_JUDGED = 4_000
"""Rows judged of what is left out."""

FOLDS = 6
LEAST_ROWS, MOST_OF_SERIES = 60, 600
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
        folders: Of `rows.silicon`, or of `rows.aiter`.
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
        figures = judged(rows, tuple(SPLITS.values()), None, progress)
        fitted = series.fit(learnable(rows), _alone(WHOLE, rows))
    measured = {name: _models_of(rows, rows.gpu == name) for name in np.unique(rows.gpu).tolist()}
    return LibraryLayers(series=rows.series, measured=measured, **fitted, **figures)


SPLITS = {"model": "models", "gpu": "gpus"}
"""Names of `advisor evaluate`'s splits for what is left out here."""


def judge(
    folders: Iterable[Path | str],
    gpus: Sequence[str] | None = None,
    leave_out: Sequence[str] = tuple(SPLITS),
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Figures of models fitted anew by what was left out: "library layers: models left out"; arguments as of `operators.fitting.judge`."""
    wanted = [SPLITS[item] for item in leave_out if item in SPLITS]
    rows = reading.read(folders, None, (), progress) if wanted else ()
    if not rows:
        return {}
    return {f"library layers: {what} left out": figures for what, figures in judged(rows, wanted, gpus, progress)["held_out"].items()}


def judged(
    rows: Measured, wanted: Sequence[str], gpus: Sequence[str] | None, progress: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """What to expect (`series.expected`) of models and of GPUs left out, of a sample of the rows."""
    some = rows.take(np.sort(np.random.default_rng(0).permutation(len(rows))[: OF_FOLD.most]))
    learnable_rows = learnable(some)
    return series.expected(
        {
            what: series.left_out(learnable_rows, _splits(some, what, gpus), _alone(OF_FOLD, rows), CRUDE, MOST_JUDGED, progress)
            for what in wanted
        },
        "models",
        learnable_rows,
    )


def _alone(how: Fit, rows: Measured) -> Fit:
    return how if len(rows) > FEW else replace(how, steps=0)


def _splits(rows: Measured, what: str, gpus: Sequence[str] | None) -> Iterator[Split]:
    if what == "models":
        models = np.random.default_rng(1).permutation(np.unique(rows.model))
        yield from (Split(name=f"models {i + 1} of {FOLDS}", out=np.isin(rows.model, models[i::FOLDS])) for i in range(FOLDS))
        return
    names = np.unique(rows.gpu).tolist()
    for name in names if gpus is None else [item for item in names if item in gpus]:
        others = relatives([item for item in names if item != name], load_gpu(name))
        if others:
            yield Split(name=name, out=rows.gpu == name, identities=equally([identity(load_gpu(other)) for other in others]))


def learnable(rows: Measured) -> Learnable:
    """The rows as `series` fits and judges them."""
    form = np.array([item.name for item in FORMATS])[rows.layers.form]
    kinds = np.array([family(item.kernel) for item in rows.series])[rows.which]
    return Learnable(
        task=TASK,
        which=rows.which,
        gpu=rows.gpu,
        groups={"format": form, "GPU": rows.gpu, "kernel": kinds},
        alike=form,
        apart={"models": rows.model},
        labels=LABELS,
        crude=crude(rows),
        constants=lambda of: fit_constants(rows, of),
        described=lambda constants: table(rows, constants),
    )


def _models_of(rows: Measured, of: NDArray[np.bool_]) -> dict[int, tuple[int, int]]:
    """Models measured of each series, by its place, with a gate and without, among rows `of` [n]."""
    distinct = np.unique(np.stack([rows.which, rows.model, nemotron(rows.layers.hidden, rows.layers.topk)], axis=1)[of], axis=0)
    counts = {place: distinct[distinct[:, 0] == place, 2] for place in np.unique(distinct[:, 0]).tolist()}
    return {place: (int((without == 0).sum()), int(without.sum())) for place, without in counts.items()}


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
        kin=KIN if len(rows) > FEW else (*KIN, lambda item: (item.stack, item.instructions)),
        least=LEAST_ROWS if len(rows) > FEW else LEAST_OF_FEW,
        most=MOST_OF_SERIES,
        firmness=FIRMNESS,
        steps=30,
    )


KIN: tuple[Callable[[LayerSeries], tuple[Any, ...]], ...] = (
    lambda item: (item.kernel, item.form, item.instructions),
    lambda item: (family(item.kernel), item.form, item.instructions),
    lambda item: (item.form, item.instructions),
)
"""What series of one kind share: kernel, family of kernels, format; each with the GPU's instructions."""


def table(rows: Measured, constants: Array) -> tuple[Array, Array]:
    """Features [n, f] and log(latency / reference) [n]."""
    reference = rows.reference(constants)
    places = sorted({item.place for item in rows.series})
    kernel = np.array([places.index(item.place) for item in rows.series])[rows.which]
    x = features(rows.layers, rows.need, reference, kernel, [rows.series[i] for i in rows.which.tolist()])
    names, of = np.unique(rows.gpu, return_inverse=True)
    who = np.stack([identity(load_gpu(name)) for name in names.tolist()])[of]
    return np.concatenate([x, who], axis=1), np.log(rows.latency_us / reference.us)


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
    sizes = [np.log(token) for token in (layers.tokens, layers.experts, layers.topk, layers.hidden, layers.inner, roofline)]
    labels = [layers.form, rows.which, layers.alpha, layers.loads.used / layers.experts]
    return np.concatenate([np.stack([*sizes, *labels], axis=1), who], axis=1), np.log(rows.latency_us / roofline)
