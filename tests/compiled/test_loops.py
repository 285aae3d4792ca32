"""Loops too long to walk without need: which are sampled, which are walked all the same, and what is said where neither is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand import demand
from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.demand.demand import read_demand
from advisor.compiled.ir.execution import Inputs
from advisor.compiled.ir.ir import parse
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.python_source.source import read_source

pytest.importorskip("triton")
PROGRAMS, PERIOD, BLOCK = 3, 16, 64
KERNEL = """import triton
import triton.language as tl

@triton.jit
def k(x_ptr, y_ptr, n, PERIOD: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    count = 0
    for i in range(n):
        total += tl.load(x_ptr + i * BLOCK + o)
        {}
            tl.store(y_ptr + (tl.program_id(0) * n + i) * BLOCK + o, total)
            count = 0
"""
SET_BACK = "count += 1\n        if count == PERIOD:"
REMAINDER = "if i % PERIOD == PERIOD - 1:"
QUOTIENT = "if i - i // PERIOD * PERIOD > PERIOD - 2:"
EDGE = "if i >= n - PERIOD:"


def counted(condition: str, n: int, tmp_path: Path, pool: Pool) -> KernelDemand:
    path = tmp_path / "k.py"
    path.write_text(KERNEL.format(condition))
    launch = make_launch(
        read_source(path),
        "k",
        types={"x_ptr": "*fp32", "y_ptr": "*fp32"},
        arguments={"n": n},
        constexprs={"PERIOD": PERIOD, "BLOCK": BLOCK},
        grid=(PROGRAMS,),
    )
    return inspect_launch(launch, compile_target("sm_90"), pool, sass=False).demand


@pytest.mark.parametrize("condition", [SET_BACK, REMAINDER, QUOTIENT])
@pytest.mark.parametrize("n", [96, 97, 1000])
def test_what_a_loop_does_every_so_often_is_counted(condition: str, n: int, tmp_path: Path, pool: Pool) -> None:
    got = counted(condition, n, tmp_path, pool)
    assert got.store_bytes == n // PERIOD * PROGRAMS * BLOCK * 4
    assert got.exact and not got.loops[0].sampled


@pytest.mark.parametrize("condition", [SET_BACK, REMAINDER])
def test_what_is_too_much_to_walk_is_said(condition: str, tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.compiled.demand.demand.EXACT_WORK", 0.0)
    got = counted(condition, 9600, tmp_path, pool)
    assert got.loops[0].sampled and not got.exact
    assert len(got.approximations) == 1 and got.loops[0].trips == 9600 * PROGRAMS
    if condition == SET_BACK:
        assert got.store_bytes == pytest.approx(9600 // PERIOD * PROGRAMS * BLOCK * 4)
        assert "some of its 9,600 trips" in got.approximations[0]


def test_all_sets_of_programs_share_what_may_be_walked(tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a large grid would take as many times as long as it has sets."""
    alone = counted(SET_BACK, 1000, tmp_path, pool)
    monkeypatch.setattr("advisor.compiled.demand.demand._chunk", lambda largest, programs: 1)
    monkeypatch.setattr("advisor.compiled.demand.demand.EXACT_WORK", 40e6)  # for one program's loop, and not for each of them
    got = counted(SET_BACK, 1000, tmp_path, pool)
    assert alone.exact and not got.exact and len(got.approximations) == 1


WIDE = """
module {
  tt.func public @k(%x: !tt.ptr<f32>) attributes {noinline = false} {
    %v = arith.constant dense<1.000000e+00> : tensor<512x512xf32>
    %o = tt.make_range {end = 512 : i32, start = 0 : i32} : tensor<512xi32>
    %r = tt.splat %x : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>>
    %p = tt.addptr %r, %o : tensor<512x!tt.ptr<f32>>, tensor<512xi32>
    %s = "tt.reduce"(%v) <{axis = 1 : i32}> ({
    ^bb0(%a: f32, %b: f32):
      %c = arith.addf %a, %b : f32
      tt.reduce.return %c : f32
    }) : (tensor<512x512xf32>) -> tensor<512xf32>
    tt.store %p, %s : tensor<512x!tt.ptr<f32>>
    tt.return
  }
}
"""


def test_programs_go_together_by_what_is_worked_out_of_them() -> None:
    """A tile of numbers that no address hangs on takes no room: with it a set would have 22 programs."""
    assert demand._chunk(demand._largest(parse(WIDE)), 8192) == 8192


LOOKING_BACK = """
module {
  tt.func public @k(%x: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
    %c1 = arith.constant 1 : i32
    %v = arith.constant 1.000000e+00 : f32
    %left = scf.while (%at = %n) : (i32) -> i32 {
      %more = arith.cmpi sge, %at, %c1 : i32
      scf.condition(%more) %at : i32
    } do {
    ^bb0(%at: i32):
      %p = tt.addptr %x, %at : !tt.ptr<f32>, i32
      tt.store %p, %v : !tt.ptr<f32>
      %next = arith.subi %at, %c1 : i32
      scf.yield %next : i32
    }
    tt.return
  }
}
"""


@pytest.mark.parametrize(("work", "trips"), [(4e9, 1000), (0.0, 96)])
def test_a_while_loop_is_followed_as_far_as_work_is_left(work: float, trips: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one within another takes minutes."""
    monkeypatch.setattr("advisor.compiled.demand.demand.EXACT_WORK", work)
    got = read_demand(LOOKING_BACK, (1,), Inputs(scalars={"n": 1000}))
    assert got.store_bytes == trips * 4 and got.loops[0].trips == trips
    assert [f"followed for {trips} trips only" in text for text in got.approximations] == [True] * (trips < 1000)


def test_samples_of_trips_that_are_not_alike_fall_on_all_of_them(tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.compiled.demand.loops.MAX_TRIPS", 1000)
    got = counted(REMAINDER, 16 * 1000, tmp_path, pool)
    assert got.loops[0].sampled and not got.exact
    assert got.store_bytes == pytest.approx(1000 * PROGRAMS * BLOCK * 4, rel=0.2)


TILES = """
module {
  tt.func public @k(%x: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
    %c1 = arith.constant 1 : i32
    %c7 = arith.constant 7 : i32
    %v = arith.constant 1.000000e+00 : f32
    %pid = tt.get_program_id x : i32
    %before = arith.subi %pid, %c7 : i32
    %a = scf.for %i = %pid to %n step %c7 iter_args(%tile = %before) -> (i32)  : i32 {
      %next = arith.addi %tile, %c7 : i32
      %p = tt.addptr %x, %next : !tt.ptr<f32>, i32
      tt.store %p, %v : !tt.ptr<f32>
      scf.yield %next : i32
    }
    tt.return
  }
}
"""


def test_a_tile_that_advances_from_the_program_is_sampled() -> None:
    got = read_demand(TILES, (7,), Inputs(scalars={"n": 7000}))
    assert got.loops[0].sampled and got.exact
    assert got.store_bytes == 7000 * 4 and got.accesses[0].extent_bytes == 7000 * 4


def test_an_edge_is_sampled_where_it_is_too_much_to_walk(tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    short = counted(EDGE, 1000, tmp_path, pool)
    assert short.exact and not short.loops[0].sampled and short.store_bytes == PERIOD * PROGRAMS * BLOCK * 4
    monkeypatch.setattr("advisor.compiled.demand.loops.ADDRESS_WORK", 0.0)
    got = counted(EDGE, 9600, tmp_path, pool)
    assert got.loops[0].sampled and not got.exact
    assert got.load_bytes == 9600 * PROGRAMS * BLOCK * 4


@pytest.mark.parametrize("first", [5, 26, 60, 500, 990])
def test_no_more_is_certain_beside_an_edge_than_trips_do(first: int, tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample before the edge stands for trips behind it."""
    monkeypatch.setattr("advisor.compiled.demand.loops.ADDRESS_WORK", 0.0)
    got = counted(f"if i < {first}:", 1000, tmp_path, pool)
    done = 1000 * PROGRAMS * BLOCK  # additions
    assert got.certain.fma_flop <= done == got.fma_flop
    assert got.certain.per_program["store"].sum() <= first * PROGRAMS * BLOCK * 4
    assert got.certain.fma_flop >= 0.8 * done


NESTED = """
module {
  tt.func public @k(%x: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c5 = arith.constant 5 : i32
    %v = arith.constant 1.000000e+00 : f32
    scf.for %i = %c0 to %n step %c1  : i32 {
      %high = arith.remsi %i, %c5 : i32
      %a = scf.for %j = %c0 to %high step %c1 iter_args(%p = %x) -> (!tt.ptr<f32>)  : i32 {
        tt.store %p, %v : !tt.ptr<f32>
        %q = tt.addptr %p, %c1 : !tt.ptr<f32>, i32
        scf.yield %q : !tt.ptr<f32>
      }
    }
    tt.return
  }
}
"""


def test_inner_loops_of_changing_length_are_counted() -> None:
    got = read_demand(NESTED, (2,), Inputs(scalars={"n": 500}))
    assert got.store_bytes == 2 * 4 * 100 * (0 + 1 + 2 + 3 + 4) and got.exact
