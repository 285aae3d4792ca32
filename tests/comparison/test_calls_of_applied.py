"""Calls that do not name what they call: `apply` of a `torch.autograd.Function` in another file, and `functools.partial`."""

from __future__ import annotations

import pytest

from .repository import compared_files

KERNELS = """
import functools
import torch
import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)

@triton.jit
def shift(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 2, mask=offsets < n)

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, num_warps=4, tag=None):
        ctx.tag = tag
        scale[(9,)](x, 9, BLOCK=64, num_warps=num_warps)
        return x

class Shift(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, num_warps=4, tag=None):
        shift[(9,)](x, 9, BLOCK=64, num_warps=num_warps)
        return x

def run(x, block, num_warps, tag=None):
    scale[(9,)](x, 9, BLOCK=block, num_warps=num_warps)

LOCAL
"""
MODEL = "import functools\nfrom functools import partial\nIMPORT\n\nTAG = 1\n\n\ndef layer(x):\n    return CALL\n"


def files(statement: str, call: str, local: str = "", **more: str) -> dict[str, str]:
    model = MODEL.replace("IMPORT", statement).replace("CALL", call)
    return {"pkg/__init__.py": "", "pkg/ops.py": KERNELS.replace("LOCAL", local), "serve/model.py": model, **more}


def notes(repository, predictor, base, head):
    return [(subject.title, subject.notes[0]) for subject in compared_files(repository, predictor, base, head).subjects]


SAID = "The kernel is the same; how serve/model.py launches it by {function} changed: {change}."


@pytest.mark.parametrize(
    ("statement", "call", "kernel", "more"),
    [
        ("from pkg.ops import Scale", "Scale.apply(x, 8, TAG)", "scale", {}),
        ("from pkg.ops import Shift", "Shift.apply(x, 8, TAG)", "shift", {}),
        ("from pkg.ops import Scale as Op", "Op.apply(x, 8, TAG)", "scale", {}),
        ("from pkg import ops", "ops.Scale.apply(x, 8, TAG)", "scale", {}),
        ("from pkg.handed import Scale", "Scale.apply(x, 8, TAG)", "scale", {"pkg/handed.py": "from .ops import Scale\n"}),
    ],
)
def test_what_apply_is_given_is_a_change_of_the_kernel(repository, predictor, statement, call, kernel, more):
    base = files(statement, call, **more)
    said = SAID.format(function=f"{kernel.title()}.forward", change="num_warps=8 → num_warps=16")
    assert notes(repository, predictor, base, files(statement, call.replace("x, 8", "x, 16"), **more)) == [(f"pkg/ops.py::{kernel}", said)]
    assert notes(repository, predictor, base, files(statement, call.replace("TAG", "3"), **more)) == []


def test_a_default_of_what_apply_calls_counts_where_it_is_left_out(repository, predictor):
    base = files("from pkg.ops import Scale", "Scale.apply(x)")
    head = {**base, "pkg/ops.py": base["pkg/ops.py"].replace("num_warps=4", "num_warps=8", 1)}
    ((title, note),) = notes(repository, predictor, base, head)
    assert title == "pkg/ops.py::scale" and note.startswith("The kernel is the same; how its file launches it changed")


@pytest.mark.parametrize(
    ("statement", "call"),
    [
        ("from pkg.ops import run", "partial(run, block=64, num_warps=8, tag=TAG)(x)"),
        ("from pkg import ops", "functools.partial(ops.run, x, 64, num_warps=8, tag=TAG)()"),
    ],
)
def test_what_a_partial_is_given_is_a_change_of_the_kernel(repository, predictor, statement, call):
    base = files(statement, call)
    said = SAID.format(function="run", change="num_warps=8 → num_warps=16")
    found = notes(repository, predictor, base, files(statement, call.replace("num_warps=8", "num_warps=16")))
    assert found == [("pkg/ops.py::scale", said)]
    said = SAID.format(function="run", change="block=64 → block=32")
    assert notes(repository, predictor, base, files(statement, call.replace("64", "32"))) == [("pkg/ops.py::scale", said)]
    assert notes(repository, predictor, base, files(statement, call.replace("TAG", "3"))) == []


def test_a_partial_of_the_kernels_own_file_counts(repository, predictor):
    local = "small = functools.partial(run, block=64, num_warps=1, tag=1)"
    base, head, same = (files("import pkg", "pkg", local.replace(*each)) for each in (("", ""), ("warps=1", "warps=2"), ("tag=1", "tag=2")))
    ((title, note),) = notes(repository, predictor, base, head)
    assert title == "pkg/ops.py::scale" and note.startswith("The kernel is the same; how its file launches it changed")
    assert notes(repository, predictor, base, same) == []
