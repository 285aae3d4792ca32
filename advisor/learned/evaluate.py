"""`advisor evaluate`: how well a predictor does on measured rows, as JSON values.

`given` judges given weights on rows they did not see; `cross` trains anew without each fold of models or GPUs in turn and
judges on what was left out. Baselines (`baselines.py`) are fitted in the same run, on the same folds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from advisor import pipelines
from advisor.hardware import load_gpu
from advisor.learned import baselines, data, moe_training, quality, training
from advisor.learned.base import Predictor
from advisor.learned.data import Measured
from advisor.learned.estimator import LearnedPredictor
from advisor.learned.folds import MODEL_FOLDS, leave_out
from advisor.learned.moe import as_rows
from advisor.learned.weights import Weights
from advisor.pipelines.from_rows import one_problem
from advisor.pipelines.space import family_space

Progress = Callable[[str], None]
REGIMES = ("M <= E", "memory-bound", "compute-bound")


def evaluate(paths: Iterable[Path | str], weights: Weights, progress: Progress = lambda text: None) -> dict[str, Any]:
    """Judge weights on measured rows. Rows the weights were trained on are marked: their figures flatter."""
    measured = data.read(paths, progress=progress)
    seen = {tuple(m) for m in weights.about.get("models", [])}
    models = {m for part in measured for m in part.models()}
    gpus = {p.gpu.name for p in measured}
    result = judge(measured, LearnedPredictor(weights), progress)
    result["trained_on"] = weights.about
    result["in_sample"] = bool(models & seen and gpus & set(weights.about.get("gpus", [])))
    return result


def cross(paths: Iterable[Path | str], by: str, progress: Progress = lambda text: None, names: Sequence[str] = (),
          with_baselines: bool = False) -> dict[str, Any]:  # fmt: skip
    """Leave models (`by` "model", four folds) or GPUs (`by` "gpu", each in turn) out, train, and judge on what was left out.

    Args:
        paths: Measured rows.
        by: "model" or "gpu".
        progress: Told what is being done.
        names: GPUs to leave out, one after another; all that have sweeps where none are named.
        with_baselines: Also fit a linear model and PipeWeave's network (needs torch) on the served launches of every fold.
    """
    measured = [m for m in data.read(paths, progress=progress) if m.problem.family == "fused_moe"]
    parts: list[Judged] = []
    splits: list[tuple[list[Measured], list[Measured]]] = []
    if by == "model":
        labels = sorted({m for part in measured for m in part.models()})
        for out, _ in leave_out(labels, MODEL_FOLDS):
            chosen = set(out)
            masks = [np.array([m in chosen for m in part.models()], dtype=bool) for part in measured]
            kept = [p.take(~k) for p, k in zip(measured, masks, strict=True) if (~k).any()]
            test = [p.take(k) for p, k in zip(measured, masks, strict=True) if k.any()]
            splits.append((kept, test))
    else:
        for name in names or sorted({p.gpu.name for p in measured if p.kind == "best"}):
            splits.append(([p for p in measured if p.gpu.name != name], [p for p in measured if p.gpu.name == name]))
    errors: dict[str, list[float]] = {}
    for number, (kept, test) in enumerate(splits, start=1):
        progress(f"fold {number} of {len(splits)}")
        parts.append(_collect(test, _trained(kept, by), progress))
        if with_baselines:
            for name, found in _baselines(kept, test).items():
                errors.setdefault(name, []).extend(found)
    result = _figures(Judged.join(parts))
    if errors:
        result["baselines"] = {name: 100 * float(np.mean(found)) for name, found in errors.items()}
    return result


def given_split(paths: Iterable[Path | str], test_gpus: Sequence[str], progress: Progress = lambda text: None) -> dict[str, Any]:
    """Train without `test_gpus` (all of them at once), and judge on them."""
    names = {load_gpu(name).name for name in test_gpus}
    measured = [m for m in data.read(paths, progress=progress) if m.problem.family == "fused_moe"]
    kept, test = [p for p in measured if p.gpu.name not in names], [p for p in measured if p.gpu.name in names]
    return judge(test, _trained(kept), progress)


def _baselines(kept: Sequence[Measured], test: Sequence[Measured]) -> dict[str, list[float]]:
    """Relative errors of the baselines on the served launches left out."""
    train, other = moe_training.tables(kept).get("served"), moe_training.tables(test).get("served")
    if train is None or other is None or train.launch is None or other.launch is None:
        return {}
    out = {}
    for name, fitted in (("linear model, served", baselines.linear), ("PipeWeave's network, served", baselines.pipeweave)):
        predicted = fitted(train.launch, train.latency_us)(other.launch)
        out[name] = np.abs(predicted / other.latency_us - 1).tolist()
    return out


def _trained(kept: Sequence[Measured], by: str = "gpu") -> Predictor:
    """Trained on rows; intervals for GPUs never seen are fitted only where some are to be judged."""
    return LearnedPredictor(training.fit(kept, {}, calibrate_by=("model",) if by == "model" else ("model", "gpu")))


def judge(measured: Sequence[Measured], predictor: Predictor, progress: Progress = lambda text: None) -> dict[str, Any]:
    """All figures of a predictor on measured rows."""
    return _figures(_collect(measured, predictor, progress))


HARD_SPLIT = ("H100", "H200", "L40", "RTX A6000", "RTX PRO 6000 S")
"""GPUs that PipeWeave was tested on and not trained on."""


def group_splits(paths: Iterable[Path | str], progress: Progress = lambda text: None) -> dict[str, Any]:
    """All splits the model card reports, by title: models, each swept GPU, and the five GPUs of the published split left out.

    Trains nine times: half an hour on two cores.
    """
    paths = list(paths)
    return {
        "Models left out, four folds (`advisor evaluate DATA --leave-out model`)": cross(paths, "model", progress, with_baselines=True),
        "Each swept GPU left out (`advisor evaluate DATA --leave-out gpu`)": cross(paths, "gpu", progress, with_baselines=True),
        f"Trained without {', '.join(HARD_SPLIT)} (`evaluate.given_split`)": given_split(paths, HARD_SPLIT, progress),
    }


def write_card(weights_path: Path | str, card_path: Path | str, splits: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Write the model card: what training itself held out, and `splits` (of `group_splits`), where they were run."""
    from advisor.learned import model_card, weights

    found = weights.load(weights_path)
    held = found.moe.held_out if found.moe else {}
    titles = {by: f"{by.capitalize()}s left out (held out by `advisor train`)".replace("Gpu", "GPU") for by in held}
    figures = {titles[by]: model_card.of_training(f) for by, f in held.items()} | dict(splits or {})
    library = {kind: model.held_out for kind, model in found.direct.items()}
    text = model_card.card(found.about, found.digest(), figures, Path(weights_path).stat().st_size, library)
    Path(card_path).write_text(text, encoding="utf-8")


