"""Names that a launcher assigns several times: the values that reach the launch, and none that may not."""

from __future__ import annotations

import ast
import textwrap

import pytest

from advisor.python_source.bindings import reaching_values
from advisor.python_source.launch_sites import common_launch, grid_from_launches
from advisor.python_source.source import parse_source

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
        "B = 1\nwith suppress(ValueError):\n    B = 2\nlaunch(B)",  # what is before B may have failed
        "B = 1\nB = 2\nrun = lambda: launch(B)\nB = 3",
        "B = 1\nB = 2\ndef later():\n    launch(B)\nB = 3",
        "B = 1\nB = 2\n[launch(B) for B in x]",
        "B = 1\nB = 2\ntry:\n    m()\nexcept ValueError as B:\n    pass\nlaunch(B)",
        "B = 1\nB = 2\nmatch x:\n    case B:\n        pass\nlaunch(B)",
        "B = 1\nB = 2\nmatch x:\n    case [*B]:\n        pass\nlaunch(B)",
        "B = 1\nB = 2\nmatch x:\n    case {'m': m, **B}:\n        pass\nlaunch(B)",
        "B = 1\n*C, B = settings(m)\nlaunch(B)",
        "B = 1\nC, B, *D = *x, 5, 6\nlaunch(B)",
    ],
)
def test_what_may_be_something_else_is_left_out(body: str) -> None:
    assert "B" not in values(body)


@pytest.mark.parametrize(
    ("body", "block"),
    [
        ("if m:\n    B = 64\nlaunch(B)", "64 if m else 32"),
        ("if B is None:\n    B = 64\nlaunch(B)", "64 if 32 is None else 32"),
        ("if m:\n    B = 64\n    launch(B)", "64"),
        ("if m:\n    B = 64\n    return B\nlaunch(B)", "32"),
    ],
)
def test_an_argument_is_its_default_until_it_is_assigned(body: str, block: str) -> None:
    assert values(body, "x, n, m, B=32")["B"] == block


@pytest.mark.parametrize(
    ("arguments", "body", "block"),
    [
        ("x, n, big=False, B=32", "if big:\n    B = 64", 32),
        ("x, n, big=True, B=32", "if big:\n    B = 64", 64),
        ("x, n, B=None", "if B is None:\n    B = 64", 64),
        ("x, n, big, B=32", "if big:\n    B = 64", None),
        ("x, n, B", "if n > 4:\n    B = 64", None),
        ("x, n, B=32", "for _ in x:\n    B = 64", None),
        ("x, n, B", "B = 64", 64),
        ("x, n, big=True", "if big:\n    B = 64", 64),
    ],
)
def test_an_argument_that_is_assigned_under_a_condition_has_two_values(arguments: str, body: str, block: int | None) -> None:
    body = f"def run({arguments}):\n" + textwrap.indent(f"{body}\nk[(1,)](x, n, BLOCK=B)\n", "    ")
    found = common_launch(parse_source(HEAD + body, "k.py"), "k", {})
    assert found is not None and found.constexprs.get("BLOCK") == block


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


@pytest.mark.parametrize(
    "change",
    [
        "c['B'] = 2048",
        "c['B'] //= 2",
        "del c['B']",
        "c.update(B=128)",
        "c.pop('B')",
        "tweak(c)",
        "tweak(settings=c)",
        "for _ in x:\n    c['B'] *= 2",
        "if m:\n    c['B'] = 2048",
        "d = c\nd['B'] = 2048",
        "d = [c]\nfor e in d:\n    e['B'] = 2048",
        "def change():\n    c['B'] = 2048\nchange()",
    ],
)
@pytest.mark.parametrize("given", ["", "c = {'B': 64}", "c = 0\nc = {'B': 128}", "if n:\n    c = {'B': 64}\nelse:\n    c = {'B': 128}"])
def test_what_is_changed_in_place_is_not_known(given: str, change: str) -> None:
    launch = "k[(c['B'],)](x, n, BLOCK=c['B'])"
    for more, known in ((launch, bool(given)), (f"{change}\n{launch}", False)):
        body = "def run(x, n, m):\n" + textwrap.indent(f"{given}\n{more}\n", "    ")
        found = common_launch(parse_source(f"{HEAD}{body}", "k.py"), "k", {"n": 3})
        assert found is not None and ("BLOCK" in found.constexprs) is known
        assert (grid_from_launches(parse_source(f"{HEAD}{body}", "k.py"), "k", {"n": 3}) is not None) is known


@pytest.mark.parametrize("change", ["SIZES[0] = 128", "SIZES.reverse()", "sizes = SIZES\n    sizes.append(1)"])
def test_what_the_file_gives_a_name_may_be_changed_too(change: str) -> None:
    body = "SIZES = [32, 64]\ndef run(x, n):\n    {0}\n    k[(1,)](x, n, BLOCK=SIZES[0])\n"
    for text, found in (("pass", {"BLOCK": 32}), (change, {})):
        launch = common_launch(parse_source(HEAD + body.format(text), "k.py"), "k", {})
        assert launch is not None and launch.constexprs == found


def test_numbers_are_not_changed_in_place() -> None:
    """Launches before this one are given them as well."""
    body = "def run(x, n):\n    B = 64\n    if n > 3:\n        B = 128\n    other[(n,)](x, n, B)\n    print(B)\n"
    launch = common_launch(parse_source(f"{HEAD}{body}    k[(n,)](x, n, BLOCK=B)\n", "k.py"), "k", {"n": 4})
    assert launch is not None and launch.constexprs == {"BLOCK": 128}


def test_a_grid_that_is_changed_in_place_is_not_known() -> None:
    body = "def run(x, n):\n    grid = [4, 1]\n    {0}\n    k[grid](x, n, BLOCK=16)\n"
    found = grid_from_launches(parse_source(HEAD + body.format("pass"), "k.py"), "k", {})
    assert found is not None and found.grid == (4, 1)
    assert grid_from_launches(parse_source(HEAD + body.format("grid[0] = 8"), "k.py"), "k", {}) is None


@pytest.mark.parametrize(
    "body",
    [
        "def run(x, n):\n    global B\n    B = 64\n    other()\n    k[(1,)](x, n, BLOCK=B)\n",
        "def run(x, n, B=64):\n    return lambda B: k[(1,)](x, n, BLOCK=B)\n",
        "def run(x, n):\n    B = 64\n    try:\n        B.m()\n    except ValueError as B:\n        k[(1,)](x, n, BLOCK=B)\n",
        "def run(x, n, B):\n    def other():\n        B = 64\n    k[(1,)](x, n, BLOCK=B)\n",
        "B = 16\ndef run(x, n):\n    B = 64\n    def inner():\n        k[(1,)](x, n, BLOCK=B)\n    inner()\n",
        "B = 16\ndef run(x, n):\n    from elsewhere import B\n    k[(1,)](x, n, BLOCK=B)\n",
        "B = 16\nasync def run(x, n, B):\n    k[(1,)](x, n, BLOCK=B)\n",
    ],
)
def test_names_of_other_scopes_are_not_known(body: str) -> None:
    found = common_launch(parse_source(HEAD + body, "k.py"), "k", {})
    assert found is not None and not found.constexprs
