"""The serving stacks' default heuristics, and the launchability formula."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from advisor.system.errors import UsageError
from advisor.tables.entries import FIELDS, default_configuration, default_fields, default_gemm_configuration
from advisor.tables.launchability import pipeline_buffers, shared_memory_bytes


def row(stack: str, M: int, E: int, **options: object) -> tuple[int, ...]:
    fields = default_fields(stack, M, E, **options)  # type: ignore[arg-type]
    return tuple(int(fields[field][0]) for field in FIELDS)


@pytest.mark.parametrize(
    ("stack", "M", "E", "options", "expected"),
    [
        ("vllm", 1, 128, {}, (16, 64, 128, 1, 4, 4)),
        ("vllm", 32, 128, {}, (16, 64, 128, 1, 4, 4)),
        ("vllm", 33, 128, {}, (32, 64, 128, 1, 4, 3)),
        ("vllm", 96, 128, {}, (32, 128, 64, 1, 4, 3)),
        ("vllm", 97, 128, {}, (64, 128, 64, 1, 4, 3)),
        ("vllm", 129, 128, {}, (64, 128, 64, 1, 8, 3)),
        ("vllm", 513, 8, {}, (128, 128, 64, 1, 8, 3)),
        ("vllm", 1032, 8, {}, (128, 128, 64, 16, 8, 3)),
        ("vllm", 4096, 8, {"dtype": "fp8_w8a8"}, (128, 128, 128, 16, 8, 3)),
        ("vllm", 8, 8, {"amd": True}, (16, 64, 128, 1, 4, 2)),
        ("vllm", 4, 8, {"dtype": "fp8_w8a8", "block_shape": (128, 128)}, (16, 64, 128, 1, 4, 4)),
        ("vllm", 5, 8, {"dtype": "fp8_w8a8", "block_shape": (128, 128)}, (16, 64, 128, 1, 4, 3)),
        ("vllm", 4, 8, {"dtype": "fp8_w8a8", "block_shape": (32, 32)}, (16, 32, 32, 1, 4, 3)),
        ("vllm", 4, 8, {"dtype": "fp8_w8a8", "block_shape": (128, 128), "amd": True}, (16, 128, 128, 1, 4, 2)),
        ("vllm", 9, 8, {"dtype": "fp8_w8a8", "block_shape": (128, 128)}, (16, 128, 128, 1, 4, 3)),
        ("vllm", 16, 8, {"dtype": "fp8_w8a8", "block_shape": (128, 128)}, (16, 128, 128, 1, 4, 3)),
        ("vllm", 64, 8, {"dtype": "fp8_w8a8", "block_shape": (128, 128)}, (16, 128, 128, 32, 4, 3)),
        ("vllm", 65, 8, {"dtype": "fp8", "block_shape": (64, 32), "amd": True}, (64, 64, 32, 32, 4, 2)),
        ("vllm", 1, 8, {"dtype": "int4_w4a16", "block_shape": (0, 128)}, (16, 32, 64, 1, 4, 3)),
        ("vllm", 41, 8, {"dtype": "int4_w4a16", "block_shape": (0, 128)}, (64, 64, 32, 1, 4, 3)),
        ("sglang", 8, 8, {}, (16, 32, 64, 1, 4, 3)),
        ("sglang", 9, 8, {}, (64, 64, 32, 8, 4, 3)),
        ("sglang", 8, 8, {"dtype": "fp8_w8a8"}, (64, 128, 128, 1, 4, 4)),
        ("sglang", 9, 8, {"dtype": "fp8_w8a8"}, (128, 256, 128, 32, 8, 4)),
        ("sglang", 9, 8, {"dtype": "fp8_w8a8", "shared_memory_bytes_per_cta": 101376}, (64, 128, 256, 64, 4, 2)),
        ("sglang", 9, 8, {"dtype": "fp8_w8a8", "block_shape": (128, 128)}, (64, 128, 128, 32, 4, 3)),
        ("sglang", 8, 8, {"dtype": "fp8_w8a8", "amd": True}, (64, 128, 128, 1, 4, 2)),
        ("sglang", 512, 8, {"dtype": "fp8_w8a8", "amd": True}, (128, 256, 128, 32, 8, 2)),
        ("sglang-early", 9, 8, {}, (64, 64, 64, 16, 4, 3)),
        ("vllm", 128, 128, {"version": 1400}, (16, 32, 64, 1, 4, 3)),
        ("vllm", 129, 128, {"version": 1600}, (64, 64, 32, 8, 4, 3)),
        ("vllm", 129, 128, {"version": 1600, "amd": True}, (64, 64, 32, 8, 4, 2)),
        ("vllm", 129, 128, {"version": 1700}, (64, 128, 64, 1, 8, 3)),
        ("vllm", 4096, 8, {"version": 1600, "dtype": "fp8_w8a8"}, (64, 64, 32, 8, 4, 3)),
        ("vllm", 4, 8, {"version": 1600, "dtype": "fp8_w8a8", "block_shape": (128, 128)}, (64, 128, 128, 32, 4, 3)),
        ("vllm", 4, 8, {"version": 1700, "dtype": "fp8_w8a8", "block_shape": (128, 128)}, (16, 128, 128, 1, 4, 3)),
        ("vllm", 4, 8, {"version": 2400, "dtype": "fp8_w8a8", "block_shape": (128, 128)}, (16, 128, 128, 1, 4, 3)),
        ("vllm", 4, 8, {"version": 2500, "dtype": "fp8_w8a8", "block_shape": (128, 128)}, (16, 64, 128, 1, 4, 4)),
        ("vllm", 41, 8, {"version": 1600, "dtype": "int4_w4a16", "block_shape": (0, 128)}, (64, 64, 32, 1, 4, 3)),
    ],
)
def test_heuristics(stack: str, M: int, E: int, options: dict[str, object], expected: tuple[int, ...]) -> None:
    assert row(stack, M, E, **options) == expected


def test_vectorised_is_the_same_as_one_by_one() -> None:
    M = np.arange(1, 2000, 7)
    for stack in ("vllm", "sglang", "sglang-early"):
        many = default_fields(stack, M, 60)
        assert all(column.shape == M.shape for column in many.values())
        for i in range(0, len(M), 40):
            one = default_configuration(stack, int(M[i]), 60)
            assert one.parameters["BLOCK_SIZE_M"] == many["BLOCK_SIZE_M"][i]
            assert (one.num_warps, one.num_stages) == (many["num_warps"][i], many["num_stages"][i])
    with pytest.raises(UsageError, match="vllm"):
        default_fields("tgi", 1, 8)


def test_the_published_sweeps_name_the_early_sglang_default(data_dir: Path) -> None:
    with gzip.open(data_dir / "fused_moe_sweep_summary.csv.gz", "rt") as stream:
        rows = list(csv.DictReader(stream))
    fields = default_fields("sglang-early", [int(r["M"]) for r in rows], [int(r["E"]) for r in rows])
    for name in FIELDS:
        assert fields[name].tolist() == [int(r[f"default_{name}"]) for r in rows]


@pytest.mark.parametrize(("stack", "stages"), [("vllm", 2), ("sglang", 3)])
def test_gemm_default(stack: str, stages: int) -> None:
    configuration = default_gemm_configuration(stack, (128, 64))
    assert configuration.label().startswith("BLOCK_SIZE_M=64 BLOCK_SIZE_N=128 BLOCK_SIZE_K=64 GROUP_SIZE_M=32")
    assert (configuration.num_warps, configuration.num_stages) == (4, stages)
    with pytest.raises(UsageError, match="vllm, sglang"):
        default_gemm_configuration("tgi")


@pytest.mark.parametrize(
    ("capability", "blocks", "warps", "stages", "a_bytes", "b_bytes", "expected"),
    [  # what Triton 3.9.0 put into metadata.shared for a fused-MoE loop (3.6.0: the first two)
        ("8.0", (64, 128, 64), 4, 3, 2, None, 48 * 1024),
        ("9.0", (64, 128, 64), 4, 3, 2, None, 72 * 1024),
        ("12.0", (64, 128, 64), 4, 3, 2, None, 48 * 1024),
        ("10.0", (64, 128, 64), 4, 3, 2, None, 72 * 1024),
        ("9.0", (32, 256, 256), 4, 2, 2, None, 147456),
        ("9.0", (16, 64, 128), 4, 3, 2, None, 40960),
        ("9.0", (64, 64, 64), 2, 4, 2, None, 49152),
        ("9.0", (64, 128, 128), 4, 3, 1, None, 73728),
        ("9.0", (16, 128, 128), 4, 3, 1, None, 36864),
        ("9.0", (64, 128, 128), 4, 3, 2, 1, 114688),
        ("9.0", (256, 128, 128), 8, 3, 2, 1, 262144),
        ("8.0", (16, 128, 128), 4, 3, 2, 1, 40960),
        ("9.0", (128, 128, 64), 8, 1, 2, None, 32768),
        ("8.0", (128, 128, 64), 8, 2, 2, None, 32768),
        ("gfx942", (128, 256, 128), 8, 4, 1, None, 147456),
        ("gfx942", (64, 128, 64), 4, 2, 2, None, 24576),
        ("gfx942", (64, 128, 64), 4, 3, 2, None, 49152),
    ],
)
def test_shared_memory(
    capability: str, blocks: tuple[int, int, int], warps: int, stages: int, a_bytes: float, b_bytes: float | None, expected: int
) -> None:
    got = shared_memory_bytes(*blocks, stages, compute_capability=capability, num_warps=warps, a_bytes=a_bytes, b_bytes=b_bytes)
    assert int(got) == expected


def test_shared_memory_of_many() -> None:
    stages = np.array([1, 2, 3, 4])
    assert pipeline_buffers(stages, "gfx942").tolist() == [1, 1, 2, 3]
    assert pipeline_buffers(stages, "9.0").tolist() == [1, 2, 3, 4]
    assert shared_memory_bytes(64, 128, 64, stages, compute_capability="8.9").shape == (4,)
