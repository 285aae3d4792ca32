"""Names that code binds, by whatever statement."""

from __future__ import annotations

import ast

import pytest

from advisor.python_source.bindings import arguments, bound_by, own_nodes


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a = b", {"a"}),
        ("a[0] = b.c", set()),
        ("del a", {"a"}),
        ("for a, *b in c: pass", {"a", "b"}),
        ("import a.b, c as d", {"a", "d"}),
        ("from a import b, c as d", {"b", "d"}),
        ("def a(b): pass", {"a"}),
        ("class a: pass", {"a"}),
        ("try:\n    pass\nexcept E as a:\n    pass", {"a"}),
        ("match x:\n    case [a, *b]:\n        pass\n    case {'c': _, **d}:\n        pass\n    case E() as e:\n        pass", {*"abde"}),
        ("def f():\n    global a\n    nonlocal b", {"f", "a", "b"}),
        ("(a := b)", {"a"}),
    ],
)
def test_names_that_are_bound(text: str, names: set[str]) -> None:
    assert {name for node in ast.walk(ast.parse(text)) for name in bound_by(node)} == names


def test_a_scope_has_its_own_names() -> None:
    body = "    e = lambda g: (h := g)\n    def i(j):\n        k = j\n    class l:\n        m = 1\n"
    (function,) = ast.parse(f"def f(a, *b, c=0, **d):\n{body}").body
    assert arguments(function) == {*"abcd"}
    assert {name for node in own_nodes(function) for name in bound_by(node)} == {*"eil"}
