"""Public sweeps of a GEMM's configurations over their whole range (`besteguney/vllm-triton-backend`, normalised), as measured launches."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch
from advisor.rows.rows import TEXT_SIZE_LIMIT_BYTES
from advisor.system.reading import read_text
from advisor.training.data import Measured

PRODUCTS = "gemm.csv.gz"
GPUS = {"A100-SXM4-80GB": "A100", "H100-SXM-80GB-HBM3": "H100", "V100-PCIE-16GB": "V100-PCIe-16GB", "MI250X/MI250": "MI250X"}
"""GPUs as the sweeps name them."""

COLUMNS = ("M", "N", "K", "BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_warps", "num_stages")
TYPES = {"float16": "fp16", "float32": "fp32"}
"""Types of the operands. 2,691 launches on the V100 were of float32, whose tiles take twice the shared memory and eight times as long."""


def is_layout(path: Path | str) -> bool:
    """Whether a folder holds these sweeps."""
    return (Path(path) / PRODUCTS).is_file()


def read(path: Path | str) -> list[Measured]:
    """The launches of fp16 operands that ran, one part per GPU; of each GPU all that one CTA computed alone.

    Raises:
        InputError: The file cannot be read.
        UnknownGpuError: A GPU is not described.
    """
    out = []
    for (gpu, dtype), (columns, latency) in _launches(path).items():
        ran = np.isfinite(latency)
        if dtype == "fp16" and ran.any():
            problem, configuration = _batches(columns[ran], dtype)
            out.append(
                Measured(
                    kind="gemm/gemm/fp16",
                    gpu=load_gpu(gpu),
                    problem=problem,
                    configuration=configuration,
                    latency_us=latency[ran],
                    source=PRODUCTS,
                )
            )
    return out


def launchability(path: Path | str) -> dict[str, dict[str, Any]]:
    """Of each GPU's launches, the share in percent of which the model says rightly whether they can launch, as JSON values.

    What can launch is told by the configuration and by which strides are multiples of 16 elements. A launch that failed although one alike
    ran, or as every other of its problem did, was broken off for another reason: `broken_off` of them are not judged, but are in
    `of_all_percent`.
    """
    gathered: dict[str, list[tuple[NDArray[np.bool_], ...]]] = defaultdict(list)
    for (name, dtype), (columns, latency) in _launches(path).items():
        ran, says = np.isfinite(latency), _launch(columns, dtype, load_gpu(name))
        of_problem, alike = (np.unique(column, axis=0, return_inverse=True)[1].ravel() for column in (columns[:, :3], _class(columns)))
        judged = ran | ((np.bincount(alike, ran)[alike] == 0) & (np.bincount(of_problem, ran)[of_problem] > 0))
        gathered[name].append((ran, says, judged, (columns[:, 1:3] % ALIGNED == 0).all(axis=1)))
    out = {}
    for name, parts in sorted(gathered.items()):
        ran, says, judged, even = (np.concatenate(part) for part in zip(*parts, strict=True))
        right = ran == says
        out[name] = {
            "launches": int(judged.sum()),
            "right_percent": _percent(right[judged]),
            "odd_strides": {"launches": int((judged & ~even).sum()), "right_percent": _percent(right[judged & ~even])},
            "refused_that_ran": int((ran & ~says).sum()),
            "taken_that_failed": int((judged & ~ran & says).sum()),
            "broken_off": int((~judged).sum()),
            "of_all_percent": _percent(right),
        }
    return out


ALIGNED = 16
"""Strides are known to the compiler as multiples of so many elements, or as nothing."""


def _percent(right: NDArray[np.bool_]) -> float:
    return float(100 * right.mean()) if right.size else float("nan")


def _class(columns: Array) -> Array:
    """What tells whether a launch can be made, [n, 7]: all of the configuration but the order of its tiles, and alignment."""
    return np.column_stack([columns[:, [3, 4, 5, 7, 8]], columns[:, 1:3] % ALIGNED == 0])


def _launch(columns: Array, dtype: str, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether the model says that they can launch, [n]."""
    with np.errstate(divide="ignore", invalid="ignore"):  # no warps at all
        return np.asarray(pipelines.schedule(pipelines.demand(*_batches(columns, dtype), gpu), gpu).resident > 0)


def _batches(columns: Array, dtype: str) -> tuple[ProblemBatch, ConfigurationBatch]:
    m, n, k, block_m, block_n, block_k, group, warps, stages = columns.T
    problem = ProblemBatch(family="gemm", op="gemm", sizes={"M": m, "N": n, "K": k}, dtype=dtype, output_dtype="fp16")
    parameters = {"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": block_n, "BLOCK_SIZE_K": block_k, "GROUP_SIZE_M": group}
    return problem, ConfigurationBatch(parameters=parameters, num_warps=warps, num_stages=stages)


def _launches(path: Path | str) -> dict[tuple[str, str], tuple[Array, Array]]:
    """`COLUMNS` [n, 9] and latencies in microseconds [n], NaN where a launch failed, by GPU and type of the operands."""
    text = read_text(Path(path) / PRODUCTS, PRODUCTS, "a CSV file", TEXT_SIZE_LIMIT_BYTES, unpack=True)
    gathered: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for row in csv.DictReader(io.StringIO(text)):
        if row["num_ctas"] == "1":
            latency = float(row["latency_us"]) if row["status"] == "ok" else float("nan")
            key = (GPUS.get(row["gpu"], row["gpu"]), TYPES[row["dtypes"].partition("/")[0]])
            gathered[key].append((*(float(row[name]) for name in COLUMNS), latency))
    return {key: (rows[:, :-1], rows[:, -1]) for key, rows in ((key, np.array(gathered[key])) for key in sorted(gathered))}
