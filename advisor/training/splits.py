"""Groups of measured rows to leave out: whole models, GPUs, shapes or weight matrices. A random split of neighbouring token counts
would prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.system.errors import InputError
from advisor.training import direct_training
from advisor.training.data import MODEL_FOLDS, Measured, leave_out
from advisor.training.training import LEAST_ROWS

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
    return ({MOE: moe} if moe else {}) | dict(sorted(direct_training.groups(measured).items()))


def make(measured: Sequence[Measured], by: str) -> list[Split]:
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


def given(measured: Sequence[Measured], test_gpus: Sequence[str]) -> list[Split]:
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
