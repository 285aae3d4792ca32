"""Curves of collectives from measured tables (`data/silicon`, in their publisher's layout)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from advisor.gpus.hardware import load_gpu, match_device_name
from advisor.rows.silicon import GPUS
from advisor.steps.constants import read_curves
from advisor.system.errors import InputError

LOG2_BYTES = (9, 12, 15, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 28, 30)
"""Where a curve has a point: closer together where the libraries change their algorithm."""
ROUNDS = 20
Key = tuple[str, str, int]


def read_collectives(folder: str | Path) -> dict[Key, tuple[list[float], list[float]]]:
    """Measured collectives, by GPU, collective and library (`all_reduce/sglang-eager`) and ranks: bytes, and microseconds.

    Of every library the newest version alone.

    Raises:
        InputError: The folder holds no such tables.
    """
    import pyarrow.parquet as parquet

    versions: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in Path(folder).glob("*/comm/*/*/*.parquet"):
        gpu, _, stack = path.relative_to(folder).parts[:3]
        versions[gpu, stack].append(path)
    if not versions:
        raise InputError(f"{folder}: no tables of collectives", None, "GPU/comm/STACK/VERSION/*.parquet", "name the folder above")
    found: dict[Key, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for (gpu, stack), paths in versions.items():
        spec = match_device_name(GPUS.get(gpu, gpu))
        if spec is None:
            continue
        columns = parquet.read_table(max(paths, key=lambda path: _version(path.parent.name))).to_pydict()
        types = columns.get("nccl_dtype") or columns["allreduce_dtype"]
        for op, source, ranks, dtype, elements, ms in zip(
            *(columns[name] for name in ("op_name", "kernel_source", "num_gpus")),
            types,
            columns["message_size"],
            columns["latency"],
            strict=True,
        ):
            sizes, us = found[spec.name, f"{op}/{stack}{'-eager' if source.endswith('eager') else ''}", ranks]
            sizes.append(elements * (1 if dtype == "int8" else 2))
            us.append(ms * 1e3)
    return found


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def fit_curves(measured: Mapping[Key, tuple[list[float], list[float]]]) -> dict[str, Any]:
    """Curves as `steps.constants` reads them: least absolute deviations of the logarithm, linear between the points of `LOG2_BYTES`."""
    curves: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(dict))
    for (gpu, op, ranks), (sizes, us) in sorted(measured.items()):
        curves[gpu][op][str(ranks)] = [round(each, 2) for each in 2 ** _fitted(np.log2(sizes), np.log2(us))]
    return {"log2_bytes": LOG2_BYTES, "curves": curves}


def judge_curves(measured: Mapping[Key, tuple[list[float], list[float]]]) -> dict[str, dict[str, float]]:
    """By GPU, mean absolute errors in percent of the engines' own all-reduces in a graph: `seen`, with every second size left out of its
    curve, and `left out`, by the curves of the other GPUs."""
    mine = {key: rows for key, rows in measured.items() if key[1] in ("all_reduce/vllm", "all_reduce/sglang")}
    halves = read_curves(fit_curves({key: (sizes[::2], us[::2]) for key, (sizes, us) in mine.items()}))
    found = {}
    for gpu in sorted({key[0] for key in mine}):
        others = read_curves(fit_curves({key: rows for key, rows in mine.items() if key[0] != gpu}))
        errors: dict[str, list[float]] = {"seen": [], "left out": []}
        for (name, op, ranks), (sizes, us) in mine.items():
            if name != gpu:
                continue
            for which, curves, first, step in (("seen", halves, 1, 2), ("left out", others, 0, 1)):
                for size, each in zip(sizes[first::step], us[first::step], strict=True):
                    predicted = curves.latency_us("all_reduce", size, ranks, load_gpu(gpu), op.partition("/")[2])[0]
                    errors[which].append(100 * abs(predicted / each - 1))
        found[gpu] = {which: float(np.mean(values)) for which, values in errors.items()}
    return found


def _fitted(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The curve's values at `LOG2_BYTES`, by iteratively reweighted least squares; held together by a faint pull to a straight line."""
    points = np.array(LOG2_BYTES, dtype=float)
    hats = np.array([np.interp(x, points, unit) for unit in np.eye(points.size)]).T
    bend = 1e-3 * np.diff(np.eye(points.size), n=2, axis=0)
    weight = np.ones(x.size)
    for _ in range(ROUNDS):
        a = np.vstack([hats * weight[:, None], bend])
        solved = np.linalg.lstsq(a, np.concatenate([y * weight, np.zeros(len(bend))]), rcond=None)[0]
        weight = 1 / np.sqrt(np.maximum(np.abs(y - hats @ solved), 0.02))
    return np.asarray(solved)
