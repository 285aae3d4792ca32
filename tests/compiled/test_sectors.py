"""Sectors: what of them is fetched and not used, of the L2 and of DRAM."""

from __future__ import annotations

import pytest

from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.accesses import scattered, widened
from advisor.compiled.ir.lattices import Lattice, distinct_bytes
from advisor.compiled.launches import written_values
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.target import make_launch
from advisor.diagnosis.compiled_rules import check_compiled
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import parse_source

N = 2**24
BYTES = 2.0 * N
COPY = """import triton
import triton.language as tl
@triton.jit
def t(x, y, S, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    {load}
"""


def analysed(load: str, pool: Pool, step: int = 1) -> KernelAnalysis:
    """A cold launch that reads and writes N numbers of two bytes."""
    launch = make_launch(
        parse_source(COPY.format(load=load), "t.py"),
        "t",
        constexprs={"B": 1024},
        arguments={"S": step},
        grid=(N // 1024,),
    )
    return kernel_analysis(inspect_launch(launch, Target(backend="cuda", arch=90), pool, sass=False), load_gpu("H100"), "cold")


@pytest.mark.parametrize(("step", "ratio"), [(1, 1), (2, 2), (3, 3), (4, 4), (16, 16), (64, 16)])
def test_a_stride_costs_what_lies_between(step: int, ratio: int, pool: Pool) -> None:
    found = analysed("tl.store(y + o, tl.load(x + o * S))", pool, step)
    assert float(found.demand.l2_bytes[0]) == pytest.approx((ratio + 1) * BYTES, rel=0.01)
    assert float(found.demand.dram_bytes[0]) == pytest.approx((ratio + 1) * BYTES, rel=0.01)
    times = {each.pipeline: each for each in found.pipelines}
    assert times["dram"].problem_demand == BYTES  # of the bound: what is read, in whatever layout
    named = [each for each in check_compiled(found.inspection, found.facts, found.gpu, found) if each.rule == "uncoalesced-access"]
    assert len(named) == (ratio > 1)
    if named:
        assert found.predicted is not None and named[0].saving_us is not None
        assert 0.5 * (1 - 2 / (ratio + 1)) < named[0].saving_us / found.predicted.us < 1 - 1.5 / (ratio + 1)
        assert f"sectors of {ratio:.1f} times the useful bytes" in named[0].evidence


@pytest.mark.parametrize(
    ("load", "dram"),
    [
        ("tl.store(y + 2 * o, tl.load(x + 2 * o))\n    tl.store(y + 2 * o + 1, tl.load(x + 2 * o + 1))", 4.0),  # together all is used
        ("tl.store(y + o * S, tl.load(x + o * S))", 4.0),
    ],
)
def test_what_others_use_of_a_sector_is_not_lost(load: str, dram: float, pool: Pool) -> None:
    found = analysed(load, pool, 2)
    assert all(scattered(each) for each in found.inspection.demand.accesses)
    assert float(found.demand.dram_bytes[0]) == pytest.approx(dram * BYTES, rel=0.01)


@pytest.mark.parametrize(
    ("body", "ratio"),
    [
        ("tl.store(y + o, tl.load(x + 2 * o) + tl.load(x + 2 * o + 1))", 2),
        ("tl.store(y + o, tl.load(x + 4 * o) + tl.load(x + 4 * o + 1))", 4),
        ("for i in range(S - 1):\n        tl.store(y + o, tl.load(x + 2 * o) + tl.load(x + 2 * o + 1))", 2),
        ("v = tl.load(x + 2 * o)\n    for i in range(S - 1):\n        v += tl.load(x + 2 * o + 1)\n    tl.store(y + o, v)", 4),  # later
        ("tl.store(y + o, tl.load(x + 2 * o))\n    tl.store(y + N + 2 * o, o)\n    tl.store(y + N + 2 * o + 1, o)", 6),  # stores do not
    ],
)
def test_loads_that_follow_one_another_share_their_sectors(body: str, ratio: int, pool: Pool) -> None:
    found = analysed(body.replace("N", str(2 * N)), pool, 2)
    assert float(found.demand.l2_bytes[0]) == pytest.approx((ratio + 1) * BYTES, rel=0.01)
    named = [each for each in check_compiled(found.inspection, found.facts, found.gpu, found) if each.rule == "uncoalesced-access"]
    assert bool(named) == (ratio > 2)


@pytest.mark.parametrize(
    "load",
    [
        "tl.store(y + o, tl.load(x + o // 2))",  # two lanes share each address
        "tl.store(y + o, tl.load(x + o * S))",  # all share one
        "tl.store(y + o, tl.load(x + (16777215 - o)))",  # backwards
        "p = o[:, None] * 2 + tl.arange(0, 2)[None, :]\n    tl.store(y + p, tl.load(x + p))",  # pairs, side by side
    ],
)
def test_neighbours_in_any_order_use_their_sectors(load: str, pool: Pool) -> None:
    found = analysed(load, pool, 0)
    demand = found.inspection.demand
    assert not any(scattered(each) for each in demand.accesses)
    assert float(found.demand.l2_bytes[0]) == demand.requested_load_bytes + demand.requested_store_bytes


LOOKED_UP = """import triton
import triton.language as tl
@triton.jit
def t(x, i, y, S, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)
    column = tl.program_id(1) * C + tl.arange(0, C)
    at = x + tl.load(i + row).to(tl.int64)[:, None] + column[None, :] * S
    tl.store(y + row[:, None] * 4096 + column[None, :], tl.load(at) + tl.load(at + 4096 * S))
"""


def test_sectors_of_more_rows_than_are_listed_are_shared_no_more_than_those_that_are(pool: Pool) -> None:
    """Two halves of rows that are looked up, across the tensor: the list of both together ends sooner than that of one."""
    launch = make_launch(
        parse_source(LOOKED_UP, "t.py"),
        "t",
        types={"x": "*i8", "y": "*i8"},
        constexprs={"R": 4, "C": 256},
        arguments={"S": 2**20},
        contents={"i": written_values.numbers([f"i=random({2**20})"], "--content")["i"]},
        grid=(5000, 16),
    )
    found = kernel_analysis(inspect_launch(launch, Target(backend="cuda", arch=90), pool, sass=False), load_gpu("H100"), "cold")
    loads = 2 * 20000 * 4096 * 32.0
    assert float(found.demand.l2_bytes[0]) == pytest.approx(loads, rel=0.05)


def test_widened_bytes_are_those_of_sectors() -> None:
    of_pairs = Lattice(0, [(1, 2), (64, 10)])
    assert distinct_bytes([widened(of_pairs)]) == 320
    assert distinct_bytes([widened(Lattice(0, [(1, 2), (4, 10)]))]) == 9 * 4 + 32
    assert distinct_bytes([widened(Lattice(0, [(1, 96), (128, 10)]))]) == 960
    assert distinct_bytes([widened(Lattice(0, [(128, 10)]))]) == 320 and of_pairs.steps == [(1, 2), (64, 10)]


def test_a_load_of_few_bytes_that_fetches_many_is_named(pool: Pool) -> None:
    """As of the scales of block-scaled operands: 4 % of what the kernel asks for, a quarter of what it fetches."""
    found = analysed("s = tl.load(x + 16 * (o // 32 + 32 * (o % 32)), mask=o % 25 == 0)\n    tl.store(y + o, tl.load(x + o) + s)", pool)
    accesses = found.inspection.demand.accesses
    few = min(accesses, key=lambda each: each.issued_bytes)
    assert few.issued_bytes < 0.05 * sum(each.issued_bytes for each in accesses)
    named = [each for each in check_compiled(found.inspection, found.facts, found.gpu, found) if each.rule == "uncoalesced-access"]
    assert named and named[0].source_line == few.line and "sectors of 16.0 times" in named[0].evidence
