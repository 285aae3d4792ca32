"""Launches in methods: what they pass comes from other methods of the class, from its objects, and from the class."""

from __future__ import annotations

import ast

import pytest

from advisor.comparison.kernels.callers import passed
from advisor.comparison.kernels.launch_digest import changed_launches
from advisor.comparison.kernels.launching import own_launches
from advisor.python_source.source import parse_source

KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)

def warps_for(n):
    return 8 if n > 4096 else 4
"""
METHODS = """
class Op:
    GROUP = 2

    def forward(self, x):
        return self._launch(x, 1024, warps_for(x.numel()))

    def backward(self, x):
        return self._launch(x, block=1024, warps=warps_for(x.numel()))

    def _launch(self, x, block, warps):
        scale[(x.numel(),)](x, x.numel(), BLOCK=block, num_warps=warps, num_ctas=self.GROUP)
        return x
"""
INHERITED = """
class Base:
    def launch(self, x, block):
        scale[(9,)](x, 9, BLOCK=block)

class Op(Base):
    def forward(self, x):
        return self.launch(x, 1024)

class Other(Op):
    def forward(self, x):
        return super().launch(x, block=64)
"""
OBJECT = """
class Op:
    def __init__(self, size, warps=4, name="op"):
        half = size // 2
        self.block = 1024
        self.half = half
        self.warps = warps
        self.weight = torch.empty(3)
        self.name = name

    def stages(self, n):
        return self.deepest if n > 64 else 2

    @property
    def deepest(self):
        return 3

    def forward(self, x):
        grid = (self.weight.shape[0],)
        scale[grid](x, self.half, BLOCK=self.block, num_warps=self.warps, num_stages=self.stages(9))
"""
FUNCTION = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, block, warps=4):
        scale[(9,)](x, 9, BLOCK=block, num_warps=warps)
        return x

def run(x):
    return Scale.apply(x, 1024, 4)
"""
STATIC = """
class Op:
    @staticmethod
    def launch(x, block):
        scale[(9,)](x, 9, BLOCK=block)

    @classmethod
    def run(cls, x):
        cls.launch(x, 1024)

def run(x):
    Op.launch(x, 64)
"""


def changes(text: str, old: str, new: str) -> list[str]:
    assert old in text
    sources = [parse_source(KERNEL + each, "scale.py") for each in (text, text.replace(old, new))]
    return [each.said for each in changed_launches(*((source.kernel("scale"), own_launches(source, "scale")) for source in sources))]


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        (METHODS, "x, 1024", "x, 512", "what BLOCK=block comes from"),
        (METHODS, "block=1024", "block=512", "what BLOCK=block comes from"),
        (METHODS, "warps_for(x.numel()))\n\n    def backward", "4)\n\n    def backward", "what num_warps=warps comes from"),
        (METHODS, "GROUP = 2", "GROUP = 4", "what num_ctas=self.GROUP comes from"),
        (INHERITED, "x, 1024", "x, 512", "what BLOCK=block comes from"),
        (INHERITED, "block=64", "block=32", "what BLOCK=block comes from"),
        (OBJECT, "block = 1024", "block = 512", "what BLOCK=self.block comes from"),
        (OBJECT, "warps=4", "warps=8", "what num_warps=self.warps comes from"),
        (OBJECT, "return 3", "return 4", "what num_stages=self.stages(9) comes from"),
        (OBJECT, "n > 64", "n > 8", "what num_stages=self.stages(9) comes from"),
        (FUNCTION, "1024, 4", "512, 4", "what BLOCK=block comes from"),
        (FUNCTION, "1024, 4", "1024, 8", "what num_warps=warps comes from"),
        (STATIC, "x, 1024", "x, 512", "what BLOCK=block comes from"),
        (STATIC, "x, 64", "x, 32", "what BLOCK=block comes from"),
    ],
)
def test_what_comes_to_a_launch_in_a_method_counts(text, old, new, said):
    assert changes(text, old, new) == [said]


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (METHODS, "return x\n", "return x + 1\n"),
        (METHODS, "def forward(self, x):\n", "def forward(self, x):\n        x = x.contiguous()\n"),
        (OBJECT, "torch.empty(3)", "torch.zeros(3)"),
        (OBJECT, '"op"', '"scale"'),
        (OBJECT, "size // 2", "size // 4"),  # its size, not a constant
        (FUNCTION, "return x\n", "return x.clone()\n"),
    ],
)
def test_what_a_method_does_besides_does_not(text, old, new):
    assert changes(text, old, new) == []


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("self.launch(a, b)", ["b"]),
        ("Op.launch(self, a, b)", ["b"]),
        ("Op.launch(a, b)", ["b"]),
        ("self.launch(a, block=b)", ["b"]),
        ("launch(a, b)", []),
        ("launch(a, b, c)", ["c"]),
    ],
)
def test_the_object_of_a_method_is_not_passed(call, given):
    (function,) = ast.parse("def launch(self, x, block):\n    pass\n").body
    values = passed(function, ast.parse(call, mode="eval").body, "block")
    assert [value.id for value in values] == given
