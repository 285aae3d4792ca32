"""Figures of a predictor on measured rows: what was predicted, what was measured, and how far apart they are, as JSON values.

Rows are judged by task: launches as served, launches of a known configuration, the best of a sweep, and each kind of library
kernel. Ranking and diagnosis need sweeps, and are judged where the rows hold some.

Configured launches of which few or none of their kind were measured: kernels left out whole (`kernels_left_out`), and a GPU of which some
rows are given (`rows_given`). Both on this project's own measurements.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor import pipelines
from advisor.gpus.hardware import load_gpu
from advisor.learned import weights
from advisor.learned.base import Predictor
from advisor.learned.estimator import LearnedPredictor
from advisor.learned.library import direct
from advisor.learned.machine import machine
from advisor.learned.moe.launch import as_rows, fits
from advisor.learned.own_predictor import predictor_of
from advisor.pipelines import Array
from advisor.pipelines.from_rows import batches, one_problem
from advisor.pipelines.space import family_space
from advisor.result.schema import PIPELINES
from advisor.rows.rows import Rows, read_rows
from advisor.system.errors import UsageError
from advisor.training import configured_training, data, moe_tables, quality
from advisor.training.configured_training import FOLDS, own_measurements, problem_names
from advisor.training.data import Measured
from advisor.training.own_gpu import calibrate

Progress = Callable[[str], None]
FEW_TOKENS = "M <= E"
REGIMES = {"dram": "memory-bound", "l2": "memory-bound", "smem": "memory-bound", "launch": "launch-bound"} | dict.fromkeys(
    ("tensor", "fma", "xu", "alu", "issue"), "compute-bound"
)
"""What launches are called by the pipeline that binds them, the launch with what it costs in a stream; fused MoE of few tokens by these."""
MOE_KINDS = ("served", "exact", "best")
SHOWN = 20
"""Rows that a note names."""

SWEPT = 0.5
"""Of the configurations that can launch, the share that a problem's rows hold from which on the least of them is called the best."""
LISTED, LISTED_EACH = 1.02, 1.25
"""Rows none of which is slower than the least of its problem by more than the first, and on average the second or more per problem (some
have one near-optimal configuration only): the list of what sweeps found, as it is published (all within 1 % of the best)."""


class Judged:
    """Columns of what was predicted and measured, per kind of row; grows row by row, `figures` sums it up."""

    def __init__(self) -> None:
        self.columns: dict[str, dict[str, list[Any]]] = {}
        self.places: dict[str, list[int | None]] = {}
        self.notes: set[str] = set()

    def add(self, kind: str, **columns: Any) -> None:
        """Append columns [n] to a kind."""
        mine = self.columns.setdefault(kind, {})
        for name, values in columns.items():
            mine.setdefault(name, []).extend(np.asarray(values).tolist())

    @staticmethod
    def join(parts: Sequence[Judged]) -> Judged:
        """All parts as one."""
        whole = Judged()
        for part in parts:
            whole.notes |= part.notes
            for kind, columns in part.columns.items():
                whole.add(kind, **columns)
            for gpu, places in part.places.items():
                whole.places.setdefault(gpu, []).extend(places)
        return whole


def task_of(part: Measured) -> str:
    """The task that a batch of rows belongs to: its kind, or the group of library kernels that share a model."""
    if part.kind in MOE_KINDS or not direct.covers(part.problem, part.configuration):
        return part.kind
    return direct.kind_of(part.problem)


