"""Names that a launcher assigns several times: the values that reach the launch, and none that may not."""

from __future__ import annotations

import ast
import textwrap

import pytest

from advisor.configs.launch_sites import grid_from_launches
from advisor.configs.reaching_values import reaching_values
from advisor.configs.source import parse_source

HEAD = "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x, n, BLOCK: tl.constexpr):\n    pass\n"


def values(body: str, arguments: str = "x, n, m") -> dict[str, str]:
    """Of the body of a function; the launch stands for `launch(...)`."""
    function = ast.parse(f"def run({arguments}):\n" + textwrap.indent(textwrap.dedent(body), "    ")).body[0]
    assert isinstance(function, ast.FunctionDef)
    calls = (n for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "launch")
    return {name: ast.unparse(value) for name, value in reaching_values(function, next(calls)).items()}


@pytest.mark.parametrize(
    ("body", "block"),
    [
        ("B = 1\nB = 2\nlaunch(B)", "2"),
        ("B = 1\nB: int = 2\nlaunch(B)", "2"),
        ("if m:\n    B = 1\n    return B + 1\nB = 2\nlaunch(B)", "2"),
        ("if m:\n    B = 1\n    raise ValueError(B)\nelse:\n    B = 2\nlaunch(B)", "2"),
        ("B = 1\nif m:\n    B = 2\nlaunch(B)", "2 if m else 1"),
        ("if m:\n    B = 1\nelif n > 4:\n    B = 2\nelse:\n    B = 3\nlaunch(B)", "1 if m else 2 if n > 4 else 3"),
        ("if m:\n    B = 1\n    launch(B)\nelse:\n    B = 2\n", "1"),
        ("B, C = settings(m)\nB, C = settings(n)\nlaunch(B)", "settings(n)[0]"),
        ("B = 1\nwith device:\n    B = 2\n    launch(B)\nB = 3", "2"),
        ("B = 1\nB = 2\nfor _ in x:\n    launch(B)", "2"),
        ("B = 1\nB = 2\nreturn launch(B)", "2"),
        ("C = 1\nC = 2\nB = 0\nB = C\nlaunch(B)", "C"),
    ],
)
def test_what_reaches_the_launch(body: str, block: str) -> None:
    assert values(body)["B"] == block


@pytest.mark.parametrize(
    "body",
    [
        "if m:\n    B = 1\nif n:\n    B = 2\nlaunch(B)",  # neither may run
        "B = 1\nfor B in x:\n    pass\nlaunch(B)",
        "B = 1\nfor _ in x:\n    B = 2\nlaunch(B)",
        "B = 1\nwhile m:\n    launch(B)\n    B = 2",
        "B = 1\ntry:\n    B = 2\nexcept ValueError:\n    pass\nlaunch(B)",
        "B = 1\nB *= 2\nlaunch(B)",
        "B = 1\nB = B * 2\nlaunch(B)",
        "B = 1\nC = B\nB = 2\nlaunch(B, C)",  # C is 1
        "B = 0\nB = m\nm = 4\nlaunch(B)",  # what m was before
        "B = 1\nif m:\n    B = 2\nm = 4\nlaunch(B)",
        "B = 1\nif m:\n    B, C = x.shape\nlaunch(B)",
        "B = 1\nif (B := m):\n    pass\nlaunch(B)",
        "B = 1\nwith x as B:\n    launch(B)",
        "B = 1\nimport B\nlaunch(B)",
        "B = 1\ndef B():\n    pass\nlaunch(B)",
    ],
)
def test_what_may_be_something_else_is_left_out(body: str) -> None:
    assert "B" not in values(body)


def test_a_name_that_is_changed_in_terms_of_itself_is_left_out() -> None:
    assert values("n = n + 1\nif m:\n    n = 2\nB = n\nlaunch(B)") == {"B": "n"}


def test_many_conditions_take_no_time() -> None:
    assert "B" not in values("B = 0\n" + "if m:\n    if n:\n        B = 1\nelse:\n    if n:\n        B = 2\n" * 40 + "launch(B)")
    assert values("B = 0\n" + "if m:\n    B = 1\n" + "elif m:\n    B = 2\n" * 300 + "launch(B)").keys() <= {"B"}


@pytest.mark.parametrize(("n", "warps", "grid"), [(1_000_000, 8, 489), (1_000, 2, 2)])
def test_a_launch_has_the_values_of_the_branch_that_runs(n: int, warps: int, grid: int) -> None:
    body = """
        def run(x):
            n = x.numel()
            BLOCK, warps = 512, 2
            if n > 1000:
                BLOCK = 2048
                warps = 8
            k[(triton.cdiv(n, BLOCK),)](x, n, BLOCK=BLOCK, num_warps=warps)
    """
    found = grid_from_launches(parse_source(HEAD + textwrap.dedent(body), "k.py"), "k", {"n": n}, options=("num_warps",))
    assert found is not None and found.grid == (grid,) and found.options == {"num_warps": warps}
