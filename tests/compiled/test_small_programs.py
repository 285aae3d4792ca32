"""Grids of many small programs: predicted as published, and told."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.demand.assembly import read_facts
from advisor.compiled.launches.launch import Inspection, inspect_launch
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.diagnosis.compiled_rules import check_compiled
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import read_source

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 0.25, mask=at < n)
"""
ELEMENTS = 61_620_009


def inspected(folder: Path, gpu: str, threads: int) -> tuple[Inspection, KernelAnalysis]:
    """One element of fp64 per thread, as in the published runs."""
    path = folder / "scale.py"
    path.write_text(KERNEL)
    launch = make_launch(
        read_source(path),
        "scale",
        types={"x_ptr": "*fp64", "y_ptr": "*fp64"},
        arguments={"n": ELEMENTS},
        constexprs={"BLOCK": threads},
        options={"num_warps": threads // 32},
        grid=(-(-ELEMENTS // threads),),
    )
    found = inspect_launch(launch, compile_target({"A100": "sm_80", "H200": "sm_90"}[gpu]), sass=False)
    return found, kernel_analysis(found, load_gpu(gpu), "warm")


@pytest.mark.parametrize(("gpu", "threads", "published"), [("A100", 32, 690), ("A100", 64, 1378), ("H200", 32, 851), ("H200", 64, 1699)])
def test_many_small_programs_are_predicted_as_published(tmp_path: Path, gpu: str, threads: int, published: float) -> None:
    """GB/s of `scale` on 61,620,009 elements: github.com/te42kyfo/gpu-benches, `gpu-small-kernels`, a100_80_graph.txt, h200_graph.txt."""
    _, analysis = inspected(tmp_path, gpu, threads)
    assert analysis.predicted is not None
    assert analysis.predicted.us == pytest.approx(16 * ELEMENTS / published / 1e3, rel=0.15)


def test_they_are_told_and_larger_ones_are_not(tmp_path: Path) -> None:
    (small, of_small), (large, of_large) = (inspected(tmp_path, "H200", threads) for threads in (32, 512))
    rules = {f.rule: f for f in check_compiled(small, read_facts(small.compiled), of_small.gpu, of_small)}
    assert "1,925,626 programs take 1,144 µs to start" in rules["small-programs"].title
    saved = rules["small-programs"].saving_us
    assert saved is not None and of_small.predicted is not None and saved > 0.5 * of_small.predicted.us
    assert "small-programs" not in {f.rule for f in check_compiled(large, read_facts(large.compiled), of_large.gpu, of_large)}
