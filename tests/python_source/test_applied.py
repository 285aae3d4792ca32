"""Decorators that a file applies below a function under its own name: `kernel = triton.jit(kernel)`, as unsloth's do."""

from __future__ import annotations

from advisor.python_source.source import parse_source

TEXT = """
import triton
import triton.language as tl

def fill(x_ptr, ZERO: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0 if ZERO else 1)

fill = triton.jit(fill)
fill = triton.heuristics({"ZERO": lambda args: True})(fill)
other = triton.jit(fill)

def run(x):
    fill[(1,)](x, BLOCK=64)
"""


def test_a_function_that_is_made_a_kernel_below_it_is_one():
    source = parse_source(TEXT, "k.py")
    assert list(source.definitions) == ["fill"] and set(source.kernel("fill").heuristics) == {"ZERO"}
    assert [name for name, _ in source.module_names.launches] == ["fill"] and source.kernel("fill").line == 5


def test_what_is_tried_to_be_applied_is():
    """As TransformerEngine tunes its kernels, where there is a GPU."""
    tuned = (
        "try:\n    fill = triton.autotune(configs=[triton.Config({'BLOCK': 64})], key=['x_ptr'])(fill)\nexcept RuntimeError:\n    pass\n"
    )
    plain = TEXT.replace('fill = triton.heuristics({"ZERO": lambda args: True})(fill)\nother = triton.jit(fill)\n', tuned)
    autotune = parse_source(plain, "k.py").kernel("fill").autotune
    assert autotune is not None and [item.parameters for item in autotune.configs] == [{"BLOCK": 64}]
