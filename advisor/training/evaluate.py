"""`advisor evaluate`: how well a predictor does on measured rows, as JSON values.

`evaluate` judges given weights; `cross` trains anew without each fold of models, GPUs or shapes in turn and judges on what was left
out; `given_split` leaves named GPUs out together. `tests/bench/peers.py` judges baselines on the same folds.

Groups of rows to leave out are whole models, GPUs, shapes or weight matrices: a random split of neighbouring token counts would prove
nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from advisor.gpus.hardware import load_gpu
from advisor.learned import weights
from advisor.learned.base import Predictor
from advisor.learned.estimator import LearnedPredictor
from advisor.learned.library import direct
from advisor.learned.weights import Weights
from advisor.system.errors import InputError
from advisor.system.processes import end_with_parent
from advisor.system.writing import replacing
from advisor.training import data, judging, model_card, training
from advisor.training.data import MODEL_FOLDS, Measured, leave_out
from advisor.training.judging import Judged
from advisor.training.training import LEAST_ROWS

Progress = Callable[[str], None]
HARD_SPLIT = ("H100", "H200", "L40", "RTX A6000", "RTX PRO 6000 S")
"""GPUs that PipeWeave was tested on and not trained on."""


def evaluate(paths: Iterable[Path | str], given: Weights, progress: Progress = lambda text: None) -> dict[str, Any]:
    """Judge weights on measured rows. Rows the weights were trained on are told apart: their figures flatter.

    A GPU is new to a task that no rows of it were trained on, whatever is known of it otherwise.
    """
    measured = data.read(paths, progress=progress)
    models = {tuple(m) for m in given.about.get("models", [])}

    def seen(part: Measured) -> list[str]:
        gpu = "GPU seen" if part.gpu.name in _trained_on(given, part) else "GPU new"
        if part.problem.family != "fused_moe":
            return [gpu] * len(part)
        return [f"{gpu}, model {'seen' if m in models else 'new'}" for m in part.models()]

    judged = judging.collect(measured, LearnedPredictor(given), progress, seen)
    judged.notes |= _simulated(measured)
    labels = {label for columns in judged.columns.values() for label in columns.get("novelty", [])}
    return judging.figures(judged) | {
        "trained_on": given.about,
        "in_sample": bool(labels & {"GPU seen", "GPU seen, model seen"}),
    }


def _trained_on(given: Weights, part: Measured) -> Collection[str]:
    """Names of the GPUs whose rows of this kind the weights were trained on."""
    if part.problem.family == "fused_moe":
        return given.moe.gpus.get(part.kind, ()) if given.moe else ()
    model = given.direct.get(direct.kind_of(part.problem)) if direct.covers(part.problem, part.configuration) else None
    return model.gpus if model else ()


def cross(paths: Iterable[Path | str], by: str, progress: Progress = lambda text: None, workers: int = 1) -> dict[str, Any]:
    """Leave groups out in turn, train, and judge on what was left out.

    Args:
        paths: Measured rows.
        by: One of `BY`.
        progress: Told what is being done.
        workers: Processes that train at once.
    """
    return _run(splits_of(data.read(paths, progress=progress), by), by, progress, workers)


def given_split(paths: Iterable[Path | str], test_gpus: Sequence[str], progress: Progress = lambda text: None) -> dict[str, Any]:
    """Train without `test_gpus` (all of them at once), and judge on them."""
    names = [load_gpu(name).name for name in test_gpus]
    return _run(split_without(data.read(paths, progress=progress), names), "gpu", progress, workers=1)


def _run(chosen: Sequence[Split], by: str, progress: Progress, workers: int) -> dict[str, Any]:
    done: dict[int, Judged] = {}
    if min(workers, len(chosen)) > 1:
        with ProcessPoolExecutor(min(workers, len(chosen)), mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
            jobs = {pool.submit(_judged_alone, split, by): number for number, split in enumerate(chosen)}
            for job in as_completed(jobs):
                done[jobs[job]] = job.result()
                progress(f"{len(done)} of {len(chosen)} done: {chosen[jobs[job]].group} without {chosen[jobs[job]].left_out}")
    else:
        for number, split in enumerate(chosen):
            progress(f"{number + 1} of {len(chosen)}: {split.group} without {split.left_out}")
            done[number] = _judged(split, by, progress)
    whole = Judged.join([done[number] for number in range(len(chosen))])
    whole.notes |= _simulated(part for split in chosen for part in split.test)
    return judging.figures(whole)


def _simulated(judged: Iterable[Measured]) -> set[str]:
    """A note on rows that were judged and not measured: figures on them say how well a simulation is known."""
    text = data.simulated(judged)
    return {text} if text else set()


def _judged(split: Split, by: str, progress: Progress) -> Judged:
    """Train on what a split keeps, and judge on the rest."""
    return judging.collect(split.test, _trained(split.kept, by, progress), progress)


def _judged_alone(split: Split, by: str) -> Judged:
    """The same in a process of its own, on one core: there are as many of them as cores."""
    import threadpoolctl  # scikit-learn brings it
    from sklearn import ensemble  # noqa: F401  its OpenMP has to be there to be limited

    with threadpoolctl.threadpool_limits(1):
        return _judged(split, by, lambda text: None)


def _trained(kept: Sequence[Measured], by: str, progress: Progress = lambda text: None) -> Predictor:
    """Trained on rows; intervals for GPUs never seen are fitted only where some are to be judged."""
    return LearnedPredictor(training.fit(kept, {}, progress, calibrate_by=("model", by) if by in ("gpu", "sweep") else ("model",)))


def group_splits(paths: Iterable[Path | str], progress: Progress = lambda text: None, workers: int = 1) -> dict[str, Any]:
    """All splits the model card reports, by title, which names the command that prints the same figures."""
    paths = list(paths)
    figures: dict[str, Any] = {}
    for title, by in (
        ("Models left out, four folds", "model"),
        ("One GPU left out, each in turn", "gpu"),
        ("The sweeps of one GPU left out, its launches as served known, each in turn", "sweep"),
        ("Library kernels: shapes left out, three folds", "shape"),
        ("Library kernels: weight matrices (N, K) and row lengths left out, three folds", "nk"),
    ):
        title = f"{title} (`advisor evaluate DATA --leave-out {by}`)"
        figures[title] = cross(paths, by, progress, workers)
    flags = " ".join(f"--test-gpu {shlex.quote(name)}" for name in HARD_SPLIT)
    title = f"Trained without {', '.join(HARD_SPLIT)} (`advisor evaluate DATA {flags}`)"
    figures[title] = given_split(paths, HARD_SPLIT, progress)
    return figures


def write_card(weights_path: Path | str, card_path: Path | str, judged: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Write the model card: what training itself held out, and the splits `judged` (by `group_splits`), where they were run.

    Weights of layers and library kernels alone fill their section of a card that is there, and leave the rest of it as it is.
    """
    given = weights.load(weights_path)
    held = given.moe.held_out if given.moe else {}
    titles = {by: f"{by.capitalize()}s left out (`advisor train DATA -o WEIGHTS --card FILE`)".replace("Gpu", "GPU") for by in held}
    figures = {titles[by]: model_card.of_training(f) for by, f in held.items()} | dict(judged or {})
    text = model_card.card(given, figures, Path(weights_path).stat().st_size)
    if not held and not given.direct and Path(card_path).is_file():  # layers and library kernels alone
        text = model_card.with_section(Path(card_path).read_text(encoding="utf-8"), given)
    with replacing(Path(card_path), "choose another --card") as place:
        place.write_text(text, encoding="utf-8")


