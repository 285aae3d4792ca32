"""What a division costs: a reciprocal for each divisor that differs, and none where it is a constant."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.python_source.source import read_source

pytest.importorskip("triton")
HEAD = "import triton\nimport triton.language as tl\n\n@triton.jit\n"
PROGRAMS, BLOCK = 6, 1024


def counted(kernel: str, tmp_path: Path, pool: Pool, **arguments: int) -> KernelDemand:
    path = tmp_path / "k.py"
    path.write_text(HEAD + textwrap.dedent(kernel))
    launch = make_launch(read_source(path), "k", arguments=arguments, constexprs={"BLOCK": BLOCK}, grid=(PROGRAMS,))
    return inspect_launch(launch, compile_target("sm_90"), pool, sass=False).demand


INTEGER = """
    def k(x_ptr, y_ptr, d, BLOCK: tl.constexpr):
        o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + o, tl.load(x_ptr + {}))
"""


@pytest.mark.parametrize(
    ("index", "xu", "alu"),
    [
        ("o // 256", 0, 1),
        ("o % 3136", 0, 4),
        ("o // d", 1, 6),
        ("o % (d + tl.arange(0, BLOCK))", BLOCK, 18),  # of its own for every element
    ],
)
def test_integer_division_costs_what_its_divisor_asks_for(index: str, xu: int, alu: int, tmp_path: Path, pool: Pool) -> None:
    without = counted(INTEGER.format("o + d" if "d" in index else "o"), tmp_path, pool, d=7)
    got = counted(INTEGER.format(index), tmp_path, pool, d=7)
    assert got.xu_op == xu * PROGRAMS
    assert (got.alu_op - without.alu_op) / (PROGRAMS * BLOCK) == pytest.approx(alu, abs=2.1)  # and what else the index takes


ROWS = """
    def k(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
        rows = tl.program_id(0) * 16 + tl.arange(0, 16)
        o = rows[:, None] * cols + tl.arange(0, BLOCK)[None, :]
        e = tl.exp(tl.load(x_ptr + o).to(tl.float32))
        tl.store(y_ptr + o, e / tl.sum(e, axis=1)[:, None])
"""
ONE_ROW = """
    def k(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
        o = tl.program_id(0) * cols + tl.arange(0, BLOCK)
        e = tl.exp(tl.load(x_ptr + o).to(tl.float32))
        tl.store(y_ptr + o, e / tl.sum(e, axis=0))
"""
OWN = """
    def k(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
        o = tl.program_id(0) * cols + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + o).to(tl.float32)
        tl.store(y_ptr + o, x / (1.0 + x))
"""


@pytest.mark.parametrize(("kernel", "xu"), [(ROWS, 16 * BLOCK + 16), (ONE_ROW, BLOCK + 1), (OWN, BLOCK)])
def test_a_row_divides_by_its_sum_with_one_reciprocal(kernel: str, xu: int, tmp_path: Path, pool: Pool) -> None:
    assert counted(kernel, tmp_path, pool, cols=BLOCK).xu_op == xu * PROGRAMS
