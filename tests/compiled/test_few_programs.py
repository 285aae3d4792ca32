"""Grids of fewer programs than there are SMs are told, where a loop can be divided; and what starting many takes binds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.advising.verdict import verdict
from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.launch_report import launch_report
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.launch_options import KernelTarget
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.diagnosis.compiled_rules import check_compiled
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import read_source

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def column_sums(x_ptr, y_ptr, rows, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        total += tl.load(x_ptr + row * stride + at)
    tl.store(y_ptr + at, total)
"""


@pytest.mark.parametrize(("programs", "rows", "told"), [(16, 4096, True), (16, 1, False), (1024, 4096, False)])
def test_sms_without_a_program_are_told_where_a_loop_can_be_divided(tmp_path: Path, programs: int, rows: int, told: bool) -> None:
    path = tmp_path / "sums.py"
    path.write_text(KERNEL)
    launch = make_launch(
        read_source(path),
        "column_sums",
        types={"x_ptr": "*fp32", "y_ptr": "*fp32"},
        arguments={"rows": rows, "stride": 128 * programs},
        constexprs={"BLOCK": 128},
        grid=(programs,),
    )
    inspection, gpu = inspect_launch(launch, compile_target("sm_90"), sass=False), load_gpu("H100")
    analysis = kernel_analysis(inspection, gpu)
    rules = {finding.rule: finding for finding in check_compiled(inspection, analysis.facts, gpu, analysis)}
    assert ("too-few-ctas" in rules) == told
    if told:
        saved = rules["too-few-ctas"].saving_us
        assert "16 CTAs for 132 SMs" in rules["too-few-ctas"].title
        assert analysis.predicted is not None and saved is not None and 0.7 * analysis.predicted.us < saved < analysis.predicted.us
        us = analysis.predicted.us
        learned = replace(analysis, split_us={2: us / 2, 4: us / 5, 8: us / 5.01})  # where a model knows launches like the parts
        rule = next(item for item in check_compiled(inspection, analysis.facts, gpu, learned) if item.rule == "too-few-ctas")
        assert rule.saving_us == pytest.approx(0.8 * us) and "over 4 programs" in rule.remedy


def test_starting_a_million_programs_binds(tmp_path: Path) -> None:
    path = tmp_path / "sums.py"
    path.write_text(KERNEL)
    launch = make_launch(
        read_source(path),
        "column_sums",
        types={"x_ptr": "*fp32", "y_ptr": "*fp32"},
        arguments={"rows": 1, "stride": 16},
        constexprs={"BLOCK": 32},
        options={"num_warps": 1},
        grid=(1_000_000,),
    )
    analysis = kernel_analysis(inspect_launch(launch, compile_target("sm_90"), sass=False), load_gpu("H100"))
    assert analysis.config_binding_pipeline == "launch"
    assert {each.pipeline: each for each in analysis.pipelines}["launch"].time_us == pytest.approx(594, rel=0.01)


NORM = """
import triton
import triton.language as tl

@triton.jit
def norm(x_ptr, w_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    x = tl.load(x_ptr + row + at, mask=at < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / columns)
    w = tl.load(w_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
    tl.store(y_ptr + row + at, (x * scale * w).to(tl.bfloat16), mask=at < columns)
"""


def normed(folder: Path, rows: int) -> KernelAnalysis:
    """Rows of 5,120 normalised on an H100, each by one program."""
    path = folder / "norm.py"
    path.write_text(NORM)
    types = dict.fromkeys(("x_ptr", "w_ptr", "y_ptr"), "*bf16")
    launch = make_launch(
        read_source(path),
        "norm",
        types=types,
        arguments={"columns": 5120},
        constexprs={"BLOCK": 8192},
        options={"num_warps": 8},
        grid=(rows,),
    )
    return kernel_analysis(inspect_launch(launch, compile_target("sm_90"), sass=False), load_gpu("H100"))


def test_rows_are_read_once_in_the_waves_that_read_the_weights_again(tmp_path: Path) -> None:
    """31.03 waves are no 32: rows would come from DRAM more than once, which only the weights of the norm do, and these the L2 keeps."""
    analysis = normed(tmp_path, 16384)
    assert analysis.occupancy.waves % 1 != 0
    assert float(analysis.demand.dram_bytes[0]) == pytest.approx(2 * 2 * 16384 * 5120, rel=1e-3)


def test_a_launch_that_ends_as_soon_as_it_began_has_no_other_advice(tmp_path: Path) -> None:
    """One program reduces one row: smaller blocks would hold a part of it, and most of the time is that of any launch."""
    analysis, gpu = normed(tmp_path, 64), load_gpu("H100")
    findings = {finding.rule: finding for finding in check_compiled(analysis.inspection, analysis.facts, gpu, analysis)}
    assert "too-few-ctas" not in findings
    if "masked-lanes" in findings:
        assert findings["masked-lanes"].remedy == "loop over smaller blocks", "the block is the next power of two already"
    target = KernelTarget(id="norm", launch=analysis.inspection.launch)
    report = launch_report(target, analysis, tuple(findings.values()))
    sentence = verdict((report,), ()).sentence
    assert sentence.startswith("Launch-bound: ") and "should save" not in sentence


SOME_IDLE = """
import triton
import triton.language as tl

@triton.jit
def sums(x_ptr, lengths_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.load(lengths_ptr + tl.program_id(0))):
        total += tl.load(x_ptr + row * BLOCK + at)
        tl.store(y_ptr + tl.program_id(0) * BLOCK + at, total)
"""


def test_programs_that_do_little_are_no_early_exits_and_the_sms_are_the_devices(tmp_path: Path) -> None:
    path = tmp_path / "sums.py"
    path.write_text(SOME_IDLE)
    types = {"x_ptr": "*fp32", "lengths_ptr": "*i32", "y_ptr": "*fp32"}
    lengths = [256] * 500 + [0] * 12
    launch = make_launch(read_source(path), "sums", types=types, constexprs={"BLOCK": 128}, contents={"lengths_ptr": lengths}, grid=(512,))
    analysis = kernel_analysis(inspect_launch(launch, compile_target("sm_90"), sass=False), load_gpu("H100"))
    assert [item.label for item in analysis.inspection.demand.classes] == ["full", "little work"]
    assert analysis.occupancy.ctas_per_sm.endswith("would fit, but the grid has 512 CTAs for 132 SMs")