MOE = "fused_moe"
BY = ("model", "gpu", "sweep", "shape", "nk")
"""What can be left out: MoE models (four folds); GPUs, each in turn; the sweeps of one GPU, its launches as served kept; of library
kernels, whole shapes, or all shapes of one weight matrix (N, K) or row length (three folds)."""

SHAPE_FOLDS = 3
Labels = Callable[[Measured], list[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One training and what it is judged on.

    Attributes:
        group: "fused_moe", or a kind of library kernels: what is trained together.
        left_out: What was left out, for people.
        kept: Rows to train on.
        test: Rows to judge.
    """

    group: str
    left_out: str
    kept: list[Measured]
    test: list[Measured]


def groups(measured: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Rows that are trained together, the fused MoE first."""
    moe = [m for m in measured if m.problem.family == MOE]
    return ({MOE: moe} if moe else {}) | dict(sorted(training.library_groups(measured).items()))


def splits_of(measured: Sequence[Measured], by: str) -> list[Split]:
    """All splits that leave out `by` (one of `BY`), of every group that can be split so.

    Raises:
        InputError: No group of the rows can be.
    """
    out: list[Split] = []
    for group, parts in groups(measured).items():
        if by == "gpu":
            swept = {p.gpu.name for p in parts if p.kind == "best"}
            names = sorted(swept or {p.gpu.name for p in parts})
            chosen = [_without(group, name, parts, _gpus, {name}) for name in names]
        elif by == "sweep":
            names = sorted({p.gpu.name for p in parts if p.kind == "best"})
            chosen = [_without(group, f"the sweeps of {name}", parts, _sweeps, {name}) for name in names]
        elif (by == "model") == (group == MOE):
            labels = {"model": _models, "shape": _shapes, "nk": _matrices}[by]
            every = sorted({label for part in parts for label in labels(part)})
            folds = leave_out(every, MODEL_FOLDS if by == "model" else SHAPE_FOLDS)
            chosen = [_without(group, f"fold {number}", parts, labels, gone) for number, (gone, _) in enumerate(folds, start=1)]
        else:
            continue
        out += [s for s in chosen if _can_be_judged(s)]
    if not out:
        raise InputError(
            f"nothing to leave out by {by}",
            ", ".join(groups(measured)) or "no rows that are learned",
            "at least two models, GPUs or shapes, or a sweep, of the right family: models and sweeps are those of fused "
            "MoE, shapes those of library kernels",
            "give rows of more, or another --leave-out",
        )
    return out


def split_without(measured: Sequence[Measured], test_gpus: Sequence[str]) -> list[Split]:
    """One split per group: the named GPUs left out together, and judged.

    Raises:
        InputError: No rows of these GPUs, or none of any other.
    """
    names = set(test_gpus)
    splits = [_without(group, ", ".join(sorted(names)), parts, _gpus, names) for group, parts in groups(measured).items()]
    splits = [s for s in splits if _can_be_judged(s)]
    if not splits:
        raise InputError(
            "no rows to judge, or none to train on",
            ", ".join(sorted(names)),
            f"rows of these GPUs, and at least {LEAST_ROWS} of others with the same kind of kernel",
            "name GPUs that the data has",
        )
    return splits


def _can_be_judged(split: Split) -> bool:
    """Whether there is something to judge, and enough left to train on."""
    return bool(split.test) and sum(map(len, split.kept)) >= (1 if split.group == MOE else LEAST_ROWS)


def _without(group: str, left_out: str, parts: Sequence[Measured], labels: Labels, gone: Collection[object]) -> Split:
    chosen = frozenset(gone)
    masks = [np.array([label in chosen for label in labels(part)], dtype=bool) for part in parts]
    return Split(
        group=group,
        left_out=left_out,
        kept=[p.take(~k) for p, k in zip(parts, masks, strict=True) if (~k).any()],
        test=[p.take(k) for p, k in zip(parts, masks, strict=True) if k.any()],
    )


def _gpus(part: Measured) -> list[Any]:
    return [part.gpu.name] * len(part)


def _sweeps(part: Measured) -> list[Any]:
    return [part.gpu.name if part.kind in ("exact", "best") else ""] * len(part)


def _models(part: Measured) -> list[Any]:
    return list(part.models())


def _shapes(part: Measured) -> list[Any]:
    return _columns(part, tuple(sorted(part.problem.sizes)))


def _matrices(part: Measured) -> list[Any]:
    """(N, K) of products, the row length of operators over rows."""
    return _columns(part, ("N", "K") if part.problem.family == "gemm" else ("H",))


def _columns(part: Measured, names: tuple[str, ...]) -> list[Any]:
    columns = [np.broadcast_to(part.problem.sizes[n], (len(part),)).astype(int).tolist() for n in names]
    return list(zip(*columns, strict=True))