def collect(
    measured: Sequence[Measured],
    predictor: Predictor,
    progress: Progress = lambda text: None,
    seen: Callable[[Measured], list[str]] | None = None,
) -> Judged:
    """Predict every row.

    Args:
        measured: Rows of any kinds.
        predictor: What is judged.
        progress: Told what is being done.
        seen: For rows, what of each the predictor was trained on ("model and GPU seen", …).
    """
    out = Judged()
    measured = [*measured, *_best_of_rows(measured, out)]
    for part in measured:
        progress(f"judging {part.kind} of {part.gpu.name}")
        bound = pipelines.bound(pipelines.work(part.problem, part.gpu), part.gpu, part.problem.cache)
        size = len(part)
        common = {
            "gpu": [part.gpu.name] * size,
            "measured": part.latency_us,
            "bound": np.broadcast_to(bound.us, (size,)),
            "weight": moe_tables.weights_of(part) if part.problem.family == "fused_moe" else np.ones(size),
            "regime": _regimes(part, bound),
            "op": [part.problem.op] * size,
            "model": [", ".join(map(str, m)) for m in part.models()],
            "novelty": seen(part) if seen else [],
        }
        prediction = (
            predictor.ceiling(part.problem, part.gpu)
            if part.kind == "best"
            else (predictor.predict(part.problem, part.configuration, part.gpu))
        )
        out.add(
            task_of(part), **common, predicted=prediction.us, low=prediction.low_us, high=prediction.high_us, learned=prediction.learned
        )
        out.notes |= _stuck(part, prediction.us)
        if part.kind == "best" and part.paired_us is not None:
            known = np.isfinite(part.paired_us)
            default, now = part.take(known), part.paired_us[known]
            if now.size:
                out.add(
                    "diagnosis",
                    gpu=[part.gpu.name] * now.size,
                    probability=_chance(default, now, predictor),
                    label=now / default.latency_us >= quality.WIN,
                )
    _rank(measured, predictor, out, progress)
    return out


def _stuck(part: Measured, predicted_us: Array) -> set[str]:
    """A note on rows that were measured and of which the model says that they cannot launch: they have no error to count."""
    stuck = np.flatnonzero(~np.isfinite(np.broadcast_to(predicted_us, (len(part),))))
    if not stuck.size:
        return set()
    numbers = [] if part.rows is None else [str(row + 1) for row in part.rows[stuck[:SHOWN]].tolist()]
    more = [f"{stuck.size - SHOWN} more"] if numbers and stuck.size > SHOWN else []
    named = f" (row {', '.join(numbers + more)})" if numbers else ""
    return {
        f"{part.source}: {stuck.size} of {len(part)} rows measured on {part.gpu.name} cannot launch, says the model{named}: a fault of "
        "the model or of the rows; the errors are without them"
    }


def _chance(best: Measured, default_us: Array, predictor: Predictor) -> Array:
    """The probability that at least 10 % can be won of the defaults of sweeps, as measured; of launches as served unless all their
    configurations are known."""
    configuration = best.paired_configuration
    if configuration is not None and not (configuration.parameters["BLOCK_SIZE_M"] > 0).all():
        configuration = None
    prediction = predictor.predict(best.problem, configuration, best.gpu)
    return predictor.p_speedup(best.problem, best.gpu, default_us, prediction, predictor.ceiling(best.problem, best.gpu), configuration)


def _best_of_rows(measured: Sequence[Measured], out: Judged) -> list[Measured]:
    """The least of every problem's rows as the best of its sweep, where there was one and no summary has its best."""
    summaries = {part.source for part in measured if part.kind == "best"}
    summarised = {key for part in measured if part.kind == "best" for key in moe_tables.keys_of(part)}
    rows_by_problem: dict[str, dict[object, list[tuple[Measured, int]]]] = {}  # of every file: where each problem's rows are
    for part in measured:
        if part.kind == "exact" and part.source not in summaries:
            for i, key in enumerate(moe_tables.keys_of(part)):
                if key not in summarised:
                    rows_by_problem.setdefault(part.source, {}).setdefault(key, []).append((part, i))
    made = []
    for source, problems in rows_by_problem.items():
        places = _least_of_sweeps(list(problems.values()), source, out)
        for part in {id(p): p for p, _ in places}.values():
            chosen = part.take(np.array(sorted(i for p, i in places if p is part)))
            made.append(
                Measured(
                    kind="best",
                    gpu=chosen.gpu,
                    problem=chosen.problem,
                    configuration=None,
                    latency_us=chosen.latency_us,
                    source=source + ", least of the rows",
                    rows=chosen.rows,
                )
            )
    if made:
        out.notes.add("no sweep summary: the best of a sweep is the least of a problem's rows, and nothing says what could be won")
    return made


