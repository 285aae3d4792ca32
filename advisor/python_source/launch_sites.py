"""Where a file, or others, launch its kernels: which of the launches is the one that is asked about. Read by parsing."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from advisor.python_source.bindings import Scope, own_nodes
from advisor.python_source.found_launch import FoundLaunch
from advisor.python_source.launch_calls import launches
from advisor.python_source.launch_forms import grid_of
from advisor.python_source.launch_site import LaunchSite
from advisor.python_source.source import SourceFile

LaunchCalls = Sequence[tuple[SourceFile, Sequence[Scope], ast.Call]]
"""Launches by other files than the kernel's: the file, the scopes around the launch, the outermost first, and the call."""

PROBE = 1024
"""Stands for a size that is not known, to see what would follow from it."""


def _calls(source: SourceFile, kernel: str, elsewhere: LaunchCalls) -> LaunchCalls:
    """The launches of a kernel in its file, or those elsewhere in place of them."""
    return elsewhere or [(source, scopes, call) for scopes, call in launches(source, kernel)]


def grid_from_launches(
    source: SourceFile,
    kernel: str,
    values: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
    num_sms: int | None = None,
    element_bytes: int | None = None,
    elsewhere: LaunchCalls = (),
) -> FoundLaunch | None:
    """The first launch in the file whose grid follows from what is known; None: there is none. One that passes other numbers than those
    given, with a grid that does not depend on them (a check of one small size), counts only where it is the only launch.

    A name in the grid's expression counts as the argument that it is passed for, as what the function around the launch assigns to it,
    or, where that function has no such name, as the argument of that name.

    Args:
        source: The parsed file.
        kernel: Name of the kernel.
        values: Arguments and constants by name.
        defaults: Those that count where neither `values` nor the launch itself says more.
        options: Names of launch options.
        num_sms: SMs of the GPU, for files that ask torch or Triton for them; None: not known.
        element_bytes: Of its tensors, for files that ask one of them; None: not known.
        elsewhere: Launches by other files, which count in place of its own.
    """
    of_others = None
    calls = _calls(source, kernel, elsewhere)
    for file, scopes, call in calls:
        site = LaunchSite(file, source.kernel(kernel), scopes, call, num_sms, element_bytes)
        found = site.launch(values, defaults or {}, options)
        if found.grid is None:
            continue
        if not site.is_for_others(values, {**(defaults or {}), **found.constexprs}, found.grid):
            return found
        of_others = of_others or found
    return of_others if len(calls) == 1 else None


def only_launch(
    source: SourceFile,
    kernel: str,
    values: Mapping[str, Any],
    options: Sequence[str] = (),
    num_sms: int | None = None,
    element_bytes: int | None = None,
    elsewhere: LaunchCalls = (),
) -> FoundLaunch | None:
    """What the file's launch of the kernel passes, without its grid; None: there is no launch, or there are several.

    Args:
        source, kernel, values, options, num_sms, element_bytes, elsewhere: As for `grid_from_launches`.
    """
    calls = _calls(source, kernel, elsewhere)
    if len(calls) != 1:
        return None
    file, scopes, call = calls[0]
    launch = LaunchSite(file, source.kernel(kernel), scopes, call, num_sms, element_bytes).launch(values, {}, options)
    return replace(launch, grid=None)


def needed_for_grid(
    source: SourceFile,
    kernel: str,
    values: Mapping[str, Any],
    unknown: Sequence[str],
    defaults: Mapping[str, Any],
    options: Sequence[str] = (),
    num_sms: int | None = None,
    element_bytes: int | None = None,
) -> tuple[int, tuple[str, ...]] | None:
    """The line of the first launch whose grid follows once more arguments are known, and which these are; None: there is none.

    Args:
        source, kernel, values, defaults, options, num_sms, element_bytes: As for `grid_from_launches`.
        unknown: Names of the numbers among its arguments that are not known.
    """
    for scopes, call in launches(source, kernel):
        site = LaunchSite(source, source.kernel(kernel), scopes, call, num_sms, element_bytes)
        needed = tuple(unknown)
        if not site.tells_grid({**values, **dict.fromkeys(needed, PROBE)}, defaults, options):
            continue
        for name in unknown:
            fewer = tuple(each for each in needed if each != name)
            if site.tells_grid({**values, **dict.fromkeys(fewer, PROBE)}, defaults, options):
                needed = fewer
        return call.lineno, needed
    return None


LONGEST_GRID = 120
"""Characters of a grid that is shown as it is written."""


def grid_as_written(source: SourceFile, kernel: str) -> tuple[int, str] | None:
    """The line of the first launch in the file that says its grid in one expression, and that; None: there is none, or it is too long.

    `grid`, where the function around it assigns that once, is what it assigns: a tuple, or what a lambda or a function of one line returns.
    """
    for scopes, call in launches(source, kernel):
        found: ast.expr | None = grid_of(call)
        if isinstance(found, ast.Name):
            found = _assigned_once(found.id, scopes)
        text = ast.unparse(found.body if isinstance(found, ast.Lambda) else found) if found is not None else ""
        if 0 < len(text) <= LONGEST_GRID:
            return call.lineno, text
    return None


def _assigned_once(name: str, scopes: Sequence[Scope]) -> ast.expr | None:
    """What the innermost function that binds a name gives it, where that is one expression."""
    for scope in reversed(scopes):
        values: list[ast.expr | None] = []
        for node in own_nodes(scope):
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                values.append(node.value)
            elif isinstance(node, ast.FunctionDef) and node.name == name:
                last = node.body[-1]
                values.append(last.value if isinstance(last, ast.Return) and len(node.body) == 1 else None)
        if values:
            return values[0] if len(values) == 1 else None
    return None


def options_passed(source: SourceFile, kernel: str, options: Sequence[str], elsewhere: LaunchCalls = ()) -> dict[str, list[int]]:
    """The options that launches of the kernel pass, whatever their values, with the lines of those that do."""
    found: dict[str, list[int]] = {}
    for _, _, call in _calls(source, kernel, elsewhere):
        for keyword in call.keywords:
            if keyword.arg is not None and keyword.arg in options:
                found.setdefault(keyword.arg, []).append(call.lineno)
    return found
