"""The grid of a kernel, found where its own file launches it."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from advisor.compiled.guesses.inference import guesses
from advisor.compiled.launches.target import make_launch
from advisor.python_source.launch_sites import common_launch, grid_from_launches, needed_for_grid
from advisor.python_source.literals import next_power_of_2
from advisor.python_source.source import SourceFile, parse_source

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
        (
            'def run(x, n):\n    def grid(META):\n        B = META["BLOCK"]\n        tiles = triton.cdiv(n, B)\n        if tiles > 2:\n'
            "            tiles += SIDE\n        return (tiles, m)\n    m = x.shape[1]\n    k[grid](x, n, m)\n",
            (6, 3),
        ),
        ("def run(x, n, m):\n    tiles = triton.cdiv(n, 256)\n    total = tiles * m\n    k[(total,)](x, n, m, BLOCK=256)\n", (12,)),
        ("def run(x, count):\n    k[(count,)](x_ptr=x, m=1, n=count, BLOCK=1)\n", (1000,)),
        ("def run(x):\n    k[(triton.cdiv(x.numel(), 256),)](x, x.numel(), 1)\n", (4,)),
        ("def run(x):\n    size = x.numel()\n    k[(triton.cdiv(size, 256),)](x, x.numel(), 1)\n", (4,)),
        ("def run(x):\n    k[(x.size()[0], x.size()[1])](x, x.shape[0], x.shape[1])\n", (1000, 3)),
        ("def run(x):\n    y = torch.empty_like(x)\n    k[(y.shape[0],)](x, x.shape[0], 1)\n", (1000,)),
    ],
)
def test_found(body: str, grid: tuple[int, ...]) -> None:
    found = grid_from_launches(source(body), "k", VALUES)
    assert found is not None and found.grid == grid and found.line > 7


@pytest.mark.parametrize(
    ("call", "tiles"),
    [
        ("k[(triton.cdiv(n, 256),)](x, n, m, BLOCK=256)", 2),
        ("k[(triton.cdiv(n, 256),)](x, n, 256, BLOCK=256)", 2),  # what is passed for a number is none of the configuration
        ("k[(triton.cdiv(n, 256),)](x, n, m, BLOCK=128)", 4),
        ("k[(triton.cdiv(n, 256),)](x, n, 256)", 4),
    ],
)
def test_a_block_that_stands_in_the_grid_as_a_number(call: str, tiles: int) -> None:
    found = grid_from_launches(source(f"def run(x, n, m):\n    {call}\n"), "k", {"n": 1000, "m": 256, "BLOCK": 512})
    assert found is not None and found.grid == (tiles,) and found.blocks_in_grid == ({256} if tiles == 2 else set())


@pytest.mark.parametrize(
    "body",
    [
        "",
        "def run(x):\n    k[(x.numel(),)](x, 1, 2)\n",
        "def run(x):\n    k[(open('/etc/passwd'),)](x, 1, 2)\n",
        "def run(x):\n    def g(META):\n        s = open('/etc/passwd')\n        return (8,)\n    k[g](x, 1, 2)\n",
        "def run(x):\n    def g(META):\n        return (8,)\n    if x:\n        def g(META):\n            return (4,)\n    k[g](x, 1, 2)\n",
        "def run(x, rows):\n    k[(rows,)](x, rows + 1, 2)\n",
        "def run(x):\n    g = 1\n    g = x.numel()\n    k[(g,)](x, 1, 2)\n",
        "def run(x):\n    k[(-1,)](x, 1, 2)\n",
        "def run(x):\n    rows = 4\n    rows, cols = x.shape\n    k[(rows,)](x, cols, 2)\n",
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


GEMM = """
import torch
import triton
import triton.language as tl

@triton.jit
def g(a, b, c, bias, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, ACT: tl.constexpr, SMS: tl.constexpr):
    pass

"""


def gemm(body: str) -> SourceFile:
    return parse_source(GEMM + textwrap.dedent(body), "g.py")


UNPACKED = """
    def run(a, b, act=""):
        M, K = a.shape
        K, N = b.shape
        c = torch.empty((M, N), device=a.device)
        sms = torch.cuda.get_device_properties("cuda").multi_processor_count
        g[(min(sms, triton.cdiv(M, 128)),)](a, b, c, None, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0),
                                            c.stride(1), BM=128, ACT=act, SMS=sms)
