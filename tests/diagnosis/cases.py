"""For every rule a launch on which it must fire, and one on which it must not although it applies."""

from __future__ import annotations

from collections.abc import Callable

from advisor.diagnosis import LaunchContext
from advisor.result.schema import Configuration

from .launches import gemm, launch, moe, prefill, rows, tile

FINE = tile(128, 256, 64, 8, 8, 3)
LOPSIDED = (20,) * 16 + (1,) * 112


def attention(block: int, warps: int) -> Configuration:
    return Configuration(parameters={"BLOCK_M": block, "BLOCK_N": 64}, num_warps=warps)


def normalise(block: int) -> Configuration:
    return Configuration(parameters={"BLOCK_SIZE": block})


Case = Callable[[], LaunchContext]

CASES: dict[str, tuple[Case, Case]] = {
    "cannot-launch": (
        lambda: launch(gemm(4096, 4096, 4096), tile(128, 256, 128, 8, 8, 4), "L40S"),
        lambda: launch(gemm(4096, 4096, 4096), tile(64, 64, 64, 8, 4, 3), "L40S"),
    ),
    "below-bound": (
        lambda: launch(moe(64), tile(16, 64, 128), "H100", measured_us=5.0),
        lambda: launch(moe(64), tile(16, 64, 128), "H100", measured_us=280.0),
    ),
    "entry-far-from-m": (
        lambda: launch(moe(4096), tile(16, 64, 64), "H100", entry_m=64),
        lambda: launch(moe(4096), tile(16, 64, 64), "H100", entry_m=3072),
    ),
    "clamped-block-k": (
        lambda: launch(moe(64, dtype="fp8", block_shape=(128, 128)), tile(16, 64, 128), "H100", entry=tile(16, 64, 256), entry_m=64),
        lambda: launch(moe(64, dtype="fp8", block_shape=(128, 128)), tile(16, 64, 128), "H100", entry=tile(16, 64, 128)),
    ),
    "not-tensor-dtype": (
        lambda: launch(gemm(8192, 8192, 8192, dtype="fp32"), tile(64, 64, 32, 8), "A100"),
        lambda: launch(gemm(8192, 8192, 8192, dtype="tf32"), tile(64, 64, 32, 8), "A100"),
    ),
    "expert-padding": (
        lambda: launch(moe(512), tile(128, 64, 64, 32, 4, 4), "H20"),
        lambda: launch(moe(64), tile(16, 64, 128), "H20"),  # mostly padding, which no tile avoids
    ),
    "edge-padding": (
        lambda: launch(gemm(4096, 1056, 4096), FINE, "H20"),
        lambda: launch(gemm(4096, 1024, 4096), FINE, "H20"),
    ),
    "too-few-ctas": (
        lambda: launch(gemm(128, 2048, 8192), tile(128, 128, 64), "A100"),
        lambda: launch(gemm(4096, 4096, 4096), FINE, "A100"),
    ),
    "tail-wave": (
        lambda: launch(gemm(5000, 512, 2048), tile(128, 128, 64, 8, 4, 4), "H20"),
        lambda: launch(gemm(8192, 8192, 2048), tile(64, 128, 64, 8), "H20"),
    ),
    "low-occupancy": (
        lambda: launch(moe(64, "w2"), tile(256, 64, 32, 8, 4, 2), "H100"),
        lambda: launch(moe(64, "w2"), tile(16, 64, 128), "H100"),
    ),
    "few-stages": (
        lambda: launch(moe(64, "w2"), tile(256, 64, 32, 8, 4, 2), "H100"),
        lambda: launch(moe(64, "w2"), tile(16, 64, 128), "H100"),
    ),
    "k-loop-shorter-than-pipeline": (
        lambda: launch(gemm(512, 4096, 128), tile(128, 64, 64, 1, 4, 4), "A40"),
        lambda: launch(gemm(512, 4096, 4096), tile(128, 64, 64, 1, 4, 4), "A40"),
    ),
    "tile-below-matrix-instruction": (
        lambda: launch(prefill(4096), attention(32, 4), "H100"),
        lambda: launch(prefill(4096), attention(128, 8), "H100"),
    ),
    "operand-traffic": (
        lambda: launch(gemm(4096, 4096, 8192), tile(32, 32, 32, 8), "A100"),
        lambda: launch(moe(64), tile(16, 64, 128), "H20"),
    ),
    "group-size-l2": (
        lambda: launch(gemm(16384, 16384, 16384), tile(128, 256, 64, 1, 8), "RTX A6000"),
        lambda: launch(gemm(2048, 2048, 2048), tile(128, 256, 64, 8, 8), "H100"),
    ),
    "smem-bound": (
        lambda: launch(prefill(4096), attention(32, 4), "B200"),
        lambda: launch(moe(64), tile(16, 64, 128), "H20"),
    ),
    "slower-than-predicted": (
        lambda: launch(moe(64), tile(16, 64, 128), "H100", measured_us=5000.0),
        lambda: launch(moe(64), tile(16, 64, 128), "H100", measured_us=280.0),
    ),
    "launch-bound": (
        lambda: launch(rows(64, 512), normalise(512), "H100"),
        lambda: launch(rows(32768, 8192), normalise(8192), "H100"),
    ),
    "low-rows-per-expert": (
        lambda: launch(moe(16), tile(16, 64, 128), "H20"),
        lambda: launch(moe(4096), tile(64, 128, 64), "H20"),
    ),
    "uneven-routing": (
        lambda: launch(moe(4096, routing=LOPSIDED), tile(64, 128, 64, 8), "L40S"),
        lambda: launch(moe(4096), tile(64, 128, 64, 8), "L40S"),
    ),
}
