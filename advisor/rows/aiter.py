"""The tuned tables of products and of fused MoE that `ROCm/aiter` publishes: the best kernels of AMD's tuner for each shape, latency in
microseconds."""

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

OF_UNITS = {units: gpu for (_, units), gpu in GPUS.items()}
"""By the units alone, as tables of experts without a column for the target name them."""

PATTERN, OF_EXPERTS = "*_tuned_gemm*.csv*", "*tuned_fmoe*.csv*"
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


def holds_experts(path: Path | str) -> bool:
    """Whether a folder, or a file, holds tuned fused MoE."""
    return next(_files(path, OF_EXPERTS), None) is not None


def _files(path: Path | str, pattern: str = PATTERN) -> Iterator[Path]:
    path = Path(path)
    paths = sorted(path.glob(pattern)) if path.is_dir() else [path] if path.match(pattern) else []
    return (item for item in paths if "batched" not in item.name and "grouped" not in item.name)


def _rows(file: Path) -> Iterator[tuple[str, float, dict[str, str]]]:
    """GPU, latency in microseconds and cells of each launch of a GPU known, where there is a latency."""
    for row in csv.DictReader(io.StringIO(read_text(file, file.name, "a CSV file", SIZE_LIMIT_BYTES, unpack=True))):
        units = int(row.get("cu_num") or 0)
        gpu = GPUS.get((row["gfx"], units)) if row.get("gfx") else OF_UNITS.get(units)
        us = float(row.get("us") or 0)
        if gpu is not None and 0 < us < float("inf"):
            yield gpu, us, row


def read(path: Path | str) -> list[TunedGemm]:
    """What the tables of a folder, or one table, say of bf16 and fp8 products; other types and GPUs are left out."""
    by_shape: dict[tuple[str, str, tuple[int, int] | None], list[tuple[float, float, float, float, bool]]] = {}
    for file in _files(path):
        for gpu, us, row in _rows(file):
            kind = _kind(file.name, row)
            if kind is None:
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


FORMATS = {
    ("float8_e4m3fn", "float8_e4m3fn", "per_Token"): "fp8",
    ("float8_e4m3fn", "float8_e4m3fn", "per_1x128"): "fp8_block",
    ("float8_e4m3fn", "float8_e4m3fn", "per_1x32"): "mxfp8",
    ("float4_e2m1fn_x2", "float4_e2m1fn_x2", "per_1x32"): "w4a4_mxfp4",
    ("float8_e4m3fn", "float4_e2m1fn_x2", "per_1x32"): "w4a8_mxfp4_mxfp8",
    ("bfloat16", "float4_e2m1fn_x2", "per_1x32"): "w4a16_mxfp4",
    ("bfloat16", "int4", "per_1x32"): "int4_wo",
}
"""Formats of experts by the types of activations and weights and by the scales; an MI355X was tuned for one model in bf16."""

WITH_EXPERTS = "MI355X"
"""Whose fused MoE is read. An MI308X's runs at up to six times the rate of its matrix units (17 % of 330 layers are faster than these can
be), and an MI300X was tuned for three models: both come out 25 to 60 % wrong for models left out."""


def read_experts(path: Path | str) -> list[tuple[str, tuple[int, int, int, int, int], float]]:
    """Format, sizes (M, H, N, topk, E) and microseconds of the fused MoE of `WITH_EXPERTS` in the tables of a folder, or of one table."""
    out = []
    for file in _files(path, OF_EXPERTS):
        for gpu, us, row in _rows(file):
            form = FORMATS.get((_word(row, "q_dtype_a"), _word(row, "q_dtype_w"), _word(row, "q_type")))
            if form is not None and gpu == WITH_EXPERTS:
                m, h, n, k, e = (int(row[name]) for name in ("token", "model_dim", "inter_dim", "topk", "expert"))
                out.append((form, (m, h, n, k, e), us))
    return out


def _word(row: dict[str, str], name: str) -> str:
    """What a cell says behind its module: `torch.bfloat16`, `QuantType.No`."""
    return row[name].rpartition(".")[2]
