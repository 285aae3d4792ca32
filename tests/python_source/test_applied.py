"""Decorators that a file applies to functions further down: these are kernels, with all that is said there."""

from __future__ import annotations

import pytest

from advisor.python_source.applied import made_of
from advisor.python_source.heuristics import heuristic_values
from advisor.python_source.launch_sites import grid_from_launches, only_launch
from advisor.python_source.rebuild import rebuild
from advisor.python_source.source import parse_source

HEAD = "import triton\nimport triton.language as tl\n"
FUNCTION = "def f(x, n, BLOCK: tl.constexpr):\n    tl.store(x + tl.arange(0, BLOCK), n)\n"
HEURISTICS = "triton.heuristics({'BLOCK': lambda a: 16 * a['n']})"
LAUNCH = "def run(x, n):\n    {0}[(n,)](x, n)\n"


@pytest.mark.parametrize(
    ("applied", "name"),
    [
        ("f = triton.jit(f)", "f"),
        ("f = triton.jit()(f)", "f"),
        ("f = triton.jit(f, do_not_specialize=['n'])", "f"),
        ("from triton import jit\nf = jit(f)", "f"),
        ("g = triton.jit(f)", "g"),
        ("g = triton.jit(do_not_specialize=['n'])(f)", "g"),
        (f"f = triton.jit(f)\nf = {HEURISTICS}(f)", "f"),
        (f"f = {HEURISTICS}(triton.jit(f))", "f"),
        (f"f = triton.jit(f)\ng = {HEURISTICS}(f)", "g"),
        (f"g = {HEURISTICS}(triton.jit(f))", "g"),
        ("if triton:\n    f = triton.jit(f)", "f"),
        ("try:\n    f = triton.jit(f)\nexcept RuntimeError:\n    pass", "f"),
    ],
)
def test_what_is_made_a_kernel_further_down_is_one(applied: str, name: str) -> None:
    source = parse_source(f"{HEAD}{FUNCTION}\n{applied}\n{LAUNCH.format(name)}", "k.py")
    for asked in {name, "f"}:
        found, kernel = source.named(asked)
        function = found.kernel(kernel)
        assert kernel == "f" and not function.unread
    assert function.unspecialized == ({"n"} if "do_not" in applied else set())
    assert set(heuristic_values(found, function, {"n": 4})[0].items()) == ({("BLOCK", 64)} if "heuristics" in applied else set())
    launch = grid_from_launches(found, kernel, {"n": 12})
    assert launch is not None and launch.grid == (12,)
    assert "def f(" in rebuild(found, kernel).modules["rebuilt_0.py"]


def test_what_is_applied_sees_what_is_assigned_before_it() -> None:
    tuned = "LIST = [triton.Config({'BLOCK': 64})]\nf = triton.autotune(LIST, ['n'])(triton.jit(f))\nLIST = []\n"
    function = parse_source(f"{HEAD}LIST = 0\n{FUNCTION}\n{tuned}", "k.py").kernel("f")
    assert function.autotune is not None and [each.parameters for each in function.autotune.configs] == [{"BLOCK": 64}]


def test_a_decorator_sees_what_is_assigned_before_it_and_not_what_is_before_one_further_down() -> None:
    """Else the kernel that follows would lend it its own configurations."""
    tuned = "LIST = [triton.Config({{'BLOCK': {0}}})]\n@triton.autotune(LIST, ['n'])\n@triton.jit\n{1}"
    text = HEAD + tuned.format(64, FUNCTION) + tuned.format(1024, FUNCTION.replace("def f", "def g")) + f"f = {HEURISTICS}(f)\n"
    source = parse_source(text, "k.py")
    for name, block in (("f", 64), ("g", 1024)):
        autotune = source.kernel(name).autotune
        assert autotune is not None and [each.parameters for each in autotune.configs] == [{"BLOCK": block}]
    assert list(source.kernel("f").heuristics) == ["BLOCK"]


