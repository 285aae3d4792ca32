"""The published measurements as problems, for the tests and benchmarks of the bound."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch, analyse, bound, column, work

CONFIGURATION = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
MOE_FILES = {
    "fused_moe_default": "latency_us",
    "fused_moe_near_optimal": "latency_us",
    "fused_moe_sweep_summary": "best_us",
}
PRODUCTS = {"gemm": ("M", "N", "K"), "linear": ("M", "N", "K"), "bmm": ("B", "M", "N", "K")}
"""Products of matrices: [M, K] by [K, N], `bmm` B times. A bias is not counted (N elements, and it may be missing)."""
NORMALIZATIONS = {"softmax": "softmax", "ln": "layer_norm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One file's rows on one GPU (and of one operator), with their bounds."""

    source: str
    gpu: GpuSpec
    op: str
    latency_us: Array
    bound_us: Array
    config_bound_us: Array | None = None
    resident: Array | None = None  # CTAs per SM
    dram_us: Array | None = None  # the DRAM traffic that is predicted, at the full rate

    @property
    def share(self) -> Array:
        """bound / latency of every row."""
        return self.bound_us / self.latency_us


def read(path: Path) -> dict[str, np.ndarray]:
    """The columns of a .csv.gz: numbers where every value is one, else text."""
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.reader(file))
    columns: dict[str, np.ndarray] = {}
    for name, values in zip(rows[0], zip(*rows[1:], strict=True), strict=True):
        try:
            columns[name] = np.array([float(v) if v else np.nan for v in values])
        except ValueError:
            columns[name] = np.array(values)
    return columns


def _groups(columns: dict[str, np.ndarray], *names: str) -> Iterator[dict[str, np.ndarray]]:
    keys = np.array(["\0".join(key) for key in zip(*(columns[n] for n in names), strict=True)])
    for key in np.unique(keys):
        yield {n: c[keys == key] for n, c in columns.items()}


def operator_batch(op: str, rows: dict[str, np.ndarray], dtype: str) -> ProblemBatch:
    """The problems of a library operator's rows. fp32 is exact (no tensor pipeline), as cuBLAS without TF32."""
    family, name = ("gemm", "gemm") if op in PRODUCTS else ("elementwise", op)
    if op in NORMALIZATIONS:
        family, name = "normalization", NORMALIZATIONS[op]
    sizes = {size: column(rows[size]) for size in PRODUCTS.get(op, ("B", "H"))}
    return ProblemBatch(family=family, op=name, sizes=sizes, dtype=dtype, cache="warm")


def measurements(folder: Path) -> Iterator[Measured]:
    """Every measured row, by file, GPU and operator, with a warm cache as they were taken."""
    for source, latency in MOE_FILES.items():
        for rows in _groups(read(folder / f"{source}.csv.gz"), "gpu"):
            gpu = load_gpu(str(rows["gpu"][0]))
            problem = ProblemBatch(family="fused_moe", op="w13", sizes={n: rows[n] for n in ("M", "E", "topk", "H", "N")})
            of_config = resident = dram = None
            if all(n in rows for n in CONFIGURATION):
                config = ConfigurationBatch(
                    parameters={n: rows[n] for n in CONFIGURATION}, num_warps=rows["num_warps"], num_stages=rows["num_stages"]
                )
                launches = analyse(problem, config, gpu)
                of_config, resident = launches.config_bound.us, launches.schedule.resident
                dram = launches.demand.dram_bytes / gpu.dram_bytes_per_s * 1e6
            yield Measured(
                source=source,
                gpu=gpu,
                op="w13",
                latency_us=rows[latency],
                bound_us=bound(work(problem, gpu), gpu, "warm").us,
                config_bound_us=of_config,
                resident=resident,
                dram_us=dram,
            )
    for source, names, dtype in (("gemm_fp8", ("gpu",), "fp8"), ("library_ops", ("gpu", "op"), "fp32")):
        for rows in _groups(read(folder / f"{source}.csv.gz"), *names):
            gpu, op = load_gpu(str(rows["gpu"][0])), str(rows["op"][0]) if "op" in rows else "gemm"
            problem = operator_batch(op, rows, dtype)
            yield Measured(source=source, gpu=gpu, op=op, latency_us=rows["latency_us"], bound_us=bound(work(problem, gpu), gpu, "warm").us)
