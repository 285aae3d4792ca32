"""What the body of a kernel names, and what it may not name."""

from __future__ import annotations

import ast

import pytest

from advisor.python_source.kernel_forms import RebuildError, bound_names, check_names, free_names


def function(body: str) -> ast.FunctionDef:
    node = ast.parse(f"def k(p, n: SIZE = LIMIT, *more, B: tl.constexpr):\n    {body}\n").body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def test_names_of_the_body_that_are_not_its_own_are_read_from_around_it() -> None:
    node = function("x = load(p) + n + B + STEP\n    for i in range(more):\n        x += STEP * i\n    if x:\n        raise Wrong(x)")
    assert free_names(node) == {"load": 2, "STEP": 2, "range": 3}
    assert bound_names(node) == {"p", "n", "more", "B", "x", "i"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("p._private", "private attributes.*got _private"),
        ("tl._log2(p)", "private.*got _log2"),
        ("tl.core._log2(p)", "private.*got _log2"),
        ("tl.standard._log2._fn", "private.*got _fn"),
        ("tl.standard.__dict__", "private.*got __dict__"),
        ("tl.standard._absent(p)", "private.*got _absent"),
        ("p.standard._log2(n)", "private.*got _log2"),
        ("tl = p\n    tl.standard._log2(n)", "private.*got _log2"),
        ("p.handle", "private attributes.*got handle"),
        ("eval(p)", "eval would run Python"),
        ("__import__(p)", "__import__ would run Python"),
        ("getattr(p, n)", "getattr would run"),
        ("getattr = n", "getattr would run Python"),
        ("import os", "import in a kernel"),
        ("f = lambda: 1", "lambda in a kernel"),
    ],
)
def test_what_would_run_something_is_refused(body: str, said: str) -> None:
    with pytest.raises(RebuildError, match=rf"k\.py:\d: {said}"):
        check_names(function(body), "k.py")


@pytest.mark.parametrize("body", ["open = n\n    x = open + 1", "tl.store(p, n)", "x = p.dtype.element_ty"])
def test_a_local_of_the_name_is_no_function_of_pythons(body: str) -> None:
    check_names(function(body), "k.py")


@pytest.mark.parametrize("body", ["tl.standard._log2(p)", "x = triton.language.standard._is_power_of_two(n)"])
def test_what_tritons_own_language_is_written_with_is_no_ones_secret(body: str) -> None:
    check_names(function(body), "k.py")
