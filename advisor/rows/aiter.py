"""The tuned GEMM tables that `ROCm/aiter` publishes: the best kernel of AMD's tuner for each shape, latency in microseconds."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.system.reading import read_text

GPUS = {("gfx942", 304): "MI300X", ("gfx942", 80): "MI308X", ("gfx950", 256): "MI355X"}
"""By target and number of compute units."""

PATTERN = "*_tuned_gemm*.csv*"
SIZE_LIMIT_BYTES = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedGemm:
    """Launches of one GPU and type: `dtype` `bf16` or `fp8`, `block_shape` where scales are per block; columns [n]."""

    gpu: str
    dtype: str
    block_shape: tuple[int, int] | None
    m: NDArray[np.float64]
    n: NDArray[np.float64]
    k: NDArray[np.float64]
    latency_us: NDArray[np.float64]
    triton: NDArray[np.bool_]


def is_layout(path: Path | str) -> bool:
    """Whether a folder, or a file, is of these."""
    return next(_files(path), None) is not None


def _files(path: Path | str) -> Iterator[Path]:
    path = Path(path)
    paths = sorted(path.glob(PATTERN)) if path.is_dir() else [path] if path.match(PATTERN) else []
    return (item for item in paths if "batched" not in item.name)


def read(path: Path | str) -> list[TunedGemm]:
    """What the tables of a folder, or one table, say of bf16 and fp8 products; other types and GPUs are left out."""
    by_shape: dict[tuple[str, str, tuple[int, int] | None], list[tuple[float, float, float, float, bool]]] = {}
    for file in _files(path):
        text = read_text(file, file.name, "a CSV file", SIZE_LIMIT_BYTES, unpack=True)
        for row in csv.DictReader(io.StringIO(text)):
            gpu = GPUS.get((row.get("gfx") or "", int(row.get("cu_num") or 0)))
            kind = _kind(file.name, row)
            us = float(row.get("us") or 0)
            if gpu is None or kind is None or not 0 < us < float("inf"):
                continue
            sizes = float(row["M"]), float(row["N"]), float(row["K"])
            by_shape.setdefault((gpu, *kind), []).append((*sizes, us, "triton" in (row.get("libtype") or "")))
    out = []
    for (gpu, dtype, block_shape), rows in sorted(by_shape.items(), key=str):
        m, n, k, us, triton = np.array(rows).T
        out.append(
            TunedGemm(gpu=gpu, dtype=dtype, block_shape=block_shape, m=m, n=n, k=k, latency_us=us, triton=triton.astype(bool)),
        )
    return out


def _kind(name: str, row: dict[str, str]) -> tuple[str, tuple[int, int] | None] | None:
    """Type and block shape of a row; None: another type."""
    if "a8w8_blockscale" in name:
        return "fp8", (128, 128)
    if "bf16" in name:
        return ("bf16", None) if row.get("dtype") == "torch.bfloat16" and row.get("scaleAB") != "True" else None
    if "a8w8" in name:
        return ("fp8", None) if "float8" in (row.get("q_dtype_w") or "") else None
    return None
