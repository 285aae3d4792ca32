"""What single operations ask of the pipelines."""

from __future__ import annotations

import pytest

from advisor.compiled.demand.costs import absorbed, cost
from advisor.compiled.demand.demand import spared_bytes
from advisor.compiled.ir.ir import parse

ASSEMBLY = """
module {{
  tt.func public @k(%x: !tt.ptr<i8>) attributes {{noinline = false}} {{
    %v = arith.constant dense<1> : tensor<4096xi8>
    %a = tt.elementwise_inline_asm "{text}" {{constraints = "=r,r", packed_element = {pack} : i32, pure = true}} %v : tensor<4096xi8> -> tensor<4096xi8>
    tt.return
  }}
}}
"""  # noqa: E501
DECLARED = r"\0A{\0A\09.reg .b32 a, b; // two; and no more\0A\09and.b32 a, $1, 0x0f;\0A/* b; */ shl.b32 b, a, 4;\0A\09mov.b32 $0, b;\0A}\0A"


@pytest.mark.parametrize(
    ("text", "pack", "instructions"),
    [
        (DECLARED, 1, 3),
        (DECLARED, 4, 3 / 4),
        ("shl.b32 $0, $1, 4;", 2, 1 / 2),
        (r"{.reg .b32 a; and.b32 a, $1, 1;\0Aor.b32 $0, a, 2;}", 1, 2),
        (r"v_lshlrev_b32 $0, 4, $1\0Av_and_b32 $0, $0, $1", 1, 2),
    ],
)
def test_inline_assembly_costs_its_instructions_once_for_all_elements_packed_together(text: str, pack: int, instructions: float) -> None:
    kernel = parse(ASSEMBLY.format(text=text, pack=pack)).kernel
    operation = next(each for each in kernel.walk() if each.name == "tt.elementwise_inline_asm")
    assert cost(operation).alu == 4096 * instructions


SCALED = """
module {{
  tt.func public @k(%a: {left}, %s: tensor<128x4xi8>, %b: tensor<64x256xi8>, %t: tensor<256x4xi8>, %acc: tensor<128x256xf32>) {{
    %d = tt.dot_scaled %a{scale}, %b scale %t, %acc lhs = {kind} rhs = e2m1 {{fastMath = false}} : {left}{of} * tensor<64x256xi8>, tensor<256x4xi8> -> tensor<128x256xf32>
    tt.return
  }}
}}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("left", "kind", "scaled", "staged"),
    [("tensor<128x128xf8E5M2>", "e5m2", True, 128 * 128), ("tensor<128x128xbf16>", "bf16", False, 2 * 128 * 128)],
)
def test_both_operands_of_a_scaled_product_are_staged(left: str, kind: str, scaled: bool, staged: int) -> None:
    scale, of = (" scale %s", ", tensor<128x4xi8>") if scaled else ("", "")
    module = parse(SCALED.format(left=left, kind=kind, scale=scale, of=of))
    product = next(each for each in module.kernel.walk() if each.name == "tt.dot_scaled")
    found = cost(product)
    assert found.smem == 2 * (staged + 64 * 256) and sum(found.tensor_flop.values()) == 2 * 128 * 128 * 256
    assert spared_bytes(module) == {id(product): found.smem}  # of arguments of a function it is not known where they come from


@pytest.mark.parametrize(
    ("text", "special", "instructions"),
    [
        ("tanh.approx.f32 $0, $1;", 1, 0),
        ("mul.f32 $1, $1, $2; ex2.approx.ftz.f32 $0, $1;", 1, 1),
        (r"v_mul_f32 $1, $1, $2\0Av_exp_f32 $0, $1", 1, 1),
        ("ex2.approxes $0, $1; st.tanh.approx a;", 0, 2),
    ],
)
def test_special_functions_of_inline_assembly_are_of_the_special_pipeline(text: str, special: int, instructions: int) -> None:
    kernel = parse(ASSEMBLY.format(text=text, pack=1)).kernel
    found = cost(next(each for each in kernel.walk() if each.name == "tt.elementwise_inline_asm"))
    assert (found.xu, found.alu) == (4096 * special, 4096 * instructions)


def test_four_bits_packed_along_the_rows_make_the_depth_no_longer() -> None:
    """`lhs_k_pack=False`: 64 rows of bytes are 128 of values."""
    text = SCALED.format(left="tensor<64x128xi8>", scale=" scale %s", kind="e2m1", of=", tensor<128x4xi8>")
    flop = {}
    for packed in ("", ", lhs_k_pack = false"):
        kernel = parse(text.replace("fastMath = false", f"fastMath = false{packed}")).kernel
        (product,) = (each for each in kernel.walk() if each.name == "tt.dot_scaled")
        flop[packed] = cost(product).tensor_flop["fp4"]
    assert flop == {"": 2 * 128 * 256 * 256, ", lhs_k_pack = false": 2 * 128 * 256 * 128}


INTEGERS = """
module {
  tt.func public @k(%x: tensor<64xi32>, %y: tensor<64xi32>, %z: tensor<64xi64>) attributes {noinline = false} {
    %h = tt.mulhiui %x, %y : tensor<64xi32>
    %l = arith.muli %y, %x : tensor<64xi32>
    %a = arith.xori %h, %x : tensor<64xi32>
    %b = arith.xori %a, %y : tensor<64xi32>
    %c = arith.andi %b, %l : tensor<64xi32>
    %d = arith.addi %c, %x : tensor<64xi32>
    %e = arith.addi %d, %y : tensor<64xi32>
    %f = arith.addi %d, %e : tensor<64xi32>
    %g = arith.addi %z, %z : tensor<64xi64>
    %i = arith.addi %g, %z : tensor<64xi64>
    tt.return
  }
}
"""


def test_what_one_instruction_does_together_is_counted_once() -> None:
    """Both halves of a product; three inputs of logic, or of a sum, where nothing else takes the inner result; no sums of 64 bits."""
    operations = parse(INTEGERS).kernel.blocks[0].operations
    without = absorbed(operations)
    assert [each.results[0] for each in operations if id(each) in without] == ["%l", "%a", "%e"]
