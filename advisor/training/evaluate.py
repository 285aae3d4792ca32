"""`advisor evaluate`: how well a predictor does on measured rows, as JSON values.

`evaluate` judges given weights; `cross` trains anew without each fold of models, GPUs or shapes in turn and judges on what was left
out; `given_split` leaves named GPUs out together. `tests/bench/peers.py` judges baselines on the same folds.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from advisor.gpus.hardware import load_gpu
from advisor.learned import weights
from advisor.learned.base import Predictor
from advisor.learned.estimator import LearnedPredictor
from advisor.learned.library import direct
from advisor.learned.weights import Weights
from advisor.system.processes import end_with_parent
from advisor.system.writing import replacing
from advisor.training import data, judging, model_card, splits, training
from advisor.training.data import Measured
from advisor.training.judging import Judged
from advisor.training.splits import Split

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
        by: One of `splits.BY`.
        progress: Told what is being done.
        workers: Processes that train at once.
    """
    return _run(splits.make(data.read(paths, progress=progress), by), by, progress, workers)


def given_split(paths: Iterable[Path | str], test_gpus: Sequence[str], progress: Progress = lambda text: None) -> dict[str, Any]:
    """Train without `test_gpus` (all of them at once), and judge on them."""
    names = [load_gpu(name).name for name in test_gpus]
    return _run(splits.given(data.read(paths, progress=progress), names), "gpu", progress, workers=1)


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
