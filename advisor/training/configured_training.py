"""Fit what is learned of configured launches, and judge it on problems and GPUs left out."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor import pipelines
from advisor.gpus.hardware import load_gpu
from advisor.learned.analytical import LIKELY, NOTICED, configured_us
from advisor.learned.configured.features import LABELS, NONE, ROW_BY_ROW, features
from advisor.learned.configured.model import (
    ALL,
    DEMANDED,
    LEVELS,
    PARTS,
    SEEN,
    UNSEEN,
    ConfiguredModel,
    OtherKernels,
    kind_of,
    log_latency,
    middle,
    unsure,
)
from advisor.learned.forest import BushyForest, flatten
from advisor.learned.network import Network
from advisor.measurement.kernel_file import find_kernels
from advisor.measurement.launch import problem_key
from advisor.measurement.measured_rows import read_measured
from advisor.measurement.plan import campaign_space
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch
from advisor.result.schema import Configuration
from advisor.system.errors import MissingDependencyError
from advisor.system.processes import end_with_parent
from advisor.system.resources import folder
from advisor.training import data, dejavu
from advisor.training.data import Measured
from advisor.training.grow import fit_correction

OPTIONS: dict[str, Any] = {
    "objective": "regression",
    "num_leaves": 63,
    "max_depth": 12,
    "learning_rate": 0.09,
    "min_data_in_leaf": 10,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "feature_fraction": 0.6,
    "max_bin": 255,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 1,
    "verbose": -1,
}
"""On one thread sums come out the same to the bit."""

TREES = 480
WIDTHS, DEPTH = (128, 256), 4
"""Of the networks."""

STEPS, BATCH = 12_000, 768
"""Of each network, and how many rows a step sees."""

FOLDS, PROCESSES = 5, 2
"""Of problems; and how many fits run at once."""

OWN_WEIGHT, OWN_SHARE = 30.0, 0.45
"""Rows that were measured with today's Triton are few: how much each counts for the trees, and their share of what networks see."""

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Launches:
    """Launches in columns [n]: features, log base and log latency, problem, kind, GPU, family, and whether they are of today's Triton."""

    features: Array
    base: Array
    log_us: Array
    physics: Array  # log of the analytical latency
    problem: NDArray[np.str_]
    fold: NDArray[np.int64]
    kind: NDArray[np.str_]
    gpu: NDArray[np.str_]
    family: NDArray[np.str_]
    of_today: NDArray[np.bool_]
    start: NDArray[np.bool_]  # the configuration that runs untuned, where it is known

    def take(self, index: NDArray) -> Launches:
        return Launches(**{name: getattr(self, name)[index] for name in self.__dataclass_fields__})

    def over_best(self) -> Array:
        """Latency over the least of the problem."""
        _, of = np.unique(self.problem, return_inverse=True)
        best = np.full(of.max() + 1, np.inf)
        np.minimum.at(best, of, self.log_us)
        return np.exp(self.log_us - best[of])


def own_measurements() -> Path:
    """The folder of the rows measured for this project, which come with it."""
    return folder("ceilings") / "measurements"


def fit(
    paths: Iterable[Path | str],
    exclude_gpus: Sequence[str] = (),
    exclude_models: Sequence[data.Model] = (),
    progress: Progress = lambda text: None,
) -> ConfiguredModel | None:
    """The model of configured launches, from this project's own measurements and the sweeps named; None where no row is left.

    Args:
        paths: Folders with `dejavu`'s files (`dejavu.is_layout`); none: the project's own rows alone.
        exclude_gpus: Names of GPUs to leave out entirely.
        exclude_models: Mixture-of-experts models to leave out entirely.
        progress: Told what is being done.
    """
    rows = read_launches(paths, exclude_gpus, exclude_models)
    if rows is None:
        return None
    errors: dict[tuple[str, str], Array] = {}
    margins: dict[tuple[str, str], Array] = {}
    record: dict[str, Any] = {}
    folds = [rows.fold % FOLDS == fold for fold in range(FOLDS)]
    swept = [name for name in np.unique(rows.gpu[~rows.of_today]).tolist() if (rows.gpu == name).mean() < 1]
    gpus = [rows.gpu == name for name in swept] if len(swept) > 1 else []
    parts = _left_out(rows, [(~out, out) for out in folds] + [(~out, out & ~rows.of_today) for out in gpus], progress)
    _judge(rows, np.fmax.reduce(parts[:FOLDS]), SEEN, errors, margins, record)
    if gpus:
        predicted = np.fmax.reduce(parts[FOLDS:])
        some = np.flatnonzero(np.isfinite(predicted[0]))
        _judge(rows.take(some), predicted[:, some], UNSEEN, errors, margins, record)
    else:
        errors[ALL, UNSEEN], margins[ALL, UNSEEN] = (3 * error[ALL, SEEN] for error in (errors, margins))
    progress(f"configured launches: {rows.base.size} rows")
    return ConfiguredModel(
        forest=_forest(rows, TREES),
        networks=_networks(rows),
        errors=errors,
        margins=margins,
        gpus={family: sorted(np.unique(rows.gpu[rows.family == family]).tolist()) for family in np.unique(rows.family).tolist()},
        record=record,
        others=fit_others(rows),
    )