"""
STARRED = """
    def run(a, b, act="", sms=132):
        c = a.new_empty(a.size(0), b.size(1))
        M, K = a.shape
        _, N = b.size()
        g[lambda meta: (min(sms, triton.cdiv(a.shape[0], meta["BM"])),)](
            a, b, c, None, a.shape[0], N, K, *a.stride(), *b.stride(), *c.stride(), BM=128, ACT=act, SMS=sms)
"""
NAMED = """
    def run(a, b, act=""):
        prop = triton.runtime.driver.active.utils.get_device_properties(0)
        sam, sak = a.stride()
        M, N, K = a.shape[0], b.shape[-1], a.shape[-1]
        c = torch.zeros(a.shape[0], b.shape[1])
        wrap_triton(g)[(min(prop["multiprocessor_count"], triton.cdiv(M, 128)),)](
            a, b, c, None, M, N, K, sam, sak, b.stride(-2), b.stride(-1), c.stride(0), c.stride(1), BM=128, ACT=act,
            SMS=prop["multiprocessor_count"])
"""


@pytest.mark.parametrize("body", [UNPACKED, STARRED, NAMED])
def test_what_a_launch_passes_is_read(body: str) -> None:
    found = grid_from_launches(gemm(body), "g", {"M": 4096, "N": 2048, "K": 512}, num_sms=132)
    assert found is not None and found.grid == (32,)
    assert found.constexprs == {"BM": 128, "ACT": "", "SMS": 132} and found.numbers == {"bias": None}
    # In the last, how many dimensions b has is not said, so its extent 1 need not be the one that is passed as its last.
    assert found.strides == {"sam": 512, "sak": 1, "sbk": 2048, "sbn": 1, "scm": None if body is NAMED else 2048, "scn": 1}


def test_strides_without_extents_are_multiples() -> None:
    body = """
        def run(q, k):
            g[(q.shape[0],)](q, k, q, None, q.shape[0], 1, 1, q.stride(0), q.stride(1), k.stride(0), 7, k.stride(-1), q.shape[1])
    """
    found = grid_from_launches(gemm(body), "g", {"M": 4})
    assert found is not None and found.grid == (4,) and found.numbers == {"bias": None, "N": 1, "K": 1, "sbn": 7}
    assert found.strides == {"sam": None, "sak": 1, "sbk": None, "scm": 1}  # the rank of k is not said: k.stride(0) is an outer one


SETTINGS = """
def settings(n, least=64):
    block = triton.next_power_of_2(n)
    if block > 65536:
        raise RuntimeError("too large")
    warps = 4
    if block >= 2048:
        warps = 8
    return max(block, least), warps
