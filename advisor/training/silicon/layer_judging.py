"""How well layers are predicted whose model, version of the stack, or GPU was left out: by smaller forests of fewer rows than those that
serve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned import own_rows
from advisor.learned.layers.moe_layer import KINDS, TunedTables
from advisor.pipelines import Array
from advisor.steps.latency import layer_bound
from advisor.training.silicon.layer_tables import Measured, choose_launches, of_two_defaults
from advisor.training.silicon.layer_training import ROUGH_ROUNDS, corrected, errors_of_models, fit_time, hidden_tables, read, table, without
from advisor.training.silicon.library_kernels import summed

PER_FILE, TIME_STEPS, ROUNDS, STEPS = 4000, 25, 300, 3000
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
    parts = read(folders, per_file=PER_FILE) if {"model", "gpu", "version"} & set(leave_out) else []
    if not parts:
        return {}
    progress(f"layers: {sum(len(part) for part in parts)} rows")
    constants = fit_time([_alone(part) for part in parts], steps=TIME_STEPS)
    parts, _ = choose_launches(parts, TunedTables(tables), constants)
    rough = errors_of_models(parts, constants, ROUGH_ROUNDS, 0)
    parts = without(parts, np.concatenate([hidden_tables(part, error) for part, error in zip(parts, rough, strict=True)]))
    out: dict[str, Any] = {}
    if "model" in leave_out:
        errors = errors_of_models(parts, constants, ROUNDS, STEPS)
        out["layers: models left out"] = _figures(parts, errors) | of_two_defaults(parts, errors)
    for sglang, version in NEWEST if "version" in leave_out else ():
        newest = [(part.launch.layers.sglang == sglang) & (part.launch.layers.version == version) for part in parts]
        kept, gone = (
            [part.take(np.flatnonzero(mine == which)) for part, mine in zip(parts, newest, strict=True)] for which in (False, True)
        )
        gone = [part for part in gone if len(part)]
        name = f"no {'SGLang' if sglang else 'vLLM'} 0.{version // 100 if not sglang else f'5.{version % 100}'}"
        progress(f"layers: {name}")
        out[f"layers: {name}"] = _figures(gone, [error for _, error in _of_others(kept, gone, constants, STEPS)])
    for part in parts if "gpu" in leave_out else ():
        name = part.launch.gpu.name
        others = [other for other in parts if other is not part]
        if not others or (gpus is not None and name not in gpus):
            continue
        progress(f"layers: no {name}")
        ((matrix, error),) = _of_others(others, [part], fit_time([_alone(other) for other in others], steps=TIME_STEPS), 0)
        out[f"layers: no {name}"] = _figures([part], [error])
        out |= {f"layers: no {name}, {count} rows given": _given(part, matrix, error, count) for count in given}
    return out


def _alone(part: Measured) -> Measured:
    return part.take(np.flatnonzero(part.launch.layers.ranks == 1))


def _of_others(others: Sequence[Measured], parts: Sequence[Measured], constants: Array, steps: int) -> list[tuple[Array, Array]]:
    """By part: features, and log(predicted / measured), by a model of others, whose network takes so many steps."""
    correction = corrected(*table(others, constants), ROUNDS, steps)
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
