"""Products whose sum is fp16, which GeForce forms faster than one of fp32."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.launch import inspect_launch
from advisor.compiled.target import compile_target, make_launch
from advisor.configs.source import read_source
from advisor.hardware import load_gpu

from .shared_pool import POOL

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def k(a_ptr, b_ptr, out_ptr, steps: tl.constexpr, HALF: tl.constexpr):
    SUM: tl.constexpr = tl.float16 if HALF else tl.float32
    rows = tl.arange(0, 128)
    at = rows[:, None] * 128 + rows[None, :]
    a = tl.load(a_ptr + at)
    b = tl.load(b_ptr + at)
    out = tl.zeros((128, 128), SUM)
    for i in range(steps):
        out = tl.dot(a, b, out, out_dtype=SUM)
    tl.store(out_ptr + tl.program_id(0) * 128 * 128 + at, out)
"""


def analysed(folder: Path, gpu: str, operands: str, sums: str) -> KernelAnalysis:
    path = folder / "k.py"
    path.write_text(KERNEL)
    spec = load_gpu(gpu)
    types = {"a_ptr": f"*{operands}", "b_ptr": f"*{operands}", "out_ptr": f"*{sums}"}
    constants = {"steps": 512, "HALF": sums == "fp16"}
    launch = make_launch(read_source(path), "k", types=types, constexprs=constants, grid=(6 * spec.num_sms,))
    return kernel_analysis(inspect_launch(launch, compile_target(f"sm_{spec.triton_target[1]}"), POOL), spec, "warm")


@pytest.mark.parametrize(
    ("gpu", "operands", "of_any", "of_this"),
    # A plain fp8 product of the RTX 5090 has half the rate that its bound takes, which scaled blocks reach: summed up in fp16 it has all.
    # The RTX 3090 widens fp8. The RTX 6000 Ada sums up in either at the same rate, and so does Hopper.
    [("RTX 4090", "fp16", 0.5, 0.5), ("RTX 4090", "fp8e4nv", 0.5, 0.5), ("RTX 5090", "fp16", 0.5, 0.5), ("RTX 5090", "fp8e4nv", 1.0, 0.5),
     ("RTX 3090", "fp8e5", 0.5, 0.5), ("RTX 6000 Ada", "fp16", 1.0, 1.0), ("H100", "fp16", 1.0, 1.0)],
)  # fmt: skip
def test_a_sum_of_fp16_is_bound_by_its_own_rate(gpu: str, operands: str, of_any: float, of_this: float, tmp_path: Path) -> None:
    analyses = [analysed(tmp_path, gpu, operands, sums) for sums in ("fp16", "fp32")]
    half, full = (part for analysis in analyses for part in analysis.pipelines if part.pipeline == "tensor")
    assert half.problem_time_us == pytest.approx(of_any * full.problem_time_us) and full.problem_time_us
    assert half.time_us == pytest.approx(of_this * full.time_us)
