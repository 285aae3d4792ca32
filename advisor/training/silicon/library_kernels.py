"""How well library kernels are predicted whose shapes, or whose GPU, were left out.

Fitting the models of measured library kernels (`learned.library.kernels`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor import pipelines
from advisor.gpus.hardware import load_gpu
from advisor.learned import calibration, own_predictor, own_rows
from advisor.learned.calibration import Calibration
from advisor.learned.forest import BushyForest
from advisor.learned.library import kernels
from advisor.learned.library.kernels import LibraryModel, Series
from advisor.learned.library.series_model import equally, numbers, weighed
from advisor.learned.machine import chip
from advisor.learned.network import Mixed
from advisor.pipelines import Array, ProblemBatch
from advisor.rows import aiter, silicon
from advisor.training import quality
from advisor.training.grow import fit_correction
from advisor.training.silicon.series import LEAST_ERROR, SPREAD_ROUNDS, SPREAD_TREES, TREES, far_from_neighbours, grow, merged


class FitSize(NamedTuple):
    """How much a fit may take: trees of a forest and their options, and steps of a network."""

    rounds: int
    steps: int
    trees: dict[str, Any]


WHOLE = FitSize(900, 12_000, TREES)
OF_FOLD = FitSize(240, 1500, TREES | {"learning_rate": 0.1})
OF_GPU = OF_FOLD._replace(rounds=120, steps=800)
DEPTH = 4
"""Layers of the network. Three, in 8,000 steps: decode 4.8, prefill 4.0 % off by the network alone; four, in 12,000: 4.1 and 3.7."""

TREES_BESIDE = 0.75
"""The share of a forest's trees that are fitted where a network stands beside it, which takes the room of the others."""

FOLDS = 5
MOST_ROWS, MOST_FOLD_ROWS, MOST_UNSEEN_ROWS = 400_000, 160_000, 5_000
"""Rows that are fitted, drawn at random where there are more: of the whole, and with shapes left out; and rows judged of a GPU left out."""

