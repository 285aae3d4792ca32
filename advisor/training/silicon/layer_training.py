"""Fitting the model of whole mixture-of-experts layers (`learned.layers.layer_model`) to the tables of `ai-dynamo/aiconfigurator`; and how
well layers are predicted whose model, version of the stack, or GPU was left out: by smaller forests of fewer rows than those that serve.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import load_gpu
from advisor.learned import own_rows
from advisor.learned.forest import BushyForest
from advisor.learned.layers import layer_time
from advisor.learned.layers.layer_model import LABELS, TOKEN_BINS, LayerModel, features, token_bin
from advisor.learned.layers.moe_layer import KINDS, Layers, TunedTables, launched, without_gate
from advisor.learned.network import Mixed
from advisor.pipelines import Array, token_draws
from advisor.rows import silicon
from advisor.steps.latency import layer_bound
from advisor.system.errors import MissingDependencyError
from advisor.tables.entries import version_number
from advisor.training.grow import fit_correction
from advisor.training.silicon.layer_tables import Measured, choose_launches, held_out, of_two_defaults
from advisor.training.silicon.library_kernels import summed
from advisor.training.silicon.series import grow

PER_FILE = 12_000
"""Rows of a file that are fitted to, at most: files have up to 35,000, most of them of expert-parallel ranks."""

RANKED_SHARE = 0.35
"""Of them, rows with expert parallelism, at most."""

TREES: dict[str, Any] = {
    "objective": "huber",
    "alpha": 0.05,
    "num_leaves": 127,
    "max_depth": 12,
    "learning_rate": 0.07,
    "min_data_in_leaf": 15,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "feature_fraction": 0.4,
    "max_bin": 127,
    "seed": 0,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}
ROUNDS, FOLD_ROUNDS, ROUGH_ROUNDS = 1000, 500, 150
STEPS, FOLD_STEPS, RATE, DEPTH = 12_000, 8000, 2e-3, 4
"""Steps of the network beside the forest, of the model that serves and of those that judge it, its rate of learning, and its layers."""

FOLDS, FOLD_ROWS = 6, 150_000
FIT_ROWS, FIT_STEPS = 8000, 60
ROBUST = 0.1
"""Log error beyond which a row counts by its size, no longer by its square."""

FASTER_THAN_DEFAULT, SLOWER_THAN_DEFAULT, MANY_TOKENS, LEAST_ROWS = 0.17, 0.3, 192, 6
"""A stack, GPU and layer whose rows of many tokens are faster or slower by more than this (log, median) than the default lets them be, ran
a table that nobody has: its rows are left out. Twice as slow are vLLM 0.19's public tables for the B200 that end at small blocks
(E=256,N=256 in block-scaled fp8, E=512,N=672)."""

COMPUTED_ALL_RANKS = ("sglang", 510, ("B200", "RTX PRO 6000 S"))
"""SGLang 0.5.10 took remote experts for expert 0, but on these GPUs: rows with expert parallelism are left out."""


def read(
    folders: Iterable[Path | str],
    exclude_gpus: Sequence[str] = (),
    exclude_models: Sequence[tuple[int, int, int, int]] = (),
    per_file: int = PER_FILE,
) -> list[Measured]:
    """Layers by GPU, with the default of their stack as configuration; duplicates are merged to their median.

    Args:
        folders: In the layout of `rows.silicon`.
        exclude_gpus: Our names.
        exclude_models: (E, topk, H, inter).
        per_file: Rows of a file to take, at most.
    """
    parts: dict[str, list[tuple[Layers, Array, NDArray[np.int64]]]] = {}
    for folder in folders:
        for file in silicon.read(folder, "moe", "moe_perf"):
            if file.gpu not in exclude_gpus:
                parts.setdefault(file.gpu, []).append(_of_file(file, exclude_models, per_file))
    out = []
    for name, files in sorted(parts.items()):
        whole = {field: np.concatenate([getattr(layers, field) for layers, _, _ in files]) for field in Layers.__slots__}
        layers, latency, model = Layers(**whole), *(np.concatenate([item[i] for item in files]) for i in (1, 2))
        out.append(Measured(launch=launched(layers, load_gpu(name)), latency_us=latency, model=model))
    return out


def _of_file(
    file: silicon.SiliconFile, exclude_models: Sequence[tuple[int, int, int, int]], per_file: int
) -> tuple[Layers, Array, NDArray[np.int64]]:
    c = file.columns
    sizes = np.stack([c[name].astype(np.int64) for name in ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts")])
    tokens, hidden, inter, topk, experts = sizes
    ranks, split = c["moe_ep_size"].astype(np.int64), c["moe_tp_size"].astype(np.int64)
    names = np.unique(c["distribution"].astype(str))
    routing = np.select(
        [c["distribution"].astype(str) == name for name in names], [token_draws.exponent(name) for name in names], token_draws.RANDOM
    )
    theirs = ["bfloat16", *KINDS[1:]]
    kind = np.select([c["moe_dtype"].astype(str) == name for name in theirs], range(len(theirs)), -1)
    keys = np.stack([*sizes, ranks, split, (routing * 100).astype(np.int64), kind])
    unique, first, back = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(back.reshape(-1), kind="stable")
    groups = np.split(file.latency_us[order], np.searchsorted(back.reshape(-1)[order], np.arange(1, unique.shape[1])))
    latency = np.array([np.median(group) for group in groups])
    sglang, version = file.stack == "sglang", version_number(file.version)
    model = ((hidden * 100_003 + inter) * 1009 + topk) * 4099 + experts
    excluded = [(m[2] * 100_003 + m[3]) * 1009 * 4099 + m[1] * 4099 + m[0] for m in exclude_models]
    stack, broken, sound = COMPUTED_ALL_RANKS
    keep = (kind[first] >= 0) & ~np.isin(model[first], excluded)
    if (file.stack, version) == (stack, broken) and file.gpu not in sound:
        keep &= ranks[first] == 1
    chosen = _sample(np.flatnonzero(keep), ranks[first] == 1, per_file)
    rows = first[chosen]
    n = rows.size
    layers = Layers(
        tokens=tokens[rows].astype(float),
        experts=experts[rows].astype(float),
        topk=topk[rows].astype(float),
        hidden=hidden[rows].astype(float),
        inner=(inter // split)[rows].astype(float),
        ranks=ranks[rows].astype(float),
        kind=kind[rows],
        sglang=np.full(n, sglang),
        version=np.full(n, float(version)),
        ungated=without_gate(hidden[rows], topk[rows], np.full(n, sglang), np.full(n, version)),
        routing=routing[rows],
    )
    return layers, latency[chosen], model[rows]


def _sample(rows: NDArray[np.int64], alone: NDArray[np.bool_], most: int) -> NDArray[np.int64]:
    """Rows to take: of those with expert parallelism a share."""
    random = np.random.default_rng(0)
    ranked = rows[~alone[rows]]
    ranked = random.permutation(ranked)[: int(most * RANKED_SHARE)]
    alone_rows = random.permutation(rows[alone[rows]])[: most - ranked.size]
    return np.sort(np.concatenate([alone_rows, ranked]))


def fit_time(parts: Sequence[Measured], steps: int = FIT_STEPS, begin: Array | None = None) -> Array:
    """Constants of `layer_time`, as logarithms: robust least squares (soft L1) on a sample of the rows."""
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise MissingDependencyError("training needs scipy", remedy="pip install 'triton-advisor[train]'") from None
    random = np.random.default_rng(0)
    total = sum(part.latency_us.size for part in parts)
    some = []
    for part in parts:
        n = part.latency_us.size
        some.append(part.take(np.sort(random.permutation(n)[: max(1, round(n * min(1.0, FIT_ROWS / total)))])))
    some = [part for part in some if part.latency_us.size]
    weight = 10 / np.sqrt(sum(part.latency_us.size for part in some))
    origin = layer_time.start()

    def errors(x: Array) -> Array:
        residuals = [np.log(layer_time.layer_time(part.launch, x).total / part.latency_us) * weight for part in some]
        return np.concatenate([*residuals, layer_time.FIRMNESS * (x - origin)])

    def slopes(x: Array) -> Array:
        return np.concatenate([*(layer_time.gradient(part.launch, x) * weight for part in some), np.diag(layer_time.FIRMNESS)])

    begin = origin if begin is None else begin
    return least_squares(errors, begin, jac=slopes, loss="soft_l1", f_scale=ROBUST * weight, max_nfev=steps).x


def table(parts: Sequence[Measured], constants: Array) -> tuple[Array, Array]:
    """Features [n, f] and the log of latency to `layer_time` [n], of all parts."""
    x, y = [], []
    for part in parts:
        time = layer_time.layer_time(part.launch, constants)
        x.append(features(part.launch, time))
        y.append(np.log(part.latency_us / time.total))
    return np.concatenate(x), np.concatenate(y)


def fit(parts: Sequence[Measured], tuned: TunedTables, progress: Callable[[str], None] = lambda text: None) -> LayerModel:
    """The model of measured layers."""
    alone = [part.take(np.flatnonzero((part.launch.layers.ranks == 1) & ~tuned.covers(part.launch))) for part in parts]
    constants = fit_time(alone)
    progress(f"layers: constants of {len(layer_time.NAMES)} from {sum(part.latency_us.size for part in alone)} rows")
    parts, ran = choose_launches(parts, tuned, constants)
    progress(f"layers: {sum(part.latency_us.size for part in parts)} rows, {sum(item.tuned for item in ran)} tables that ran")
    hidden = np.concatenate(
        [hidden_tables(part, e) for part, e in zip(parts, errors_of_models(parts, constants, ROUGH_ROUNDS, 0), strict=True)]
    )
    progress(f"layers: {int(hidden.sum())} rows ran tables that nobody has, and are left out")
    known = without(parts, hidden)
    constants = fit_time([part.take(np.flatnonzero(part.launch.layers.ranks == 1)) for part in known], begin=constants)
    errors = errors_of_models(known, constants, FOLD_ROUNDS, FOLD_STEPS)
    strange = _errors_of_gpus(known)
    x, y = table(known, constants)
    physics = np.split(-y, np.cumsum([len(part) for part in known])[:-1])
    single = [np.flatnonzero(part.launch.layers.ranks == 1) for part in known]
    one_rank = [part.take(rows) for part, rows in zip(known, single, strict=True)]
    errors, strange, physics = ([e[rows] for e, rows in zip(of, single, strict=True)] for of in (errors, strange, physics))
    figures = held_out(one_rank, errors, strange, physics)
    progress(f"layers: errors in percent of what was left out: {json.dumps(figures)}")
    correction = corrected(x, y, ROUNDS, STEPS)
    versions: dict[str, list[list[float]]] = {}
    for part in known:
        pairs = np.unique(np.stack([part.launch.layers.sglang, part.launch.layers.version]), axis=1).T
        versions[part.launch.gpu.name] = pairs.tolist()
    return LayerModel(
        constants=constants,
        correction=correction,
        quantiles=_quantiles(one_rank, errors, strange),
        ran=ran,
        versions=versions,
        held_out=figures,
    )


def without(parts: Sequence[Measured], left_out: NDArray[np.bool_]) -> list[Measured]:
    ends = np.cumsum([part.latency_us.size for part in parts])[:-1]
    return [part.take(np.flatnonzero(~mine)) for part, mine in zip(parts, np.split(left_out, ends), strict=True)]


def corrected(x: Array, y: Array, rounds: int, steps: int) -> BushyForest | Mixed:
    """A forest of so many trees, and its mean with a network that was fitted in so many steps; with none, the forest alone.

    Models left out, one rank: 5.4 % by the forest, 4.8 % by the mean (`ceilings/ATTEMPTS.md`).
    """
    forest = grow(x, y, rounds, TREES)
    return Mixed(forest=forest, network=fit_correction(x, y, LABELS, steps, RATE, depth=DEPTH), apart=0) if steps else forest


def errors_of_models(parts: Sequence[Measured], constants: Array, rounds: int, steps: int) -> list[Array]:
    """Log of predicted to measured of every row by models that have not seen its model, by part."""
    x, y = table(parts, constants)
    model = np.concatenate([part.model for part in parts])
    which = np.searchsorted(np.unique(model), model) % FOLDS
    errors, random = np.zeros(y.size), np.random.default_rng(0)
    for fold in range(FOLDS):
        rows = random.permutation(np.flatnonzero(which != fold))[:FOLD_ROWS]
        if rows.size and (which == fold).any():
            errors[which == fold] = corrected(x[rows], y[rows], rounds, steps)(x[which == fold]) - y[which == fold]
    return np.split(errors, np.cumsum([part.latency_us.size for part in parts])[:-1])


def _errors_of_gpus(parts: Sequence[Measured]) -> list[Array]:
    """The same of every row by a model that has not seen its GPU."""
    out = []
    for i, part in enumerate(parts):
        others = [other for j, other in enumerate(parts) if j != i]
        if not others:
            return [np.zeros(part.latency_us.size)]
        constants = fit_time([other.take(np.flatnonzero(other.launch.layers.ranks == 1)) for other in others], steps=25)
        x, y = table(others, constants)
        rows = np.random.default_rng(0).permutation(y.size)[:FOLD_ROWS]
        mine, truth = table([part], constants)
        errors = grow(x[rows], y[rows], FOLD_ROUNDS, TREES)(mine) - truth
        out.append(errors)
    return out


def hidden_tables(part: Measured, errors: Array) -> NDArray[np.bool_]:
    """Rows of groups (`FASTER_THAN_DEFAULT`) that ran a table nobody has; `errors`: log of predicted to measured, [n]."""
    layers = part.launch.layers
    key = np.stack([layers.sglang, layers.version, layers.experts / layers.ranks, layers.inner, layers.kind])
    _, group = np.unique(key, axis=1, return_inverse=True)
    group = group.reshape(-1)
    out = np.zeros(errors.size, dtype=bool)
    for item in np.unique(group[(layers.inner % 16 == 0) & (layers.ranks == 1)]):
        rows = group == item
        many = rows & (layers.tokens >= MANY_TOKENS) & (layers.ranks == 1)
        if many.sum() >= LEAST_ROWS and not -SLOWER_THAN_DEFAULT <= np.median(errors[many]) <= FASTER_THAN_DEFAULT:
            out |= rows
    return out


def _quantiles(parts: Sequence[Measured], seen: Sequence[Array], strange: Sequence[Array]) -> Array:
    """Where the middle four of five errors lie, as logs of measured to predicted: of seen GPUs, then of each that was left out.

    [1 + GPUs, token bins, kinds, 2], of layers on one rank. Of GPUs left out the two are as far from zero: which way another one errs is
    not known.
    """
    bins = [token_bin(part.launch.layers.tokens) for part in parts]
    kinds = [part.launch.layers.kind for part in parts]
    out = [_by_bin(-np.concatenate(seen), np.concatenate(bins), np.concatenate(kinds), (0.1, 0.9))]
    for item, mine, kind in zip(strange, bins, kinds, strict=True):
        out.append(_by_bin(np.abs(item), mine, kind, (0.8, 0.8)) * [-1.0, 1.0])
    return np.stack(out)


def _by_bin(errors: Array, bins: NDArray[np.int64], kinds: NDArray[np.int64], at: tuple[float, float]) -> Array:
    """Quantiles of errors [token bins, kinds, 2]; of kinds with few rows those of all."""
    out = np.zeros((len(TOKEN_BINS) + 1, len(KINDS), 2))
    for i, k in np.ndindex(*out.shape[:2]):
        rows = (bins == i) & (kinds == k)
        rows = rows if rows.sum() >= 100 else bins == i
        out[i, k] = np.quantile(errors[rows] if rows.any() else errors, at)
    return out


def train(
    folders: Iterable[Path | str],
    exclude_gpus: Sequence[str] = (),
    exclude_models: Sequence[tuple[int, int, int, int]] = (),
    tables: Iterable[Path | str] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, NDArray[Any]]:
    """Arrays of `Weights.silicon` for layers; none where the folders hold no layers.

    Args:
        folders: In the layout of `rows.silicon`.
        exclude_gpus: Our names of GPUs to leave out.
        exclude_models: (E, topk, H, inter) to leave out.
        tables: Folders of tuned tables as the stacks ship them: what ran in place of a default is looked for in them.
        progress: Told what is being done.
    """
    parts = read(folders, exclude_gpus, exclude_models)
    return fit(parts, TunedTables(tables), progress).arrays() if parts else {}


JUDGED_PER_FILE, JUDGED_TIME_STEPS, JUDGED_ROUNDS, JUDGED_STEPS = 4000, 25, 300, 3000
NEWEST = ((False, 2400), (True, 514))
"""Whether it is SGLang's, and the version that is left out."""


