"""Names that a file gives what a decorator makes of a kernel: `tuned = triton.autotune(...)(kernel)`."""

from __future__ import annotations

from advisor.python_source.kernel_forms import made_of
from advisor.python_source.source import parse_source

HEAD = "import triton\nimport triton.language as tl\n"
FUNCTION = "def f(x, n, BLOCK: tl.constexpr):\n    tl.store(x + tl.arange(0, BLOCK), n)\n"
HEURISTICS = "triton.heuristics({'BLOCK': lambda a: 16 * a['n']})"


def test_another_name_of_a_kernel_is_a_name_to_ask_for() -> None:
    source = parse_source(f"{HEAD}@triton.jit\n{FUNCTION}\ng = f\n", "k.py")
    assert source.named("g")[1] == "f" and source.names_of("f") == {"f", "g"}


def test_a_name_that_is_also_defined_is_its_own() -> None:
    text = f"{HEAD}@triton.jit\n{FUNCTION}\ntry:\n    @triton.jit\n    def g(x):\n        pass\nexcept ValueError:\n    g = f\n"
    source = parse_source(text, "k.py")
    assert source.named("g")[1] == "g" and source.names_of("f") == {"f"}


def test_names_of_all_that_is_made_of_a_kernel() -> None:
    tuned = "b = triton.autotune([], [])(a)\nc = triton.autotune([], [])(a)\nd = max(1)\n"
    text = f"{HEAD}@triton.jit\n{FUNCTION}\na = {HEURISTICS}(f)\n{tuned}"
    assert made_of("f", parse_source(text, "k.py").alternatives) == {"f", "a", "b", "c"}


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
    assert [name for name, _ in source.launches] == ["fill"] and source.kernel("fill").line == 5
