"""Curves of collectives from measured tables (`data/silicon`, in their publisher's layout)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from advisor.gpus.hardware import load_gpu, match_device_name
from advisor.rows.silicon import GPUS
from advisor.steps.collectives import read_curves
from advisor.system.errors import InputError

LOG2_BYTES = tuple(range(8, 31))
"""Where a curve has a point: every size that was measured, for the libraries change their algorithm between any two."""
SPIKE = 2.0
"""A measurement of so many times both its neighbours was disturbed (38 µs between 3.3 and 3.5): a larger message is not faster."""
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
    curves: dict[Key, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
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
            sizes, us = curves[spec.name, f"{op}/{stack}{'-eager' if source.endswith('eager') else ''}", ranks]
            sizes.append(elements * (1 if dtype == "int8" else 2))
            us.append(ms * 1e3)
    return curves


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def fit_curves(measured: Mapping[Key, tuple[list[float], list[float]]]) -> dict[str, Any]:
    """Curves as `steps.constants` reads them, latencies in microseconds at `LOG2_BYTES`."""
    curves: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(dict))
    for (gpu, op, ranks), (sizes, us) in sorted(measured.items()):
        curves[gpu][op][str(ranks)] = [round(float(item), 2) for item in _fitted(sizes, us)]
    return {"log2_bytes": LOG2_BYTES, "curves": curves}


def judge_curves(measured: Mapping[Key, tuple[list[float], list[float]]]) -> dict[str, dict[str, float]]:
    """By GPU, mean absolute errors in percent of the engines' own all-reduces in a graph: `seen`, with every second size left out of its
    curve, and `left out`, by the curves of the other GPUs; over PCIe also `host known`, the same where what the host passes
    of the largest message is known."""
    mine = {key: rows for key, rows in measured.items() if key[1] in ("all_reduce/vllm", "all_reduce/sglang")}
    halves = read_curves(fit_curves({key: (sizes[::2], us[::2]) for key, (sizes, us) in mine.items()}))
    by_kind = {}
    for gpu in sorted({key[0] for key in mine}):
        others = read_curves(fit_curves({key: rows for key, rows in mine.items() if key[0] != gpu}))
        errors: dict[str, list[float]] = defaultdict(list)
        spec = load_gpu(gpu)
        for (name, op, ranks), (sizes, us) in mine.items():
            if name != gpu:
                continue
            of_host = replace(spec, host_bytes_per_s=2 * (ranks - 1) / ranks * max(sizes) / us[int(np.argmax(sizes))] * 1e6)
            ways = [("seen", halves, spec, 1, 2), ("left out", others, spec, 0, 1), ("host known", others, of_host, 0, 1)]
            for which, curves, judged, first, step in ways if spec.fabric_bytes_per_s is None else ways[:2]:
                for size, item in zip(sizes[first::step], us[first::step], strict=True):
                    predicted = curves.latency_us("all_reduce", size, ranks, judged, op.partition("/")[2])[0]
                    errors[which].append(100 * abs(predicted / item - 1))
        by_kind[gpu] = {which: float(np.mean(values)) for which, values in errors.items()}
    return by_kind


def _fitted(sizes: Sequence[float], us: Sequence[float]) -> np.ndarray:
    """The curve's values at `LOG2_BYTES`: the median of each size without spikes, linear in the bytes between sizes and beyond them."""
    points, known = np.exp2(LOG2_BYTES), np.unique(sizes)
    values = np.array([np.median(np.asarray(us)[np.asarray(sizes) == item]) for item in known])
    left, here, right = values[:-2], values[1:-1], values[2:]
    values[1:-1] = np.where(here > SPIKE * np.maximum(left, right), np.sqrt(left * right), here)
    return np.asarray(np.interp(points, known, values) * np.maximum(points / known[-1], 1.0))
