"""Second passes over rows, spills, and what a CTA does in turn."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.compiled.phases import Chain, shipped
from advisor.compiled.source_lines import source_lines
from advisor.gpus.hardware import load_gpu
from advisor.pipelines.memory import second_pass_fraction
from advisor.python_source.source import read_source

from .shared_pool import POOL

TWO_PASSES = """
import triton
import triton.language as tl

@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = -float("inf")
    for i in range(0, n, BLOCK):
        cols = i + tl.arange(0, BLOCK)
        m = tl.maximum(m, tl.max(tl.load(x_ptr + row * n + cols, mask=cols < n, other=-float("inf"))))
    for i in range(0, n, BLOCK):
        cols = i + tl.arange(0, BLOCK)
        tl.store(y_ptr + row * n + cols, tl.load(x_ptr + row * n + cols, mask=cols < n) - m, mask=cols < n)
"""

STORED_FIRST = """
import triton
import triton.language as tl

@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = 0.0
    for i in range(0, n, BLOCK):
        cols = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
        tl.store(y_ptr + row * n + cols, x, mask=cols < n)
        m += tl.sum(x)
    for i in range(0, n, BLOCK):
        cols = i + tl.arange(0, BLOCK)
        tl.store(y_ptr + row * n + cols, tl.load(y_ptr + row * n + cols, mask=cols < n) - m, mask=cols < n)
"""

EXCHANGED = """
import triton
import triton.language as tl

@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    for i in range(0, n, BLOCK):
        tl.store(y_ptr + row * BLOCK + at, tl.load(x_ptr + row * n + i + at))
        tl.debug_barrier()
        tl.store(x_ptr + row * n + i + at, tl.load(y_ptr + row * BLOCK + (at ^ 1)))
        tl.debug_barrier()
"""

NEIGHBOURS = """
import triton
import triton.language as tl

@triton.jit
def k(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i) + tl.load(x_ptr + i + 1) + tl.load(x_ptr + i + 2))
"""


TOGETHER = """
import triton
import triton.language as tl

@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for i in range(0, n, BLOCK):
        cols = i + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for k in range(TRIPS):
            total += tl.load(x_ptr + (row * 8 + k) * n + cols)
        tl.store(y_ptr + row * n + cols, total)
"""


def analysed(folder: Path, n: int, rows: int, source: str = TWO_PASSES) -> KernelAnalysis:
    path = folder / "k.py"
    path.write_text(source)
    types = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}
    launch = make_launch(read_source(path), "k", types=types, arguments={"n": n}, constexprs={"BLOCK": 1024}, grid=(rows,))
    return kernel_analysis(inspect_launch(launch, compile_target("sm_90"), POOL, sass=False), load_gpu("H100"), "cold")


def test_a_second_pass_is_free_where_rows_in_flight_fit_the_l2_and_comes_from_dram_where_they_do_not(tmp_path: Path) -> None:
    short, long = analysed(tmp_path, 1024, 65536), analysed(tmp_path, 65536, 1024)
    for found, passes in ((short, 2), (long, 3)):  # in and out, and in again
        assert found.demand.dram_bytes[0] == pytest.approx(passes / 2 * found.demand.compulsory_bytes[0], rel=0.02)
        assert found.predicted is not None and found.predicted.low_us is not None and found.predicted.high_us is not None
        assert found.bound.us < found.predicted.low_us < found.predicted.us < found.predicted.high_us
    assert short.chain.rounds == 2 and long.chain.rounds == 128
    assert (short.chain.reductions, long.chain.reductions) == (1, 64)  # one in each trip
    gap = math.fsum(part.us for part in long.gap_parts)
    assert long.predicted is not None and gap == pytest.approx(long.predicted.us - long.bound.us)
    traffic = next(part.us for part in long.gap_parts if part.cause == "traffic")
    dram = next(each for each in long.pipelines if each.pipeline == "dram")
    moved = [line.demand["dram"] for line in source_lines(long) if "dram" in line.demand]
    assert moved == pytest.approx([4 * 1024 * 65536, 2 * 4 * 1024 * 65536], rel=0.02)  # of what loads, and what loads again and stores
    assert traffic >= dram.time_us - dram.problem_time_us  # what the second pass costs is traffic, not a slow DRAM


def test_what_a_program_stored_comes_back_from_dram_only_where_rows_in_flight_do_not_fit_the_l2(tmp_path: Path) -> None:
    short, long = analysed(tmp_path, 1024, 65536, STORED_FIRST), analysed(tmp_path, 65536, 1024, STORED_FIRST)
    moved = 2 * 4 * 1024 * 65536  # x in and y out
    assert [found.demand.dram_bytes[0] / moved for found in (short, long)] == pytest.approx([1.0, 1.5], rel=0.02)
    assert short.chain.from_dram < long.chain.from_dram and not any("written before" in text for text in short.unknowns)
    lines = {line.line: line.demand.get("dram", 0.0) for line in source_lines(short)}
    assert lines[11] == pytest.approx(moved / 2, rel=0.02)  # the load of x; the second load of y moves nothing
    assert sum(lines.values()) == pytest.approx(moved, rel=0.02)
    exchanged = analysed(tmp_path, 65536, 1024, EXCHANGED)  # the lanes of a trip, by scratch memory of 4 KB a program
    assert exchanged.demand.dram_bytes[0] == pytest.approx(moved, rel=0.02)


@pytest.mark.parametrize(("gpu", "target", "times"), [("H100", "sm_90", 2), ("MI300X", "gfx942", 4)])
def test_what_a_program_loads_again_soon_comes_from_the_l1(gpu: str, target: str, times: int, tmp_path: Path) -> None:
    """Three neighbours of each element, in a tile of 4 KB; the L1 of AMD's is too small to be counted on."""
    path = tmp_path / "k.py"
    path.write_text(NEIGHBOURS)
    launch = make_launch(read_source(path), "k", types={"x_ptr": "*fp32", "y_ptr": "*fp32"}, constexprs={"BLOCK": 1024}, grid=(2**9,))
    found = kernel_analysis(inspect_launch(launch, compile_target(target), POOL, sass=False), load_gpu(gpu), "cold")
    assert found.demand.l2_bytes[0] == pytest.approx(times * 4 * 2**19, rel=0.05)


