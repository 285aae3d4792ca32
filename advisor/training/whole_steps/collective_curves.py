"""Curves of collectives from measured tables (`data/silicon`, in their publisher's layout)."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from advisor.gpus.hardware import match_device_name
from advisor.system.errors import InputError

LOG2_BYTES = (9, 12, 15, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 28, 30)
"""Where a curve has a point: closer together where the libraries change their algorithm."""
FOLDERS = {
    "a100_sxm": "A100",
    "h100_sxm": "H100",
    "h200_sxm": "H200",
    "b200_sxm": "B200",
    "b300_sxm": "B300",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
    "rtx_pro_6000_server": "RTX PRO 6000 S",
}
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
        spec = match_device_name(FOLDERS.get(gpu, gpu))
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


def fit_curves(measured: dict[Key, tuple[list[float], list[float]]]) -> dict[str, Any]:
    """Curves as `steps.constants` reads them: least absolute deviations of the logarithm, linear between the points of `LOG2_BYTES`."""
    curves: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(dict))
    for (gpu, op, ranks), (sizes, us) in sorted(measured.items()):
        curves[gpu][op][str(ranks)] = [round(each, 2) for each in 2 ** _fitted(np.log2(sizes), np.log2(us))]
    return {"log2_bytes": LOG2_BYTES, "curves": curves}


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
