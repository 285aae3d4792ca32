"""What one launch passes, as it is written."""

from __future__ import annotations

import ast

from advisor.python_source.launch_site import LaunchSite
from advisor.python_source.launch_sites import arguments_passed, launches
from advisor.python_source.source import parse_source

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, n, BLOCK: tl.constexpr = 32):
    tl.store(x + tl.arange(0, BLOCK), n)

def run(x, n, grid, given):
    own = {"BLOCK": 64}
    kernel[grid](x, n=n, **own)
"""


def test_what_a_dictionary_passes_is_not_known_and_may_be_anything() -> None:
    """No kernel of 316 public ones is passed a dictionary that its launching function writes out."""
    source = parse_source(KERNEL, "k.py")
    ((scopes, node),) = launches(source, "kernel")
    site = LaunchSite(source, source.kernel("kernel"), scopes, node, None, None)
    assert {name: ast.unparse(value) for name, value in site.passed.items()} == {"x": "x", "n": "n"}
    assert arguments_passed(source, "kernel") == {"x", "n", "BLOCK"}
