"""What one call in a kernel tells of the parameter that it is given."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.compiled.guesses.usage import Reader
from advisor.compiled.guesses.usage_marks import Usage
from advisor.python_source.source import parse_source

HEAD = "import triton\nimport triton.language as tl\n"
ADDRESS = {"pointer": True, "offset": True}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("tl.load(a)", {**ADDRESS}),
    ("tl.load(a, other=0.0)", {**ADDRESS, "real": True}),
    ("tl.atomic_add(a, 1)", {**ADDRESS, "bits": True}),
    ("tl.atomic_add(a, val=1)", {**ADDRESS, "bits": True}),
    ("tl.atomic_add(a, x)", {**ADDRESS}),
    ("tl.store(o, x, tl.load(a))", {**ADDRESS, "boolean": True}),
    ("tl.load(o, tl.load(a))", {**ADDRESS, "boolean": True}),
    ("tl.load(o, mask=tl.load(a))", {**ADDRESS, "boolean": True}),
    ("tl.load(o + a)", {"offset": True}),
    ("tl.load(o + tl.load(a))", {**ADDRESS, "index": True}),
    ("(tl.load(a) + 1) // 8", {**ADDRESS, "index": True, "whole": True}),
    ("a.load([0, 0])", {"descriptor": 2}),
    ("tl.arange(0, a)", {"extent": True}),
    ("tl.zeros((16, a), tl.float32)", {"extent": True}),
    ("tl.zeros((16,), a)", {"element_type": True}),
    ("tl.full((16,), 0, a)", {"element_type": True}),
    ("tl.full((16,), a, tl.float32)", {}),
    ("tl.zeros((16,), dtype=a)", {"element_type": True}),
    ("x.to(a)", {"element_type": True}),
    ("tl.static_range(0, a)", {"range_bound": True}),
    ("tl.static_range(0, a, 2)", {"range_bound": True}),
    ("tl.static_range(0, a, x)", {"integer": True}),
    ("tl.static_range(0, 8, a)", {}),
    ("tl.dot(x, y, z, a)", {"text": "input_precision"}),
    ("tl.load(o, eviction_policy=a)", {"text": "eviction_policy"}),
    ("tl.load(a).to(tl.pointer_type(tl.float16))", {**ADDRESS, "addresses": True}),
]


def usage(text: str) -> Usage:
    """Of the parameter `a` of the kernel `k`."""
    source = parse_source(HEAD + text, "k.py")
    return Reader(source).usage(source.kernel("k"))["a"]


@pytest.mark.parametrize(("call", "told"), CALLS)
def test_a_call_tells_what_its_argument_is(call: str, told: dict[str, Any]) -> None:
    assert usage(f"@triton.jit\ndef k(a, o, x, y, z):\n    {call}\n") == Usage(**told)


@pytest.mark.parametrize(("call", "told"), CALLS)
def test_a_helper_tells_of_what_it_is_handed_what_it_does_with_it(call: str, told: dict[str, Any]) -> None:
    helper = f"@triton.jit\ndef h(a, o, x, y, z):\n    {call}\n"
    kernel = "@triton.jit\ndef k(a, o, x, y, z):\n    h(a, o, x, y, z)\n"
    assert usage(helper + kernel) == Usage(**told)


def test_a_helper_may_have_the_name_of_an_operation_of_another_kind() -> None:
    helper = "@triton.jit\ndef to(p):\n    tl.store(p, 1.0)\n"
    assert usage(f"{helper}@triton.jit\ndef k(a):\n    to(a + 1)\n").pointer
