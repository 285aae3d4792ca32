"""How well configured launches are predicted where few or none of their kind were measured: kernels left out whole, and a GPU of which
some rows are given. Both on this project's own measurements."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import load_gpu
from advisor.learned import weights
from advisor.learned.base import Predictor
from advisor.learned.estimator import LearnedPredictor
from advisor.learned.own_predictor import predictor_of
from advisor.pipelines import Array
from advisor.pipelines.from_rows import batches
from advisor.rows.rows import Rows, read_rows
from advisor.system.errors import UsageError
from advisor.training import configured_training, data
from advisor.training.configured_training import FOLDS, own_measurements, problem_names
from advisor.training.own_gpu import calibrate

LEAST_CONFIGURATIONS = 6
"""Of a problem whose first pick is judged."""


def kernels_left_out(progress: Callable[[str], None] = lambda text: None) -> dict[str, dict[str, Any]]:
    """For each kernel figures of what answers where none of its rows is known, and of the analytical model alone.

    Raises:
        MissingDependencyError: LightGBM is not installed.
    """
    rows = configured_training.read_launches((), (), ())
    assert rows is not None
    served: dict[str, Any] = {}
    analytical: dict[str, Any] = {}
    for kernel, judged, predicted in configured_training.kernels_left_out(rows):
        progress(f"{kernel} left out")
        for figures, log_us in ((served, predicted), (analytical, judged.physics)):
            figures[kernel] = _figures(judged.problem, np.exp(judged.log_us), np.exp(log_us))
    return {"kernels left out": served, "kernels left out: the analytical model alone": analytical}


def rows_given(counts: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Figures of a fifth of the problems, predicted by the weights shipped without any configured launch, and after so many of the other
    rows, drawn at random, were given to `calibrate`.

    Raises:
        UsageError: No weights are shipped.
    """
    path = weights.shipped()
    if path is None:
        raise UsageError("no weights are shipped with this installation", None, None, "run `advisor train`")
    bare = replace(weights.load(path), configured=None)
    files = [read_rows(path) for path in data.files([own_measurements()])]
    names = [_problems(rows) for rows in files]
    places = [(i, row) for i, name in enumerate(names) for row in np.flatnonzero(name != "")]
    held = np.array([zlib.crc32(names[i][row].encode()) // 4 % FOLDS == 0 for i, row in places])
    judged = [
        np.array([row for (file, row), out in zip(places, held, strict=True) if out and file == i], dtype=np.int64)
        for i in range(len(files))
    ]
    out = {"none given": _judged(files, names, judged, LearnedPredictor(bare))}
    for count in counts:
        drawn = np.random.default_rng(0).choice(np.flatnonzero(~held), min(count, int((~held).sum())), replace=False)
        fitted = bare
        for i, rows in enumerate(files):
            chosen = np.sort([places[place][1] for place in drawn if places[place][0] == i]).astype(np.int64)
            if chosen.size:
                fitted = calibrate(some_of(rows, chosen), fitted).weights
        out[f"{count} rows given"] = _judged(files, names, judged, predictor_of(LearnedPredictor(fitted)))
    return {"configured launches of a GPU without any, problems left out": out}


def _problems(rows: Rows) -> NDArray[np.str_]:
    """The problem of every row of a known configuration; empty for others, [rows]."""
    out = np.full(len(rows), "", dtype=object)
    for batch in batches(rows, load_gpu):
        if batch.configuration is not None:
            out[batch.rows] = problem_names(batch.problem, batch.configuration, len(batch.rows))
    return out.astype(np.str_)


def some_of(rows: Rows, chosen: NDArray[np.int64]) -> Rows:
    """The rows of a file at these places."""
    return replace(
        rows,
        text={name: [values[row] for row in chosen] for name, values in rows.text.items()},
        columns={name: values[chosen] for name, values in rows.columns.items()},
        **{name: getattr(rows, name)[chosen] for name in ("family", "op", "dtype", "has_configuration")},
    )


def _judged(
    files: Sequence[Rows], names: Sequence[NDArray[np.str_]], judged_rows: Sequence[NDArray[np.int64]], predictor: Predictor
) -> dict[str, Any]:
    problems, measured, us, inside = [], [], [], []
    for rows, file, chosen in zip(files, names, judged_rows, strict=True):
        some = some_of(rows, chosen)
        for batch in batches(some, load_gpu):
            predicted, latency = predictor.predict(batch.problem, batch.configuration, batch.gpu), some.columns["latency_us"][batch.rows]
            problems.append(file[chosen][batch.rows])
            measured.append(latency)
            us.append(predicted.us)
            inside.append((latency >= predicted.low_us) & (latency <= predicted.high_us))
    columns = (np.concatenate(problem) for problem in (problems, measured, us))
    return _figures(*columns) | {"interval_holds_percent": float(100 * np.concatenate(inside).mean())}


def _figures(problems: NDArray[np.str_], measured: Array, us: Array) -> dict[str, Any]:
    """The error, and the first picks of problems of which several configurations were measured."""
    fine = np.isfinite(us) & np.isfinite(measured)
    problems, measured, us = problems[fine], measured[fine], us[fine]
    over = []
    for name in np.unique(problems):
        mine = np.flatnonzero(problems == name)
        if mine.size >= LEAST_CONFIGURATIONS:
            over.append(np.log(measured[mine[np.argmin(us[mine])]] / measured[mine].min()))
    return {
        "rows": int(fine.sum()),
        "mape_percent": float(100 * np.abs(us / measured - 1).mean()),
        "problems": len(over),
        "first_over_best": float(np.exp(np.mean(over))),
        "worst_over_best": float(np.exp(np.max(over))),
    }