@pytest.mark.parametrize(("gpu", "kept", "lost"), [("A100", 14.2e6, 28.3e6), ("RTX 3090", 4e6, 8.1e6)])
def test_the_l2_loses_what_many_ctas_hold(gpu: str, kept: float, lost: float) -> None:
    found = second_pass_fraction(np.array([kept, lost]), load_gpu(gpu))
    assert found[0] == 0 and found[1] > 0.85


def test_a_cold_start_and_a_chain_of_loads_take_their_time() -> None:
    gpu, constants = load_gpu("H100"), shipped()
    short, long = (constants.phases(Chain(rounds=n, reductions=0, from_dram=1.0), gpu, "cold") for n in (1, 5))
    near, far = (constants.phases(Chain(rounds=5, reductions=0, from_dram=share), gpu, "warm") for share in (0.0, 1.0))
    assert long.serial_us[0] - short.serial_us[0] == pytest.approx(4 * constants.values["round_us"])
    alone, after = (
        constants.phases(Chain(rounds=1024, reductions=0, from_dram=1.0), gpu, cache).serial_us[0] for cache in ("cold", "warm")
    )
    assert after < alone < 1.05 * after  # what is cold is found in the first rounds
    assert near.serial_us[0] < far.serial_us[0] < long.serial_us[0]
    assert short.start_us is not None and 3 < short.start_us[0] < 12
    # In a graph the next launch starts 0.8 us after an empty one, by the first minutes on an H100, and after its own work is stored.
    assert near.start_us is not None and 0.8 < near.start_us[0] < 1.5
    assert constants.phases(Chain(rounds=5, reductions=0, from_dram=0.0), load_gpu("MI300X"), "warm").start_us is None


def test_a_gpu_never_measured_has_a_wider_interval() -> None:
    constants = shipped()
    known, new = (constants.interval(100.0, load_gpu(name)) for name in ("MI300X", "MI355X"))
    assert known[0] < 100 < known[1] and new[0] < 100 < new[1]
    assert constants.regime(100.0, load_gpu("H200")) == "nvidia, long, known"  # by compute capability
    assert constants.regime(10.0, load_gpu("L40S")) == "nvidia, short, new"


@pytest.mark.parametrize(("trips", "rounds"), [("8", 4), ("n // 512", 32)])
def test_loads_of_a_loop_that_the_compiler_unrolls_come_together(trips: str, rounds: int, tmp_path: Path) -> None:
    """As many trips either way: constants of the code, or known when it runs."""
    found = analysed(tmp_path, 4096, 64, TOGETHER.replace("TRIPS", trips))
    assert found.chain.rounds == rounds
    assert found.chain.in_flight_bytes == 8 * 1024 * 4 * 4 / rounds
