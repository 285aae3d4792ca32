"""Launches that spread a dictionary: read as if each item were passed by name, where it is certain what the dictionary holds."""

from __future__ import annotations

import ast

import pytest

from advisor.python_source.launch_site import LaunchSite
from advisor.python_source.launch_sites import launches
from advisor.python_source.source import parse_source

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), n)

def run(x, n, grid, given):
"""


def passed(body: str, call: str) -> tuple[dict[str, str], list[str]]:
    """What the launch of a function with that body passes by name, values or names of tensors, and what it spreads that is not read."""
    source = parse_source(KERNEL + "\n".join(f"    {line}" for line in (*body.split("; "), call)) + "\n", "k.py")
    ((scopes, node),) = launches(source, "kernel")
    site = LaunchSite(source, source.kernel("kernel"), scopes, node, None, None)
    values = {name: site.first.evaluated(node)[0] for name, node in site.passed.items()}
    return {name: str(getattr(value, "name", value)) for name, value in values.items()}, [ast.unparse(each) for each in site.unread]


@pytest.mark.parametrize(
    ("body", "call", "read"),
    [
        ("own = {'x': x, 'BLOCK': 64}", "kernel[grid](**own)", {"x": "x", "BLOCK": "64"}),
        ("own = dict(BLOCK=64)", "kernel[grid](x, n=n, **own)", {"x": "x", "n": "n", "BLOCK": "64"}),
        ("pass", "kernel[grid](x, **{'BLOCK': 64})", {"x": "x", "BLOCK": "64"}),
        ("own = {'BLOCK': 64}; other = {'n': n}", "kernel[grid](**own, **other)", {"BLOCK": "64", "n": "n"}),
        ("own = {'BLOCK': 64}; size = own['BLOCK']", "kernel[grid](**own)", {"BLOCK": "64"}),
        ("own = {'BLOCK': 64}; own = {'BLOCK': 32}", "kernel[grid](**own)", {"BLOCK": "32"}),
        ("n = 3; own = {'n': n}", "kernel[grid](**own)", {"n": "3"}),
        ("own = {'n': n}; n = 3", "kernel[grid](**own)", {"n": "n"}),
    ],
)
def test_what_is_written_out_is_read(body: str, call: str, read: dict[str, str]) -> None:
    assert passed(body, call) == (read, [])


@pytest.mark.parametrize(
    "body",
    [
        "own = given",  # by whoever calls the function
        "own = {**given, 'BLOCK': 64}",
        "own = {n: 64}",
        "own = {'BLOCK': 64}; own['BLOCK'] = 32",
        "own = {'BLOCK': 64}; own.update(given)",
        "own = {'BLOCK': 64}; change(own)",
        "own = {'BLOCK': 64}; other = own; other['BLOCK'] = 32",
    ],
)
def test_what_may_be_something_else_is_left_as_it_is(body: str) -> None:
    assert passed(body, "kernel[grid](**own)") == ({}, ["own"])


def test_what_follows_the_launch_is_not_what_it_passes() -> None:
    assert passed("pass", "kernel[9](**own); own = {'BLOCK': 64}") == ({}, ["own"])
