"""Names whose objects a function may change in place."""

from __future__ import annotations

import ast
import textwrap

import pytest

from advisor.python_source.bindings import changed_names, is_fixed
from advisor.python_source.literal_values import Constexpr, Symbol


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("a[0] = 1", {"a"}),
        ("a.b[0].c = 1", {"a"}),
        ("a[0] += 1", {"a"}),
        ("del a[0]", {"a"}),
        ("b = a.pop()", {"a", "b"}),
        ("change(a, n=b)", {"a", "b"}),
        ("b = a\nb.append(1)", {"a", "b"}),
        ("c = a[0] if x else b\nc.sort()", {"a", "b", "c", "x"}),
        ("for c in pairs(a, b):\n    c[0] = 1", {"a", "b", "c", "pairs"}),
        ("with a.open() as b:\n    b.clear()", {"a", "b"}),
        ("later = lambda: a.clear()", {"a", "later"}),
        ("a = 1\nb = a + 1", set()),
        ("a = size(b)\nc = a.count(1)", set()),
        ("y = torch.empty(shape)\ny[0] = 1", {"y", "torch"}),  # a tensor is no part of its shape
    ],
)
def test_names_of_what_is_changed(body: str, names: set[str]) -> None:
    (function,) = ast.parse("def run():\n" + textwrap.indent(body, "    ")).body
    assert changed_names(function) == names


def test_what_cannot_be_changed() -> None:
    assert all(map(is_fixed, (None, 1, "a", (1, ("b",)), Symbol("tl.float32"), Constexpr(1))))
    assert not any(map(is_fixed, ([], {}, set(), ([1],), Constexpr([1]))))
