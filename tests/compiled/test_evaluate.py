"""Reading and evaluating the IR: control flow, masks, sampled loops, what is unknown."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.compiled.compiler.kernel import IrError
from advisor.compiled.demand import loops
from advisor.compiled.demand.demand import read_demand
from advisor.compiled.ir import values
from advisor.compiled.ir.execution import Inputs
from advisor.compiled.ir.ir import parse
from advisor.compiled.ir.values import Value, distinct, lanes, of

LOOP = """
#loc = loc("k.py":1:1)
module {
  tt.func public @k(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x"(#loc)), %n: i32 loc("n"(#loc))) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32 loc(#loc1)
    %c1 = arith.constant 1 : i32 loc(#loc1)
    %c64 = arith.constant 64 : i32 loc(#loc1)
    %cst = arith.constant dense<64> : tensor<64xi32> loc(#loc1)
    %zero = arith.constant dense<0.000000e+00> : tensor<64xf32> loc(#loc1)
    %pid = tt.get_program_id x : i32 loc(#loc1)
    %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32> loc(#loc2)
    %p = tt.splat %x : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>> loc(#loc2)
    %q = tt.addptr %p, %r : tensor<64x!tt.ptr<f32>>, tensor<64xi32> loc(#loc2)
    %mine = arith.muli %n, %pid : i32 loc(#loc2)
    %nv = tt.splat %mine : i32 -> tensor<64xi32> loc(#loc2)
    %a:3 = scf.for %i = %c0 to %mine step %c64 iter_args(%s = %zero, %ptr = %q, %off = %r) -> (tensor<64xf32>, tensor<64x!tt.ptr<f32>>, tensor<64xi32>)  : i32 {
      %m = arith.cmpi slt, %off, %nv : tensor<64xi32> loc(#loc3)
      %v = tt.load %ptr, %m, %zero : tensor<64x!tt.ptr<f32>> loc(#loc3)
      %t = arith.addf %s, %v : tensor<64xf32> loc(#loc4)
      %next = tt.addptr %ptr, %cst : tensor<64x!tt.ptr<f32>>, tensor<64xi32> loc(#loc3)
      %off2 = arith.addi %off, %cst : tensor<64xi32> loc(#loc3)
      scf.yield %t, %next, %off2 : tensor<64xf32>, tensor<64x!tt.ptr<f32>>, tensor<64xi32> loc(#loc4)
    } loc(#loc3)
    tt.store %q, %a#0 : tensor<64x!tt.ptr<f32>> loc(#loc5)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc1 = loc(unknown)
#loc2 = loc("k.py":2:3)
#loc3 = loc(callsite(#loc6 at #loc7))
#loc4 = loc("name"(#loc8))
#loc5 = loc("k.py":9:3)
#loc6 = loc("/usr/lib/triton/standard.py":40:1)
#loc7 = loc("k.py":3:5)
#loc8 = loc("k.py":4:5)
"""  # noqa: E501


def test_locations_prefer_the_authors_file() -> None:
    operations = list(parse(LOOP, ("k.py",)).kernel.walk())
    load = next(o for o in operations if o.name == "tt.load")
    assert load.location is not None and load.location.line == 3
    add = next(o for o in operations if o.name == "arith.addf")
    assert add.location is not None and add.location.line == 4


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1000])
def test_trips_and_masks_per_program(n: int) -> None:
    got = read_demand(LOOP, (5,), Inputs(scalars={"n": n}), ("k.py",))
    assert got.load_bytes == sum(4 * n * pid for pid in range(5))
    trips = [-(-n * pid // 64) for pid in range(5)]
    assert got.loops[0].trips == sum(trips)
    assert got.fma_flop == 64 * sum(trips)
    assert got.store_bytes == 5 * 64 * 4


@pytest.mark.parametrize("n", [2**63, 2**64 - 1])
def test_an_unsigned_argument_wraps_around_as_the_ir_has_it(n: int) -> None:
    """A seed of 64 bits: the IR's integers have no sign, and here the loop runs below zero, which is not at all."""
    assert values.number(n).array().item() == n - 2**64
    assert read_demand(LOOP, (5,), Inputs(scalars={"n": n}), ("k.py",)).loops[0].trips == 0


@pytest.mark.parametrize("n", [6400, 10_001, 32_000])
def test_sampled_loops_agree_with_walked_ones(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = read_demand(LOOP, (4,), Inputs(scalars={"n": n}), ("k.py",))
    assert sampled.loops[0].sampled
    monkeypatch.setattr("advisor.compiled.demand.loops.EXACT_TRIPS", 10**9)
    walked = read_demand(LOOP, (4,), Inputs(scalars={"n": n}), ("k.py",))
    assert not walked.loops[0].sampled
    assert sampled.load_bytes == walked.load_bytes == sum(4 * n * pid for pid in range(4))
    assert sampled.fma_flop == walked.fma_flop
    assert sampled.accesses[0].extent_bytes == walked.accesses[0].extent_bytes
    assert loops.SAMPLES > 4


TWO_LOOPS = """
module {
  tt.func public @k(%x: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32
    %c64 = arith.constant 64 : i32
    %one = arith.constant dense<1.000000e+00> : tensor<64xf32>
    %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    scf.for %i = %c0 to %n step %c64  : i32 {
      %a = tt.splat %i : i32 -> tensor<64xi32>
      %b = arith.addi %a, %r : tensor<64xi32>
      %c = tt.splat %n : i32 -> tensor<64xi32>
      %d = arith.cmpi slt, %b, %c : tensor<64xi32>
      %e = tt.splat %x : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
      %f = tt.addptr %e, %b : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
      %g = tt.load %f, %d : tensor<64x!tt.ptr<f32>>
    }
    scf.for %i = %c0 to %n step %c64  : i32 {
      %d = tt.splat %x : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
      %f = tt.addptr %d, %r : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
      tt.store %f, %one : tensor<64x!tt.ptr<f32>>
    }
    tt.return
  }
}
"""


def test_a_name_that_two_loops_use_is_followed_in_both() -> None:
    got = read_demand(TWO_LOOPS, (1,), Inputs(scalars={"n": 100}))
    load = next(access for access in got.accesses if access.kind == "load")
    assert load.issued_bytes == load.extent_bytes == 400 and load.contiguous == 64
    assert not got.unknown


REDUCTION = """
module {
  tt.func public @k(%x: !tt.ptr<f32>) attributes {noinline = false} {
    %v = arith.constant dense<1.000000e+00> : tensor<64x32xf32>
    %s = "tt.reduce"(%v) <{axis = 0 : i32}> ({
    ^bb0(%a: f32 loc(unknown), %b: f32 loc(unknown)):
      %c = arith.addf %a, %b : f32
      tt.reduce.return %c : f32
    }) : (tensor<64x32xf32>) -> tensor<32xf32>
    %t = "tt.scan"(%v) <{axis = 1 : i32, reverse = false}> ({
    ^bb0(%a: f32 loc(unknown), %b: f32 loc(unknown)):
      %c = arith.mulf %a, %b : f32
      tt.scan.return %c : f32
    }) : (tensor<64x32xf32>) -> tensor<64x32xf32>
    tt.return
  }
}
"""


def test_reductions_and_scans_combine_their_elements() -> None:
    assert read_demand(REDUCTION, (3,), Inputs(scalars={})).fma_flop == 3 * (63 * 32 + 64 * 32)


def test_unknown_bounds_are_named() -> None:
    got = read_demand(LOOP, (3,), Inputs(scalars={}), ("k.py",))
    assert "argument n" in got.unknown
    assert got.loops[0].reasons == ("argument n",)
    assert got.loops[0].mean_trips == 1


def test_large_grids_are_sampled() -> None:
    got = read_demand(LOOP, (200_000,), Inputs(scalars={"n": 0}), ("k.py",))
    assert not got.exact
    assert got.store_bytes == pytest.approx(200_000 * 256)


@pytest.mark.parametrize(
    "text", ["", "module {\n}\n", "tt.func public @k(%x: i32) {\n", "tt.func public @k(%x: i32) {\n  %y = = \n}\n", "\x00"]
)
def test_other_texts_are_input_errors(text: str) -> None:
    with pytest.raises(IrError):
        read_demand(text, (1,), Inputs(scalars={}))


CALLED = """
module {
  tt.func private @"k.helper__Pfp32"(%x: !tt.ptr<f32>) attributes {noinline = true} {
    tt.return
  }
  tt.func public @k(%x: !tt.ptr<f32>) attributes {noinline = false} {
    tt.call @"k.helper__Pfp32"(%x) : (!tt.ptr<f32>) -> () loc("k.py":5:1)
    tt.return
  }
}
"""


def test_a_function_that_is_called_is_refused_rather_than_left_out() -> None:
    with pytest.raises(IrError, match=r"in line 5.*noinline=True"):
        read_demand(CALLED, (1,), Inputs(scalars={}))


def test_lanes_of_separable_and_dense_masks() -> None:
    rows, columns = np.arange(8)[None, :, None], np.arange(6)[None, None, :]
    separable = of(rows < 5, (8, 6))
    from advisor.compiled.ir.values import conjunction

    both = conjunction(separable, of(columns < 4, (8, 6)), (8, 6))
    assert lanes(both, (8, 6), 1).tolist() == [20]
    causal = conjunction(both, of(rows >= columns, (8, 6)), (8, 6))
    assert lanes(causal, (8, 6), 1).tolist() == [sum(1 for r in range(5) for c in range(4) if r >= c)]
    assert lanes(None, (8, 6), 2).tolist() == [48, 48]


def test_distinct_addresses() -> None:
    rows = of((np.arange(8) // 2)[None, :, None] * 100, (8, 6))
    assert distinct(rows, None, (8, 6), 1).tolist() == [4]
    from advisor.compiled.ir.values import add

    both = add(rows, of(np.arange(6)[None, None, :], (8, 6)), (8, 6))
    assert distinct(both, None, (8, 6), 1).tolist() == [24]
    mask = of(np.arange(8)[None, :, None] < 3, (8, 6))
    assert distinct(both, mask, (8, 6), 1).tolist() == [12]


def test_a_choice_between_programs_stays_a_sum() -> None:
    """A pointer that some programs advanced by one more summand: as a full block it took hundreds of times as long."""
    rows, columns = np.arange(4).reshape(4, 1, 1) * 100, np.arange(8).reshape(1, 8, 1)
    before = Value((rows, columns, np.arange(16).reshape(1, 1, 16)), (8, 16), False, "x")
    after = values.add(before, values.number(1000, (8, 16)), (8, 16))
    active = np.array([True, False, True, False])
    for a, b in ((after, before), (before, after)):
        chosen = values.select_programs(active, a, b)
        assert (chosen.array() == np.where(active.reshape(4, 1, 1), a.array(), b.array())).all() and chosen.base == "x"
        assert sum(part.size for part in chosen.parts) == 4 + 8 + 16 and any(part is columns for part in chosen.parts)


def test_a_choice_between_conjunctions_stays_one() -> None:
    row, column = np.arange(4).reshape(1, 4, 1) < 3, np.arange(6).reshape(1, 1, 6) < 5
    a, b = Value((row, column), (4, 6), True), Value((np.arange(4).reshape(1, 4, 1) < 2,), (4, 6), True)
    active = np.array([True, False])
    chosen = values.select_programs(active, a, b)
    expected = np.where(active.reshape(2, 1, 1), row & column, np.broadcast_to(b.array(), (1, 4, 6)))
    assert (np.broadcast_to(chosen.array(), (2, 4, 6)) == expected).all() and chosen.boolean
    assert {part.shape for part in chosen.parts} == {(2, 4, 1), (2, 1, 6)}


VIEWED = """
module {
  tt.func public @k(%x: !tt.ptr<f16>, %y: !tt.ptr<i64>, %out: !tt.ptr<i32>) attributes {noinline = false} {
    %c128 = arith.constant 128 : i32
    %c2 = arith.constant 2 : i32
    %pid = tt.get_program_id x : i32
    %start = arith.muli %pid, %c128 : i32
    %p = tt.addptr %x, %start : !tt.ptr<f16>, i32
    %words = tt.bitcast %p : !tt.ptr<f16> -> !tt.ptr<i32>
    %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %ws = tt.splat %words : !tt.ptr<i32> -> tensor<64x!tt.ptr<i32>>
    %w = tt.addptr %ws, %r : tensor<64x!tt.ptr<i32>>, tensor<64xi32>
    %v = tt.load %w : tensor<64x!tt.ptr<i32>>
    %half = tt.bitcast %y : !tt.ptr<i64> -> !tt.ptr<i32>
    %second = tt.addptr %half, %c2 : !tt.ptr<i32>, i32
    %shift = tt.load %second : !tt.ptr<i32>
    %o = tt.addptr %out, %shift : !tt.ptr<i32>, i32
    %os = tt.splat %o : !tt.ptr<i32> -> tensor<64x!tt.ptr<i32>>
    tt.store %os, %v : tensor<64x!tt.ptr<i32>>
    tt.return
  }
}
"""


def test_an_address_seen_as_that_of_wider_elements_stays_where_it_is() -> None:
    """Of 10 programs each reads the 256 bytes from where 128 elements of two bytes end; what 8 bytes hold says nothing of 4."""
    demand = read_demand(VIEWED, (10,), Inputs(scalars={}, contents={"y": [5, 7, 9]}))
    (load,) = (a for a in demand.accesses if a.argument == "x")
    assert load.reach_bytes == (0, 2560) and demand.read_footprints["x"] == 2560
    assert demand.unlocated == {"out"}


def test_an_address_within_an_element_is_not_known() -> None:
    demand = read_demand(VIEWED.replace("constant 128", "constant 129"), (10,), Inputs(scalars={}))
    assert demand.unlocated == {"x", "out"}
