"""Names of a launching function as they are where it launches: the values that reach the launch, and none that may not."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import pytest

from advisor.python_source.launch_site import LaunchSite
from advisor.python_source.launch_sites import common_launch, grid_from_launches, launches
from advisor.python_source.launch_walk import DEFAULT, SWITCH
from advisor.python_source.literals import Unknown
from advisor.python_source.source import parse_source

HEAD = "import torch\nimport triton\nimport triton.language as tl\n@triton.jit\ndef k(x, n, BLOCK: tl.constexpr):\n    pass\n"
UNKNOWN = "unknown"


def site(body: str, arguments: str = "x, n, m") -> LaunchSite:
    """The launch in a function of that body, where `launch(...)` stands for it."""
    text = f"def run({arguments}):\n" + textwrap.indent(textwrap.dedent(body), "    ").replace("launch(", "k[(1,)](")
    source = parse_source(f"{HEAD}def settings(n):\n    return n * 2, 4\n{text}\n", "k.py")
    ((scopes, call),) = launches(source, "k")
    return LaunchSite(source, source.kernel("k"), scopes, call, None, None)


def value(body: str, arguments: str = "x, n, m", **known: Any) -> Any:
    """What B is at the launch, and what it hangs on."""
    found, _ = site(body, arguments).walk(known).evaluated(ast.parse("B", mode="eval").body)
    return UNKNOWN if isinstance(found, Unknown) else found


@pytest.mark.parametrize(
    ("body", "known", "block"),
    [
        ("B = 1\nB = 2\nlaunch(B)", {}, 2),
        ("B = 1\nB: int = 2\nlaunch(B)", {}, 2),
        ("if m:\n    B = 1\n    return B + 1\nB = 2\nlaunch(B)", {}, 2),
        ("if m:\n    B = 1\n    raise ValueError(B)\nelse:\n    B = 2\nlaunch(B)", {}, 2),
        ("B = 1\nif m:\n    B = 2\nlaunch(B)", {"m": True}, 2),
        ("B = 1\nif m:\n    B = 2\nlaunch(B)", {"m": False}, 1),
        ("if m:\n    B = 1\nelif q > 4:\n    B = 2\nelse:\n    B = 3\nlaunch(B)", {"m": False, "q": 5}, 2),
        ("if m:\n    B = 1\n    launch(B)\nelse:\n    B = 2\n", {}, 1),
        ("if m:\n    B = 4\nelse:\n    B = 4\nlaunch(B)", {}, 4),
        ("if m:\n    return None\n    B = 2\nelse:\n    B = 3\nlaunch(B)", {"m": True}, 3),
        ("B, C = settings(m)\nB, C = settings(q)\nlaunch(B)", {"q": 5}, 10),
        ("B = 1\nwith device:\n    B = 2\n    launch(B)\nB = 3", {}, 2),
        ("B = 1\nB = 2\nfor _ in x:\n    launch(B)", {}, 2),
        ("for _ in x:\n    B = 2\n    launch(B)", {}, 2),
        ("B = 1\nB = 2\nreturn launch(B)", {}, 2),
        ("C = 1\nC = 2\nB = 0\nB = C\nlaunch(B)", {}, 2),
        ("B = 1\nB = B * 2\nlaunch(B)", {}, 2),
        ("B = q\nq = 4\nlaunch(B)", {}, UNKNOWN),  # what q was before
        ("B = 1\nC = B\nB = 2\nlaunch(B, C)", {}, 2),
        ("C, D = 1, 2\nC, D = D, C\nB = C\nlaunch(B)", {}, 2),
        ("C = B = 3\nlaunch(B)", {}, 3),
        ("B = 1\nB = 2\ntry:\n    m()\nexcept ValueError as B:\n    pass\nlaunch(B)", {}, 2),  # which is taken away after it
        ("if m:\n    B = 5\nlaunch(B)", {}, 5),  # else there is no B
    ],
)
def test_walk_what_reaches_the_launch(body: str, known: dict[str, Any], block: Any) -> None:
    assert value(body, "x, n, m, q", **known) == block


@pytest.mark.parametrize(
    "body",
    [
        "B = 1\nif m:\n    B = 2\nlaunch(B)",
        "B = 1\nfor B in x:\n    pass\nlaunch(B)",
        "B = 1\nfor _ in x:\n    B = 2\nlaunch(B)",
        "B = 1\nwhile m:\n    launch(B)\n    B = 2",
        "B = 1\ntry:\n    B = 2\nexcept ValueError:\n    pass\nlaunch(B)",
        "B = 1\nB *= 2\nlaunch(B)",
        "B = 1\nif m:\n    B = 2\nm = 4\nlaunch(B)",
        "B = 1\nif m:\n    B, C = x.shape\nlaunch(B)",
        "B = 1\nif (B := m):\n    pass\nlaunch(B)",
        "B = 1\nwith x as B:\n    launch(B)",
        "B = 1\nimport B\nlaunch(B)",
        "B = 1\ndef B():\n    pass\nlaunch(B.x)",
        "B = 1\nwith suppress(ValueError):\n    B = 2\nlaunch(B)",  # what is before B may have failed
        "B = 1\nB = 2\nrun = lambda: launch(B)\nB = 3",
        "B = 1\nB = 2\n[launch(B) for B in x]",
        "B = 1\nB = 2\nmatch x:\n    case B:\n        pass\nlaunch(B)",
        "B = 1\nB = 2\nmatch x:\n    case [*B]:\n        pass\nlaunch(B)",
        "B = 1\nB = 2\nmatch x:\n    case {'m': m, **B}:\n        pass\nlaunch(B)",
        "B = 1\n*C, B = settings(m)\nlaunch(B)",
        "B = 1\nC, B, *D = *x, 5, 6\nlaunch(B)",
        "B = 1\nB = x == 3\nlaunch(B)",
        "B = 1\nB = x is None\nlaunch(B)",
        "B = 1\nB = isinstance(x, int)\nlaunch(B)",
        "B = 1\nB = {4: 1}.get(x)\nlaunch(B)",
    ],
)
def test_walk_what_may_be_something_else_is_unknown(body: str) -> None:
    found = value(body)
    assert found == UNKNOWN or isinstance(found, ast.FunctionDef)


@pytest.mark.parametrize(
    ("arguments", "body", "block", "hangs"),
    [
        ("x, n, big=False, B=32", "if big:\n    B = 64", 32, {DEFAULT, SWITCH}),
        ("x, n, big=True, B=32", "if big:\n    B = 64", 64, {DEFAULT, SWITCH}),
        ("x, n, B=None", "if B is None:\n    B = 64", 64, {SWITCH}),
        ("x, n, B=32", "pass", 32, {DEFAULT}),
        ("x, n, big, B=32", "if big:\n    B = 64", None, set()),
        ("x, n, B", "if n > 4:\n    B = 64", None, set()),
        ("x, n, B=32", "for _ in x:\n    B = 64", None, set()),
        ("x, n, B", "B = 64", 64, set()),
        ("x, n, big=True", "if big:\n    B = 64", 64, {DEFAULT, SWITCH}),
        ("x, n, kind=2", "B = 64 if kind == 2 else 32", 64, {DEFAULT}),
    ],
)
def test_walk_says_what_a_value_hangs_on(arguments: str, body: str, block: int | None, hangs: set[str]) -> None:
    constants, _ = site(f"{body}\nk[(1,)](x, n, BLOCK=B)", arguments).constants({}, ())
    assert (constants["BLOCK"].value if constants else None) == block
    assert not constants or constants["BLOCK"].hangs == hangs


def test_many_conditions_take_no_time() -> None:
    assert value("B = 0\n" + "if m:\n    if n:\n        B = 1\nelse:\n    if n:\n        B = 2\n" * 40 + "launch(B)") == UNKNOWN
    assert value("B = 0\n" + "if m:\n    B = 1\n" + "elif m:\n    B = 2\n" * 120 + "launch(B)") == UNKNOWN


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


@pytest.mark.parametrize(
    ("body", "block"),
    [
        ("B = policy\nif policy == 0:\n    pass\nelse:\n    B = policy\n    launch(B)", UNKNOWN),
        ("B = 1\nif policy != 0:\n    B = policy\n    launch(B)", UNKNOWN),
        ("B = 1\nif policy == 0:\n    B = policy\n    launch(B)", 0),
        ("B = 1\nif policy != 0 and other != 0:\n    B = other\n    launch(B)", UNKNOWN),
    ],
)
def test_walk_a_default_with_which_there_is_no_launch_is_not_what_it_has(body: str, block: Any) -> None:
    assert value(body, "x, n, m, policy=0, other=0") == block
