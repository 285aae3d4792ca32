"""Launches that spread a dictionary: read as if each item were passed by name, where it is certain what the dictionary holds."""

from __future__ import annotations

import ast

import pytest

from advisor.python_source.source import parse_source


def launch(body: str, call: str) -> str:
    """The call of a function with that body, as it is read."""
    lines = "\n".join(f"    {line}" for line in (*body.split("; "), call))
    source = parse_source(f"def run(x, n, grid, given):\n{lines}\n", "k.py")
    return ast.unparse(source.tree).splitlines()[-1].strip()


@pytest.mark.parametrize(
    ("body", "call", "read"),
    [
        ("own = {'x': x, 'BLOCK': 64}", "kernel[grid](**own)", "kernel[grid](x=x, BLOCK=64)"),
        ("own = dict(BLOCK=64)", "kernel[grid](x, n=n, **own)", "kernel[grid](x, n=n, BLOCK=64)"),
        ("own = {'grid': grid, 'BLOCK': 64}", "kernel.run(x, **own)", "kernel.run(x, grid=grid, BLOCK=64)"),
        ("pass", "kernel[grid](x, **{'BLOCK': 64})", "kernel[grid](x, BLOCK=64)"),
        ("own = {'BLOCK': 64}; other = {'n': n}", "kernel[grid](**own, **other)", "kernel[grid](BLOCK=64, n=n)"),
        ("own = {'BLOCK': 64}; size = own['BLOCK']", "kernel[grid](**own)", "kernel[grid](BLOCK=64)"),
        ("n = 3; own = {'n': n}", "kernel[grid](**own)", "kernel[grid](n=n)"),
    ],
)
def test_what_is_written_out_is_read(body: str, call: str, read: str) -> None:
    assert launch(body, call) == read


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ("pass", "kernel[grid](**given)"),  # by whoever calls the function
        ("own = {**given, 'BLOCK': 64}", "kernel[grid](**own)"),
        ("own = {n: 64}", "kernel[grid](**own)"),
        ("own = {'BLOCK': 64}; own['BLOCK'] = 32", "kernel[grid](**own)"),
        ("own = {'BLOCK': 64}; own.update(given)", "kernel[grid](**own)"),
        ("own = {'BLOCK': 64}; other = own; other['BLOCK'] = 32", "kernel[grid](**own)"),
        ("own = {'BLOCK': 64}; own = {'BLOCK': 32}", "kernel[grid](**own)"),
        ("own = {'n': n}; n = 3", "kernel[grid](**own)"),
        ("own = {'BLOCK': 64}", "kernel[grid](BLOCK=32, **own)"),
        ("own = {'BLOCK': 64}", "kernel.launch(**own)"),
    ],
)
def test_what_may_be_something_else_is_left_as_it_is(body: str, call: str) -> None:
    assert launch(body, call) == call


def test_what_follows_the_launch_is_not_what_it_passes() -> None:
    source = parse_source("def run(x):\n    kernel[9](**own)\n    own = {'BLOCK': 64}\n", "k.py")
    assert "**own" in ast.unparse(source.tree)
