"""Bytes that pass into a launch and out of it: none is counted twice that two addresses may reach, or that the launch wrote itself."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from advisor.compiled.analysis import kernel_analysis
from advisor.compiled.demand.footprints import DramFootprint, certain_footprint, likely_footprint
from advisor.compiled.launches.launch import Inspection, inspect_launch
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import read_source

from .shared_pool import POOL

HEAD = "import triton\nimport triton.language as tl\n\n@triton.jit\n"
PROGRAMS, BLOCK = 12_000, 1024
ALL = PROGRAMS * BLOCK * 4


def inspected(kernel: str, tmp_path: Path, types: dict[str, str], contents: dict[str, Any] | None = None, **arguments: int) -> Inspection:
    path = tmp_path / "k.py"
    path.write_text(HEAD + textwrap.dedent(kernel))
    launch = make_launch(
        read_source(path), "k", types=types, arguments=arguments, constexprs={"BLOCK": BLOCK}, grid=(PROGRAMS,), contents=contents or {}
    )
    return inspect_launch(launch, compile_target("sm_90"), POOL, sass=False)


TABLE = """
    def k(table, x, out, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        behind = tl.load(table).to(tl.pointer_type(tl.float32))
        tl.store(out + at, tl.load(behind + at) + tl.load(x + at))
"""
IN_TURN = """
    def k(x, y, out, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        now, then = x, y
        total = tl.zeros((BLOCK,), tl.float32)
        for i in range(2):
            total += tl.load(now + at)
            now, then = then, now
        tl.store(out + at, total + tl.load(x + at) + tl.load(y + at))
"""
THROUGH_TABLE = """
    def k(table, x, out, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        behind = tl.load(table).to(tl.pointer_type(tl.float32))
        value = tl.load(x + at)
        tl.store(out + at, value)
        tl.store(behind + at, value)
"""


@pytest.mark.parametrize(
    ("kernel", "others", "read", "written", "likely", "what"),
    [
        (TABLE, {"table": "*i64"}, ALL + 8, ALL, 3 * ALL + 8, "reads behind loaded addresses"),
        (IN_TURN, {"y": "*fp32"}, 2 * ALL, ALL, 4 * ALL, "reads"),
        (THROUGH_TABLE, {"table": "*i64"}, ALL + 8, ALL, 3 * ALL + 8, "writes behind loaded addresses"),
    ],
)
def test_what_an_address_may_reach_that_an_argument_does_counts_once(
    kernel: str, others: dict[str, str], read: int, written: int, likely: int, what: str, tmp_path: Path
) -> None:
    """The table's address is that of `x`, or of `out`, for all that is known; a prediction takes it for another tensor's."""
    demand = inspected(kernel, tmp_path, {"x": "*fp32", "out": "*fp32", **others}, {"table": 2**32} if "table" in others else {}).demand
    found, expected = certain_footprint(demand), likely_footprint(demand)
    assert (found.read, found.written) == (read, written)
    assert expected.read + expected.written == likely
    assert any(what in each and "one of the other tensors" in each for each in demand.unknown)


def test_the_bound_of_a_table_beside_an_argument_is_that_of_one_tensor(tmp_path: Path) -> None:
    inspection = inspected(TABLE, tmp_path, {"table": "*i64", "x": "*fp32", "out": "*fp32"}, {"table": 2**32})
    for name in ("H100", "A100", "L40"):
        gpu = load_gpu(name)
        analysis = kernel_analysis(inspection, gpu, "cold")
        (dram,) = (each for each in analysis.pipelines if each.pipeline == "dram")
        assert dram.problem_demand == ALL + 8 + max(ALL - gpu.l2_bytes, 0)  # results may stay in the L2


SCRATCH = """
    def k(x, out, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.exp(tl.load(x + at)))
        tl.debug_barrier()
        tl.store(out + at, tl.load(out + at) * 0.5)
"""
IN_PLACE = """
    def k(x, out, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at) + tl.load(out + at))
"""
IN_PLACE_IN_LOOP = """
    def k(x, out, BLOCK: tl.constexpr):
        for i in range(tl.program_id(0), 4 * tl.num_programs(0), tl.num_programs(0)):
            at = i * BLOCK + tl.arange(0, BLOCK)
            tl.store(out + at, tl.load(out + at) * 2.0)
"""
PARTLY_SCRATCH = """
    def k(x, out, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        half = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK // 2)
        tl.store(out + half, tl.exp(tl.load(x + half)))
        tl.debug_barrier()
        tl.store(x + at, tl.load(out + at) * 0.5)
"""
AGAIN_IN_LOOP = """
    def k(x, out, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        for i in range(4):
            tl.store(out + at, tl.load(out + at) * 2.0)
"""


@pytest.mark.parametrize(
    ("kernel", "passing"),
    [
        (SCRATCH, (1, 1, 0)),
        (IN_PLACE, (2, 1, 1)),
        (IN_PLACE_IN_LOOP, (4, 4, 4)),
        (AGAIN_IN_LOOP, (1, 1, 1)),
    ],
)
def test_what_the_launch_wrote_before_is_not_read_from_elsewhere(kernel: str, passing: tuple[int, int, int], tmp_path: Path) -> None:
    """In units of what all programs touch in one go: read, written, and read to be overwritten."""
    found = certain_footprint(inspected(kernel, tmp_path, {"x": "*fp32", "out": "*fp32"}).demand)
    read, written, in_place = (each * ALL for each in passing)
    assert found == DramFootprint(read=read, written=written, results=written, in_place=in_place)


def test_what_is_overwritten_passes_through_dram_twice(tmp_path: Path) -> None:
    """An L2 may hold both; without it each byte comes and goes."""
    inspection = inspected(AGAIN_IN_LOOP, tmp_path, {"x": "*fp32", "out": "*fp32"})
    (dram,) = [part for part in kernel_analysis(inspection, load_gpu("H100"), "warm").pipelines if part.pipeline == "dram"]
    assert dram.passing == 2 * ALL and dram.problem_demand < ALL / 2


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_the_bound_of_two_passes_is_that_of_one(cache: str, tmp_path: Path) -> None:
    """Neither brings the results of the first pass from DRAM."""
    gpu = load_gpu("A100")
    inspection = inspected(SCRATCH, tmp_path, {"x": "*fp32", "out": "*fp32"})
    analysis = kernel_analysis(inspection, gpu, cache)
    (dram,) = (each for each in analysis.pipelines if each.pipeline == "dram")
    assert dram.problem_demand == (ALL + max(ALL - gpu.l2_bytes, 0) if cache == "cold" else max(2 * ALL - gpu.l2_bytes, 0))


def test_that_results_may_have_been_written_before_is_said(tmp_path: Path) -> None:
    demand = inspected(PARTLY_SCRATCH, tmp_path, {"x": "*fp32", "out": "*fp32"}).demand
    assert "49.15 MB" in demand.unknown["how much of what is read of out the launch has written before"]
    for kernel in (SCRATCH, IN_PLACE):  # where all of it was, the prediction takes it from the L2
        assert not inspected(kernel, tmp_path, {"x": "*fp32", "out": "*fp32"}).demand.unknown
