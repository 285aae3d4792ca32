"""Which values a name may stand for where it is used."""

from __future__ import annotations

import ast

import pytest

from advisor.compiled.guesses.origins import Reaching


@pytest.mark.parametrize(
    ("body", "values"),
    [
        ("x = 1\nx = 2\nuse(x)", ["2"]),
        ("x = 1\nuse(x)\nx = 2", ["1"]),
        ("x = 1\nif c:\n    x = 2\nuse(x)", ["2", "1"]),
        ("if c:\n    x = 1\nelse:\n    x = 2\nuse(x)", ["1", "2"]),
        ("x = 1\nfor i in n:\n    use(x)\n    x = 2", ["1", "2"]),
        ("x = 1\nfor i in n:\n    x = 2\n    use(x)", ["2"]),
        ("x = 1\nwhile c:\n    for i in n:\n        use(x)\n    x = 2\nx = 3", ["1", "2"]),
        ("x = 1\nx += 2\nuse(x)", ["x + 2"]),
        ("x, y = 1, 2\nx, y = y, x\nuse(x)", ["y"]),
        ("x = 1\nx, y = other()\nuse(x)", []),
        ("x = 1\nx, y = step(x)\nuse(x)", ["1"]),
        ("if (x := 1) > 0:\n    use(x)", ["1"]),
        ("use(p)\np = 1", []),
    ],
)
def test_only_assignments_that_reach_a_use_count(body: str, values: list[str]) -> None:
    function = ast.parse("def f(p, c, n):\n" + "".join(f"    {line}\n" for line in body.splitlines())).body[0]
    assert isinstance(function, ast.FunctionDef)
    use = next(n.args[0] for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "use")
    reaching = Reaching(function, ["p", "c", "n"])
    assert isinstance(use, ast.Name) and [ast.unparse(value) for value in reaching.values(use)] == values
    assert reaching.is_parameter(use) == (use.id == "p")


def test_many_conditional_assignments_take_no_time() -> None:
    """Not as many paths as there are, which are two to the number of branches."""
    function = ast.parse("def f(p, c):\n" + "    if c:\n        p = p + 1\n" * 60 + "    use(p)\n").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert len(Reaching(function, ["p", "c"]).assigned["p"]) == 60
