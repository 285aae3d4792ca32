"""Kernels whose products wait for what is computed of the last one, and those whose products do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.gpus.hardware import load_gpu
from advisor.pipelines import latency_us
from advisor.python_source.source import read_source

from .shared_pool import POOL

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def k(q_ptr, k_ptr, out_ptr, steps: tl.constexpr, INSIDE: tl.constexpr, D: tl.constexpr):
    rows, deep = tl.arange(0, 128), tl.arange(0, D)
    q = tl.load(q_ptr + tl.program_id(0) * 128 * D + rows[:, None] * D + deep[None, :])
    out = tl.zeros((128, D), tl.float32)
    for i in range(steps):
        at = (i * 128 + rows[:, None]) * D + deep[None, :]
        keys = tl.load(k_ptr + at)
        scores = tl.dot(q, tl.trans(keys))
        if INSIDE:
            scores = tl.exp2(scores)
        out += tl.dot(scores.to(tl.float16), keys)
    if not INSIDE:
        out = tl.exp2(out)
    tl.store(out_ptr + tl.program_id(0) * 128 * D + rows[:, None] * D + deep[None, :], out)
"""


def analysed(inside: bool, folder: Path) -> KernelAnalysis:
    path = folder / "k.py"
    path.write_text(KERNEL)
    types = {"q_ptr": "*fp16", "k_ptr": "*fp16", "out_ptr": "*fp32"}
    launch = make_launch(read_source(path), "k", types=types, constexprs={"steps": 64, "INSIDE": inside, "D": 128}, grid=(1056,))
    return kernel_analysis(inspect_launch(launch, compile_target("sm_90"), POOL, sass=False), load_gpu("H100"), "warm")


def test_products_wait_for_exponentials_between_them_alone(tmp_path: Path) -> None:
    between, after = (analysed(inside, tmp_path) for inside in (True, False))
    assert between.demand.in_turn and not after.demand.in_turn
    assert between.predicted is not None and after.predicted is not None
    together = replace(between.demand, in_turn=False)
    assert between.predicted.us > 1.2 * float(latency_us(together, between.gpu)[0])
    assert between.bound.us < after.predicted.us
