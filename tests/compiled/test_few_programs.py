"""Grids of fewer programs than there are SMs are told, where a loop can be divided; and what starting many takes binds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.compiled.analysis import kernel_analysis
from advisor.compiled.launches.launch import inspect_launch
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
