"""The grid of a kernel, found where its own file launches it."""

from __future__ import annotations

import pytest

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
        "def run(x, *rest, rows):\n    k[(rows,)](*rest, rows)\n",
    ],
)
def test_not_found(body: str) -> None:
    assert grid_from_launches(source(body), "k", VALUES) is None
