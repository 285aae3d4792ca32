"""One version of a kernel, as its file and the files that launch it tell: what it may be launched with."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from advisor.comparison.kernels.importers import ODD
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.launch_sites import LaunchCall, imported_launches, launches
from advisor.python_source.literal_values import ConfigLiteral
from advisor.python_source.source import SourceFile
from advisor.result.schema import LAUNCH_OPTIONS, Configuration
from advisor.system import grouped
from advisor.system.errors import InputError

LARGEST_SPACE = 50_000
"""Configurations that a KERNELS literal may span."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelVersion:
    """One version of one kernel, with every configuration it may be launched with."""

    source: SourceFile
    function: JitFunction
    entry: Mapping[str, Any]  # of the KERNELS literal
    configurations: tuple[Configuration, ...]
    named: tuple[str, ...]  # what surfaces list as its configurations: each one, or the values of its space
    launching: tuple[Launching, ...] = ()  # the files that launch it, of those that were read
    problem: str | None = None  # why there are no configurations
    unread: bool = False  # whether it may have some all the same, in a list that cannot be read


def versions(source: SourceFile, elsewhere: Elsewhere) -> dict[str, KernelVersion]:
    """The kernels of a file that are launched (not the helpers of others), by name."""
    literal, versions_by_name = source.kernels_literal, {}
    for name in source.launchable:
        function = source.functions.get(name) or replace(source.function(source.definitions[name][-1]), autotune=None)
        launching = (*own_launches(source, name), *elsewhere.get((source.path, name), ()))
        versions_by_name[name] = _version(source, function, literal.get(name), launching)
    return versions_by_name


def _version(source: SourceFile, function: JitFunction, entry: Any, launching: tuple[Launching, ...]) -> KernelVersion:
    entry = entry if isinstance(entry, dict) else {}
    configurations: tuple[Configuration, ...] = ()
    named: tuple[str, ...] = ()
    problem, unread = None, False
    try:
        if function.name in source.undecided:
            problem, unread = source.undecided[function.name], True
        elif function.autotune is not None:
            problem = function.autotune.problem
            unread = problem is not None
            configurations = tuple(_configuration(config) for config in function.autotune.configs[:LARGEST_SPACE])
            named = tuple(dict.fromkeys(configuration.label() for configuration in configurations))
        elif isinstance(entry.get("space"), dict):
            configurations, named = _space(entry["space"])
        elif not launching:
            problem = "No launch of it was found by its name, and neither @triton.autotune nor a KERNELS literal beside it."
    except (InputError, *ODD) as error:
        configurations, named, problem, unread = (), (), f"the configurations cannot be read: {error}", True
    return KernelVersion(
        source=source,
        function=function,
        entry=entry,
        configurations=configurations,
        named=named,
        launching=launching,
        problem=problem,
        unread=unread,
    )


def constant_renamed(old: KernelVersion | None, new: KernelVersion | None) -> tuple[str, str] | None:
    """What a constant is called in the lists of either version (`BLOCK=64 num_warps=4`), where these are the same but for its name."""
    before, after = (set(side.named) if side is not None else set[str]() for side in (old, new))
    sides = [{part.partition("=")[0] for label in labels for part in label.split()} for labels in (before, after)]
    gone, came = sides[0] - sides[1], sides[1] - sides[0]
    if len(gone) != 1 or len(came) != 1:
        return None
    (former,), (name,) = gone, came
    if {former, name} & {*LAUNCH_OPTIONS} or old is None or new is None or new.function.parameter(former) or old.function.parameter(name):
        return None
    return (former, name) if {re.sub(rf"\b{re.escape(former)}=", f"{name}=", label) for label in before} == after else None


def list_alike(old: KernelVersion, new: KernelVersion) -> bool:
    """Whether both versions list the same configurations, whatever a constant is called in them."""
    return set(old.named) == set(new.named) or constant_renamed(old, new) is not None


def _configuration(literal: ConfigLiteral) -> Configuration:
    parameters = {name: value if isinstance(value, (int, str)) else str(value) for name, value in literal.parameters.items()}
    return Configuration(
        parameters=parameters,
        num_warps=literal.num_warps,
        num_stages=literal.num_stages,
        num_ctas=literal.num_ctas,
        maxnreg=literal.maxnreg,
    )


def _space(space: Mapping[Any, Any]) -> tuple[tuple[Configuration, ...], tuple[str, ...]]:
    """All combinations of a KERNELS space, and its values as texts."""
    values = {str(name): list(options) for name, options in space.items()}
    if prod(len(options) for options in values.values()) > LARGEST_SPACE:
        raise InputError("the space is too large", f"{prod(len(v) for v in values.values()):,} configurations", f"{LARGEST_SPACE:,}")
    combinations = (dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values()))
    return tuple(map(Configuration.from_flat, combinations)), tuple(
        f"{name}={value}" for name, options in values.items() for value in options
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """A file that launches a kernel.

    Attributes:
        where: Its path; empty: it is the kernel's own file.
        source: The file.
        calls: The scopes around each launch, the outermost first, and the call.
    """

    where: str
    source: SourceFile
    calls: tuple[LaunchCall, ...]


Elsewhere = Mapping[tuple[Path, str], Sequence[Launching]]
"""Launches of kernels by other files than their own, by the kernel's file and its name there."""


def own_launches(source: SourceFile, kernel: str) -> tuple[Launching, ...]:
    """How the file launches one of its kernels; nothing where it does not, or which of several of the name is meant is not known."""
    calls = tuple(launches(source, kernel)) if kernel in source.functions else ()
    return (Launching(where="", source=source, calls=calls),) if calls else ()


def launches_elsewhere(sources: Iterable[tuple[str, SourceFile]]) -> Elsewhere:
    """The launches of files, each given with its path as it is shown, of kernels that they import."""
    by_kernel: dict[tuple[Path, str], list[Launching]] = {}
    for where, source in sources:
        calls = grouped(((file.path, kernel), (scopes, call)) for file, kernel, scopes, call in imported_launches(source))
        for key, item in calls.items():
            by_kernel.setdefault(key, []).append(Launching(where=where, source=source, calls=tuple(item)))
    return by_kernel