def test_each_decorator_further_down_sees_what_is_assigned_before_it() -> None:
    skipped = "SKIP = ['n']\nf = triton.jit(f, do_not_specialize=SKIP)\nSKIP = ['x']\n"
    tuned = "LIST = [triton.Config({'BLOCK': 64})]\ng = triton.autotune(LIST, ['n'])(f)\nLIST = [triton.Config({'BLOCK': 128})]\n"
    text = f"{HEAD}SKIP = LIST = []\n{FUNCTION}\n{skipped}{tuned}f = {HEURISTICS}(f)\n"
    function = parse_source(text, "k.py").kernel("f")
    assert function.unspecialized == {"n"}
    assert function.autotune is not None and [each.parameters for each in function.autotune.configs] == [{"BLOCK": 64}]


def test_what_stands_under_a_condition_of_its_own_may_not_be_so() -> None:
    text = f"{HEAD}{FUNCTION}\nf = triton.jit(f)\nif quick():\n    f = {HEURISTICS}(f)\n"
    assert not parse_source(text, "k.py").kernel("f").heuristics
    both = f"{HEAD}if quick():\n    {FUNCTION.replace(chr(10), chr(10) + '    ')}\n    f = {HEURISTICS}(triton.jit(f))\n"
    assert list(parse_source(both, "k.py").kernel("f").heuristics) == ["BLOCK"]


def test_a_long_row_of_conditions_is_read() -> None:
    text = f"{HEAD}{FUNCTION}\nif a:\n    b = 1\n" + "elif a:\n    b = 2\n" * 1500 + "else:\n    f = triton.jit(f)\n"
    assert parse_source(text, "k.py").kernel("f").name == "f"


@pytest.mark.parametrize("applied", ["f = cached(f)", f"f = {HEURISTICS}(f)", "g = numba.jit(f)", "g = triton.jit(f, x)", "f = triton.jit"])
def test_what_makes_no_kernel_is_left(applied: str) -> None:
    assert not parse_source(f"import numba\n{HEAD}{FUNCTION}\n{applied}\n", "k.py").definitions


def test_an_unknown_decorator_further_down_is_said() -> None:
    text = f"from elsewhere import tuned\n{HEAD}{FUNCTION}\nf = triton.jit(f)\nf = tuned()(f)\n"
    assert parse_source(text, "k.py").kernel("f").unread == ("tuned",)


def test_another_name_of_a_kernel_is_a_name_to_ask_for() -> None:
    source = parse_source(f"{HEAD}@triton.jit\n{FUNCTION}\ng = f\n", "k.py")
    assert source.named("g")[1] == "f" and source.names_of("f") == {"f", "g"}


def test_what_is_made_of_a_function_before_it_is_redefined_is_none_of_its_names() -> None:
    made = f"{HEAD}{FUNCTION}f0 = triton.jit(f)\n{FUNCTION}f1 = triton.jit(f)\n"
    source = parse_source(made + LAUNCH.format("f0") + LAUNCH.format("f1"), "k.py")
    assert source.names_of("f") == {"f", "f1"}
    found = only_launch(source, "f", {})
    assert found is not None and found.line == len((made + LAUNCH.format("f0")).splitlines()) + 2
    assert parse_source(f"{HEAD}@triton.jit\n{FUNCTION}g = f\nf = other\n", "k.py").names_of("f") == {"f"}


def test_a_name_that_is_also_defined_is_its_own() -> None:
    text = f"{HEAD}@triton.jit\n{FUNCTION}\ntry:\n    @triton.jit\n    def g(x):\n        pass\nexcept ValueError:\n    g = f\n"
    source = parse_source(text, "k.py")
    assert source.named("g")[1] == "g" and source.names_of("f") == {"f"}


def test_names_of_all_that_is_made_of_a_kernel() -> None:
    tuned = "b = triton.autotune([], [])(a)\nc = triton.autotune([], [])(a)\nd = max(1)\n"
    text = f"{HEAD}@triton.jit\n{FUNCTION}\na = {HEURISTICS}(f)\n{tuned}"
    assert made_of("f", parse_source(text, "k.py").alternatives) == {"f", "a", "b", "c"}