"""
ROWS = "def run(x):\n    rows, cols = x.shape\n    B, w = settings(cols{0})\n    k[(rows,)](x, rows, cols, BLOCK=B, num_warps=w)\n"


def test_a_default_that_is_no_size_is_no_block() -> None:
    """As of `linear_dim: int = -1`, in whose place every caller gives one."""
    text = "import triton\n\ndef run(x, n=-1):\n    B = triton.next_power_of_2(n)\n    k[(8,)](x, n, 1, BLOCK=B)\n"
    found = grid_from_launches(parse_source(HEAD + text, "k.py"), "k", {})
    assert found is not None and not found.constexprs
    assert next_power_of_2(-1) == 1, "a row that is guessed to be so"


@pytest.mark.parametrize("where", [SETTINGS, "from .sizes import settings\n", "from sizes import settings\n"])
def test_functions_of_several_values_are_followed(where: str, tmp_path: Path) -> None:
    """As the `calculate_settings` of Liger and Unsloth, which their kernels import."""
    (tmp_path / "sizes.py").write_text(f"import triton\n{SETTINGS}", encoding="utf-8")
    made = parse_source(HEAD + where + ROWS.format(", least=4096"), tmp_path / "k.py")
    found = grid_from_launches(made, "k", {"n": 64, "m": 3000}, options=("num_warps",))
    assert found is not None and found.grid == (64,)
    assert (found.constexprs, found.options) == ({"BLOCK": 4096}, {"num_warps": 8})
    refused = parse_source(HEAD + where + ROWS.format(", **{}"), tmp_path / "k.py")
    found = grid_from_launches(refused, "k", {"n": 64, "m": 2**20}, options=("num_warps",))
    assert found is not None and found.grid == (64,) and not found.constexprs and not found.options


def test_what_is_followed_into_other_files_has_one_allowance(tmp_path: Path) -> None:
    (tmp_path / "sizes.py").write_text("def slow(n):\n    for i in range(5000):\n        n = n + 0\n    return n\n", encoding="utf-8")
    grid = "    def grid(meta):\n        n = rows\n        for i in range({0}):\n            n = slow(n)\n        return (n,)\n"
    run = f"def run(x):\n    rows, cols = x.shape\n{grid}    k[grid](x, rows, cols, BLOCK=64)\n"
    for calls, found in ((2, (64,)), (100, None)):
        made = parse_source(HEAD + "from sizes import slow\n" + run.format(calls), tmp_path / "k.py")
        launch = grid_from_launches(made, "k", {"n": 64, "m": 3000})
        assert (launch.grid if launch is not None else None) == found


CHAIN = "".join(f"    a{i} = a{i + 1}.mT\n" for i in range(200))
"""Names of names: each is asked for an attribute of the next."""
FAN = "".join(
    f"    {a} = torch.empty(({b}.shape[0] * {b}.shape[1] * {b}.shape[2], {b}.shape[0] + {b}.shape[1], {b}.shape[2]))\n"
    for a, b in ("xa", "ab", "bc", "cd", "de", "ef", "fg")
)
"""Extents of extents, each in terms of several: more than anyone could follow one by one."""


@pytest.mark.parametrize(
    ("lines", "values", "grid"),
    [
        ("    x = x.reshape(-1, x.shape[-1])\n    m, n = x.shape[-1], x.shape[0]\n", {"n": 50, "m": 64}, (50,)),
        ("    x = x.reshape(-1, x.shape[0])\n    m, n = x.shape[0], x.shape[1]\n", {"m": 64}, None),  # of what x was before
        ("    if x.dim() > 2:\n        x = x.view(x.size(0), x.size(-1))\n    m, n = x.shape[1], x.shape[0]\n", {"m": 64}, None),
        ("    m = 2\n    n = n * 2\n", {"m": 4}, None),
        ("    y = y.view(y.shape[0], x.shape[1])\n    x = x.view(y.shape[0], y.shape[1])\n    n = x.shape[0]\n", {}, None),
        ("    a, b = b.view(-1, b.shape[-1]), a.view(-1, a.shape[-1])\n    n = a.shape[0]\n", {}, None),
        (f"{CHAIN}    n = a0.shape[0]\n", {}, None),
        (f"{FAN}    n = x.shape[0]\n", {}, None),
    ],
)
def test_names_in_terms_of_themselves_or_each_other_are_soon_left(lines: str, values: dict[str, int], grid: tuple[int, ...] | None) -> None:
    body = f"def run(x, y, n, a, b):\n{lines}    k[(n,)](x, n, m)\n"
    launch = grid_from_launches(source(body), "k", values)
    assert (launch.grid if launch is not None else None) == grid


def test_the_file_is_as_it_was_once_the_grid_is_found() -> None:
    """Extents stand in for what asks for them in a copy."""
    read = source("def run(x, y, n, a, b):\n    m, n = x.shape[1], x.shape[0]\n    k[(max([x.shape[0], 1]),)](x, n, m)\n")
    before = ast.dump(read.tree)
    launch = grid_from_launches(read, "k", {"n": 50})
    assert launch is not None and launch.grid == (50,)
    assert ast.dump(read.tree) == before


STORE = "tl.store(x + rows[:, None] * sm + tl.program_id(1) * sh + lanes[None, :]{}, 0.0)"
ATTENTION = """
import torch
import triton
import triton.language as tl

@triton.jit
def f(x, sm, sh, sd, D: tl.constexpr):
    rows = tl.program_id(0) * 16 + tl.arange(0, 16)
    lanes = tl.arange(0, D)
    {store}

def run(x, other):
    {first}
    f[(8, 8)](x, {passed}, D=64)
