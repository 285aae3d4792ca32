"""Fitting what is learned of the published operators, and judging it on whole models, pairs of batch and length, and GPUs left out, beside
a crude baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import list_gpus, load_gpu
from advisor.learned import calibration
from advisor.learned.bushy_forest import BushyForest
from advisor.learned.calibration import Calibration
from advisor.learned.operators.model import OperatorModel, Series, bound, features, identity, reference, start
from advisor.learned.operators.work import KINDS
from advisor.pipelines import Array
from advisor.training import series
from advisor.training.one_thread import one_thread
from advisor.training.operators import reading
from advisor.training.operators.reading import Measured
from advisor.training.series import TREES, grow

ROUNDS, FOLD_ROUNDS = 260, 80
WHOLE = TREES | {"num_leaves": 96, "learning_rate": 0.12, "min_data_in_leaf": 8}
OF_FOLD = WHOLE | {"learning_rate": 0.15}
MOST_ROWS, MOST_FOLD_ROWS, MOST_JUDGED = 45_000, 15_000, 5_000
"""Rows of a kind that are fitted, of the whole; rows of a fold of models or GPUs; and rows judged of what is left out."""

FOLDS, MOST_FOLDS, PAIR_FOLDS = 4, 2, 5
"""Parts of the models, how many of them are left out in turn, and parts of the pairs, of which one is left out."""

MOST_GPUS = 3
"""GPUs that are left out in turn at most."""
LEAST_OF_KIND = 300
"""Rows of a kind from which it is fitted."""

LEAST_ROWS, MOST_OF_SERIES = 40, 240
"""Rows of a series from which its constants are its own; rows that they are fitted to at most."""

FIRMNESS = 0.1
"""How firmly a constant is held where it starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of a kind on all GPUs: parts, places of their series among all, and what is left out together, [n] each."""

    kind: str
    parts: Sequence[Measured]
    series: tuple[Series, ...]
    which: NDArray[np.int64]
    gpu: NDArray[np.str_]
    us: Array
    model: NDArray[np.int64]
    pair: NDArray[np.int64]

    def __len__(self) -> int:
        return self.us.size


def train(
    folders: Iterable[Path | str],
    exclude_gpus: Sequence[str] = (),
    kinds: Sequence[str] = tuple(KINDS),
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, OperatorModel]:
    """The models of all kinds that the folders hold, each with what it held out; a kind that is no better than the baseline on pairs left
    out is not among them.

    Args:
        folders: Of `rows.silicon`.
        exclude_gpus: Names of GPUs to leave out entirely.
        kinds: Of `work.KINDS`, those to fit.
        progress: Told what is being done.

    Raises:
        MissingDependencyError: Packages of the extra `train` are not installed.
    """
    gpus = [gpu.name for gpu in list_gpus() if gpu.name not in exclude_gpus]
    with one_thread():
        found = reading.read(folders, gpus, progress)
        tables = [joined(kind, parts) for kind, parts in found.items() if kind in kinds]
        models = {table.kind: fit(table, progress) for table in tables if len(table) >= LEAST_OF_KIND}
    worse = [kind for kind, model in models.items() if not model.is_better]
    for kind in worse:
        progress(f"{kind} is left out: no better than the baseline")
    return {kind: model for kind, model in models.items() if kind not in worse}


SPLITS = {"model": "models", "shape": "pairs", "gpu": "gpus"}
"""Names of `advisor evaluate`'s splits for what is left out here."""


