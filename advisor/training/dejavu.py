"""Public sweeps of a GEMM's configurations over their whole range (`besteguney/vllm-triton-backend`, normalised), as measured launches."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from pathlib import Path

import numpy as np

from advisor.gpus.hardware import load_gpu
from advisor.pipelines import ConfigurationBatch, ProblemBatch
from advisor.rows.rows import TEXT_SIZE_LIMIT_BYTES
from advisor.system.reading import read_text
from advisor.training.data import Measured

PRODUCTS = "gemm.csv.gz"
GPUS = {"A100-SXM4-80GB": "A100", "H100-SXM-80GB-HBM3": "H100", "V100-PCIE-16GB": "V100-PCIe-16GB", "MI250X/MI250": "MI250X"}
"""GPUs as the sweeps name them."""

COLUMNS = ("M", "N", "K", "BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_warps", "num_stages", "latency_us")


def is_layout(path: Path | str) -> bool:
    """Whether a folder holds these sweeps."""
    return (Path(path) / PRODUCTS).is_file()


def read(path: Path | str) -> list[Measured]:
    """The launches that ran, one part per GPU; of each GPU all that one CTA computed alone.

    Raises:
        InputError: The file cannot be read.
        UnknownGpuError: A GPU is not described.
    """
    text = read_text(Path(path) / PRODUCTS, PRODUCTS, "a CSV file", TEXT_SIZE_LIMIT_BYTES, unpack=True)
    found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for row in csv.DictReader(io.StringIO(text)):
        if row["status"] == "ok" and row["num_ctas"] == "1":
            found[row["gpu"]].append(tuple(float(row[name]) for name in COLUMNS))
    return [_part(name, np.array(rows)) for name, rows in sorted(found.items())]


def _part(name: str, rows: np.ndarray) -> Measured:
    m, n, k, block_m, block_n, block_k, group, warps, stages, latency = rows.T
    return Measured(
        kind="gemm/gemm/fp16",
        gpu=load_gpu(GPUS.get(name, name)),
        problem=ProblemBatch(family="gemm", op="gemm", sizes={"M": m, "N": n, "K": k}, dtype="fp16"),
        configuration=ConfigurationBatch(
            parameters={"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": block_n, "BLOCK_SIZE_K": block_k, "GROUP_SIZE_M": group},
            num_warps=warps,
            num_stages=stages,
        ),
        latency_us=latency,
        source=PRODUCTS,
    )
