"""What a kernel's launches in source say that it runs with, where nothing lists its configurations:
`kernel[grid](…, BLOCK=128, num_warps=4)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from typing import Any

from advisor.comparison.kernels.launching import Launching
from advisor.comparison.settings import KernelSettings
from advisor.gpus.hardware import GpuSpec
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.launch_site import LaunchSite
from advisor.result.schema import LAUNCH_OPTIONS, Configuration, Problem
from advisor.system.errors import InputError

DEFAULT_STAGES = {"nvidia": 3, "amd": 2}
"""Of a launch that names none, `num_stages` of `CUDAOptions` and `HIPOptions` (Triton 3.6 and 3.9); `num_warps` is 4 for both."""


def sizes_by_argument(function: JitFunction, problem: Problem | None, said: KernelSettings | None = None) -> dict[str, int]:
    """Values of a kernel's arguments that follow from a problem: as advisor.toml says, and of a product's kernel those that have the names
    of its sizes.

    Of other families the same letters stand for too much: B is a batch here, and a bias there.
    """
    if problem is None:
        return {}
    named = {argument: size for size, argument in (said.sizes if said is not None else {}).items()}
    if problem.family == "gemm":
        named = {**{size: size for size in problem.sizes}, **named}
    return {
        each.name: problem.sizes[named[each.name]]
        for each in function.parameters
        if named.get(each.name) in problem.sizes and not each.is_constexpr
    }


def launched_configuration(
    function: JitFunction, launching: tuple[Launching, ...], read: Set[str], problem: Problem, gpu: GpuSpec, said: KernelSettings
) -> Configuration:
    """What every launch of a kernel passes for a problem.

    Args:
        function: The kernel.
        launching: The files that launch it, at least one.
        read: Its constants that the model reads: these have to be known.
        problem: What is computed.
        gpu: On what.
        said: What advisor.toml says of the kernel.

    Raises:
        InputError: What they pass is not known, is no size, or is not the same.
    """
    values = sizes_by_argument(function, problem, said)
    found: list[Configuration] = []
    for each in launching:
        for scopes, call in each.calls:
            site = LaunchSite(each.source, function, scopes, call, gpu.num_sms, None)
            constants, options = site.constants(values, LAUNCH_OPTIONS)
            numbers = {name for name, value in {**constants, **options}.items() if type(value) is int}
            unknown = list(_unknown(function, site, read, numbers))
            if unknown:
                where = f"in {each.where}, line {call.lineno}," if each.where else f"in line {call.lineno}"
                raise InputError(
                    f"what the launch {where} passes for {', '.join(unknown)} is not known",
                    None,
                    None,
                    None if values else _sizes_wanted(function, problem, said),
                )
            configuration = _configuration(function, constants, options, gpu)
            odd = [f"{name}={value}" for name, value in configuration.flat().items() if name in {*read, "num_warps"} and value < 1]
            if odd:
                raise InputError("a launch passes what is no size", ", ".join(odd), "1 or more")
            if configuration not in found:
                found.append(configuration)
    if len(found) > 1:
        raise InputError(
            "its launches pass different constants, and which one runs is not known", " or ".join(each.label() for each in found[:3])
        )
    return found[0]


def _sizes_wanted(function: JitFunction, problem: Problem, said: KernelSettings) -> str:
    """What to write into advisor.toml where no argument of a launch is known to be a size."""
    sizes = ", ".join(f'{name} = "…"' for name in problem.sizes)
    arguments = ", ".join(each.name for each in function.parameters if not each.is_constexpr)
    given = f" (no expressions, as {', '.join(said.sizes.values())})" if said.sizes else ""
    return f"say in advisor.toml which of its arguments {arguments} are sizes, by name{given}: sizes = {{{sizes}}}, or some of them"


def _unknown(function: JitFunction, site: LaunchSite, read: Set[str], known: Set[str]) -> Iterator[str]:
    """What the model reads of a launch and is not known: heuristics have the last word, and `**options` may be anything."""
    told = {each.name for each in function.parameters if type(each.default) is int and each.name not in site.passed}
    asked = read - function.heuristics.keys() - known - told
    yield from (each.name for each in function.parameters if each.is_constexpr and each.name in asked)
    yield from (name for name in LAUNCH_OPTIONS if name in site.passed and name not in known)
    yield from (name for name in function.heuristics if name in read or name in LAUNCH_OPTIONS)
    yield from (f"**{ast.unparse(each)}" for each in site.around.unread)


def _configuration(function: JitFunction, constants: Mapping[str, Any], options: Mapping[str, Any], gpu: GpuSpec) -> Configuration:
    passed = {each.name: constants.get(each.name, each.default) for each in function.parameters if each.is_constexpr}
    numbers = {name: value for name, value in passed.items() if type(value) is int}
    return Configuration.from_flat({"num_stages": DEFAULT_STAGES[gpu.vendor], **numbers, **options})
