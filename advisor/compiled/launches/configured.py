"""A launch with another configuration, and the grid that it then has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from advisor.compiled.compiler.kernel import OPTION_NAMES, Target
from advisor.compiled.launches.launch import Inspection, KernelLaunch, request_for
from advisor.compiled.launches.target import grid_of
from advisor.python_source.described import heuristic_values
from advisor.python_source.launch_sites import grid_from_launches
from advisor.system.errors import UsageError

UNTOLD = object()
"""Stands for a tensor, of which heuristics can ask only whether it is there."""


def with_configuration(launch: KernelLaunch, constants: Mapping[str, Any], options: Mapping[str, Any]) -> KernelLaunch:
    """A launch of which all types are given, with other constants and options, and what heuristics make of them; its grid as it was.

    What heuristics do not give of the launch as it is, somebody has said, and it stays.
    """
    given, function = launch.given, launch.source.kernel(launch.kernel)
    numbers = {n: v for n, v in constants.items() if given.types.get(n) not in (None, "constexpr")}
    scalars = {**given.scalars, **numbers}
    settled = {**given.constexprs, **{n: v for n, v in constants.items() if n not in numbers}}
    options = {**given.options, **options}
    passed = {name: UNTOLD for name, kind in given.types.items() if kind != "constexpr"}
    before, _ = heuristic_values(launch.source, function, {**passed, **given.options, **given.scalars, **given.constexprs})
    ruled, _ = heuristic_values(launch.source, function, {**passed, **options, **scalars, **settled})
    settled |= {n: v for n, v in ruled.items() if given.types.get(n) == "constexpr" and before.get(n) == given.constexprs.get(n, v)}
    options |= {n: v for n, v in ruled.items() if n in OPTION_NAMES}
    return replace(launch, given=replace(given, constexprs=settled, options=options, scalars=scalars))


def pinned(inspection: Inspection) -> KernelLaunch:
    """The launch that was compiled, with all given that was guessed of it, so that another configuration of it differs in nothing else."""
    launch, guess = inspection.launch, inspection.guess
    given = replace(
        launch.given,
        types=guess.signature,
        constexprs={**launch.given.constexprs, **guess.constexprs},
        options=guess.options,
    )
    divisible = request_for(launch, guess, inspection.compiled.target).divisible
    return replace(launch, given=given, divisible=divisible)


def grid_that_follows(launch: KernelLaunch, constants: Mapping[str, Any], num_sms: int | None) -> tuple[int, ...] | None:
    """The grid with other constants, by the expression that was given or the file's launch; None: the grid is known as numbers alone."""
    now = {**launch.around, **launch.given.scalars, **launch.given.constexprs}
    if launch.grid_text:
        try:
            return grid_of(launch.grid_text, {**now, **constants}, launch.source)
        except UsageError:
            return None

    def by_the_file(values: Mapping[str, Any]) -> tuple[int, ...] | None:
        launch_of_file = grid_from_launches(launch.source, launch.kernel, values, options=OPTION_NAMES, num_sms=num_sms)
        return launch_of_file.grid if launch_of_file is not None else None

    return by_the_file({**now, **constants}) if by_the_file(now) == launch.grid else None


def warps_at_most(target: Target) -> int:
    """Warps of a CTA of 1,024 threads, the most that a GPU starts. Sources: CUDA C++ Programming Guide, compute capabilities; HIP
    programming guide, hardware limits."""
    return 1024 // target.warp_size
