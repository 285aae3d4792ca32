"""The two ways in which a launch is written: `kernel[grid](...)`, and what that is short for, `kernel.run(..., grid=grid)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from advisor.python_source.bindings import Scope, arguments, bound_by, own_nodes, scopes_around
from advisor.python_source.literals import dotted

RUN = "run"
"""What triton calls for a subscript (`KernelInterface.__getitem__`, Triton 3.6 and 3.9); autotuners and heuristics have it as well."""


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


_WRAPPERS = ("wrap_triton", "capture_triton")
"""Functions of torch that hand a kernel on for `torch.compile`: `wrap_triton(kernel)[grid](...)`."""


def launching_calls(tree: ast.Module) -> list[tuple[str, ast.Call]]:
    """The calls of a file that launch something, each with what, as it is named there: `kernel`, `module.kernel`."""
    calls = []
    for node in ast.walk(tree):
        launched = launched_by(node) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and launched is not None:
            if isinstance(launched, ast.Call) and len(launched.args) == 1 and (dotted(launched.func) or "").rsplit(".", 1)[-1] in _WRAPPERS:
                launched = launched.args[0]
            name = dotted(launched)
            if name is not None:
                calls.append((name, node))
    return calls


def launched_names(calls: Iterable[tuple[str, ast.Call]], scopes: Sequence[Scope]) -> Iterator[tuple[str, ast.Call]]:
    """The same calls, as the file names what they launch; where a function gives such names another, `kernel = fast if small else slow`,
    each of them."""
    for name, node in calls:
        yield from ((each, node) for each in _meant(name, scopes_around(scopes, node)))


def _meant(name: str, around: Sequence[Scope]) -> list[str]:
    """What a name that is launched stands for by plain assignments of the innermost function that binds it; else the name itself."""
    for scope in reversed(around):
        binding = [each for each in own_nodes(scope) if name in bound_by(each)]
        if name in arguments(scope) or binding:
            given = [each.value for each in own_nodes(scope) if isinstance(each, ast.Assign) and each.targets[0] in binding]
            names = [dotted(each) for value in given for each in _choices(value)]
            plain = [each for each in names if each is not None]
            return list(dict.fromkeys(plain)) if names and len(plain) == len(names) and len(given) == len(binding) else [name]
    return [name]


def _choices(value: ast.expr) -> list[ast.expr]:
    """What an expression may be: `a if small else b` is one of two, and None is nothing that can be launched."""
    if isinstance(value, ast.IfExp):
        return [*_choices(value.body), *_choices(value.orelse)]
    return [] if isinstance(value, ast.Constant) and value.value is None else [value]
