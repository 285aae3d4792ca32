"""What the body of a kernel names, and what it may not name."""

from __future__ import annotations

import ast

import pytest

from advisor.python_source.kernel_forms import RebuildError, bound_names, free_names
from advisor.python_source.rebuild import rebuild
from advisor.python_source.source import parse_source


def function(body: str) -> ast.FunctionDef:
    node = ast.parse(f"def k(p, n: SIZE = LIMIT, *more, B: tl.constexpr):\n    {body}\n").body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def test_names_of_the_body_that_are_not_its_own_are_read_from_around_it() -> None:
    node = function("x = load(p) + n + B + STEP\n    for i in range(more):\n        x += STEP * i\n    if x:\n        raise Wrong(x)")
    assert free_names(node) == {"load": 2, "STEP": 2, "range": 3}
    assert bound_names(node) == {"p", "n", "more", "B", "x", "i"}


def rebuilt(body: str) -> None:
    head = "import triton\nimport triton.language as tl\n\n@triton.jit\n"
    rebuild(parse_source(f"{head}def k(p, n, B: tl.constexpr):\n    {body}\n", "k.py"), "k")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("p._private", "the attribute p._private"),
        ("tl._log2(p)", "the attribute tl._log2"),
        ("tl.core._log2(p)", "the attribute tl.core._log2"),
        ("tl.standard._log2._fn", "the attribute tl.standard._log2._fn"),
        ("tl.standard.__dict__", "the attribute tl.standard.__dict__"),
        ("p.standard._log2(n)", "the attribute p.standard._log2"),
        ("tl = p\n    tl.standard._log2(n)", "the name tl"),
        ("p.handle", "the attribute p.handle"),
        ("eval(p)", "calls eval would run Python"),
        ("__import__(p)", "calls __import__ would run Python"),
        ("getattr(p, n)", "calls getattr would run Python"),
        ("getattr = n", "the name getattr"),
        ("import os", "in a kernel import os"),
        ("f = lambda: 1", "in a kernel lambda: 1"),
    ],
)
def test_what_would_run_something_is_refused(body: str, said: str) -> None:
    with pytest.raises(RebuildError, match=rf"k\.py:.*{said}") as refused:
        rebuilt(body)
    assert getattr(refused.value, "kind", "") == "refused" or "the name" in said


@pytest.mark.parametrize("body", ["open = n\n    x = open + 1", "tl.store(p, n)", "x = p.dtype.element_ty"])
def test_a_local_of_the_name_is_no_function_of_pythons(body: str) -> None:
    rebuilt(body)


@pytest.mark.parametrize("body", ["tl.standard._log2(p)", "x = triton.language.standard._is_power_of_two(n)"])
def test_what_tritons_own_language_is_written_with_is_no_ones_secret(body: str) -> None:
    rebuilt(body)