def read_launches(paths: Iterable[Path | str], exclude_gpus: Sequence[str], exclude_models: Sequence[data.Model]) -> Launches | None:
    models = {tuple(model) for model in exclude_models}
    parts = [(part, True) for part in data.read([own_measurements()]) if part.configuration is not None]
    untuned = {path.name: _untuned(path) for path in data.files([own_measurements()])}
    parts += [(part, False) for path in paths for part in dejavu.read(path)]
    if models:
        kept = (np.array([model not in models for model in part.models()] or [True] * len(part)) for part, _ in parts)
        parts = [(part.take(which), of_today) for (part, of_today), which in zip(parts, list(kept), strict=True)]
    columns = [
        _columns(part, untuned.get(part.source) if of_today else None)
        for part, of_today in parts
        if part.gpu.name not in exclude_gpus and len(part)
    ]
    if not columns:
        return None
    return Launches(**{name: np.concatenate([getattr(column, name) for column in columns]) for name in columns[0].__dataclass_fields__})


def _untuned(path: Path) -> NDArray[np.bool_]:
    """Which rows of a file that `advisor measure` wrote have the configuration that runs where nothing is tuned, [rows]."""
    first: dict[tuple[str, str], Configuration] = {}
    out = []
    for row in read_measured(path):
        key = (row.kernel, problem_key(row.problem))
        if key not in first:
            first[key] = next(campaign_space(find_kernels(row.kernel)[0], row.problem, load_gpu(row.gpu)))
        out.append(row.configuration == first[key])
    return np.array(out, dtype=bool)