"""


@pytest.mark.parametrize(
    ("store", "first", "passed", "strides"),
    [
        # All but the last stride of (tokens, heads, head size): what is passed last is the stride of heads.
        (STORE.format(""), "pass", "x.stride(0), x.stride(1), 0", {"sm": None, "sh": None}),
        (STORE.format(""), "D = x.shape[2]", "x.stride(0), x.stride(1), 0", {"sm": None, "sh": None}),
        (STORE.format(" * sd"), "D = x.shape[2]", "x.stride(0), x.stride(1), 1", {"sm": None, "sh": None}),
        (STORE.format(""), "T, H, D = x.shape", "x.stride(0), x.stride(1), 0", {"sm": None, "sh": None}),
        (STORE.format(""), "x = torch.empty((100, 8, 64))", "x.stride(0), x.stride(1), 0", {"sm": 512, "sh": 64}),
        # All of them, of a tensor whose dimensions are not said, and where they are.
        (STORE.format(" * sd"), "pass", "x.stride(0), x.stride(1), x.stride(2)", {"sm": None, "sh": None, "sd": 1}),
        (STORE.format(""), "pass", "x.stride(0), x.stride(1), x.stride(2)", {"sm": None, "sh": None, "sd": 1}),  # unused
        (STORE.format(" * sd"), "pass", "x.stride(0), x.stride(2), x.stride(1)", {"sm": None, "sh": 1, "sd": None}),  # in the wrong order
        (STORE.format("+ sd"), "pass", "x.stride(0), x.stride(1), x.stride(2)", {"sm": None, "sh": None, "sd": None}),
        (STORE.format(""), "pass", "*x.stride()", {"sm": None, "sh": None, "sd": 1}),  # as many as the kernel takes
        (STORE.format(""), "H = x.size(3)", "*x.stride()", {}),  # more
        (STORE.format(""), "pass", "*x.stride(), *other.stride()", {}),
        (STORE.format(""), "pass", "*x.stride(), **other", {}),
        (STORE.format(""), "pass", "x.stride(0), *other", {}),
        (STORE.format(""), "a, b, c = x.stride()", "a, b, c", {"sm": None, "sh": None, "sd": 1}),
        # Counted from the end, a stride is the last one whatever the dimensions.
        (STORE.format(" * sd"), "pass", "x.stride(0), x.stride(1), x.stride(-1)", {"sm": None, "sh": None, "sd": 1}),
        (STORE.format(" * sd"), "pass", "x.stride(-3), x.stride(-2), x.stride(-1)", {"sm": None, "sh": None, "sd": 1}),
        # One that is passed alone is an outer one where the tensor is asked for more dimensions.
        (STORE.format(""), "H = x.size(1)", "x.stride(0), 64, 0", {"sm": None}),
        (STORE.format(""), "H = other.size(1)", "x.stride(0), 64, 0", {}),
    ],
)
def test_only_the_innermost_stride_is_one(store: str, first: str, passed: str, strides: dict[str, int | None]) -> None:
    made = parse_source(ATTENTION.format(store=store, first=first, passed=passed), "f.py")
    found = grid_from_launches(made, "f", {})
    assert found is not None and found.strides == strides


@pytest.mark.parametrize(("row", "column"), [(1, None), (4096, 1), (None, None)])
def test_a_matrix_whose_inner_stride_is_given_lies_the_other_way_round(row: int | None, column: int | None) -> None:
    kernel = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef f(x, sr, sc, D: tl.constexpr):\n"
    kernel += "    tl.store(x + tl.program_id(0) * sr + tl.arange(0, D) * sc, 0.0)\n\n"
    made = parse_source(kernel + "def run(x):\n    f[(8,)](x, x.stride(1), x.stride(0), D=64)\n", "f.py")
    found = grid_from_launches(made, "f", {"sr": row} if row is not None else {})
    assert found is not None and found.strides == {"sc": column} | ({"sr": 1} if row is None else {})
    twice = (
        kernel.replace("sr, sc, D", "sr, sc, tr, tc, D")
        + "def run(x):\n    f[(8,)](x, x.stride(1), x.stride(0), x.stride(1), x.stride(0), D=64)\n"
    )
    found = grid_from_launches(parse_source(twice, "f.py"), "f", {"sr": 4096})
    assert found is not None and found.strides == {"sc": 1, "tr": 4096, "tc": 1}


def test_a_tensor_has_the_rank_that_it_is_given_last() -> None:
    for lines, strides in (("B, T, D = x.shape\n    x = x.view(-1, D)", {"n": None}), ("x = x.view(-1, 96)", {"n": 96})):
        found = grid_from_launches(source(f"def run(x):\n    {lines}\n    k[(4,)](x, x.stride(0), 2, BLOCK=8)\n"), "k", {})
        assert found is not None and found.strides == strides


@pytest.mark.parametrize(
    "lines",
    ["x = x.reshape(3, 4, 5)\n    n, m = x.shape", "x = torch.empty(shape)", "pass"],
)
def test_tensors_of_two_ranks_or_none_have_no_strides(lines: str) -> None:
    body = f"def run(x, shape):\n    {lines}\n    k[(4,)](x, x.stride(0), 2, BLOCK=8)\n"
    found = grid_from_launches(source(body), "k", {})
    assert found is not None and found.strides == {}


def test_tensors_made_like_others_have_their_strides() -> None:
    head = HEAD.replace("x_ptr, n, m,", "x_ptr, n, first, second, BLOCK: tl.constexpr):\n    pass\n#")
    body = "def run(x):\n    q = torch.empty_like(x, dtype=torch.int8)\n    k[(8,)](x, x.shape[-1], q.stride(-2), q.stride()[-2])\n"
    found = common_launch(parse_source(head + body, "k.py"), "k", {"n": 96})
    assert found is not None and found.strides == {"first": 96, "second": 96}


@pytest.mark.parametrize(("element", "block"), [(None, 32768), ("bf16", 32768), ("fp32", 16384), ("fp8e4nv", 65536)])
def test_the_size_of_elements_is_that_of_tensors_of_which_nothing_is_said(element: str | None, block: int) -> None:
    lines = ["n = x.numel()", "B = min(65536 // x.element_size(), triton.next_power_of_2(n))", "k[(8,)](x, n, 1, BLOCK=B)"]
    body = "def run(x):\n" + "".join(f"    {line}\n" for line in lines)
    assert make_launch(source(body), "k", arguments={"n": 100_000}, element=element).given.constexprs == {"BLOCK": block}
    found = common_launch(source(body), "k", {"n": 100_000})
    assert found is not None and not found.constexprs


def test_the_common_launch_counts_without_its_grid() -> None:
    body = "def run(x):\n    k[(x.numel(),)](x, x.shape[0], 2, BLOCK=4096, num_warps=16)\n"
    launch = make_launch(source(body), "k")
    assert launch.grid is None and launch.given.constexprs == {"BLOCK": 4096} and launch.given.scalars == {"m": 2}
    assert launch.given.options == {"num_warps": 16} and launch.assumed == ("BLOCK=4096 num_warps=16 m=2, as in the launch in line 9",)
    assert make_launch(source(body), "k", grid="128").given.constexprs == {"BLOCK": 4096}
    twice = make_launch(source(body + body.replace("4096", "128")), "k")
    assert not twice.given.constexprs and twice.given.options == {"num_warps": 16}  # in which the two agree
    assert twice.assumed == ("num_warps=16 m=2, as in the launch in line 9",)
    others = make_launch(source(body + body.replace("16)", "8)")), "k")
    assert not others.given.options and others.origins["num_warps"] == "guessed"
    assert others.assumed[-1] == "num_warps = 4, for what a launch (line 9 or 11) sets it to is unknown"


def test_a_launch_has_the_strides_of_contiguous_tensors() -> None:
    launch = make_launch(gemm(UNPACKED), "g", arguments={"M": 4096, "sam": 640}, num_sms=100)
    assert launch.grid == (32,) and launch.given.constexprs["SMS"] == 100
    assert launch.given.scalars == {"M": 4096, "bias": None, "sam": 640, "sak": 1, "sbn": 1, "scn": 1}
    assert launch.given.multiples == {"sbk", "scm"}
    assert launch.assumed[1] == (
        "contiguous tensors where line 16 passes strides: sak = 1, sbn = 1, scn = 1 and sbk, scm multiples of 16 "
        "(so narrow-access is not judged)"
    )


def test_types_of_tensors_that_are_made_for_the_launch_are_read() -> None:
    """As the sizes and strides of Triton's tutorial of grouped GEMMs."""
    body = """
        def run(rows, kind, x):
            a = torch.tensor(rows, dtype=torch.int32)
            b = torch.empty_like(a, dtype=torch.bfloat16)
            c = a.new_zeros(4, dtype=torch.float8_e5m2)
            d = torch.empty(4, dtype=kind)
            d2 = torch.Size(4, dtype=torch.int8)
            g[(4,)](a, b, c, d, M=d2, N=x)
    """
    launch = make_launch(gemm(body), "g", types={"b": "*fp16"})
    assert launch.given.types == {"a": "*i32", "b": "*fp16", "c": "*fp8e5"}
    assert "a: *i32 c: *fp8e5" in launch.assumed[0]
    twice = body.replace("d = torch", "a = torch")
    assert "a" not in make_launch(gemm(twice), "g").given.types