def judge(
    folders: Iterable[Path | str],
    tables: Iterable[Path | str],
    gpus: Sequence[str] | None = None,
    leave_out: Sequence[str] = ("model", "gpu", "version"),
    progress: Callable[[str], None] = lambda text: None,
    given: Sequence[int] = (),
) -> dict[str, Any]:
    """Figures by split: "layers: models left out", "layers: no H200", "layers: no H200, 50 rows given", "layers: no vLLM 2400".

    Args:
        folders: In the layout of `rows.silicon`.
        tables: Folders of tuned tables: what ran in place of a default is looked for in them.
        gpus: Names of the GPUs to leave out one by one; None: all.
        leave_out: Which splits.
        progress: Told what is being done.
        given: Of a GPU left out, how many rows the model is corrected by before the rest is judged.
    """
    parts = read(folders, per_file=JUDGED_PER_FILE) if {"model", "gpu", "version"} & set(leave_out) else []
    if not parts:
        return {}
    progress(f"layers: {sum(len(part) for part in parts)} rows")
    constants = fit_time([_alone(part) for part in parts], steps=JUDGED_TIME_STEPS)
    parts, _ = choose_launches(parts, TunedTables(tables), constants)
    rough = errors_of_models(parts, constants, ROUGH_ROUNDS, 0)
    parts = without(parts, np.concatenate([hidden_tables(part, error) for part, error in zip(parts, rough, strict=True)]))
    out: dict[str, Any] = {}
    if "model" in leave_out:
        errors = errors_of_models(parts, constants, JUDGED_ROUNDS, JUDGED_STEPS)
        out["layers: models left out"] = _figures(parts, errors) | of_two_defaults(parts, errors)
    for sglang, version in NEWEST if "version" in leave_out else ():
        newest = [(part.launch.layers.sglang == sglang) & (part.launch.layers.version == version) for part in parts]
        kept, gone = (
            [part.take(np.flatnonzero(mine == which)) for part, mine in zip(parts, newest, strict=True)] for which in (False, True)
        )
        gone = [part for part in gone if len(part)]
        name = f"no {'SGLang' if sglang else 'vLLM'} 0.{version // 100 if not sglang else f'5.{version % 100}'}"
        progress(f"layers: {name}")
        out[f"layers: {name}"] = _figures(gone, [error for _, error in _of_others(kept, gone, constants, JUDGED_STEPS)])
    for part in parts if "gpu" in leave_out else ():
        name = part.launch.gpu.name
        others = [other for other in parts if other is not part]
        if not others or (gpus is not None and name not in gpus):
            continue
        progress(f"layers: no {name}")
        ((matrix, error),) = _of_others(others, [part], fit_time([_alone(other) for other in others], steps=JUDGED_TIME_STEPS), 0)
        out[f"layers: no {name}"] = _figures([part], [error])
        out |= {f"layers: no {name}, {count} rows given": _given(part, matrix, error, count) for count in given}
    return out