def judge(
    folders: Iterable[Path | str],
    gpus: Sequence[str] | None = None,
    leave_out: Sequence[str] = tuple(SPLITS),
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Figures of models fitted anew by what was left out, each beside the crude baseline's: "DSA decode: pairs left out" and so on.

    Args:
        folders: Of `rows.silicon`.
        gpus: Names of the GPUs to leave out one by one; None: some of those measured.
        leave_out: Keys of `SPLITS`; others say nothing here.
        progress: Told what is being done.
    """
    out = {}
    for kind, parts in reading.read(folders, None, progress).items():
        table = joined(kind, parts)
        for what in (SPLITS[each] for each in leave_out if each in SPLITS):
            progress(f"{kind}: {what} left out")
            error, baseline = _left_out(table, what, gpus)
            if np.isfinite(error).any():
                out[f"{kind}: {what} left out"] = figures(table, error, baseline)
    return out


def joined(kind: str, parts: Sequence[Measured]) -> Table:
    """The rows of all GPUs, at most `MOST_ROWS` drawn at random."""
    total = sum(len(part) for part in parts)
    if total > MOST_ROWS:
        rng = np.random.default_rng(0)
        parts = [part.take(np.sort(rng.permutation(len(part))[: round(len(part) * MOST_ROWS / total)])) for part in parts]
    series = tuple(sorted({each for part in parts for each in part.series}))
    place = {each: i for i, each in enumerate(series)}
    return Table(
        kind=kind,
        parts=parts,
        series=series,
        which=np.concatenate([np.array([place[each] for each in part.series], dtype=np.int64)[part.which] for part in parts]),
        gpu=np.concatenate([np.full(len(part), part.gpu) for part in parts]),
        us=np.concatenate([part.latency_us for part in parts]),
        model=np.concatenate([part.model for part in parts]),
        pair=np.concatenate([part.pair for part in parts]),
    )


def fit(table: Table, progress: Callable[[str], None]) -> OperatorModel:
    """The model of a kind."""
    progress(f"{table.kind}: {len(table)} rows of {len(table.series)} series")
    held_out, errors = {}, {}
    for what in ("models", "pairs", "gpus"):
        error, baseline = _left_out(table, what)
        if np.isfinite(error).any():
            held_out[what], errors[what] = figures(table, error, baseline), error
            every = held_out[what]["all"]
            progress(f"{table.kind}, {what} left out: {every['mape']:.1f} %, baseline {every['baseline']:.1f} %")
    constants = fit_constants(table, np.ones(len(table), dtype=bool))
    x, y = described(table, constants)
    rows = np.sort(np.random.default_rng(0).permutation(len(table))[:MOST_ROWS])
    correction = grow(x[rows], y[rows], ROUNDS, WHOLE)
    spread, quantiles = series.intervals(table.kind, x, errors["pairs"], errors.get("gpus"), table.gpu, calibration.LEAST_ROWS)
    gpus = np.unique(table.gpu).tolist()
    return OperatorModel(
        kind=table.kind,
        series=table.series,
        constants=constants,
        correction=correction,
        spread=spread,
        calibration=quantiles,
        measured={name: np.unique(table.which[table.gpu == name]).tolist() for name in gpus},
        held_out=held_out,
    )


def fit_constants(table: Table, of: NDArray[np.bool_]) -> Array:
    """Logarithms of the constants of every series, [series, constants], from rows `of` [n]; where there are few, of its nearest ones."""
    terms = _terms(table)

    def us_of(index: NDArray[np.intp]) -> Callable[[Array], Array]:
        chosen: Any = {name: tuple(each[index] for each in stage) for name, stage in terms.items()}
        return lambda logarithms: reference(chosen, logarithms)[0]

    return series.fit_constants(
        table.series,
        table.which,
        of,
        start(len(terms)),
        us_of,
        table.us,
        kin=KIN,
        least=LEAST_ROWS,
        most=MOST_OF_SERIES,
        firmness=FIRMNESS,
        steps=12,
    )


KIN: tuple[Callable[[Series], tuple[Any, ...]], ...] = (
    lambda each: (each.operator, each.kernel, each.words),
    lambda each: (each.operator,),
)
"""What series of one kind share: operator, kernel and words, or the operator alone."""


def _terms(table: Table) -> dict[str, tuple[Array, ...]]:
    """The stages of all rows."""
    parts = [KINDS[table.kind].stages(part.rows, load_gpu(part.gpu)) for part in table.parts]
    return {name: tuple(np.concatenate(each) for each in zip(*(part[name] for part in parts), strict=True)) for name in parts[0]}


def described(table: Table, constants: Array) -> tuple[Array, Array]:
    """Features [n, f] and log(latency / reference) [n]."""
    xs, ys, begin = [], [], 0
    model = _bare(table)
    for part in table.parts:
        which = table.which[begin : begin + len(part)]
        begin += len(part)
        gpu = load_gpu(part.gpu)
        stages = KINDS[table.kind].stages(part.rows, gpu)
        us, pieces = reference(stages, constants[which])
        x = features(part.rows, stages, us, pieces, [table.series[i] for i in which.tolist()], model.places)
        who = identity(gpu)
        xs.append(np.concatenate([x, np.broadcast_to(who, (len(x), who.size))], axis=1))
        ys.append(np.log(part.latency_us / us))
    return np.concatenate(xs), np.concatenate(ys)


def _bare(table: Table, without: str = "") -> OperatorModel:
    """A model without trees, that knows which GPUs are relatives."""
    none = grow(np.zeros((100, 1)), np.zeros(100), 1, TREES)
    gpus = [name for name in np.unique(table.gpu).tolist() if name != without]
    measured = {name: np.unique(table.which[table.gpu == name]).tolist() for name in gpus}
    return OperatorModel(
        kind=table.kind,
        series=table.series,
        constants=np.zeros(0),
        correction=none,
        spread=none,
        calibration=Calibration(quantiles={}),
        measured=measured,
    )


def crude(table: Table) -> tuple[Array, Array]:
    """What the baseline sees: sizes, series and GPU, [n, f], and log(latency / bound), [n]."""
    xs, ys = [], []
    for part in table.parts:
        gpu = load_gpu(part.gpu)
        least, _ = bound(part.rows, gpu)
        sizes = [np.log2(np.maximum(each, 0.5)) for each in part.rows.sizes.values()]
        who = identity(gpu)
        xs.append(np.concatenate([np.stack([*sizes, np.log(least)], axis=1), np.broadcast_to(who, (len(part), who.size))], axis=1))
        ys.append(np.log(part.latency_us / least))
    return np.concatenate([np.concatenate(xs), table.which[:, None]], axis=1), np.concatenate(ys)


def _left_out(table: Table, what: str, gpus: Sequence[str] | None = None) -> tuple[Array, Array]:
    """log(predicted / measured) of rows left out, ours and the baseline's, [n]; NaN of rows not judged. Rows are judged whose series was
    measured elsewhere, as is whatever can be asked. One in five pairs is left out once, of fits as large as the one that serves: intervals
    come from these."""
    most, rounds, options = (MOST_ROWS, ROUNDS, WHOLE) if what == "pairs" else (MOST_FOLD_ROWS, FOLD_ROUNDS, OF_FOLD)
    plain, target = crude(table)
    drawn = np.random.default_rng(2).permutation(len(table))
    error, base = np.full((2, len(table)), np.nan)
    for out, gpu in _splits(table, what, gpus):
        known = np.isin(table.which, np.unique(table.which[~out]))
        fitted, judged = drawn[~out[drawn]][:most], drawn[(out & known)[drawn]][:MOST_JUDGED]
        if judged.size < 20 or fitted.size < 200:
            continue
        x, y = described(table, fit_constants(table, ~out))
        told = grow(x[fitted], y[fitted], rounds, options)
        error[judged] = _as_relatives(table, x[judged], told, gpu) - y[judged]
        base[judged] = grow(plain[fitted], target[fitted], FOLD_ROUNDS, OF_FOLD)(plain[judged]) - target[judged]
    return error, base


def _splits(table: Table, what: str, gpus: Sequence[str] | None) -> Iterable[tuple[NDArray[np.bool_], str]]:
    """Rows that are left out together [n], and the GPU's name where it is one."""
    if what == "gpus":
        names = [name for name in np.unique(table.gpu).tolist() if _bare(table, name).relatives(load_gpu(name))]
        some = names[1::2][:MOST_GPUS] if gpus is None else [name for name in names if name in gpus]  # of neighbours every other one
        yield from ((table.gpu == name, name) for name in some)
        return
    of = table.model if what == "models" else table.pair
    groups = np.random.default_rng(1).permutation(np.unique(of))
    if what == "pairs":
        yield np.isin(of, groups[::PAIR_FOLDS]), ""
    elif groups.size > 1:
        yield from ((np.isin(of, groups[i::FOLDS]), "") for i in range(MOST_FOLDS))


def _as_relatives(table: Table, x: Array, told: BushyForest, gpu: str) -> Array:
    """What the trees say, of a GPU left out with the identity of its relatives, their mean, [n]."""
    if not gpu:
        return told(x)
    own = load_gpu(gpu)
    return series.as_relatives(x, told, [identity(own, load_gpu(each)) for each in _bare(table, gpu).relatives(own)])


def figures(table: Table, error: Array, baseline: Array) -> dict[str, dict[str, float]]:
    """Mean absolute errors in percent, ours and the baseline's, median, and rows: of all, by operator and by GPU."""
    operator = np.array([each.operator for each in table.series])[table.which]
    return series.figures(error, baseline, {"": operator, "GPU": table.gpu})
