"""Literals that a few lines make endless are given up at once: what reads a file is in no room."""

from __future__ import annotations

import time

import pytest

from advisor.python_source.literals import MAX_ITEMS_WITHIN, NotLiteralError, items_within
from advisor.python_source.source import parse_source

DOUBLED = "L0 = (1, 1)\n" + "".join(f"L{i + 1} = (L{i}, L{i})\n" for i in range(40))
LARGE = {
    "a sum of lists": "A = [0] * 20000\nB = [A] * 20000\nY = len(sum(B, []))",
    "lists of one list": "A = [0] * 20000\nY = [A] * 20000",
    "tuples of one tuple twice": DOUBLED + "Y = L40",
    "a comparison of such": DOUBLED + DOUBLED.replace("L", "M") + "Y = 1 if L40 == M40 else 2",
    "constants of one constant twice": "import triton.language as tl\nA0 = (1, 1)\n"
    + "".join(f"A{i + 1} = (tl.constexpr(A{i}), tl.constexpr(A{i}))\n" for i in range(40))
    + "Y = A40",
    "a text many times": "S = 'x' * 20000\nT = [S] * 20000\nY = [T] * 40",
    "a walk many times": "T = [list(range(20000)) for i in range(49)]\nY = len([len(T) for i in range(20000)])",
    "a repeated product": "import itertools\nY = len(itertools.product((1, 2), repeat=150000000))",
    "a product of lists": "import itertools\nY = list(itertools.product(range(10000), range(10000), range(10000)))",
    "a product of a list and a number": "import math\nY = len(math.prod(([0], 200000000)))",
    "a large number by products": "import math\nY = math.prod([10 ** 9] * 20000)",
}


@pytest.mark.parametrize("how", list(LARGE))
def test_constant_too_large(how: str) -> None:
    began = time.process_time()
    with pytest.raises((NotLiteralError, TypeError)):
        parse_source(f"import triton\n{LARGE[how]}\n", "k.py").constant("Y")
    assert time.process_time() - began < 5


def test_items_within_counts_each_as_often_as_it_occurs() -> None:
    inner = (1, 2, 3)
    assert items_within([inner, inner, {"a": inner}]) == 3 + 3 + 3 + (2 + 3)
    for _ in range(40):
        inner = (inner, inner)  # type: ignore[assignment]
    assert items_within(inner) == MAX_ITEMS_WITHIN + 1


def test_products_of_lists_are_read() -> None:
    source = parse_source("import itertools\nC = list(itertools.product((1, 2), (3,)))\n", "k.py")
    assert source.constant("C") == [(1, 3), (2, 3)]