CHECKED = """import torch
import triton
import triton.language as tl

@triton.jit
def add(x, y, rows, columns, B: tl.constexpr):
    pass

def check(x, y):
    rows, columns = 200, 256
    add[(2 * 2,)](x, y, rows, columns, B=128)

def run(x, y):
    rows, columns = x.shape
    add[(triton.cdiv(rows, 128) * triton.cdiv(columns, 128),)](x, y, rows, columns, B=128)
"""


def test_a_check_of_one_size_is_not_the_launch_of_another() -> None:
    source = parse_source(CHECKED, "k.py")
    found = grid_from_launches(source, "add", {"rows": 4096, "columns": 4096})
    assert found is not None and (found.line, found.grid) == (15, (1024,))
    found = grid_from_launches(source, "add", {"rows": 200, "columns": 256})
    assert found is not None and (found.line, found.grid) == (11, (4,))
    unknown = parse_source(CHECKED.replace("triton.cdiv(rows, 128)", "blocks_of(x)"), "k.py")
    assert grid_from_launches(unknown, "add", {"rows": 4096, "columns": 4096}) is None
    alone = parse_source(CHECKED.split("def run")[0], "k.py")
    found = grid_from_launches(alone, "add", {"rows": 4096, "columns": 4096})  # such as one program per SM
    assert found is not None and found.grid == (4,)


