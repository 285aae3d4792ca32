"""What single operations ask of the pipelines."""

from __future__ import annotations

import pytest

from advisor.compiled.costs import cost
from advisor.compiled.ir import parse

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