def _alone(part: Measured) -> Measured:
    return part.take(np.flatnonzero(part.launch.layers.ranks == 1))


def _of_others(others: Sequence[Measured], parts: Sequence[Measured], constants: Array, steps: int) -> list[tuple[Array, Array]]:
    """By part: features, and log(predicted / measured), by a model of others, whose network takes so many steps."""
    correction = corrected(*table(others, constants), JUDGED_ROUNDS, steps)
    tables = [table([part], constants) for part in parts]
    return [(matrix, correction(matrix) - truth) for matrix, truth in tables]


def _given(part: Measured, matrix: Array, error: Array, count: int) -> dict[str, Any]:
    """Figures of the rows that are left, where `count` of each kind are given."""
    figures = {}
    for kind in np.unique(part.launch.layers.kind).tolist():
        rows = np.random.default_rng(0).permutation(np.flatnonzero(part.launch.layers.kind == kind))
        known, rest = rows[:count], rows[count:]
        if not rest.size:
            continue
        corrections = own_rows.of_rows(matrix[known].astype(np.float64), -error[known])
        measured = part.latency_us[rest]
        us = measured * np.exp(error[rest])
        us, low, high = corrections.corrected(matrix[rest].astype(np.float64), us, us, us)
        figures[f"layer {KINDS[kind]}"] = _split(part.take(rest), np.log(us / measured), (low <= measured) & (measured <= high))
    return figures


