"""The two ways in which a launch is written: `kernel[grid](...)`, and what that is short for, `kernel.run(..., grid=grid)`."""

from __future__ import annotations

import ast

RUN = "run"
"""What triton calls for a subscript (`KernelInterface.__getitem__`, Triton 3.6 and 3.9); autotuners and heuristics have it as well."""


def may_launch(call: ast.Call) -> bool:
    """Whether a call is written as launches are, whatever it passes."""
    return isinstance(call.func, ast.Subscript) or (isinstance(call.func, ast.Attribute) and call.func.attr == RUN)


def launched_by(call: ast.Call) -> ast.expr | None:
    """What a call launches if that is a kernel; None: it is written as no launch is."""
    if isinstance(call.func, ast.Subscript):
        return call.func.value
    named = isinstance(call.func, ast.Attribute) and call.func.attr == RUN and any(each.arg == "grid" for each in call.keywords)
    return call.func.value if named and isinstance(call.func, ast.Attribute) and not _only_compiles(call) else None


def grid_of(call: ast.Call) -> ast.expr:
    """The grid of a launch."""
    if isinstance(call.func, ast.Subscript):
        return call.func.slice
    return next(each.value for each in call.keywords if each.arg == "grid")


def _only_compiles(call: ast.Call) -> bool:
    return any(each.arg == "warmup" and isinstance(each.value, ast.Constant) and each.value.value is True for each in call.keywords)
