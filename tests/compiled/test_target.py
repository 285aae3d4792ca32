"""What the command line says of a kernel, and what it answers to mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.advising.targets import Request
from advisor.advising.targets.resolve import resolve_target
from advisor.compiled.launches.launch_options import LaunchOptions, one_launch
from advisor.compiled.launches.target import grid_of, make_launch, open_kernel
from advisor.compiled.launches.written_values import assignments, numbers
from advisor.python_source.rebuild import rebuild
from advisor.python_source.source import parse_source
from advisor.system.errors import InputError, NothingMatchedError, UsageError


def test_assignments_are_lists_too() -> None:
    assert numbers(["M=1,N=2", "eps = 1e-5"], "--arg") == {"M": 1, "N": 2, "eps": 1e-5}
    assert assignments(["A=(1, 2),B=tl.float32,C=relu"], "--constexpr").keys() == {"A", "B", "C"}
    assert assignments(["A=(1, 2),B=1"], "--constexpr")["A"] == (1, 2)
    assert assignments(["ACTIVATION="], "--constexpr") == {"ACTIVATION": ""}
    with pytest.raises(UsageError, match="NAME=VALUE"):
        assignments(["M=1", "N"], "--arg")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import torch\n", "no Triton kernel in this file; expected functions decorated with @triton.jit"),
        ("from triton.experimental import gluon\n@gluon.jit\ndef k(x):\n    pass\n", "got Gluon, which is not supported"),
        ("from triton.experimental.gluon import language as gl\n", "Gluon, which is not supported"),
    ],
)
def test_a_file_without_kernels_is_said_to_have_none(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(NothingMatchedError) as caught:
        open_kernel(str(path))
    assert said in str(caught.value) and "one of" not in str(caught.value)


SAME_NAME = """import torch
import triton
import triton.language as tl

def forward(x):
    @triton.jit
    def step(a):
        return a + 1

    @triton.jit
    def kernel(x_ptr, n, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), step(n))

    kernel[(7,)](x, 3, BLOCK=64)

def backward(x):
    @triton.jit
    def less(a):
        return a - 1

    @triton.jit
    def kernel(x_ptr, n, m, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), less(n) + m)

    kernel[(9,)](x, 3, 4, BLOCK=64)

if torch.cuda.device_count():
    @triton.jit
    def branch(x_ptr):
        tl.store(x_ptr, 1)
else:
    @triton.jit
    def branch(x_ptr, y_ptr):
        tl.store(y_ptr, 1)
"""


@pytest.mark.parametrize(
    ("text", "line", "grid"),
    [
        ("kernel:10", 11, (7,)),
        ("kernel:23", 22, (9,)),
        ("branch:33", 33, None),
    ],
)
def test_one_of_several_kernels_of_a_name_is_named(tmp_path: Path, text: str, line: int, grid: tuple[int, ...] | None) -> None:
    path = tmp_path / "same.py"
    path.write_text(SAME_NAME)
    source, name = open_kernel(f"{path}::{text}")
    assert source.on("cuda").kernel(name).line == line
    assert make_launch(source.on("cuda"), name).grid == grid
    rebuilt = rebuild(source, name)
    assert compile(rebuilt.modules[f"{rebuilt.entry}.py"], "rebuilt", "exec")
    step = "return a + 1" if grid == (7,) else "return a - 1"
    assert (step in rebuilt.modules[f"{rebuilt.entry}.py"]) == (grid is not None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kernel", r"lines 11, 22.*name the one that is meant: same.py::kernel:11 or same.py::kernel:22"),
        ("branch", r"lines 29, 33.*name the one that is meant: same.py::branch:29 or same.py::branch:33"),
        ("kernel:1", "no kernel of that name there.*one of kernel:11, kernel:22"),
        ("nothing.at_all", "no @triton.jit function of that name"),
    ],
)
def test_which_of_several_kernels_can_be_named_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "same.py"
    path.write_text(SAME_NAME)
    with pytest.raises(UsageError, match=said):
        source, name = open_kernel(f"{path}::{text}")
        source.on("cuda").kernel(name)


def test_a_grid_that_cannot_be_worked_out_says_what_it_may_be_made_of(tmp_path: Path) -> None:
    path = tmp_path / "same.py"
    path.write_text(SAME_NAME)
    source, _ = open_kernel(f"{path}::kernel:11")
    assert grid_of("n // BLOCK, 2", {"n": 128, "BLOCK": 64}, source) == (2, 2)
    assert grid_of("(n // BLOCK, 2)", {"n": 128, "BLOCK": 64}, source) == (2, 2), "as Python writes it"
    with pytest.raises(UsageError) as caught:
        grid_of("n // BLOK", {"n": 128, "BLOCK": 64}, source)
    assert "got n // BLOK" in str(caught.value) and "an expression over BLOCK, n" in str(caught.value) and "--arg" in str(caught.value)


@pytest.mark.parametrize(
    ("written", "grid"), [("meta: (cdiv(n, meta['B']),)", (4,)), ("META: (triton.cdiv(n, META['B']), 2)", (4, 2)), ("m: n", (1000,))]
)
def test_the_lambda_of_a_launch_is_a_grid(written: str, grid: tuple[int, ...]) -> None:
    source = parse_source("import triton\n", "k.py")
    assert grid_of(f"lambda {written}", {"n": 1000, "B": 256}, source) == grid
    with pytest.raises(UsageError, match="m is not a literal"):
        grid_of("lambda meta: (m,)", {"n": 1000}, source)


def test_a_float_among_sizes_is_told_from_a_number() -> None:
    with pytest.raises(UsageError, match="n=1000000 in place of n=1e6"):
        grid_of("cdiv(n, 256)", numbers(["n=1e6"], "--arg"), parse_source("import triton\n", "k.py"))


def test_lists_and_ranges_are_tuples() -> None:
    assert numbers(["offsets=range(0,300,100)", "ids=[1,2]*2"], "--content") == {"offsets": (0, 100, 200), "ids": (1, 2, 1, 2)}
    with pytest.raises(UsageError, match="NAME=NUMBER"):
        numbers(["offsets=range(10**12)"], "--content")


def test_a_notebook_is_told_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text('{"cells": []}')
    for asked in (lambda name: open_kernel(name), lambda name: resolve_target(name, Request())):
        with pytest.raises(InputError, match=r"a notebook is not read.*nbconvert"):
            asked(f"{tmp_path}/a.ipynb::k")


OPTIONAL = """import torch
import triton
import triton.language as tl