def test_a_grid_follows_from_names_around_it_whatever_is_asserted_of_tensors() -> None:
    body = "def run(x, y):\n    assert y.dtype == torch.int8\n    bags, size = x.shape\n    k[(bags,)](x, size, y.shape[1], BLOCK=128)\n"
    assert needed_for_grid(source(body), "k", {}, ("n", "m"), {}) == (11, ("bags",))


def test_needed_for_grid_asks_with_the_grid_for_what_strides_follow_from() -> None:
    """`half` is worked out, and told by what it is worked out of."""
    body = (
        "def run(x, longest):\n    rows, heads, size = x.shape\n    half = size // 2\n    y = torch.empty((rows, longest, heads, half))\n"
        "    k[(rows,)](y.stride(0), y.stride(1), heads, BLOCK=128)\n"
    )
    assert needed_for_grid(source(body), "k", {}, ("m",), {}) == (12, ("rows", "longest", "size"))
    assert needed_for_grid(source(body), "k", {"longest": 8, "size": 64}, ("m",), {}) == (12, ("rows",))


@pytest.mark.parametrize(
    ("unpacked", "grid"),
    [
        ("n, m, last = *x.shape, 5", (1000, 3)),
        ("first, n, m = 5, *x.shape", (1000, 3)),
        ("n, (m, *rest), last = *x.shape, 5", None),  # not followed
        ("n, m, last = *x.shape, *y.shape", None),
        ("n, m = *values, 5", None),
    ],
)
def test_a_shape_that_is_spread_among_others_has_as_many_extents_as_are_left(unpacked: str, grid: tuple[int, ...] | None) -> None:
    """As flash-linear-attention has `B, T, H, K, V = *k.shape, v.shape[-1]`."""
    body = f"def run(x, y, values):\n    {unpacked}\n    k[(x.shape[0], x.shape[-1])](x, n, m)\n"
    found = grid_from_launches(source(body), "k", {"n": 1000, "m": 3})
    assert (found.grid if found is not None else None) == grid


LIKELY = """import torch
import triton
import triton.language as tl

@triton.jit
def k(x_ptr, n, OUTER: tl.constexpr, INNER: tl.constexpr, KIND: tl.constexpr, STAGES: tl.constexpr):
    for i in range(0, OUTER // INNER):
        tl.store(x_ptr + n + i * INNER + tl.arange(0, INNER), i)

def run(x, n):
    STAGES = 3
    if x.is_sparse:
        OUTER, INNER = 4096, 1024
    elif n > x.limit:
        raise ValueError
    else:
        OUTER = 512
        INNER = 256
    if x.mine:
        STAGES = 1
    k[(8,)](x, n, OUTER, INNER, "a" if x.mine else "b", STAGES)
"""