class Judged:
    """Columns of what was predicted and measured, per kind of row; grows row by row, figures come from `_figures`."""

    def __init__(self) -> None:
        self.columns: dict[str, dict[str, list[Any]]] = {}
        self.places: dict[str, list[int | None]] = {}

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
            for kind, columns in part.columns.items():
                whole.add(kind, **columns)
            for gpu, places in part.places.items():
                whole.places.setdefault(gpu, []).extend(places)
        return whole


def _collect(measured: Sequence[Measured], predictor: Predictor, progress: Progress) -> Judged:
    out = Judged()
    for part in measured:
        progress(f"judging {part.kind} of {part.gpu.name}")
        bound = pipelines.bound(pipelines.work(part.problem, part.gpu), part.gpu, part.problem.cache)
        size = len(part)
        common = {
            "gpu": [part.gpu.name] * size, "measured": part.latency_us, "bound": np.broadcast_to(bound.us, (size,)),
            "weight": moe_training._weights(part) if part.problem.family == "fused_moe" else np.ones(size),
            "regime": _regimes(part, bound),
        }  # fmt: skip
        prediction = predictor.ceiling(part.problem, part.gpu) if part.kind == "best" else (
            predictor.predict(part.problem, part.configuration, part.gpu))  # fmt: skip
        out.add(part.kind, **common, predicted=prediction.us, low=prediction.low_us, high=prediction.high_us, learned=prediction.learned)
        if part.kind == "best" and part.paired_us is not None:
            known = np.isfinite(part.paired_us)
            p = predictor.p_speedup(part.problem, part.gpu, np.where(known, part.paired_us, prediction.us), prediction, prediction)
            won = part.paired_us / part.latency_us >= quality.WIN
            out.add("diagnosis", gpu=np.array(common["gpu"])[known], probability=p[known], label=won[known])
    _rank(measured, predictor, out, progress)
    return out


