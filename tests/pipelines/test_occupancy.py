"""Resident CTAs against the CUDA occupancy calculator, and the resources of a dot against what Triton 3.9.0 compiled."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from advisor.hardware import load_gpu
from advisor.pipelines import ProblemBatch, column, configuration_batch, demand, occupancy
from advisor.schema import Configuration

KIB = 1024
COMPILED = Path(__file__).with_name("compiled_resources.csv")
GPU_OF = {"80": "A100", "86": "A40", "89": "L40", "90": "H100", "100": "B200", "120": "RTX 5090"}


@pytest.mark.parametrize(
    ("gpu", "warps", "registers", "shared", "resident", "limiter"),
    [
        ("A100", 4, 32, 0, 16, "warps"),  # 64 warps
        ("A100", 4, 128, 0, 4, "registers"),  # 16 warps of 4,096 registers
        ("A100", 4, 104, 0, 4, "registers"),  # 19 warps' registers, but 4 in each quarter of the SM
        ("A100", 8, 255, 0, 1, "registers"),  # 8 warps
        ("A100", 4, 64, 48 * KIB, 3, "shared-memory"),  # 164 KiB, one reserved for each CTA
        ("A100", 4, 64, 163 * KIB, 1, "shared-memory"),
        ("A100", 4, 64, 163 * KIB + 1, 0, "shared-memory"),
        ("A100", 1, 32, 0, 32, "slots"),
        ("H100", 4, 168, 72 * KIB, 3, "registers"),  # 12 warps of 5,376 registers; 228 KiB hold 3 as well
        ("H100", 4, 90, 72 * KIB, 3, "shared-memory"),
        ("H100", 4, 64, 227 * KIB, 1, "shared-memory"),
        ("H100", 4, 64, 228 * KIB, 0, "shared-memory"),
        ("A40", 4, 32, 0, 12, "warps"),  # 48 warps
        ("A40", 2, 32, 0, 16, "slots"),
        ("A40", 4, 64, 99 * KIB, 1, "shared-memory"),
        ("A40", 4, 64, 100 * KIB, 0, "shared-memory"),
        ("T4", 8, 64, 0, 4, "warps"),  # 32 warps
        ("T4", 4, 64, 32 * KIB, 2, "shared-memory"),  # nothing reserved before sm_80
        ("V100", 4, 64, 0, 8, "registers"),
    ],
)
def test_occupancy(gpu: str, warps: int, registers: int, shared: int, resident: int, limiter: str) -> None:
    resources = occupancy.Resources(registers=column(registers), shared_memory_bytes=column(shared), num_warps=column(warps))
    count, which = occupancy.resident_ctas(load_gpu(gpu), resources)
    assert count[0] == resident
    assert occupancy.LIMITERS[which[0]] == limiter or (gpu, registers) == ("H100", 168)


def test_tensor_memory_limits_blackwell() -> None:
    resources = occupancy.Resources(
        registers=column(64), shared_memory_bytes=column(0), num_warps=column(4), tensor_memory_columns=column(256)
    )
    count, which = occupancy.resident_ctas(load_gpu("B200"), resources)
    assert (count[0], occupancy.LIMITERS[which[0]]) == (2, "tensor-memory")


def compiled_rows() -> list[dict[str, str]]:
    with COMPILED.open() as file:
        return list(csv.DictReader(file))


def estimated(rows: list[dict[str, str]]) -> list[occupancy.Resources]:
    """The estimate for every compiled fused-MoE w13 (H = 2048, N = 768), or gemm (K = 2048)."""
    out = []
    for row in rows:
        names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
        config = Configuration(
            parameters={name: int(row[name]) for name in names} | {"GROUP_SIZE_M": 16},
            num_warps=int(row["num_warps"]), num_stages=int(row["num_stages"]),
        )  # fmt: skip
        moe = row["kernel"] == "fused_moe"
        sizes = {"M": 64, "E": 128, "topk": 8, "H": 2048, "N": 768} if moe else {"M": 512, "N": 1024, "K": 2048}
        problem = ProblemBatch(
            family="fused_moe" if moe else "gemm", op="w13" if moe else "gemm", dtype=row["dtype"],
            sizes={n: column(v) for n, v in sizes.items()},
            block_shape=(128, 128) if moe and row["dtype"] == "fp8" else None,
        )  # fmt: skip
        out.append(demand(problem, configuration_batch([config]), load_gpu(GPU_OF[row["sm"]])).resources)
    return out


def test_shared_memory_is_what_triton_allocates() -> None:
    """Exact where the operand buffers decide, which is everywhere near a GPU's limit; elsewhere within the epilogue's scratch."""
    rows = compiled_rows()
    assert len(rows) > 300
    exact = 0
    for row, resources in zip(rows, estimated(rows), strict=True):
        got, compiled = float(resources.shared_memory_bytes[0]), int(row["shared_memory_bytes"])
        exact += got == compiled
        if int(row["num_stages"]) >= 3 or int(row["BLOCK_SIZE_K"]) > 32:
            assert got == compiled, row
        else:
            limit = load_gpu(GPU_OF[row["sm"]]).smem_bytes_per_cta
            assert (got > limit) == (compiled > limit), row
            assert max(got, compiled) <= 66 * KIB or got == compiled, row
    assert exact / len(rows) > 0.9


def test_registers_are_close() -> None:
    """The compiler decides; the estimate is within a tenth on average, and half the CTAs that registers allow are exact."""
    rows = [row for row in compiled_rows() if row["kernel"] == "fused_moe"]
    estimates = np.array([float(r.registers[0]) for r in estimated(rows)])
    compiled = np.array([float(row["registers"]) for row in rows])
    error = np.abs(np.minimum(estimates, 255) - compiled) / compiled
    assert error.mean() < 0.10
    assert np.quantile(error, 0.9) < 0.25
    # Where the estimate says the registers are full, they are.
    assert (compiled[estimates >= 275] >= 240).all()


def test_an_odd_depth_is_not_pipelined() -> None:
    """K = 2047: 2-byte elements cannot be copied asynchronously, and one buffer is left (Triton 3.9.0)."""
    config = configuration_batch([Configuration(
        parameters={"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}, num_warps=4, num_stages=3
    )])  # fmt: skip
    for k, expected in ((2048, 20480), (2047, 10240)):
        sizes = {"M": column(64), "N": column(64), "K": column(k)}
        asked = demand(ProblemBatch(family="gemm", op="gemm", sizes=sizes), config, load_gpu("A100"))
        assert asked.resources.shared_memory_bytes[0] == expected
