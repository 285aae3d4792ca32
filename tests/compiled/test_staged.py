"""Bytes of shared memory that products of a loop need not move."""

from __future__ import annotations

import pytest

from advisor.compiled.demand.costs import cost
from advisor.compiled.demand.demand import spared_bytes
from advisor.compiled.ir.ir import parse

ATTENTION = """
module {
  tt.func public @k(%q: tensor<64x32x!tt.ptr<f16>>, %k: tensor<32x16x!tt.ptr<f16>>, %v: tensor<16x32x!tt.ptr<f16>>, %n: i32) {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %scores = arith.constant dense<0.000000e+00> : tensor<64x16xf32>
    %sum = arith.constant dense<0.000000e+00> : tensor<64x32xf32>
    %a = tt.load %q : tensor<64x32x!tt.ptr<f16>>
    %out = scf.for %i = %zero to %n step %one iter_args(%acc = %sum) -> (tensor<64x32xf32>)  : i32 {
      %b = tt.load %k : tensor<32x16x!tt.ptr<f16>>
      %s = tt.dot %a, %b, %scores : tensor<64x32xf16> * tensor<32x16xf16> -> tensor<64x16xf32>
      %p = arith.truncf %s : tensor<64x16xf32> to tensor<64x16xf16>
      %c = tt.load %v : tensor<16x32x!tt.ptr<f16>>
      %d = tt.dot %p, %c, %acc : tensor<64x16xf16> * tensor<16x32xf16> -> tensor<64x32xf32>
      scf.yield %d : tensor<64x32xf32>
    }
    tt.return
  }
}
"""
A, B, P, C = (2 * 2 * each for each in (64 * 32, 32 * 16, 64 * 16, 16 * 32))  # written and read


@pytest.mark.parametrize(
    ("old", "new", "spared"),
    [
        ("", "", [A, P]),  # what the loop does not change, and what it computes
        (
            "%c = tt.load %v : tensor<16x32x!tt.ptr<f16>>",
            "%c = tt.trans %b {order = array<i32: 1, 0>} : tensor<32x16xf16> -> tensor<16x32xf16>",
            [A, P + C // 2],
        ),  # one load for both
        ("%s = tt.dot %a, %b,", "%e = tt.bitcast %b : tensor<32x16xf16> -> tensor<32x16xf16>\n      %s = tt.dot %a, %e,", [A, P]),
        ("%a, %b, %scores", "%x, %b, %scores", [A, P]),  # of a name that is not made here nothing is known
    ],
)
def test_only_what_a_loop_loads_must_be_staged(old: str, new: str, spared: list[int]) -> None:
    module = parse(ATTENTION.replace(old, new))
    found = spared_bytes(module)
    dots = [op for op in module.kernel.walk() if op.name == "tt.dot"]
    assert [found[id(op)] for op in dots] == spared
    assert [cost(op).smem for op in dots] == [A + B, P + C]


def test_a_product_of_what_is_loaded_beside_it_is_staged_whole() -> None:
    module = parse(
        ATTENTION.replace("%b = tt.load %k", "%a = tt.load %q : tensor<64x32x!tt.ptr<f16>>\n      %b = tt.load %k").replace(
            "    %a = tt.load %q : tensor<64x32x!tt.ptr<f16>>\n    %out", "    %out"
        )
    )
    assert list(spared_bytes(module).values()) == [0.0, P]


def test_partial_results_may_stay_in_threads() -> None:
    module = parse(
        ATTENTION.replace(
            "scf.yield %d",
            """%m = "tt.reduce"(%s) <{axis = 1 : i32}> ({
      ^bb0(%e: f32, %f: f32):
        %g = arith.addf %e, %f : f32
        tt.reduce.return %g : f32
      }) : (tensor<64x16xf32>) -> tensor<64xf32>
      scf.yield %d""",
        )
    )
    (reduction,) = (op for op in module.kernel.walk() if op.name == "tt.reduce")
    assert spared_bytes(module)[id(reduction)] == cost(reduction).smem > 0


def test_what_stays_the_same_over_a_loop_is_not_staged_for_the_vector_units_either() -> None:
    module = parse(ATTENTION.replace("f16", "f32").replace("arith.truncf %s : tensor<64x16xf32> to", "arith.negf %s :"))
    dots = [op for op in module.kernel.walk() if op.name == "tt.dot"]
    assert [cost(op).tensor_flop for op in dots] == [{}, {}]
    assert [spared_bytes(module)[id(op)] for op in dots] == [2 * A, 2 * P]