@triton.jit
def k(x, w, W: tl.constexpr, WINDOW: tl.constexpr, HOW: tl.constexpr):
    for i in tl.static_range(W):
        tl.store(x + i, 1.0)
    if WINDOW is not None:
        tl.store(x + WINDOW, 1.0)
    if HOW == "silu":
        tl.store(x, 0.0)

def run(x, weight=None, window=None, how=None):
    W = weight.shape[1] if weight is not None else None
    k[(4,)](x, weight, W=W, WINDOW=window, HOW=how)
"""


def test_what_only_a_default_leaves_out_is_not_none_where_the_kernel_needs_a_number() -> None:
    """FLA's convolutions: every call gives weights, whose width is None by their default."""
    launch = make_launch(parse_source(OPTIONAL, "k.py"), "k")
    assert launch.given.constexprs == {"WINDOW": None, "HOW": None}
    assert any("WINDOW=None HOW=None" in each for each in launch.assumed) and not any("W=None" in each.split() for each in launch.assumed)
    asked = OPTIONAL.replace("    for", "    if W == None:\n        return\n    for")
    assert make_launch(parse_source(asked, "k.py"), "k").given.constexprs["W"] is None
    assert make_launch(parse_source(OPTIONAL, "k.py"), "k", constexprs={"W": None}).given.constexprs["W"] is None  # as the user says


SIZED = """import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, y_ptr, rows, columns, factor, BLOCK: tl.constexpr, HEADS: tl.constexpr):
    at = tl.program_id(0) * columns + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at) * factor * HEADS)

def launch(x, y, heads, block=128):
    {before}
    scale[grid](x, y, m, n, 2.0, BLOCK=block, HEADS=heads)
"""


BY_BLOCKS = "m, n = x.shape\n    grid = lambda meta: (m, triton.cdiv(n, meta['BLOCK']))"


@pytest.mark.parametrize(
    ("before", "given", "needed"),
    [
        (BY_BLOCKS, {}, "--arg rows=… --arg columns=…"),
        (BY_BLOCKS, {"rows": 7}, "--arg columns=…"),
        ("m, n = x.shape\n    grid = (m, heads)", {}, "--arg rows=… --constexpr HEADS=…"),
        ("b, m, n = x.shape; steps = triton.cdiv(m, 64)\n    grid = (steps, b * heads)", {}, "--arg b=… --arg rows=… --constexpr HEADS=…"),
        ("m, n = x.shape\n    grid = (len(open('rows').read()),)", {}, None),
    ],
)
def test_what_the_grid_needs_is_said(before: str, given: dict[str, int], needed: str | None, tmp_path: Path) -> None:
    file = tmp_path / "scale.py"
    file.write_text(SIZED.format(before=before))
    launch = one_launch(*open_kernel(f"{file}::scale"), LaunchOptions(arguments=given))
    assert launch.grid is None
    said = f"The grid follows from the launch in line 12 once its sizes are given: {needed}."
    otherwise = "The launch in line 12 has the grid (len(open('rows').read()),), which does not follow from arguments."
    assert launch.notes == (said if needed else otherwise,)


def test_with_what_the_grid_needs_it_is_known(tmp_path: Path) -> None:
    file = tmp_path / "scale.py"
    file.write_text(SIZED.format(before=BY_BLOCKS))
    launch = one_launch(*open_kernel(f"{file}::scale"), LaunchOptions(arguments={"rows": 7, "columns": 1000}))
    assert launch.grid == (7, 8) and not launch.notes
    file.write_text(SIZED.format(before="b, m, n = x.shape\n    grid = (b * m, triton.cdiv(n, 64))"))
    launch = one_launch(*open_kernel(f"{file}::scale"), LaunchOptions(arguments={"rows": 7, "columns": 128, "b": 5}))
    assert launch.grid == (35, 2) and launch.around == {"b": 5}


def test_a_number_for_a_pointer_is_what_its_tensor_holds() -> None:
    text = (
        "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x, lengths, n, B: tl.constexpr):\n"
        "    count = tl.load(lengths + tl.program_id(0))\n    o = tl.arange(0, B)\n    tl.store(x + o, 1.0, mask=o < count + n)\n"
    )
    launch = make_launch(parse_source(text, "k.py"), "k", arguments={"lengths": 8192, "n": 3}, grid=(4,))
    assert launch.contents == {"lengths": 8192} and launch.given.scalars == {"n": 3}