def _regimes(part: Measured, bound: pipelines.Bound) -> list[str]:
    tensor, dram = (np.broadcast_to(bound.times_us[n], (len(part),)) for n in ("tensor", "dram"))
    few = np.zeros(len(part), dtype=bool)
    if part.problem.family == "fused_moe":
        few = np.broadcast_to(part.problem.sizes["M"] <= part.problem.sizes["E"], (len(part),))
    return [REGIMES[0] if f else (REGIMES[2] if t > d else REGIMES[1]) for f, t, d in zip(few, tensor, dram, strict=True)]


def _rank(measured: Sequence[Measured], predictor: Predictor, out: Judged, progress: Progress) -> None:
    """Rank the whole space for every swept problem, and look for the first near-optimal configuration."""
    best, exact = [m for m in measured if m.kind == "best"], [m for m in measured if m.kind == "exact"]
    keys, rows = moe_training.near_optimal(exact, best)
    near: dict[object, set[tuple[float, ...]]] = {}
    for key, row in zip(keys, rows.tolist(), strict=True):
        near.setdefault(key, set()).add(tuple(row))
    if not near:
        return
    space = family_space("fused_moe")
    table = [tuple(row) for row in as_rows(space).tolist()]
    for part in best:
        progress(f"ranking {part.gpu.name}")
        for i, key in enumerate(moe_training._keys(part)):
            if key not in near:
                continue
            scores = predictor.scores(one_problem(part.problem, i), space, part.gpu)
            order = np.argsort(scores, kind="stable")[: max(quality.HIT_RANKS)]
            place = next((n for n, j in enumerate(order.tolist()) if table[j] in near[key]), None)
            out.places.setdefault(part.gpu.name, []).append(place)


def _figures(judged: Judged) -> dict[str, Any]:
    result: dict[str, Any] = {"tasks": {}}
    for kind, lists in judged.columns.items():
        c = {n: np.array(v) for n, v in lists.items()}
        if kind == "diagnosis":
            result["diagnosis"] = {
                "all": quality.diagnosis(c["probability"], c["label"]),
                "per_gpu": quality.by(lists["gpu"], quality.diagnosis, c["probability"], c["label"]),
            }
            continue
        merged = result["tasks"].setdefault(kind, {})
        columns = (c["measured"], c["predicted"], c["weight"])
        merged |= quality.errors(*columns) | {
            "coverage_percent": quality.coverage(c["measured"], c["low"], c["high"], c["weight"]),
            "learned_percent": 100 * float(c["learned"].mean()),
            "bound_violations": int((c["measured"] < c["bound"]).sum()),
            "median_bound_over_latency": float(np.median(c["bound"] / c["measured"])),
            "per_gpu": quality.by(lists["gpu"], lambda m, p, w, lo, hi: quality.errors(m, p, w) | {
                "coverage_percent": quality.coverage(m, lo, hi, w)}, *columns, c["low"], c["high"]),
            "per_regime": quality.by(lists["regime"], quality.errors, *columns),
            "bound_alone": quality.errors(c["measured"], c["bound"], c["weight"]),
        }  # fmt: skip
    if judged.places:
        every = [p for places in judged.places.values() for p in places]
        result["ranking"] = quality.hits(every) | {"per_gpu": {g: quality.hits(p) for g, p in sorted(judged.places.items())}}
    return result


__all__ = ["cross", "evaluate", "given_split", "group_splits", "judge", "write_card"]