LEAST_ROWS = 400
FAR_FROM_NEIGHBOURS = np.log(2.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Launches of one series: problems and latencies in microseconds, [n]; `group`: what is left out together, [n]."""

    series: Series
    kind: str
    problem: ProblemBatch
    latency_us: Array
    group: NDArray[np.int64]

    def take(self, index: NDArray[Any]) -> Measured:
        """Rows `index`."""
        return replace(self, problem=self.problem.take(index), latency_us=self.latency_us[index], group=self.group[index])


def read(
    paths: Iterable[Path | str], gpus: Sequence[str] | None = None, progress: Callable[[str], None] = lambda text: None
) -> list[Measured]:
    """Rows of library kernels in the folders, duplicates merged (their median), without what cannot be right.

    Args:
        paths: Folders of `rows.silicon` or `rows.aiter`.
        gpus: Names of the GPUs to read; None: all.
        progress: Told how many rows were left out, and why.
    """
    parts: list[Measured] = []
    for path in paths:
        if silicon.is_layout(path):
            for file in silicon.read(path, "gemm", "gemm_perf", gpus):
                parts += _products(file)
            for name in ("context_attention_perf", "generation_attention_perf"):
                for file in silicon.read(path, "attention", name, gpus):
                    parts += _attentions(file)
        elif aiter.is_layout(path):
            parts += [_tuned(table) for table in aiter.read(path) if gpus is None or table.gpu in gpus]
    return [part for part in (_plausible(_merged(part), progress) for part in parts) if len(part.latency_us)]


def _products(file: silicon.SiliconFile) -> list[Measured]:
    out = []
    m, n, k = (file.columns[name].astype(np.float64) for name in "mnk")
    group = numbers(n, k)
    for dtype, ours, block in (("bfloat16", "bf16", None), ("fp8", "fp8", None), ("fp8_block", "fp8", (128, 128))):
        rows = file.columns["gemm_dtype"] == dtype
        if rows.any():
            sizes = {"M": m[rows], "N": n[rows], "K": k[rows]}
            problem = ProblemBatch(family="gemm", op="gemm", dtype=ours, block_shape=block, sizes=sizes)
            series = Series(file.gpu, file.stack, file.version, str(file.columns["kernel_source"][rows][0]))
            out.append(_measured(series, problem, file.latency_us[rows], group[rows]))
    return out


TYPES = {"bfloat16": "bf16", "fp8": "fp8"}


def _attentions(file: silicon.SiliconFile) -> list[Measured]:
    out = []
    c = file.columns
    windows = np.nan_to_num(c["window_size"].astype(np.float64)) if "window_size" in c else np.zeros(len(file))
    heads, head_dim = c["num_heads"].astype(np.float64), c["head_dim"].astype(np.float64)
    kv_heads = np.where(c["num_key_value_heads"] > 0, c["num_key_value_heads"], heads).astype(np.float64)
    decodes = np.char.startswith(c["op_name"].astype(str), "generation")
    group = numbers(heads, kv_heads, head_dim)
    keys = list(zip(c["kernel_source"], c["attn_dtype"], c["kv_cache_dtype"], decodes.tolist(), strict=True))
    for key in sorted(set(keys)):
        implementation, dtype, kv_dtype, decode = key
        if dtype not in TYPES or kv_dtype not in TYPES or implementation not in kernels.IMPLEMENTATIONS:
            continue
        rows = np.array([item == key for item in keys])
        length = (c["isl"] + c["step"] if decode else c["isl"]).astype(np.float64)[rows]
        problem = ProblemBatch(
            family="attention",
            op="decode" if decode else "prefill",
            dtype=TYPES[dtype],
            weight_dtype=TYPES[kv_dtype],
            sizes={
                "B": c["batch_size"].astype(np.float64)[rows],
                "H": heads[rows],
                "H_kv": kv_heads[rows],
                "M": np.ones(length.size) if decode else length,
                "N": length,
                "D": head_dim[rows],
                "causal": np.ones(length.size),
                "window": np.maximum(windows[rows], 0),
            },
        )
        series = Series(file.gpu, file.stack, file.version, implementation, TYPES[dtype], TYPES[kv_dtype])
        out.append(_measured(series, problem, file.latency_us[rows], group[rows]))
    return out


def _tuned(table: aiter.TunedGemm) -> Measured:
    problem = ProblemBatch(
        family="gemm", op="gemm", dtype=table.dtype, block_shape=table.block_shape, sizes={"M": table.m, "N": table.n, "K": table.k}
    )
    series = Series(table.gpu, "aiter", "", "tuned", table.dtype, "blocked" if table.block_shape else "")
    return _measured(series, problem, table.latency_us, numbers(table.m, table.n, table.k))


def _measured(series: Series, problem: ProblemBatch, latency_us: Array, group: NDArray[np.int64]) -> Measured:
    kind = kernels.kind_of(problem, load_gpu(series.gpu).vendor)
    assert kind is not None
    return Measured(series=series, kind=kind, problem=problem, latency_us=latency_us, group=group)


def _merged(part: Measured) -> Measured:
    """Each problem once, with the median of its latencies."""
    sizes = np.stack([np.broadcast_to(values, part.latency_us.shape) for values in part.problem.sizes.values()], axis=1)
    first, middle = merged(sizes, part.latency_us)
    return part if first.size == part.latency_us.size else replace(part.take(first), latency_us=middle)


def bound_us(part: Measured) -> Array:
    """Bounds of its launches, warm, [n]."""
    gpu = load_gpu(part.series.gpu)
    return pipelines.bound(pipelines.work(part.problem, gpu), gpu, "warm").us


def _plausible(part: Measured, progress: Callable[[str], None]) -> Measured:
    """Without rows below the bound, and rows far from their neighbours: the two shorter and the two longer ones of the same shape."""
    gpu = load_gpu(part.series.gpu)
    faster = part.latency_us < bound_us(part)
    us, _ = kernels.reference(part.kind, part.problem, chip(gpu, part.problem.dtype), part.series)
    length = part.problem.sizes["M" if part.kind.startswith("gemm") else "N"]
    far = _far_from_neighbours(np.log(part.latency_us / us), length, part)
    for rows, why in ((faster, "below the bound"), (far & ~faster, "2.5 times off their neighbours")):
        if rows.any():
            progress(f"left out {rows.sum()} of {rows.size} rows of {part.series.words} ({part.kind}, {part.series.implementation}): {why}")
    return part.take(np.flatnonzero(~faster & ~far))


def _far_from_neighbours(residual: Array, length: Array, part: Measured) -> NDArray[np.bool_]:
    batch = part.problem.sizes.get("B", np.ones(1)) * np.ones(length.size)
    window = part.problem.sizes.get("window", np.zeros(1)) * np.ones(length.size)
    alike = np.stack([part.group, batch, window], axis=1)
    return far_from_neighbours(residual, np.lexsort((length, window, batch, part.group)), alike, FAR_FROM_NEIGHBOURS)


def problem_of(part: Measured) -> ProblemBatch:
    """Its problems as a user would ask for them: with the stack, version and kernel."""
    series = part.series
    return replace(part.problem, stack=series.stack, stack_version=series.version or None, implementation=series.implementation)


def fit(parts: Sequence[Measured], progress: Callable[[str], None] = lambda text: None, quick: bool = False) -> list[LibraryModel]:
    """A model of every kind that the rows allow; `quick`: of half the rows and trees, to judge what is left out."""
    kinds = sorted({part.kind for part in parts})
    made = []
    for kind in kinds:
        mine = [part for part in parts if part.kind == kind]
        if sum(len(part.latency_us) for part in mine) >= LEAST_ROWS:
            progress(f"fitting {kind}: {sum(len(part.latency_us) for part in mine)} rows")
            made.append(_fit(kind, mine, quick))
    return made


def table(kind: str, parts: Sequence[Measured]) -> tuple[Array, Array, NDArray[np.int64], NDArray[Any]]:
    """Features [n, f], log(latency / reference), groups and names of GPUs, [n]."""
    features, target, group, gpu = [], [], [], []
    for part in parts:
        figures = chip(load_gpu(part.series.gpu), part.problem.dtype)
        us, columns = kernels.reference(kind, part.problem, figures, part.series)
        features.append(kernels.features(columns, figures.identity).astype(np.float32))
        target.append(np.log(part.latency_us / us))
        group.append(part.group)
        gpu.append(np.full(part.latency_us.size, part.series.gpu))
    return np.concatenate(features), np.concatenate(target), np.concatenate(group), np.concatenate(gpu)


def _fit(kind: str, parts: Sequence[Measured], quick: bool = False) -> LibraryModel:
    """The correction from all rows; the size of its errors and their quantiles from shapes, and from GPUs, that were left out."""
    x, y, group, gpu = table(kind, parts)
    drawn = _in_turn([part.latency_us.size for part in parts])
    correction = _corrected(kind, x, y, drawn[: MOST_FOLD_ROWS if quick else MOST_ROWS], OF_FOLD if quick else WHOLE)
    judged = drawn[:MOST_FOLD_ROWS]
    error = np.full(y.size, np.nan)
    for i in range(FOLDS):
        out = group // 7 % FOLDS == i
        rows = judged[out[judged]]
        error[rows] = y[rows] - _corrected(kind, x, y, drawn[~out[drawn]][:MOST_FOLD_ROWS], OF_FOLD)(x[rows])
    at = np.sort(judged)
    spread = grow(x[at], np.log(np.abs(error[at]) + LEAST_ERROR), SPREAD_ROUNDS, SPREAD_TREES)
    unseen = _errors_of_gpus_left_out(kind, parts, x, y, gpu, drawn)
    held_out: dict[str, dict[str, float]] = {}
    if not quick:
        fold = group // 7 % FOLDS
        out = fold == fold[judged].min()
        strong = _errors_of_a_strong_one(kind, x, y, drawn, out)
        error *= np.nanquantile(np.abs(strong), 0.8) / np.nanquantile(np.abs(error[out]), 0.8)  # which is where intervals end
        held_out = quality.side_by_side(gpu, _beside(parts, out, strong, y) | {"GPU left out": -unseen})
    scaled = error[judged] / np.exp(spread(x[judged]))
    one = np.ones(scaled.size)
    quantiles = {(kind, True): calibration.table(scaled, one)}
    for_gpu = {name: gpu[judged] == name for name in np.unique(gpu[judged]).tolist()}
    of_gpu = {(kind, name): calibration.table(scaled[rows], one[rows]) for name, rows in for_gpu.items()}
    known = np.flatnonzero(np.isfinite(unseen))
    if known.size:
        far = unseen[known] / np.exp(spread(x[known]))
        quantiles[(kind, False)] = calibration.table(np.concatenate([far, -far]), np.ones(2 * far.size))  # to either side
    return LibraryModel(
        kind=kind,
        correction=correction,
        spread=spread,
        calibration=Calibration(quantiles=quantiles, of_gpu=of_gpu),
        series=tuple(part.series for part in parts),
        held_out=held_out,
    )


def _errors_of_a_strong_one(kind: str, x: Array, y: Array, drawn: NDArray[np.int64], out: NDArray[np.bool_]) -> Array:
    """log(predicted / measured) of the rows judged of `out` by a correction as large as the one that serves, fitted without them; NaN of
    other rows, [n]."""
    rows = drawn[:MOST_FOLD_ROWS][out[drawn[:MOST_FOLD_ROWS]]]
    error = np.full(y.size, np.nan)
    error[rows] = _corrected(kind, x, y, drawn[~out[drawn]][:MOST_ROWS], WHOLE)(x[rows]) - y[rows]
    return error


def _beside(parts: Sequence[Measured], out: NDArray[np.bool_], strong: Array, y: Array) -> dict[str, Array]:
    """Errors of the rows in which `strong` is known, its own and those of what else would be said of them, [n] each; the nearest shapes
    are those of the same series that are not `out`."""
    judged = np.isfinite(strong)
    bound = np.concatenate([np.log(bound_us(part) / part.latency_us) for part in parts])
    near, start = np.full(y.size, np.nan), 0
    for part in parts:
        here = np.arange(start, start := start + part.latency_us.size)
        known, judged_rows = here[~out[here]], here[judged[here]]
        if known.size >= quality.NEAREST and judged_rows.size:
            sizes = np.log1p(np.stack([np.broadcast_to(values, here.shape) for values in part.problem.sizes.values()], axis=1))
            near[judged_rows] = quality.nearest(sizes[known - here[0]], -bound[known], sizes[judged_rows - here[0]]) + bound[judged_rows]
    of_judged = {name: np.where(judged, error, np.nan) for name, error in (("physics alone", -y), ("bound", bound))}
    return {"left out": strong, "nearest shapes": near, **of_judged}


def _in_turn(sizes: Sequence[int]) -> NDArray[np.int64]:
    """Rows of parts of these sizes at random, one of each part in turn: a small file counts as much as a large one while it lasts."""
    rng = np.random.default_rng(0)
    turn = np.concatenate([rng.permutation(size) for size in sizes])
    return np.lexsort((rng.permutation(turn.size), turn))


def _corrected(kind: str, x: Array, y: Array, rows: NDArray[np.int64], size: FitSize) -> BushyForest | Mixed:
    """A forest fitted to rows; of attention its mean with a network."""
    rows = np.sort(rows)
    if kind not in kernels.APART:
        return grow(x[rows], y[rows], size.rounds, size.trees)
    apart = kernels.APART[kind]
    forest = grow(x[rows, apart:], y[rows], round(TREES_BESIDE * size.rounds), size.trees)
    return Mixed(forest=forest, network=fit_correction(x[rows], y[rows], kernels.LABELS, size.steps, depth=DEPTH), apart=apart)


def _errors_of_gpus_left_out(
    kind: str, parts: Sequence[Measured], x: Array, y: Array, gpu: NDArray[Any], drawn: NDArray[np.int64]
) -> Array:
    """log(measured / predicted) of some rows of each GPU, from models without it, [n]; NaN of other rows, and where there is one GPU."""
    names = np.unique(gpu).tolist()
    error = np.full(y.size, np.nan)
    for name in names if len(names) > 1 else ():
        mine = gpu[drawn] == name
        out = drawn[mine][:MOST_UNSEEN_ROWS]
        correction = _corrected(kind, x, y, drawn[~mine][: 10 * MOST_UNSEEN_ROWS], OF_GPU)
        relatives = _model_of([part.series for part in parts if part.series.gpu != name], kind, correction).relatives(load_gpu(name))
        correct = kernels.of_unseen(kind, correction)
        figures = [chip(load_gpu(relative), parts[0].problem.dtype).identity.values() for relative in relatives]
        error[out] = y[out] - weighed(x[out, : -len(figures[0])], correct, equally([np.array([*item], dtype=x.dtype) for item in figures]))
    return error


def _model_of(series: Sequence[Series], kind: str, correction: BushyForest | Mixed) -> LibraryModel:
    spread = correction.forest if isinstance(correction, Mixed) else correction
    return LibraryModel(kind=kind, correction=correction, spread=spread, calibration=Calibration(quantiles={}), series=tuple(series))


SHARE = 5
"""One in so many weight matrices or layouts of heads is left out."""

MOST_JUDGED = 3_000
"""Rows of a file that are judged, drawn at random."""


def judge(
    paths: Iterable[Path | str],
    gpus: Sequence[str] | None = None,
    leave_out: Sequence[str] = ("shape", "gpu"),
    progress: Callable[[str], None] = lambda text: None,
    given: Sequence[int] = (),
) -> dict[str, Any]:
    """Figures by split: "shapes left out", "newest versions left out", "no H200" and so on, and "no H200, 50 rows given".

    Args:
        paths: Folders for which `silicon.is_layout` holds.
        gpus: Names of the GPUs to leave out one by one; None: all that were measured.
        leave_out: Which splits.
        progress: Told what is being done.
        given: Of a GPU left out, how many rows of each stack's newest kernels the model is corrected by before the rest is judged.
    """
    parts = read(paths, None, progress) if {"shape", "gpu", "version"} & set(leave_out) else []
    out: dict[str, Any] = {}
    if parts and "shape" in leave_out:
        progress("shapes left out")
        kept = [part.take(np.flatnonzero(part.group // 11 % SHARE != 0)) for part in parts]
        gone = [part.take(np.flatnonzero(part.group // 11 % SHARE == 0)) for part in parts]
        out["shapes left out"] = figures = _figures(fit(kept, progress), gone)
        for kind, percent in nearest_shapes(kept, gone).items():
            figures[kind]["words"] = f"the nearest shapes measured: {percent:.1f} %"
    if parts and "version" in leave_out:
        progress("newest versions left out")
        versions: dict[tuple[str, ...], set[tuple[int, ...]]] = {}
        for part in parts:
            versions.setdefault((part.kind, *part.series[:2]), set()).add(part.series.newness)
        of = [versions[(part.kind, *part.series[:2])] for part in parts]
        newest = [len(known) > 1 and part.series.newness == max(known) for part, known in zip(parts, of, strict=True)]
        kept, gone = ([part for part, its in zip(parts, newest, strict=True) if its == which] for which in (False, True))
        out["newest versions left out"] = _figures(fit(kept, progress, quick=True), gone)
    names = gpus if gpus is not None else list(dict.fromkeys(part.series.gpu for part in parts))
    for name in names if "gpu" in leave_out else ():
        progress(f"{name} left out")
        kinds = {part.kind for part in parts if part.series.gpu == name}
        kept = [part for part in parts if part.series.gpu != name and part.kind in kinds]
        gone, models = [part for part in parts if part.series.gpu == name], fit(kept, progress, quick=True)
        out[f"no {name}"] = _figures(models, gone)
        out |= {f"no {name}, {count} rows given": _figures(models, _newest(gone), count) for count in given}
    return out


def nearest_shapes(kept: Sequence[Measured], gone: Sequence[Measured]) -> dict[str, float]:
    """Errors in percent by kind, of rows of `gone` that reach as much of their bound as the nearest in `kept` of the same series."""
    errors: dict[str, list[np.ndarray]] = {}
    for known, part in zip(kept, gone, strict=True):
        if min(len(known.latency_us), len(part.latency_us)) < quality.NEAREST:
            continue
        part = part.take(_judged(part))
        at, of = ([np.log1p(np.broadcast_to(v, p.latency_us.shape)) for v in p.problem.sizes.values()] for p in (part, known))
        reached = quality.nearest(np.stack(of, axis=1), np.log(known.latency_us / bound_us(known)), np.stack(at, axis=1))
        errors.setdefault(part.kind, []).append(np.expm1(reached + np.log(bound_us(part) / part.latency_us)))
    return {kind: float(100 * np.abs(np.concatenate(distances)).mean()) for kind, distances in errors.items()}


def _judged(part: Measured, given: int = 0) -> np.ndarray:
    """Rows at random: first those given, then those judged."""
    return np.random.default_rng(0).permutation(part.latency_us.size)[: given + MOST_JUDGED]


def _newest(parts: Sequence[Measured]) -> list[Measured]:
    """Of each kernel of each stack the newest version."""
    newest: dict[tuple[str, ...], Measured] = {}
    for part in sorted(parts, key=lambda part: part.series.newness):
        newest[(part.kind, part.series.stack, *part.series[3:])] = part
    return list(newest.values())


def _figures(models: Sequence[LibraryModel], parts: Sequence[Measured], given: int = 0) -> dict[str, Any]:
    """Errors in percent, and the share within 80 % intervals, by kind; and within it by GPU, types and implementation."""
    out: dict[str, Any] = {}
    for model in models:
        judged = [(part, *_errors(model, part, given)) for part in parts if part.kind == model.kind and len(part.latency_us) > given]
        if not judged:
            continue
        labels = {
            "per_gpu": [part.series.gpu for part, *_ in judged],
            "per_type": [f"{part.problem.dtype}, KV {part.problem.weight_dtype or part.problem.dtype}" for part, *_ in judged],
            "per_implementation": [part.series.implementation for part, *_ in judged],
        }
        out[model.kind] = _summed(judged) | {
            name: {label: _summed([f for f, origin in zip(judged, of, strict=True) if origin == label]) for label in dict.fromkeys(of)}
            for name, of in labels.items()
        }
    return out


def _errors(model: LibraryModel, part: Measured, given: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of some rows: log(predicted / measured), whether the interval holds them, whether they are below the bound; the first `given` are not
    judged, but known."""
    part, gpu = part.take(_judged(part, given)), load_gpu(part.series.gpu)
    problem = problem_of(part)
    prediction, _ = model.predict(problem, gpu)
    bound = bound_us(part)
    if given:
        matrix = own_predictor.features(problem, gpu, prediction[0])
        rows = own_rows.of_rows(matrix[:given], np.log(part.latency_us[:given] / prediction[0][:given]))
        prediction = rows.corrected(matrix, *prediction)
    us, low, high, measured = (item[given:] for item in (*prediction, part.latency_us))
    return np.log(us / measured), (low <= measured) & (measured <= high), measured < bound[given:]


def _summed(judged: Sequence[tuple[Any, np.ndarray, np.ndarray, np.ndarray]]) -> dict[str, float]:
    return summed(*(np.concatenate([item[i] for item in judged]) for i in (1, 2, 3)))


def summed(error: np.ndarray, held: np.ndarray | None, below: np.ndarray) -> dict[str, float]:
    """Figures of rows: log(predicted / measured), whether the interval holds them (None: not asked), whether they are below the bound."""
    relative = 100 * np.abs(np.expm1(error))
    return {
        "rows": int(error.size),
        "mape_percent": float(relative.mean()),
        "median_percent": float(np.median(relative)),
        "bias_percent": float(100 * error.mean()),
        "bound_violations": int(below.sum()),
    } | ({} if held is None else {"coverage_percent": float(100 * held.mean())})
