"""The type of elements is the one that the file names where it launches the kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.compiled.launches.written_values import assignments, numbers, random_indices
from advisor.python_source.launch_sites import named_element
from advisor.python_source.source import parse_source, read_source
from advisor.system.errors import UsageError

from .shared_pool import POOL

KERNEL = """import torch
import triton
import triton.language as tl

@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n){cast}, mask=at < n)

def launch(x, y):
{body}
    copy[(64,)](x, y, x.numel(), BLOCK=1024)

def other(x):
    return x.to(torch.float16)

if __name__ == "__main__":
    launch(torch.ones(65536{main}), torch.ones(65536))
"""


@pytest.mark.parametrize(
    ("cast", "body", "main", "element"),
    [
        ("", "    y = torch.empty_like(x, dtype=torch.bfloat16)", ", dtype=torch.float16", "bf16"),
        ("", "    pass", ", dtype=torch.bfloat16", "bf16"),
        (".to(tl.bfloat16)", "    pass", "", "bf16"),
        ("", "    y = y.half()", "", None),
        ("", "    assert x.dtype in (torch.float16, torch.bfloat16)", ", dtype=torch.bfloat16", None),
        ("", "    scale = torch.ones(1, dtype=torch.float32)", "", None),
    ],
)
def test_named_element_of_launch_and_module(cast: str, body: str, main: str, element: str | None) -> None:
    source = parse_source(KERNEL.format(cast=cast, body=body, main=main), "k.py")
    assert named_element(source, "copy") == element


def test_tensors_of_which_nothing_else_is_said_have_the_named_element(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(KERNEL.format(cast="", body="    pass", main=", dtype=torch.bfloat16"))
    launches = [make_launch(read_source(path), "copy", element=element) for element in (None, "fp16")]
    kinds = [inspect_launch(launch, compile_target("sm_90"), POOL, sass=False).guess.signature["x_ptr"] for launch in launches]
    assert kinds == ["*bf16", "*fp16"]


CALLERS = KERNEL.format(cast="", body="    pass", main="").partition("if __name__")[0]


@pytest.mark.parametrize(
    ("calls", "kinds"),
    [
        (["launch(torch.randint(0, 9, (8,), dtype=torch.int8, device='cuda').t(), y)"], {"x_ptr": "*i8", "y_ptr": "*bf16"}),
        (["launch(x, y)"], {"x_ptr": "*i32", "y_ptr": "*bf16"}),  # names that their function gives them once
        (["launch(x, y)", "launch(x, x)"], {"x_ptr": "*i32"}),  # of y calls do not agree
        (["launch(z, y)"], {"y_ptr": "*bf16"}),  # z is the caller's own argument
        (["launch(x.half(), y.to(torch.float8_e5m2))"], {"x_ptr": "*fp16", "y_ptr": "*fp8e5"}),
        (["launch(x.sum(), y.to(z.dtype))"], {}),
    ],
)
def test_types_that_callers_make_tensors_of(calls: list[str], kinds: dict[str, str]) -> None:
    made = "    x = torch.zeros(8, dtype=torch.int, device='cuda')\n    y = torch.empty(8).bfloat16().contiguous()\n"
    text = CALLERS + "".join(f"def bench_{n}(z):\n{made}    {call}\n\n" for n, call in enumerate(calls))
    launch = make_launch(parse_source(text, "k.py"), "copy")
    assert launch.given.types == kinds and {launch.origins[name] for name in kinds} <= {"typical"}
    said = make_launch(parse_source(text, "k.py"), "copy", element="fp32").given.types
    assert said == {name: kind for name, kind in kinds.items() if kind.startswith("*i")}, "of other calls the element is said"


VIEWED = """import torch
import triton
import triton.language as tl

@triton.jit
def copy(x_ptr, y_ptr, stride_xm, stride_xn, BLOCK: tl.constexpr):
    rows, columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    tl.store(y_ptr + rows * BLOCK + columns, tl.load(x_ptr + rows * stride_xm + columns * stride_xn))

def launch(x, y):
    copy[(64,)](x, y, x.stride(0), x.stride(1), BLOCK=64)

if __name__ == "__main__":
    weights = torch.zeros((64, 4096), dtype=torch.int8)
    launch(VIEW, weights)
"""


@pytest.mark.parametrize(
    ("view", "unit"),
    [("weights", "stride_xn"), ("weights.t()", "stride_xm"), ("weights.T", "stride_xm"), ("weights.t().contiguous()", "stride_xn")],
)
def test_a_transposed_view_that_the_caller_makes_has_its_strides(view: str, unit: str) -> None:
    given = make_launch(parse_source(VIEWED.replace("VIEW", view), "k.py"), "copy").given
    assert {name for name, value in {**given.scalars, **given.constexprs}.items() if value == 1} == {unit}
    assert given.types == {"x_ptr": "*i8", "y_ptr": "*i8"}


def test_random_contents_are_the_same_every_time() -> None:
    contents = numbers(["ids=random(151936, 8192)"], "--content")["ids"]
    assert contents.shape == (8192,) and contents.min() >= 0 and 150_000 < contents.max() < 151_936
    assert np.array_equal(contents, random_indices(151_936, 8192)) and len(assignments(["ids=random(7)"], "--content")["ids"]) == 2**20
    once = numbers(["ids=permutation(1024)", "pages=permutation(1024, 64)"], "--content")
    assert sorted(once["ids"]) == list(range(1024)) and once["pages"].shape == (64,) == np.unique(once["pages"]).shape
    positions = numbers(["ids=range(4096) * 8"], "--content")["ids"]
    assert positions.shape == (8 * 4096,) and positions[4096:8192].tolist() == list(range(4096)), "positions of eight prompts"
    with pytest.raises(UsageError, match="range"):
        numbers(["ids=range(4096) * 800"], "--content")
    for wrong in ("random(0)", "random(7, 99999999)", "permutation(7, 8)", "permutation(9999999)"):
        with pytest.raises(UsageError):
            numbers([f"ids={wrong}"], "--content")
    with pytest.raises(UsageError):
        numbers(["n=random(7)"], "--arg")


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (5, "All 64 numbers that are read of ids_ptr are taken to be 5."),
        ([1, 2], "64 numbers are read of ids_ptr, of which 2 are specified: the last is taken for the rest."),
        (list(range(64)), None),
    ],
)
def test_contents_that_are_fewer_than_what_is_read_are_named(tmp_path: Path, content: object, note: str | None) -> None:
    path = tmp_path / "k.py"
    path.write_text(
        "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(ids_ptr, x_ptr, y_ptr, BLOCK: tl.constexpr):\n"
        "    row = tl.program_id(0)\n    at = tl.arange(0, BLOCK)\n"
        "    tl.store(y_ptr + row * BLOCK + at, tl.load(x_ptr + tl.load(ids_ptr + row) * BLOCK + at))\n"
    )
    types = {"ids_ptr": "*i32", "x_ptr": "*bf16", "y_ptr": "*bf16"}
    launch = make_launch(read_source(path), "k", types=types, constexprs={"BLOCK": 1024}, contents={"ids_ptr": content}, grid=(64,))
    said = [text for text in inspect_launch(launch, compile_target("sm_90"), POOL, sass=False).assumptions if "of ids_ptr" in text]
    assert said == ([] if note is None else [note])