def _least_of_sweeps(problems: Sequence[list[tuple[Measured, int]]], source: str, out: Judged) -> list[tuple[Measured, int]]:
    """Of a file's problems, where the least row of each is that was swept; a note on those of which a part was tried."""
    least = [min(rows, key=lambda row: row[0].latency_us[row[1]]) for rows in problems]
    tried = sum(map(len, problems)) >= LISTED_EACH * len(problems)
    slowest = max(part.latency_us[i] / p.latency_us[j] for rows, (p, j) in zip(problems, least, strict=True) for part, i in rows)
    if tried and slowest <= LISTED:
        return least
    swept = [place for place, rows in zip(least, problems, strict=True) if _share_tried(rows) >= SWEPT]
    if tried and len(swept) < len(problems):
        out.notes.add(
            f"{source}: {len(problems) - len(swept)} of {len(problems)} problems are no sweep, for less than {100 * SWEPT:.0f} % of the "
            "configurations that can launch were measured: the best of them is unknown"
        )
    return swept


def _share_tried(rows: Sequence[tuple[Measured, int]]) -> float:
    """Share of the configurations that can launch which the rows of one problem hold."""
    part = rows[0][0]
    launchable = int(fits(machine(part.gpu, part.problem.dtype), family_space("fused_moe"), part.problem.operand_bytes).sum())
    configurations = [row.configuration.take(np.array([i])) for row, i in rows if row.configuration is not None]
    return len({tuple(as_rows(one)[0].tolist()) for one in configurations}) / max(launchable, 1)


def _regimes(part: Measured, bound: pipelines.Bound) -> list[str]:
    launch = part.gpu.launch_latency_us > bound.us - pipelines.least_launch_us(part.gpu)
    binding = np.broadcast_to(np.where(launch, PIPELINES.index("launch"), bound.binding), (len(part),)).tolist()
    few = np.zeros(len(part), dtype=bool)
    if part.problem.family == "fused_moe":
        few = np.broadcast_to(part.problem.sizes["M"] <= part.problem.sizes["E"], (len(part),))
    return [FEW_TOKENS if f else REGIMES[PIPELINES[pipeline]] for f, pipeline in zip(few, binding, strict=True)]


def _rank(measured: Sequence[Measured], predictor: Predictor, out: Judged, progress: Progress) -> None:
    """Rank the whole space for every swept problem, and look for the first near-optimal configuration."""
    best = [m for m in measured if m.kind == "best"]
    # A summary names one configuration per sweep, its default: that is no list of those near the optimum.
    summaries = {m.source for m in best}
    keys, rows = moe_tables.near_optimal([m for m in measured if m.kind == "exact" and m.source not in summaries], best)
    near: dict[object, set[tuple[float, ...]]] = {}
    for key, row in zip(keys, rows.tolist(), strict=True):
        near.setdefault(key, set()).add(tuple(row))
    if not near:
        if best:
            out.notes.add("no rows of near-optimal configurations: the ranking is not judged")
        return
    space = family_space("fused_moe")
    table = [tuple(row) for row in as_rows(space).tolist()]
    for part in best:
        progress(f"ranking {part.gpu.name}")
        for i, key in enumerate(moe_tables.keys_of(part)):
            if key not in near:
                continue
            scores = predictor.scores(one_problem(part.problem, i), space, part.gpu)
            order = np.argsort(scores, kind="stable")[: max(quality.HIT_RANKS)]
            place = next((n for n, j in enumerate(order.tolist()) if table[j] in near[key]), None)
            out.places.setdefault(part.gpu.name, []).append(place)


