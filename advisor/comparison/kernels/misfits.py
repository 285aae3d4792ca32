"""Launches that do not fit their kernel: what Triton raises a TypeError or KeyError for, before it compiles anything.

A parameter was added and one launch was forgotten, one was removed and is still passed, an option's name is misspelt.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import get_close_matches

from advisor.comparison.kernels.kernel_version import KernelVersion
from advisor.result.comparison_schema import Failure
from advisor.result.schema import LAUNCH_OPTIONS

MOST_NAMED = 3
_ALIKE = 0.85
"""From which likeness on (`difflib`) a keyword is taken for a misspelt one: of others, a back end that is not at hand may know them."""


def misfits(old: KernelVersion | None, new: KernelVersion) -> tuple[Failure, ...]:
    """What launches of the new version are certain to end with, where no launch of the old one ended so."""
    known = {reason for _, reason in _misfits(old, new)} if old is not None else set()
    fresh = {reason: where for where, reason in _misfits(new, old) if reason not in known}
    if not fresh:
        return ()
    listed = "; ".join(f"{where} {reason}" for reason, where in list(fresh.items())[:MOST_NAMED])
    more = f"; and {len(fresh) - MOST_NAMED} more" if len(fresh) > MOST_NAMED else ""
    return (Failure(condition="failed", what="", reason=f"fails as soon as it is launched: {listed}{more}"),)


def _misfits(version: KernelVersion, other: KernelVersion | None) -> Iterator[tuple[str, str]]:
    """Where a launch stands, and what is wrong with it; `other` is the version that may have parameters which this one lacks."""
    function, source = version.function, version.source
    if function.name in source.undecided or len(source.definitions.get(function.name, ())) != 1 or function.unread or function.inductor:
        return
    if function.autotune is not None and function.autotune.problem is not None:
        return
    supplied = {*function.heuristics, *(name for each in version.configurations for name in each.parameters)}
    supplied |= set(LAUNCH_OPTIONS) if function.autotune is not None else set()
    former = {each.name for each in other.function.parameters} if other is not None else set()
    for each in version.launching:
        if each.tuning is not None and function.autotune is None:
            continue  # several files tune it, each in its own way
        for _, call in each.calls:
            where = f"{each.where}, line {call.lineno}," if each.where else f"line {call.lineno}"
            yield from ((where, reason) for reason in _of_call(function.node.args, call, supplied, former))


def _of_call(arguments: ast.arguments, call: ast.Call, supplied: set[str], former: set[str]) -> Iterator[str]:
    if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
        return
    positional = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    names = [*positional, *(each.arg for each in arguments.kwonlyargs)]
    with_default = set(positional[len(positional) - len(arguments.defaults) :])
    with_default |= {each.arg for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value is not None}
    if arguments.vararg is not None or arguments.kwarg is not None:
        return
    if len(call.args) > len(positional):
        yield f"passes {len(call.args)} arguments by place, and the kernel takes {len(positional)}"
        return
    keywords = [str(each.arg) for each in call.keywords]
    passed = {*positional[: len(call.args)], *keywords}
    twice = [name for name in positional[: len(call.args)] if name in keywords]
    if twice:
        yield f"passes {', '.join(twice)} by place and by name"
    missing = [name for name in names if name not in passed | with_default | supplied]
    if missing:
        yield f"passes nothing for {', '.join(missing)}"
    for name in keywords:
        if name in names or name in LAUNCH_OPTIONS:
            continue
        alike = get_close_matches(name, [*LAUNCH_OPTIONS, *names], n=1, cutoff=_ALIKE)
        if name in former:
            yield f"passes {name}, which the kernel takes no longer"
        elif alike:
            yield f"passes {name}, which is no parameter and no option (did you mean {alike[0]}?)"
