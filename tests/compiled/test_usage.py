"""What is told of a kernel's parameters by how it uses them."""

from __future__ import annotations

import pytest

from advisor.compiled.inference import Given, guesses
from advisor.configs.source import parse_source

HEAD = "import triton\nimport triton.language as tl\n"
JIT = HEAD + "@triton.jit\n"


def types(text: str, **given: object) -> dict[str, str]:
    """Of the first guess."""
    source = parse_source(text, "k.py")
    return dict(next(guesses(source, source.kernel("k"), Given(**given))).signature)  # type: ignore[arg-type]


KEYS = HEAD + """
@triton.jit
def key(x):
    return x ^ tl.where((x & 0x8000) != 0, 0xFFFF, 0x8000)

@triton.jit
def k(p, o, n, B: tl.constexpr):
    r = tl.arange(0, B)
    x = tl.load(p + r, mask=r < n, other=float("-inf"))
    x = key(x.to(tl.uint16, bitcast=True))
    x = (x.to(tl.uint64) << 16) | r
    tl.store(o, tl.max(x, 0))
"""


def test_a_name_that_is_given_another_value_says_nothing_of_what_it_held() -> None:
    """As in SGLang's top-k of a router, which sorts floats by their bits."""
    assert types(KEYS)["p"] == "*fp16"
    assert types(KEYS, element="bf16", element_given=True)["p"] == "*bf16"
    assert types(KEYS.replace("key(x.to(tl.uint16, bitcast=True))", "tl.load(p)"))["p"] == "*i32"


@pytest.mark.parametrize("call", ["tl.interleave(v, v)", "tl.reshape(v, (16,))", "v.trans()", "tl.join(v, v)"])
def test_bits_are_seen_behind_what_only_moves_them(call: str) -> None:
    """As in AWQ's dequantization."""
    assert types(JIT + f"def k(p, o):\n    v = tl.load(p)\n    v = {call}\n    tl.store(o, (v >> shift) & 0xF)\n")["p"] == "*i32"


def test_conditional_steps_of_a_pointer_are_followed_once_each() -> None:
    steps = "    if n > 1:\n        q = q + n\n    else:\n        q += 2 * n\n" * 40
    assert types(JIT + f"def k(p, n):\n    q = p\n{steps}    tl.store(q, 1.0)\n") == {"p": "*fp16", "n": "i32"}


@pytest.mark.parametrize(
    "chosen",
    ["tl.where(tl.program_id(0) < 4, a, b)", "a if tl.program_id(0) < 4 else b", "a if FIRST else b",
     "tl.where(n > 1, a, tl.where(n > 2, a + n, b + n))"],
)  # fmt: skip
def test_of_two_pointers_that_are_chosen_from_both_are_pointers(chosen: str) -> None:
    text = JIT + f"def k(a, b, o, n, FIRST: tl.constexpr):\n    p = {chosen}\n    tl.store(o, tl.load(p + tl.arange(0, 16)))\n"
    assert types(text) == {"a": "*fp16", "b": "*fp16", "o": "*fp16", "n": "i32", "FIRST": "constexpr"}


def test_an_offset_that_is_chosen_is_no_pointer() -> None:
    text = JIT + "def k(a, n):\n    o = tl.where(tl.arange(0, 16) < 4, 0, n)\n    tl.store(o + a, 1.0)\n"
    assert types(text) == {"a": "*fp16", "n": "i32"}