def _figures(parts: Sequence[Measured], errors: Sequence[Array]) -> dict[str, Any]:
    """By kind of layer; `errors`: log(predicted / measured) of each part."""
    out = {}
    for kind, name in enumerate(KINDS):
        rows = [np.flatnonzero(part.launch.layers.kind == kind) for part in parts]
        some = [(part.take(mine), error[mine]) for part, error, mine in zip(parts, errors, rows, strict=True) if mine.size]
        if some:
            figures = [_split(part, error, None) for part, error in some]
            whole = _summary([part for part, _ in some], np.concatenate([error for _, error in some]), None)
            by_gpu = {part.launch.gpu.name: item for (part, _), item in zip(some, figures, strict=True)}
            out[f"layer {name}"] = whole | {"per_gpu": by_gpu} | ({} if len(figures) > 1 else {"per_ranks": figures[0]["per_ranks"]})
    return out


def _split(part: Measured, error: Array, held: NDArray[np.bool_] | None) -> dict[str, Any]:
    layers = part.launch.layers
    groups: Mapping[str, NDArray[np.bool_]] = {"one rank": layers.ranks == 1, "expert parallel": layers.ranks > 1}
    return _summary([part], error, held) | {
        "per_ranks": {
            name: _summary([part.take(np.flatnonzero(rows))], error[rows], None if held is None else held[rows])
            for name, rows in groups.items()
            if rows.any()
        }
    }


def _summary(parts: Sequence[Measured], error: Array, held: NDArray[np.bool_] | None) -> dict[str, Any]:
    below = np.concatenate([part.latency_us < layer_bound(part.launch, np.zeros(len(part), dtype=bool)).us for part in parts])
    return summed(error, held, below)