def test_what_one_of_several_arms_passes_is_guessed_together() -> None:
    """It says nothing for sure; but 64 for both would have the loop run once, which no launch does."""
    made = parse_source(LIKELY, "k.py")
    found = common_launch(made, "k", {})
    assert found is not None and found.constexprs == {}
    assert found.likely == {"OUTER": 512, "INNER": 256, "KIND": "b", "STAGES": 3}
    launch = make_launch(made, "k")
    first, *others = guesses(made, made.kernel("k"), launch.given)
    assert first.constexprs == found.likely and {"OUTER", "INNER"} <= set(first.invented)
    assert {guess.constexprs["INNER"] for guess in others} > {256, 16}


SPREAD = """import triton
import triton.language as tl

@triton.jit
def k(x, w, y, T, D, x_t, x_d, w_f, w_d, y_t, y_f, SIDE: tl.constexpr, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(y + at * y_t + at * y_f, tl.load(x + at * x_t + at * x_d) + tl.load(w + at * w_f + at * w_d))

def run(x, w):
    T, D = x.shape
    y = torch.empty((T, 64), dtype=x.dtype)
    k[(8,)](x, w, y, T, D, *x.stride(), *w.stride(), *y.stride(), SIDE=2, TILE=32)
"""


def test_strides_of_which_one_tensor_is_not_known_are_as_many_as_the_kernel_takes() -> None:
    found = common_launch(parse_source(SPREAD, "k.py"), "k", {"T": 96, "D": 48})
    assert found is not None
    assert found.strides == {"x_t": 48, "x_d": 1, "w_f": None, "w_d": 1, "y_t": 64, "y_f": 1}
    for unknown in ("T, D = n, n", "T = D = n"):  # x, too
        found = common_launch(parse_source(SPREAD.replace("T, D = x.shape", unknown), "k.py"), "k", {})
        assert found is not None and "w_d" not in found.strides
    tuned = SPREAD.replace("@triton.jit", "@triton.autotune(configs=[triton.Config({'TILE': 32})], key=[])\n@triton.jit")
    found = common_launch(parse_source(tuned.replace(", TILE=32)", ")"), "k.py"), "k", {"T": 96, "D": 48})
    assert found is not None and found.strides["w_d"] == 1
    unread = tuned.replace("configs=[triton.Config({'TILE': 32})]", "configs=listed")
    found = common_launch(parse_source(unread.replace(", TILE=32)", ")"), "k.py"), "k", {})
    assert found is not None and "w_d" not in found.strides


@pytest.mark.parametrize(
    ("view", "strides"),
    [
        ("w.t()", {"sr": 1, "sc": None}),
        ("w.T", {"sr": 1, "sc": None}),
        ("w.transpose(0, 1)", {"sr": 1, "sc": None}),
        ("torch.empty((64, n)).t()", {"sr": 1, "sc": None}),
        ("w.t().contiguous()", {"sr": None, "sc": 1}),
        ("w.transpose(1, 2)", {"sr": None, "sc": 1}),
        ("w", {"sr": None, "sc": 1}),
    ],
)
def test_a_transposed_view_has_its_strides_the_other_way_round(view: str, strides: dict[str, int | None]) -> None:
    kernel = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef f(x, n, sr, sc, D: tl.constexpr):\n"
    kernel += "    tl.store(x + tl.program_id(0) * sr + tl.arange(0, D) * sc, n)\n\n"
    made = parse_source(kernel + f"def run(w, n):\n    x = {view}\n    f[(8,)](x, n, x.stride(0), x.stride(1), D=64)\n", "f.py")
    found = grid_from_launches(made, "f", {})
    assert found is not None and found.strides == strides
    sized = f"def run(w, m):\n    x = {view}\n    n, k = x.shape\n    f[(8,)](x, n, x.stride(0), x.stride(1), D=64)\n"
    found = grid_from_launches(parse_source(kernel + sized, "f.py"), "f", {"n": 96})
    assert found is not None and (strides["sr"] != 1 or found.strides == {"sr": 1, "sc": 96})
