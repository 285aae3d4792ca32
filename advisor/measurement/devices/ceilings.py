"""The GPU's own ceilings, measured: what a copy, matrix products and an empty launch reach on this very part.

Written to `ceilings/measurements/<gpu>.ceilings.toml`, beside the figures that the bound uses: the datasheet's, and the least of a
launch. The bound goes on using those (a measured ceiling is what somebody's code reached, not what the part could).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from advisor.gpus.hardware import GpuSpec, match_device_name
from advisor.pipelines import least_launch_us
from advisor.result.schema import Fingerprint
from advisor.system.writing import replacing

FIGURES: dict[str, str] = {
    "dram_copy_bytes_per_s": "device-to-device copy of 4 GiB, bytes read and bytes written, best of 10",
    "dram_read_bytes_per_s": "sum of 4 GiB, bytes read, best of 10",
    "bf16_flop_per_s": "matrix product 8192 x 8192 x 8192, random data, through torch, best of 10",
    "fp16_flop_per_s": "as bf16",
    "tf32_flop_per_s": "as bf16, fp32 inputs with TF32 allowed",
    "fp8_flop_per_s": "as bf16, e4m3 with one scale per operand (torch._scaled_mm)",
    "int8_flop_per_s": "as bf16, int8 (torch._int_mm)",
    "fp32_fma_flop_per_s": "as bf16, fp32 with TF32 not allowed, 4096 cubed",
    "empty_launch_us": "one of 200 empty kernels in a CUDA graph",
}
MATRIX, VECTOR_MATRIX = 8192, 4096
COPY_BYTES = 4 << 30
REPEATS = 10


def specified_figures(gpu: GpuSpec) -> dict[str, float]:
    """The datasheet's value of each of `FIGURES` that the bound uses, and the least time of a launch.

    The products are plain ones: where only block-scaled ones reach the bound's rate, it is what they can reach.
    """
    figures = {
        "dram_copy_bytes_per_s": gpu.dram_bytes_per_s * gpu.dram_achievable_fraction,
        "dram_read_bytes_per_s": gpu.dram_bytes_per_s * gpu.dram_achievable_fraction,
        "fp32_fma_flop_per_s": gpu.peak_fma_flop_per_s(),
        "empty_launch_us": least_launch_us(gpu),  # in a graph: what the bound counts, not the cost in a stream
    }
    return figures | {
        f"{dtype}_flop_per_s": gpu.peak_tensor_flop_per_s(dtype) * gpu.plain_dot_share(dtype) for dtype in gpu.tensor_flop_per_clock_per_sm
    }


def measure_on_cuda(time_events: Callable[[Callable[[], Any], int], Sequence[float]]) -> dict[str, float]:
    """Every figure this GPU and this torch can give; what fails is left out.

    Args:
        time_events: Runs something so many times, and says how many microseconds each took.
    """
    import torch

    from advisor.measurement.devices import ceiling_kernels

    figures: dict[str, float] = {}

    def best_us(run: Callable[[], Any], repeats: int = REPEATS) -> float:
        run()
        torch.cuda.synchronize()
        return min(time_events(run, repeats))

    def attempt(name: str, measure: Callable[[], float]) -> None:
        try:
            figures[name] = measure()
        except Exception:  # not enough memory, or this torch, Triton or GPU lacks the type: the other figures are worth having
            torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def copy() -> float:
        size = min(COPY_BYTES, torch.cuda.mem_get_info()[0] // 4)
        source = torch.empty(size // 4, dtype=torch.float32, device="cuda").uniform_()
        target = torch.empty_like(source)
        return 2 * source.nbytes / best_us(lambda: target.copy_(source)) * 1e6

    def read() -> float:
        size = min(COPY_BYTES, torch.cuda.mem_get_info()[0] // 4)
        source = torch.empty(size // 4, dtype=torch.float32, device="cuda").uniform_()
        return source.nbytes / best_us(source.sum) * 1e6

    def product(dtype: torch.dtype, n: int = MATRIX, tf32: bool = False) -> float:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = tf32
        try:
            a, b = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
            out = torch.empty(n, n, dtype=dtype, device="cuda")
            return 2 * n**3 / best_us(lambda: torch.mm(a, b, out=out)) * 1e6
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    def product_fp8() -> float:
        a, b = (torch.randn(MATRIX, MATRIX, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
        unit_scale = torch.ones((), device="cuda")
        run = lambda: torch._scaled_mm(a, b.t(), scale_a=unit_scale, scale_b=unit_scale, out_dtype=torch.bfloat16)  # noqa: E731
        return 2 * MATRIX**3 / best_us(run) * 1e6

    def product_int8() -> float:
        a, b = (torch.randint(-128, 128, (MATRIX, MATRIX), dtype=torch.int8, device="cuda") for _ in range(2))
        return 2 * MATRIX**3 / best_us(lambda: torch._int_mm(a, b.t())) * 1e6

    attempt("dram_copy_bytes_per_s", copy)
    attempt("dram_read_bytes_per_s", read)
    attempt("bf16_flop_per_s", lambda: product(torch.bfloat16))
    attempt("fp16_flop_per_s", lambda: product(torch.float16))
    attempt("tf32_flop_per_s", lambda: product(torch.float32, tf32=True))
    attempt("fp8_flop_per_s", product_fp8)
    attempt("int8_flop_per_s", product_int8)
    attempt("fp32_fma_flop_per_s", lambda: product(torch.float32, n=VECTOR_MATRIX))
    attempt("empty_launch_us", lambda: ceiling_kernels.empty_launch_us(best_us))
    return figures


def file_name(gpu_name: str) -> str:
    """`h200.ceilings.toml`: the file of `ceilings/` that describes the GPU, with its own ending."""
    return re.sub(r"[^a-z0-9]+", "-", gpu_name.lower()).strip("-") + ".ceilings.toml"


def write_ceilings(folder: Path, gpu_name: str, figures: Mapping[str, float], fingerprint: Fingerprint, origin: str) -> Path:
    """Writes the measured figures beside the specified ones, whole or not at all.

    Args:
        folder: Made where it is not there.
        gpu_name: As the device calls itself.
        figures: By the names of `FIGURES`.
        fingerprint: Where they were measured; the board's UUID is left out, the file is meant to be shared.
        origin: measured, or why it is not (`simulated by the fake device`).

    Raises:
        UsageError: The folder cannot be written to.
    """
    gpu = match_device_name(gpu_name)
    specified = specified_figures(gpu) if gpu is not None else {}
    lines = [f"# What this GPU reached itself, by `advisor measure`; {origin}.", f"gpu = {json.dumps(gpu_name)}"]
    lines += [f"origin = {json.dumps(origin)}", "", "[fingerprint]"]
    for name, value in asdict(fingerprint).items():
        if value is not None and name not in ("gpu", "gpu_uuid"):
            lines.append(f"{name} = {json.dumps(value)}")
    for name, how in FIGURES.items():
        if name in figures:
            lines += ["", f"[{name}]", f"measured = {figures[name]:.6g}"]
            if name in specified:
                lines += [f"specified = {specified[name]:.6g}", f"measured_over_specified = {figures[name] / specified[name]:.4f}"]
            lines.append(f"how = {json.dumps(how)}")
    path = folder / file_name(gpu_name)
    with replacing(path, "name another folder with --ceilings-dir") as place:
        folder.mkdir(parents=True, exist_ok=True)
        place.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