def _columns(part: Measured, untuned: NDArray[np.bool_] | None) -> Launches:
    """The part's rows; `untuned` [rows of the file]: those that run untuned; None of rows that others measured, with an older Triton."""
    of_today = untuned is not None
    problem, configuration, n = part.problem, part.configuration, len(part)
    assert configuration is not None
    with np.errstate(divide="ignore", invalid="ignore"):  # no warps at all
        demand = pipelines.demand(problem, configuration, part.gpu)
        base, matrix = features(problem, configuration, part.gpu, demand)
        physics = configured_us(demand, part.gpu, problem.cache)
    bound = pipelines.config_bound(pipelines.work(problem, part.gpu), demand, part.gpu, problem.cache).us
    names = problem_names(problem, configuration, n)
    fold = np.array([zlib.crc32(name.removesuffix(COLD).encode()) // 4 for name in names])  # with its warm twin, which tells of it
    gpu = np.full(n, part.gpu.name)
    problems = np.char.add(np.char.add(gpu, " own " if of_today else " "), names)
    start = np.zeros(n, dtype=bool) if untuned is None or part.rows is None else untuned[part.rows]
    fine = np.isfinite(part.latency_us) & (part.latency_us >= bound) & np.isfinite(base) & np.isfinite(matrix[:, 0])
    return Launches(
        features=matrix.astype(np.float32),
        base=base,
        log_us=np.log(np.where(fine, part.latency_us, 1.0)),
        physics=np.log(np.broadcast_to(physics, n)),
        problem=problems,
        fold=fold,
        kind=np.full(n, kind_of(problem)),
        gpu=gpu,
        family=np.full(n, problem.family),
        of_today=np.full(n, of_today),
        start=start,
    ).take(fine)


def problem_names(problem: ProblemBatch, configuration: ConfigurationBatch, n: int) -> list[str]:
    """What tells problems of one GPU and state of the cache apart, [n]."""
    sizes = [np.broadcast_to(values, n).astype(np.int64).tolist() for values in problem.sizes.values()]
    loads = [""] * n
    if problem.expert_rows is not None and problem.expert_count is not None:
        rows, count = (np.broadcast_to(np.atleast_2d(item), (n, np.shape(item)[-1])) for item in problem.routing)
        loads = [
            str(zlib.crc32(a.tobytes() + b.tobytes())) for a, b in zip(np.ascontiguousarray(rows), np.ascontiguousarray(count), strict=True)
        ]
    whose = "persistent " if "FLATTEN" in configuration.parameters else ""
    blocks = " in blocks" if problem.block_shape else ""
    head = f"{problem.family} {problem.op} {whose}{problem.dtype}{blocks} "
    cold = COLD if problem.cache == "cold" else ""
    return [head + " ".join(map(str, size)) + load + cold for size, load in zip(zip(*sizes, strict=True), loads, strict=True)]


COLD = " cold"


def row_weights(rows: Launches) -> Array:
    """How much rows count, [n]: those near the best of their problem most, for of those the first is picked."""
    return 0.2 + rows.over_best() ** -1.5


def _networks(rows: Launches) -> list[Network]:
    odds = row_weights(rows)
    if rows.of_today.any() and not rows.of_today.all():
        odds = odds * np.where(rows.of_today, OWN_SHARE / odds[rows.of_today].sum(), (1 - OWN_SHARE) / odds[~rows.of_today].sum())
    target = rows.log_us - rows.base
    fixed: dict[str, Any] = {"batch": BATCH, "odds": odds, "nothing": NONE, "depth": DEPTH}
    return [fit_correction(rows.features, target, LABELS, STEPS, width=width, seed=seed, **fixed) for seed, width in enumerate(WIDTHS)]


def _forest(rows: Launches, trees: int) -> BushyForest:
    weights = row_weights(rows) * np.where(rows.of_today, OWN_WEIGHT, 1.0)
    return _grown(rows.features, rows.log_us - rows.base, weights, OPTIONS, trees)


def _grown(features: Array, target: Array, weights: Array, options: Mapping[str, Any], trees: int) -> BushyForest:
    try:
        import lightgbm
    except (ImportError, OSError):  # its wheel leaves OpenMP to the system
        remedy = "pip install 'triton-advisor[train]', and on Linux the system's libgomp (apt-get install libgomp1)"
        raise MissingDependencyError("training needs LightGBM", remedy=remedy) from None
    learned = lightgbm.Dataset(features, target, weight=weights, params={"verbose": -1, "max_bin": 255})
    grown = lightgbm.train({**options, "boost_from_average": True}, learned, trees).dump_model()["tree_info"]
    return flatten(grown, features.shape[1])


KERNELS = {
    "prefill": ["prefill"],
    "decode": ["decode"],
    "norms": ["layer_norm", "rms_norm"],
    "softmax": ["softmax"],
    "silu": ["elementwise"],
}
"""Kernels that are left out whole, and the kinds of their launches."""

FEW_LEAVES = OPTIONS | {"num_leaves": 7, "learning_rate": 0.06, "min_data_in_leaf": 30, "feature_fraction": 0.5}
FEW_TREES = 100
"""Of launches of other kernels, of each kind alike: larger ones learn the kernels."""


def fit_others(rows: Launches) -> OtherKernels | None:
    """What the launches of this project's own measurements have in common, whatever their kernel, with the errors on kernels left out; None
    where a kernel is missing."""
    rows = rows.take(np.flatnonzero(rows.of_today))
    if not all(np.isin(kinds, rows.kind).any() for kinds in KERNELS.values()):
        return None
    errors = np.concatenate([judged.log_us - predicted for _, judged, predicted in kernels_left_out(rows)])
    return OtherKernels(forests=_common(rows), errors=np.quantile(errors, (0.1, 0.9)))


def kernels_left_out(rows: Launches) -> Iterator[tuple[str, Launches, Array]]:
    """Each kernel, its launches, and the logs of their latencies as launches of all other kernels tell them."""
    for kernel, kinds in KERNELS.items():
        out = np.isin(rows.kind, kinds)
        judged = rows.take(np.flatnonzero(out))
        others = OtherKernels(forests=_common(rows.take(np.flatnonzero(~out))), errors=np.zeros(2))
        products = bool(_with_products(judged)[0])
        yield kernel, judged, others.log_us(judged.physics, judged.base, judged.features, products)


def _with_products(rows: Launches) -> NDArray[np.bool_]:
    return ~np.isin(rows.family, ROW_BY_ROW)


def _common(rows: Launches) -> dict[str, BushyForest]:
    """log(latency / `middle`) by the features that all kernels share, of launches without products and of those with them."""
    out = {}
    for name, mine in zip(PARTS, (~_with_products(rows), _with_products(rows)), strict=True):
        some = rows.take(np.flatnonzero(mine))
        _, kinds, counts = np.unique(some.kind, return_inverse=True, return_counts=True)
        weights = row_weights(some) / counts[kinds]
        out[name] = _grown(some.features[:, DEMANDED], some.log_us - middle(some.physics, some.base), weights, FEW_LEAVES, FEW_TREES)
    return out


def _left_out(rows: Launches, splits: Sequence[tuple[NDArray[np.bool_], NDArray[np.bool_]]], progress: Progress) -> list[Array]:
    """For each split, which rows are learned and which are left out [n] each: log(latency / longest pipeline) of those left out, by the
    forest and by the networks, [2, n]; nan for the others. Fits run in processes of their own."""
    done: dict[int, Array] = {}
    processes = min(PROCESSES, os.cpu_count() or 1)
    with ProcessPoolExecutor(processes, get_context("spawn"), _take_rows, (rows,)) as pool:
        jobs = {pool.submit(_predicted, known, judged): number for number, (known, judged) in enumerate(splits)}
        for job in as_completed(jobs):
            done[jobs[job]] = job.result()
            progress(f"configured launches: {len(done)} of {len(splits)} parts left out and predicted")
    return [done[number] for number in range(len(splits))]


def _take_rows(rows: Launches) -> None:
    """Begin a process that fits to some of these rows at a time."""
    global _rows
    end_with_parent()
    _rows = rows


_rows: Launches | None = None


def _predicted(known: NDArray[np.bool_], judged: NDArray[np.bool_]) -> Array:
    """One split of `_left_out`, [2, n]."""
    assert _rows is not None
    some = _rows.take(np.flatnonzero(known))
    learned = ConfiguredModel(forest=_forest(some, TREES), networks=_networks(some), errors={}, margins={}, gpus={})
    out = np.full((2, judged.size), np.nan)
    out[:, judged] = learned.opinions(_rows.features[judged])
    return out


LEAST_PROBLEMS = 12
"""Of a kind whose gains are told apart from those of all kinds."""

A_LOSS = -10.0
"""Counted once beside the gains of a kind, measured less promised, over how unsure they are: few problems prove little."""

FARTHEST = 40.0
"""As far as errors are kept, over how unsure they were."""


def _judge(
    rows: Launches,
    predicted: Array,
    seen: str,
    errors: dict[tuple[str, str], Array],
    margins: dict[tuple[str, str], Array],
    record: dict[str, Any],
) -> None:
    """Fill in the errors of rows left out, what first picks won, and the distributions of both; `predicted` [2, rows] by both parts of the
    model."""
    forest, networks = predicted
    doubt, predicted = unsure(forest, networks), log_latency(rows.base, rows.features, forest, networks, seen)
    error = rows.log_us - predicted
    for kind in [ALL, *np.unique(rows.kind).tolist()]:
        mine = rows.kind == kind if kind != ALL else rows.of_today | (not rows.of_today.any())
        errors[kind, seen] = _spread(error[mine] / doubt[mine])
        picks = first_picks(rows.take(mine), predicted[mine], doubt[mine])
        held = np.zeros(error.size, dtype=bool)
        if seen == UNSEEN:
            held[mine] = _held(error[mine] / doubt[mine], rows.gpu[mine])
        if len(picks) >= LEAST_PROBLEMS or kind == ALL:
            margins[kind, seen] = _margins(picks)
        if kind != ALL:
            for gpu in sorted({gpu for gpu, *_ in picks}):
                of_gpu = [pick[1:] for pick in picks if pick[0] == gpu]
                here = mine & (rows.gpu == gpu)
                if seen == SEEN:
                    held[here] = _held(error[here] / doubt[here], rows.fold[here] % FOLDS)
                    errors[f"{kind} {gpu}", seen] = _spread(error[here] / doubt[here])
                    if len(of_gpu) >= LEAST_PROBLEMS:
                        margins[f"{kind} {gpu}", seen] = _margins([pick for pick in picks if pick[0] == gpu])
                known = (margins[item, seen] for item in (f"{kind} {gpu}", kind, ALL) if (item, seen) in margins)
                record[f"{kind}, {gpu}, {'problems' if seen == SEEN else 'GPU'} left out"] = _won(of_gpu, next(known)) | {
                    "mape_percent": float(100 * np.abs(np.expm1(-error[here])).mean()),
                    "interval_holds_percent": float(100 * held[here].mean()),
                    "rows": int(here.sum()),
                }


def _held(values: Array, group: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values lie between the first and the last tenth of those of the other groups, [n]."""
    out = np.zeros(values.size, dtype=bool)
    for name in np.unique(group):
        mine = group == name
        if not mine.all():
            low, high = np.quantile(values[~mine], (0.1, 0.9))
            out[mine] = (values[mine] >= low) & (values[mine] <= high)
    return out


def _margins(picks: Sequence[tuple[str, float, float, float, float]]) -> Array:
    """The distribution of the gains of `first_picks`, measured less promised, over how unsure they were."""
    return _spread(np.array([A_LOSS, *((won - promised) / doubt for _, promised, won, _, doubt in picks)]))


def _spread(values: Array) -> Array:
    """The distribution at `LEVELS`, ascending."""
    quantiles = np.clip(np.quantile(values, LEVELS), -FARTHEST, FARTHEST)
    return np.asarray(np.maximum.accumulate(quantiles + np.arange(LEVELS.size) * 1e-6))


def first_picks(rows: Launches, predicted: Array, doubt: Array) -> list[tuple[str, float, float, float, float]]:
    """For every problem of six configurations and more: GPU, log gain of the first pick over the configuration that runs untuned (of sweeps
    that name none: the one at a tenth of their order) as promised and as measured, log of its latency over the best, and how unsure the
    promise is."""
    order = np.argsort(rows.problem, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(np.unique(rows.problem[order], return_inverse=True)[1])) + 1)
    out = []
    for group in groups:
        if group.size < 6:
            continue
        first = group[np.argmin(predicted[group])]
        untuned = group[rows.start[group]]
        ranked = group[np.argsort(rows.log_us[group], kind="stable")]
        start = untuned[0] if untuned.size else ranked[ranked.size // 10]
        if start == first:
            won = promised = 0.0
        else:
            promised, won = predicted[start] - predicted[first], rows.log_us[start] - rows.log_us[first]
        over = rows.log_us[first] - rows.log_us[group].min()
        out.append((str(rows.gpu[first]), float(promised), float(won), float(over), float(np.hypot(doubt[first], doubt[start]))))
    return out


def _won(picks: Sequence[tuple[float, float, float, float]], margin: Array) -> dict[str, Any]:
    """What first picks won, and those of them that would be recommended."""
    promised, won, over, doubt = (np.array([pick[i] for pick in picks]) for i in range(4))
    made = (1 - np.interp((np.log(NOTICED) - promised) / doubt, margin, LEVELS) >= LIKELY) & (promised > 0)
    out: dict[str, Any] = {
        "problems": len(picks),
        "first_over_best": float(np.exp(over.mean())),
        "worst_over_best": float(np.exp(over.max())),
    }
    if made.any():
        out |= {
            "recommended": int(made.sum()),
            "won": float((won[made] > 0).mean()),
            "gain": float(np.exp(won[made].mean())),
            "worst": float(np.exp(won[made].min())),
        }
    return out
