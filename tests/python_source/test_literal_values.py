"""Values that an expression can have besides Python's own."""

from __future__ import annotations

import ast

import pytest

from advisor.python_source.literal_values import ConfigLiteral, Constexpr, plain
from advisor.python_source.literals import ITEMS_PER_STEP, Allowance, Evaluator, NotLiteralError
from advisor.python_source.source import parse_source


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("{}", ConfigLiteral()),
        ("{'B': 16}, 8, 2", ConfigLiteral(parameters={"B": 16}, num_warps=8, num_stages=2)),
        ("kwargs={'B': tl.constexpr(16)}, num_stages=0", ConfigLiteral(parameters={"B": 16}, num_stages=0)),
        ("{'B': 16}, num_warps=None, maxnreg=128, num_ctas=2", ConfigLiteral(parameters={"B": 16}, maxnreg=128, num_ctas=2)),
        ("{'B': 16}, pre_hook=reset", ConfigLiteral(parameters={"B": 16}, hook=True)),
        ("{'B': 16}, pre_hook=None", ConfigLiteral(parameters={"B": 16})),
    ],
)
def test_a_configuration_is_what_triton_makes_of_it(text: str, config: ConfigLiteral) -> None:
    source = parse_source(f"import triton\nimport triton.language as tl\nC = triton.Config({text})\n", "k.py")
    assert source.constant("C") == config


def test_what_holds_a_value_is_plainly_that_value() -> None:
    assert [plain(each) for each in (Constexpr(3), 2.5, None)] == [3, 2.5, None]


def test_what_takes_too_long_is_left() -> None:
    allowance = Allowance(left=2)
    allowance.take(2)
    with pytest.raises(NotLiteralError, match="too much to evaluate"):
        allowance.take()


def test_a_long_list_takes_more_steps_than_a_short_one() -> None:
    long, short = Allowance(), Allowance()
    for allowance, count in ((long, 6400), (short, 64)):
        Evaluator(allowance=allowance).evaluate(ast.parse(f"list(range({count}))", mode="eval").body)
    assert short.left - long.left == 2 * (6400 // ITEMS_PER_STEP)  # of the range, and of the list made of it
