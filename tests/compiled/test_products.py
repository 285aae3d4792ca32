"""Where operands of matrix products come from, and what their results end in."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.compiled.demand.products import Padding, Product, products
from advisor.compiled.ir import values
from advisor.compiled.ir.execution import Execution, Remembered, Running
from advisor.compiled.ir.ir import Operation, parse

GEMM = """
module {
  tt.func public @k(%a: tensor<4x8x!tt.ptr<f16>>, %b: tensor<2x8x!tt.ptr<f16>>, %c: tensor<4x2x!tt.ptr<f32>>, %m: tensor<4x8xi1>) {
    %zero = arith.constant dense<0.000000e+00> : tensor<4x8xf16>
    %sum = arith.constant dense<0.000000e+00> : tensor<4x2xf32>
    %x = tt.load %a, %m, %zero : tensor<4x8x!tt.ptr<f16>>
    %y = tt.load %b : tensor<2x8x!tt.ptr<f16>>
    %t = tt.trans %y {order = array<i32: 1, 0>} : tensor<2x8xf16> -> tensor<8x2xf16>
    %d = tt.dot %x, %t, %sum : tensor<4x8xf16> * tensor<8x2xf16> -> tensor<4x2xf32>
    %e = math.exp2 %d : tensor<4x2xf32>
    tt.store %c, %e : tensor<4x2x!tt.ptr<f32>>
    tt.return
  }
}
"""


def found_in(text: str) -> tuple[dict[str, list[Operation]], Product]:
    function = parse(text).kernel
    by_name: dict[str, list[Operation]] = {}
    for operation in function.walk():
        by_name.setdefault(operation.name, []).append(operation)
    (product,) = products(function).values()
    return by_name, product


def test_operands_lead_to_loads_and_results_to_stores() -> None:
    operations, product = found_in(GEMM)
    x, y, store = (id(operation) for operation in (*operations["tt.load"], *operations["tt.store"]))
    assert product == Product(left=((x, 0), (x, 1)), right=((y, 1), (y, 0)), rows=frozenset({(store, 0)}), columns=frozenset({(store, 1)}))


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("dense<0.000000e+00> : tensor<4x8xf16>", "dense<1.000000e+00> : tensor<4x8xf16>", "left"),
        ("tt.load %b : tensor<2x8x!tt.ptr<f16>>", "arith.constant dense<1.000000e+00> : tensor<2x8xf16>", "right"),
    ],
)
def test_an_operand_that_is_none_of_a_load_tells_nothing(old: str, new: str, name: str) -> None:
    assert getattr(found_in(GEMM.replace(old, new))[1], name) is None


def test_rows_that_are_summed_up_are_needed() -> None:
    summed = '%s = "tt.reduce"(%d) <{axis = 0 : i32}> ({\n    }) : (tensor<4x2xf32>) -> tensor<2xf32>\n    %e = math'
    product = found_in(GEMM.replace("%e = math", summed))[1]
    assert product.rows is None and product.columns is not None


def test_a_value_of_another_region_that_has_the_name_of_a_result_is_none_of_it() -> None:
    """As in ScatterMoE's `_groupXtY`, inlined twice: in one arm `%acc_1` is the product, in the other a vector."""
    other = "    tt.store %v, %e : tensor<2x!tt.ptr<f32>>\n    tt.return"
    product = found_in(GEMM.replace("    tt.return", other).replace("%m:", "%v: tensor<2x!tt.ptr<f32>>, %m:"))[1]
    assert product.columns is None, "a vector has no such dimension"


def test_masks_say_how_much_of_a_product_is_padding() -> None:
    operations, product = found_in(GEMM)
    (x, y), (dot,), (store,) = operations["tt.load"], operations["tt.dot"], operations["tt.store"]
    padding, found = Padding({id(dot): product}, Remembered()), Execution(2)
    everyone = np.ones(2, bool)
    rows = np.arange(4).reshape(1, 4, 1) < np.array([4, 1]).reshape(2, 1, 1)
    depth = np.arange(8).reshape(1, 1, 8) < 6
    padding.accessed(x, values.conjunction(values.of(rows, (4, 8)), values.of(depth, (4, 8)), (4, 8)), (4, 8), everyone, found)
    padding.accessed(y, None, (2, 8), everyone, found)
    padding.execute(dot, Running(everyone, np.array([3.0, 5.0])), found)
    padding.execute(store, Running(everyone, np.ones(2)), found)  # none
    (padded,) = found.products.values()
    assert padded.executions.tolist() == [3, 5] and padded.deep.tolist() == [3 * 0.75, 5 * 0.75]
    assert padded.filled.tolist() == [3 * 0.75, 5 * 0.75 * 0.25]
    half = values.of(np.arange(2).reshape(1, 1, 2) < 1, (4, 2))
    padding.accessed(store, half, (4, 2), everyone, found)
    padding.finish(found)
    assert padded.filled.tolist() == [3 * 0.75 * 0.5, 5 * 0.75 * 0.25]
    assert padded.left.tolist() == [3 * 0.75, 5 * 0.75 * 0.25], "columns that no store keeps are none of the left operand"
    assert padded.right.tolist() == [3 * 0.75 * 0.5, 5 * 0.75 * 0.5]
