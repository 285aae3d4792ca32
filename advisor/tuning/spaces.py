"""What may be tried in a tuning run: the space of a table, of a kernel's file, or of what was recorded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from advisor.advising.targets import PlannedLaunch, Target
from advisor.measurement import KernelRef, configurations
from advisor.measurement.recorded import Recording
from advisor.pipelines.space import sound_depths
from advisor.result.schema import Configuration, Problem
from advisor.search.space import SearchSpace
from advisor.system.errors import InputError
from advisor.tuning.backends import holds_only_best


def space_of(
    target: Target, kernel: KernelRef | None, shares: Mapping[str, list[PlannedLaunch]], *, measuring: bool
) -> tuple[SearchSpace, dict[str, np.ndarray]]:
    """The space, and per decision which of it the kernel's file accepts.

    What runs today is not added to it: an export changes that, and a study's space stays the same for as long as it is gone on with.
    """
    if measuring and kernel is not None:
        accepted = {share: set.intersection(*(_keys(kernel, launch.problem) for launch in group)) for share, group in shares.items()}
        listed = {
            key: configuration
            for group in shares.values()
            for launch in group
            for key, configuration in _keyed(kernel, launch.problem).items()
        }
        if not listed:
            raise InputError(f"{kernel.label}: has no space", None, "KERNELS[…]['space']", "see triton_kernels/README.md")
        space = SearchSpace.of(listed.values())
        return space, {share: np.array([_key(c) in keys for c in space.configurations]) for share, keys in accepted.items()}
    space = SearchSpace.from_batch(target.space) if kernel is None else SearchSpace.from_kernel_file(kernel.file, kernel.function)
    if kernel is not None:
        sound = sound_depths(space.batch, target.launches[0].problem, target.gpu.vendor, target.stack)
        space = space if sound.all() else SearchSpace.of(c for c, kept in zip(space.configurations, sound, strict=True) if kept)
    return space, {}


def recorded_space(
    recording: Recording, space: SearchSpace, shares: Mapping[str, list[PlannedLaunch]]
) -> tuple[SearchSpace, dict[str, np.ndarray]]:
    """The space with what was recorded beyond it; where a sweep was recorded, nothing but that can be tried."""
    problems = {share: [launch.problem for launch in group] for share, group in shares.items()}
    recorded = {share: [{_key(c): c for c in recording.configurations(p)} for p in each] for share, each in problems.items()}
    names = set(space.configurations[0].flat(all_options=True))
    beyond = [c for each in recorded.values() for rows in each for c in rows.values() if set(c.flat(all_options=True)) == names]
    wider = SearchSpace.of([*space.configurations, *beyond])
    if holds_only_best(recording):
        return wider, {}
    keys = [_key(c) for c in wider.configurations]
    return wider, {share: np.array([all(key in rows for rows in each) for key in keys]) for share, each in recorded.items()}


def _key(configuration: Configuration) -> str:
    return str(sorted(configuration.flat(all_options=True).items(), key=str))


def _keyed(kernel: KernelRef, problem: Problem) -> dict[str, Configuration]:
    return {_key(configuration): configuration for configuration in configurations(kernel, problem)}


def _keys(kernel: KernelRef, problem: Problem) -> set[str]:
    return set(_keyed(kernel, problem))
