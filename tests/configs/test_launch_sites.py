"""The grid of a kernel, found where its own file launches it."""

from __future__ import annotations

import pytest

from advisor.compiled.target import make_launch
from advisor.configs.launch_sites import grid_from_launches
from advisor.configs.source import SourceFile, parse_source

KERNEL = "@triton.jit\ndef k(x_ptr, n, m, BLOCK: tl.constexpr):\n    pass\n"
HEAD = f"import torch\nimport triton\nimport triton.language as tl\nSIDE = 2\n{KERNEL}"
VALUES = {"n": 1000, "m": 3, "BLOCK": 256}


def source(body: str) -> SourceFile:
    return parse_source(HEAD + body, "k.py")


@pytest.mark.parametrize(
    ("body", "grid"),
    [
        ("def run(x):\n    k[(4,)](x, 1, 2, BLOCK=8)\n", (4,)),
        ("def run(x):\n    rows, cols = x.shape\n    k[(triton.cdiv(rows, 256), cols)](x, rows, cols, BLOCK=256)\n", (4, 3)),
        ('def run(x):\n    size = x.numel()\n    g = lambda meta: (triton.cdiv(size, meta["BLOCK"]),)\n    k[g](x, size, 1)\n', (4,)),
        ('def run(x, n):\n    def grid(META):\n        return (triton.cdiv(n, META["BLOCK"]) * SIDE,)\n    k[grid](x, n, 1)\n', (8,)),
        ("def run(x, n, m):\n    tiles = triton.cdiv(n, 256)\n    total = tiles * m\n    k[(total,)](x, n, m, BLOCK=256)\n", (12,)),
        ("def run(x, count):\n    k[(count,)](x_ptr=x, m=1, n=count, BLOCK=1)\n", (1000,)),
    ],
)
def test_found(body: str, grid: tuple[int, ...]) -> None:
    found = grid_from_launches(source(body), "k", VALUES)
    assert found is not None and found.grid == grid and found.line > 7


@pytest.mark.parametrize(
    "body",
    [
        "",
        "def run(x):\n    k[(x.numel(),)](x, 1, 2)\n",
        "def run(x):\n    k[(open('/etc/passwd'),)](x, 1, 2)\n",
        "def run(x, rows):\n    k[(rows,)](x, rows + 1, 2)\n",
        "def run(x):\n    g = 1\n    g = x.numel()\n    k[(g,)](x, 1, 2)\n",
        "def run(x):\n    k[(-1,)](x, 1, 2)\n",
        "def run(x):\n    k[(g,)](x, 1, 2)\ng = g\n",
        "def run(x):\n    n = x.shape[0]\n    cols = x.shape[1]\n    k[(n,)](x, cols, 2, BLOCK=256)\n",
        "def run(x, n):\n    k[(n,)](x, x.numel(), 2, BLOCK=256)\n",
        "def run(x, SIDE):\n    k[(SIDE,)](x, 1, 2, BLOCK=256)\n",
        "def run(x, *rest, rows):\n    k[(rows,)](*rest, rows)\n",
    ],
)
def test_not_found(body: str) -> None:
    assert grid_from_launches(source(body), "k", VALUES) is None


def test_constants_and_options_of_the_launch_are_found() -> None:
    body = (
        "def run(x, w):\n    rows, cols = x.shape\n    size = 2048\n"
        "    k[lambda meta: (triton.cdiv(rows, meta['BLOCK']),)](x, rows, cols, BLOCK=size * SIDE, num_warps=8, num_stages=w)\n"
    )
    found = grid_from_launches(source(body), "k", {"n": 10_000}, {"BLOCK": 16}, ("num_warps", "num_stages"))
    assert found is not None and found.grid == (3,)
    assert found.constexprs == {"BLOCK": 4096} and found.options == {"num_warps": 8}
    given = grid_from_launches(source(body), "k", {"n": 10_000, "BLOCK": 1000}, {}, ())
    assert given is not None and given.grid == (10,) and not given.constexprs


def test_a_launch_is_made_with_the_constants_of_its_line() -> None:
    body = "def run(x, rows, cols):\n    k[(rows,)](x, rows, cols, BLOCK=4096, num_warps=8)\n"
    launch = make_launch(source(body), "k", arguments={"n": 512})
    assert launch.grid == (512,) and launch.given.constexprs == {"BLOCK": 4096} and launch.given.options == {"num_warps": 8}
    assert launch.assumed[0].endswith("(rows,) with BLOCK=4096 num_warps=8")
    asked = make_launch(source(body), "k", arguments={"n": 512}, constexprs={"BLOCK": 64}, options={"num_warps": 2})
    assert asked.given.constexprs == {"BLOCK": 64} and asked.given.options == {"num_warps": 2}
    assert asked.assumed[0].endswith("(rows,)")
