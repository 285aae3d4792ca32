"""What comes to a launch by functions within others and by objects that hold a configuration."""

from __future__ import annotations

import pytest

from .repository import compared_files

KERNEL = """
import torch
import triton
import triton.language as tl
from .configs import Config, chosen

@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)

"""
CONFIGS = """
from dataclasses import dataclass

@dataclass
class Config:
    block_m: int = 64
    num_warps: int = 4

def chosen(n):
    return Config(block_m=128 if n > 64 else 32)
"""
WITHIN = """
def run(x, block=256):
    def launch(size, warps=2, tag=None):
        scale[(9,)](x, 9, BLOCK=size, num_warps=warps)
        return tag
    launch(block)
    return launch(64, warps=8, tag="last")
"""
LAMBDA = """
def run(x):
    launch = lambda size, tag: scale[(9,)](x, 9, BLOCK=size)
    return launch(64, 3)
"""
OBJECT = """
def invoke(x, config):
    scale[(x.numel(),)](x, 9, BLOCK=config.block_m, num_warps=config.num_warps)

def run(x, name="run"):
    return invoke(x, chosen(x.shape[0]))
"""
TUNED = """
def invoke(x, config, layer):
    scale[(x.numel(),)](x, 9, **config.kwargs, num_ctas=layer.width)

def run(x):
    return invoke(torch.empty(3), triton.Config({"BLOCK": 64}), Layer(name="up"))
"""
HELD = """
class Op:
    def __init__(self, warps=4):
        self.config = Config(num_warps=warps)
        self.layer = Layer(1)

    def forward(self, x):
        scale[(9,)](x, 9, BLOCK=self.config.block_m, num_warps=self.config.num_warps, num_ctas=self.layer.width)
"""


def compared(repository, predictor, text, edit, path="ops/scale.py"):
    base = {"ops/__init__.py": "", "ops/scale.py": KERNEL + text, "ops/configs.py": CONFIGS}
    assert base[path].count(edit[0]) == 1
    return compared_files(repository, predictor, base, {path: base[path].replace(*edit)}).subjects


@pytest.mark.parametrize(
    ("text", "old", "new", "cause"),
    [
        (WITHIN, "launch(64", "launch(32", "64 → 32"),
        (WITHIN, "warps=8", "warps=16", "8 → 16"),
        (WITHIN, "warps=2", "warps=1", "warps=2 → warps=1"),
        (WITHIN, "block=256", "block=512", "block=256 → block=512"),
        (LAMBDA, "launch(64", "launch(32", "64 → 32"),
        (OBJECT, "chosen(x.shape[0])", "chosen(1)", "chosen(x.shape[0]) → chosen(1)"),
        (TUNED, "64", "32", "triton.Config({'BLOCK': 64}) → triton.Config({'BLOCK': 32})"),
        (HELD, "warps=4", "warps=8", "4 → 8"),
    ],
)
def test_what_a_launch_is_given_counts(repository, predictor, text, old, new, cause):
    (subject,) = compared(repository, predictor, text, (old, new))
    assert subject.title == "ops/scale.py::scale" and f"What changed behind that: {cause}." in subject.notes


@pytest.mark.parametrize(("old", "new", "cause"), [("int = 4", "int = 8", "Config"), ("n > 64", "n > 128", "chosen")])
def test_what_a_configuration_of_another_file_holds_counts(repository, predictor, old, new, cause):
    (subject,) = compared(repository, predictor, OBJECT, (old, new), "ops/configs.py")
    assert f"What changed behind that: {cause}." in subject.notes


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (WITHIN, '"last"', '"first"'),
        (LAMBDA, "64, 3", "64, 4"),
        (OBJECT, '"run"', '"walk"'),
        (TUNED, "torch.empty(3)", "torch.zeros(4)"),
        (TUNED, '"up"', '"down"'),
        (HELD, "Layer(1)", "Layer(2)"),
    ],
)
def test_what_has_no_part_in_the_launch_is_none(repository, predictor, text, old, new):
    assert not compared(repository, predictor, text, (old, new))
