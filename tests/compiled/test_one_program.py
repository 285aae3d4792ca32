"""What one program waits for: which of its loads DRAM answers, whatever is known of where they go, and what it has in flight."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.demand.assembly import UNROLLED
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.compiled.launches.written_values import random_indices
from advisor.compiled.source_lines import exposed_us
from advisor.gpus.hardware import load_gpu
from advisor.pipelines.memory import sustained_bytes_per_us
from advisor.pipelines.schedule import DRAM_LATENCY_US
from advisor.python_source.source import read_source

from .shared_pool import POOL

TOKENS, HIDDEN, ROWS = 8192, 4096, 151_936
LOOKED_UP = """import triton
import triton.language as tl

@triton.jit
def k(ids_ptr, table_ptr, weight_ptr, out_ptr, stride_table, hidden, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    token = tl.load(ids_ptr + row)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, hidden, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(table_ptr + token * stride_table + cols, mask=cols < hidden, other=0.0).to(tl.float32)
        total += x * x
    scale = 1.0 / tl.sqrt(tl.sum(total, axis=0) / hidden)
    for start in range(0, hidden, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(table_ptr + token * stride_table + cols, mask=cols < hidden, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + cols, mask=cols < hidden, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * hidden + cols, (x * scale * w).to(tl.bfloat16), mask=cols < hidden)
"""
FIRST_PASS, SECOND_PASS, WEIGHTS = 11, 16, 17
"""Lines of the loads."""


def analysed(folder: Path, cache: str, known: bool, block: int = 128, warps: int = 8) -> KernelAnalysis:
    path = folder / "k.py"
    path.write_text(LOOKED_UP)
    types = {"ids_ptr": "*i64", "table_ptr": "*bf16", "weight_ptr": "*bf16", "out_ptr": "*bf16", "stride_table": "i32", "hidden": "i32"}
    launch = make_launch(
        read_source(path),
        "k",
        types=types,
        constexprs={"BLOCK": block},
        options={"num_warps": warps},
        arguments={"hidden": HIDDEN} | ({"stride_table": HIDDEN} if known else {}),
        contents={"ids_ptr": random_indices(ROWS, TOKENS)} if known else {},
        grid=(TOKENS,),
    )
    return kernel_analysis(inspect_launch(launch, compile_target("sm_90"), POOL, sass=False), load_gpu("H100"), cache)


def us(analysis: KernelAnalysis) -> float:
    assert analysis.predicted is not None
    return analysis.predicted.us


@pytest.mark.parametrize("warps", [2, 8])
def test_what_is_assumed_of_indices_is_as_slow_as_indices_that_are_given(tmp_path: Path, warps: int) -> None:
    """The likely indices are all different, as random ones of so many rows nearly are."""
    assumed, given = (analysed(tmp_path, "warm", known, warps=warps) for known in (False, True))
    assert us(assumed) == pytest.approx(us(given), rel=0.05)
    assert assumed.demand.dram_bytes[0] == pytest.approx(given.demand.dram_bytes[0], rel=0.05)


def test_a_cold_cache_costs_less_than_twice_the_time_where_half_of_the_loads_are_read_again(tmp_path: Path) -> None:
    """134 MB pass, of which an L2 of 50 MB holds next to nothing from one launch to the next. What DRAM answers takes longer in launches
    that run alone and cold, which is measured; what a program has read before does not."""
    warm, cold = (us(analysed(tmp_path, cache, known=True)) for cache in ("warm", "cold"))
    assert warm < cold < 1.9 * warm


def test_loads_that_caches_answer_are_waited_for_less(tmp_path: Path) -> None:
    """The second pass finds its row in the L1 or L2, and the weights of all programs lie there: half of the loads are not DRAM's."""
    analysis = analysed(tmp_path, "cold", known=True, block=1024, warps=4)  # loads too wide for several trips to be waited for together
    waits = {line: us for (_, line), us in exposed_us(analysis).items()}
    assert waits[FIRST_PASS] > waits[SECOND_PASS] and waits[FIRST_PASS] > 2 * waits[WEIGHTS]
    assert 0.45 < analysis.chain.from_dram < 0.8


def test_what_is_in_flight_is_far_less_than_dram_needs(tmp_path: Path) -> None:
    small, large = (analysed(tmp_path, "warm", known=True, block=block).occupancy for block in (128, 1024))
    gpu = load_gpu("H100")
    needed = sustained_bytes_per_us(gpu) * DRAM_LATENCY_US / gpu.num_sms  # Little's law
    assert small.needed_bytes == large.needed_bytes == pytest.approx(needed) and 12e3 < needed < 20e3
    for found, block in ((small, 128), (large, 1024)):  # of several trips of the first pass
        assert found.in_flight_bytes == pytest.approx(UNROLLED * found.resident_ctas_per_sm * block * 2, rel=0.1)


HEADS = """import triton
import triton.language as tl

@triton.jit
def k(ids_ptr, table_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    place = (tl.program_id(0) * 40 + tl.program_id(1)) * BLOCK + cols
    turned = tl.load(table_ptr + tl.load(ids_ptr + tl.program_id(0)) * BLOCK + cols)
    tl.store(out_ptr + place, tl.load(x_ptr + place) * turned)
"""


def test_a_table_that_every_head_reads_comes_from_dram_once(tmp_path: Path) -> None:
    """168 MB pass in 40 rounds over a table of 4 MB: little of that passes between two uses of a row."""
    path = tmp_path / "k.py"
    path.write_text(HEADS)
    types = {"ids_ptr": "*i64", "table_ptr": "*fp32", "x_ptr": "*bf16", "out_ptr": "*bf16"}
    launch = make_launch(
        read_source(path),
        "k",
        types=types,
        constexprs={"BLOCK": 128},
        options={"num_warps": 8},
        contents={"ids_ptr": range(TOKENS)},
        grid=(TOKENS, 40),
    )
    analysis = kernel_analysis(inspect_launch(launch, compile_target("sm_90"), POOL, sass=False), load_gpu("H100"), "cold")
    assert analysis.demand.dram_bytes[0] == pytest.approx((2 * 40 + 2) * TOKENS * 128 * 2 + TOKENS * 8, rel=0.01)


IN_ROUNDS = """import triton
import triton.language as tl

@triton.jit
def k(x, y, z, n, rows, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = row * n + cols
        v = tl.load(x + at, mask=cols < n)
        tl.store(y + at, v * 2, mask=cols < n)
        AGAIN
        tl.store(z + at, v * 3, mask=cols < n)
"""
TWICE = {
    "once": "v += 1",
    "in the same trip": "v = tl.load(x + at, mask=cols < n)",
    "the first row in each": "v = tl.load(x + cols, mask=cols < n)",
}


@pytest.mark.parametrize("again", TWICE)
def test_what_a_trip_reads_again_comes_from_the_caches(tmp_path: Path, again: str) -> None:
    """However much all trips of a program read: a row of 8 KB is there still, 500 rows of each of 132 programs would not be."""
    path = tmp_path / "k.py"
    path.write_text(IN_ROUNDS.replace("AGAIN", TWICE[again]))
    types = {"x": "*bf16", "y": "*bf16", "z": "*bf16", "n": "i32", "rows": "i32"}
    arguments, rows = {"n": 4096, "rows": 65_536}, 65_536 * 4096 * 2
    launch = make_launch(read_source(path), "k", types=types, constexprs={"BLOCK": 4096}, arguments=arguments, grid=(132,))
    analysis = kernel_analysis(inspect_launch(launch, compile_target("sm_90"), POOL, sass=False), load_gpu("H100"), "warm")
    assert float(analysis.demand.dram_bytes[0]) == pytest.approx(3 * rows, rel=0.02)