def figures(judged: Judged) -> dict[str, Any]:
    """All figures, as JSON values: `tasks`, and `ranking` and `diagnosis` where the rows allow."""
    result: dict[str, Any] = {"tasks": {}}
    for kind, judged_rows in sorted(judged.columns.items(), key=lambda item: _place(item[0])):
        lists, stuck = _launchable(judged_rows)
        c = {n: np.array(v) for n, v in lists.items()}
        if kind == "diagnosis":
            if c["label"].size:
                result["diagnosis"] = {
                    "all": quality.diagnosis(c["probability"], c["label"]),
                    "per_gpu": quality.by(lists["gpu"], quality.diagnosis, c["probability"], c["label"]),
                }
            continue
        if not c["measured"].size:  # a note says so
            continue
        columns = (c["measured"], c["predicted"], c["weight"])
        task = quality.errors(*columns) | {
            "coverage_percent": quality.coverage(c["measured"], c["low"], c["high"], c["weight"]),
            "learned_percent": 100 * float(c["learned"].mean()),
            "bound_violations": int((np.array(judged_rows["measured"]) < np.array(judged_rows["bound"])).sum()),
            "cannot_launch": stuck,
            "median_bound_over_latency": float(np.median(c["bound"] / c["measured"])),
            "bound_alone": quality.errors(c["measured"], c["bound"], c["weight"]),
        }
        for name, label in (
            ("per_gpu", "gpu"),
            ("per_regime", "regime"),
            ("per_model", "model"),
            ("per_operator", "op"),
            ("per_novelty", "novelty"),
        ):
            if len(lists[label]) == len(lists["measured"]) and (len(set(lists[label])) > 1 or label in ("gpu", "regime", "novelty")):
                task[name] = quality.by(lists[label], _with_coverage, *columns, c["low"], c["high"])
        result["tasks"][kind] = task
    if judged.places:
        every = [p for places in judged.places.values() for p in places]
        result["ranking"] = quality.hits(every) | {"per_gpu": {g: quality.hits(p) for g, p in sorted(judged.places.items())}}
    if judged.notes:
        result["notes"] = sorted(judged.notes)
    return result


def _launchable(columns: dict[str, list[Any]]) -> tuple[dict[str, list[Any]], int]:
    """The columns without rows that cannot launch, and how many those are: one infinite error would make every mean infinite."""
    predicted = np.array(columns.get("predicted", ()), dtype=np.float64)
    stuck = int((~np.isfinite(predicted)).sum())
    if not stuck:
        return columns, 0
    kept = np.isfinite(predicted).tolist()
    # A column that not all parts have is left as it is: it is shorter, and not read.
    return {
        n: [v for v, k in zip(values, kept, strict=True) if k] if len(values) == len(kept) else values for n, values in columns.items()
    }, stuck


def _with_coverage(
    measured: pipelines.Array, predicted: pipelines.Array, weight: pipelines.Array, low: pipelines.Array, high: pipelines.Array
) -> dict[str, float]:
    return quality.errors(measured, predicted, weight) | {"coverage_percent": quality.coverage(measured, low, high, weight)}


def _place(kind: str) -> tuple[int, str]:
    """Fused MoE first, in the order in which it is spoken of, then library kernels by name."""
    return (MOE_KINDS.index(kind) if kind in MOE_KINDS else len(MOE_KINDS), kind)


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
    """For each GPU of the project's own measurements, figures of a fifth of its problems, predicted by the weights shipped without any
    configured launch, and after so many of its other rows, drawn at random, were given to `calibrate`.

    Raises:
        UsageError: No weights are shipped.
    """
    path = weights.shipped()
    if path is None:
        raise UsageError("no weights are shipped with this installation", None, None, "run `advisor train`")
    bare = replace(weights.load(path), configured=None)
    measured: dict[str, list[Rows]] = defaultdict(list)
    for path in data.files([own_measurements()]):
        rows = read_rows(path)
        measured[rows.text["gpu"][0]].append(rows)
    return {f"{gpu} without any configured launch, problems left out": _rows_given(files, bare, counts) for gpu, files in measured.items()}


def _rows_given(files: Sequence[Rows], bare: weights.Weights, counts: Sequence[int]) -> dict[str, Any]:
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
    return out


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
