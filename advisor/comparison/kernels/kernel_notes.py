"""What is said of a changed kernel in words: what changed that no row shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from advisor.comparison.kernels.kernel_digest import own_tree
from advisor.comparison.kernels.kernel_version import KernelVersion
from advisor.comparison.kernels.launch_digest import ChangedLaunch
from advisor.python_source.jit_function import MISSING
from advisor.result.comparison_schema import Failure
from advisor.result.schema import LAUNCH_OPTIONS

SAME = "The kernel is the same; how"
"""Begins the note on a launch that changed where the kernel did not."""
FILES_NAMED = 3
"""Of those that launch a kernel otherwise in the same way."""


def launch_notes(changed: Sequence[ChangedLaunch], same: bool, importing: Mapping[str, str]) -> list[str]:
    """How launches of a kernel changed, `same`: while it did not; and what of theirs changed with another file (`importing`)."""
    how = SAME if same else "How"
    alike: dict[str, list[str]] = {}
    for launch in changed:
        alike.setdefault(launch.said, []).append(launch.new.where or "its file")
    notes = [f"{how} {_listed(files)} {'launches' if len(files) == 1 else 'launch'} it changed: {said}." for said, files in alike.items()]
    changed_with: dict[str, list[str]] = {}
    for each in dict.fromkeys(each.new.where for each in changed):
        if each in importing:
            changed_with.setdefault(importing[each], []).append(each)
    for path, unchanged in changed_with.items():
        are, import_ = ("are", "they import") if len(unchanged) > 1 else ("is", "it imports")
        notes.append(f"{_listed(unchanged)} {are} unchanged; what {import_} changed with {path}.")
    return notes


def _listed(files: Sequence[str]) -> str:
    """The first of some files, and how many more there are."""
    more = f" and {len(files) - FILES_NAMED} more files" if len(files) > FILES_NAMED + 1 else ""
    return ", ".join(files[:FILES_NAMED] if more else files) + more


def changed_by_hand(old: KernelVersion | None, new: KernelVersion | None) -> list[str]:
    """What changed beside the body: the key by which a kernel is tuned anew, what prunes its configurations, defaults of its constants."""
    if old is None or new is None:
        return []
    notes = []
    keys = [side.function.autotune.key if side.function.autotune is not None else None for side in (old, new)]
    if keys[0] is not None and keys[1] is not None and set(keys[0]) != set(keys[1]):
        less = ", ".join(name for name in keys[0] if name not in keys[1])
        told = f" Calls that differ in {less} alone run with one configuration now, that of the first of them." if less else ""
        notes.append(f"The key of its autotuning changed: {', '.join(keys[0]) or 'none'} → {', '.join(keys[1]) or 'none'}.{told}")
    pruning = [side.function.autotune.prunes if side.function.autotune is not None else "" for side in (old, new)]
    if pruning[0] != pruning[1]:
        notes.append(f"What prunes its configurations changed: {pruning[0] or 'nothing'} → {pruning[1] or 'nothing'}.")
    elif named := [
        name for name in _functions(old, pruning[0]) if _functions(old, pruning[0])[name] != _functions(new, pruning[1]).get(name)
    ]:
        notes.append(f"What prunes its configurations changed: the code of {', '.join(named)}.")
    before = {each.name: each.default for each in old.function.parameters if each.is_constexpr}
    after = {each.name: each.default for each in new.function.parameters if each.is_constexpr}
    defaults = [
        f"{name} {before[name]} → {value}"
        for name, value in after.items()
        if name in before and MISSING not in (value, before[name]) and value != before[name]
    ]
    return [*notes, *([f"Defaults of its constants changed: {', '.join(defaults)}."] if defaults else [])]


def _functions(version: KernelVersion, expression: str) -> dict[str, str]:
    """The functions of its file that an expression names, as code."""
    names = {node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)}
    return {name: ast.unparse(node) for name, node in version.source.plain_functions.items() if name in names}


def unread_body(old: KernelVersion | None, new: KernelVersion | None, differ: bool) -> list[str]:
    """That no prediction tells of a body that changed, alone or beside the configurations (`differ`: of those that are compared)."""
    if old is None or new is None:
        return []
    if old.named == new.named and not differ:
        known = "Both versions may be launched with the same configurations"
    elif own_tree(old.function.node) != own_tree(new.function.node):
        known = "The body changed too"
    else:
        return []
    return [
        f"{known}, and the model does not read a kernel's body: what changed in it shows in the compiled resources and in measurements."
    ]


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
