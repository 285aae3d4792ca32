"""A launch with another configuration and the grid that it then has; the configurations that a recorded launch was one of."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.compiled.compiler.kernel import OPTION_NAMES, Target
from advisor.compiled.guesses.descriptors import own_blocks
from advisor.compiled.launches.launch import Inspection, KernelLaunch, request_for
from advisor.compiled.launches.launch_options import Choice, NamedLaunch, configurations_listed, list_notes
from advisor.compiled.launches.records import RecordedKernel
from advisor.compiled.launches.target import grid_of
from advisor.gpus.hardware import GpuSpec, match_device_name
from advisor.python_source.described import heuristic_values
from advisor.python_source.launch_sites import grid_from_launches
from advisor.result.schema import LAUNCH_OPTIONS
from advisor.system.errors import UsageError, agree, part

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


def pinned(found: Inspection) -> KernelLaunch:
    """The launch that was compiled, with all given that was guessed of it, so that another configuration of it differs in nothing else."""
    launch, guess = found.launch, found.guess
    given = replace(
        launch.given,
        types=guess.signature,
        constexprs={**launch.given.constexprs, **guess.constexprs},
        options=guess.options,
        multiples=frozenset(),
    )
    divisible = request_for(launch, guess, found.compiled.target).divisible
    return replace(launch, given=given, divisible=divisible)


def own_types(launch: KernelLaunch, constants: Mapping[str, Any]) -> KernelLaunch:
    """The launch with the blocks of its descriptors as other constants make them."""
    now = dict(launch.given.constexprs)
    types, _ = own_blocks(launch.source, launch.kernel, launch.given.types, [now, {**now, **constants}])
    return replace(launch, given=replace(launch.given, types={**launch.given.types, **types[1]}))


def grid_that_follows(launch: KernelLaunch, constants: Mapping[str, Any], num_sms: int | None) -> tuple[int, ...] | None:
    """The grid with other constants, by the expression that was given or the file's launch; None: the grid is known as numbers alone."""
    now = {**launch.given.scalars, **launch.given.constexprs}
    if launch.grid_text:
        try:
            return grid_of(launch.grid_text, {**now, **constants}, launch.source)
        except UsageError:
            return None

    def by_the_file(values: Mapping[str, Any]) -> tuple[int, ...] | None:
        found = grid_from_launches(launch.source, launch.kernel, values, options=OPTION_NAMES, num_sms=num_sms)
        return found.grid if found is not None else None

    return by_the_file({**now, **constants}) if by_the_file(now) == launch.grid else None


def grid_by_numbers(launch: KernelLaunch, now: int, then: int) -> tuple[int, ...] | None:
    """The grid with a block of `then` in place of `now`, where one of its sizes counts such blocks: of an integer argument, of two of them
    together or of all elements of a tensor, as it is or times something else. None: none does."""
    numbers = [v for v in launch.given.scalars.values() if type(v) is int and v > now]
    sizes = {*numbers, *launch.sizes.values(), *(a * b for i, a in enumerate(numbers) for b in numbers[i + 1 :])}
    best: tuple[int, ...] | None = None
    most = 1
    for place, programs in enumerate(launch.grid or ()):
        for size in sizes:
            blocks = math.ceil(size / now)
            if blocks > most and programs % blocks == 0:
                grid = list(launch.grid or ())
                grid[place] = programs // blocks * math.ceil(size / then)
                best, most = tuple(grid), blocks
    return best


def warps_at_most(target: Target) -> int:
    """Warps of a CTA of 1,024 threads, the most that a GPU starts. Sources: CUDA C++ Programming Guide, compute capabilities; HIP
    programming guide, hardware limits."""
    return 1024 // target.warp_size


MOST_LISTED = 300
"""Configurations that are compiled for all launches of a record together, beside the recorded ones; a program launches a tuned kernel with
many sizes."""


def with_spaces(recorded: Sequence[RecordedKernel], gpu: GpuSpec | None) -> Iterator[tuple[RecordedKernel, list[NamedLaunch]]]:
    """Every recorded launch with the list it was tuned over, itself (`chosen`) first; with itself alone where there is no list.

    Of the launches, the first have theirs while they come to `MOST_LISTED`.
    """
    left = MOST_LISTED
    for each in recorded:
        launch = each.launch if gpu is None else replace(each.launch, source=each.launch.source.on(*gpu.triton_target[:2]))
        function = launch.source.functions.get(launch.kernel)
        if function is None or function.autotune is None:
            yield each, [NamedLaunch(id=each.id, launch=each.launch, source="recorded")]
            continue
        choices = configurations_listed(function, gpu)
        notes = [*list_notes(function, gpu, "write such a value in the file and record again")]
        if len(choices) > left:
            notes.append(
                f"Its {len(choices)} configurations are not compared: those of launches that took or ran more are, up to "
                f"{MOST_LISTED} in all (`advisor advise FILE.py::{launch.kernel}` compares them for one)."
            )
            choices = []
        left -= len(choices)
        yield each, _Space(each, launch, gpu).launches(choices, notes)


@dataclass(frozen=True, slots=True)
class _Space:
    """One recorded launch, `launch` as it is read for `gpu`."""

    recorded: RecordedKernel
    launch: KernelLaunch
    gpu: GpuSpec | None

    def launches(self, choices: Sequence[Choice], notes: list[str]) -> list[NamedLaunch]:
        """The recorded launch with `notes`, and the other configurations whose grids are known."""
        choices = [each for number, each in enumerate(choices) if not any(_is_same(each, other) for other in choices[:number])]
        own = next((number for number, each in enumerate(choices) if _is_of(self.launch, each)), None)
        constants = [{**self.launch.given.constexprs, **each.constants} for each in choices]
        types, block_notes = own_blocks(self.launch.source, self.launch.kernel, self.launch.given.types, constants)
        tunable = frozenset(n for each in choices for n in each.constants)
        others, unplaced = [], 0
        for number, each in enumerate(choices):
            if number == own:
                continue
            other = self._other(each, types[number])
            if other is None:
                unplaced += 1
            else:
                name = f"{self.recorded.id}-config{number}"
                others.append(NamedLaunch(id=name, launch=replace(other, tunable=tunable), source=each.source, space=self.recorded.id))
        if unplaced:
            notes.append(
                f"{part(unplaced, len(choices), 'listed configuration')} {agree(unplaced, 'is', 'are')} left out: the grid is not "
                "known, for no trial was recorded and it does not follow from the kernel's file; record a run that tunes "
                "anew."
            )
        if own is None and choices:
            notes.append("What ran is none of the configurations that the file lists.")
        source = f"recorded, {choices[own].source}" if own is not None else "recorded"
        main = replace(self.recorded.launch, notes=(*self.recorded.launch.notes, *notes, *(block_notes if others else ())))
        if not others:
            return [NamedLaunch(id=self.recorded.id, launch=main, source=source)]
        main = replace(main, tunable=tunable)
        return [NamedLaunch(id=self.recorded.id, launch=main, source=source, space=self.recorded.id, chosen=True), *others]

    def _other(self, choice: Choice, types: Mapping[str, str]) -> KernelLaunch | None:
        """The launch with another configuration: as it was tried, or else with what follows for it; None: its grid is not known."""
        tried = [each for each in self.recorded.alike if _has(each, choice.constants)]
        if (same := next((each for each in tried if _is_of(each, choice)), None)) is not None:
            return same
        launch, given = self.launch, self.launch.given
        function = launch.source.kernel(launch.kernel)
        kept = {n: v for n, v in given.options.items() if n not in LAUNCH_OPTIONS or n in function.heuristics}
        as_recorded = replace(launch, given=replace(given, types={**given.types, **types}, options=kept))
        other = with_configuration(as_recorded, choice.constants, choice.options)
        values = {**other.given.scalars, **other.given.constexprs}
        grid = tried[0].grid if tried else launch.grid if self.recorded.same_grid else self._grid(values)
        return replace(other, grid=grid) if grid is not None else None

    def _grid(self, values: Mapping[str, Any]) -> tuple[int, ...] | None:
        """What the file's launch gives, if with the recorded configuration it gives what was recorded."""
        given = self.launch.given
        if self._file_grid({**given.scalars, **given.constexprs}) != self.launch.grid:
            return None
        return self._file_grid(values)

    def _file_grid(self, values: Mapping[str, Any]) -> tuple[int, ...] | None:
        where = (match_device_name(self.recorded.device) if self.recorded.device else None) or self.gpu
        sms = where.num_sms if where is not None else None
        found = grid_from_launches(self.launch.source, self.launch.kernel, values, options=OPTION_NAMES, num_sms=sms)
        return found.grid if found is not None else None


def _has(launch: KernelLaunch, constants: Mapping[str, Any]) -> bool:
    known = {**launch.given.scalars, **launch.given.constexprs}
    return all(name in known and _equal(known[name], value) for name, value in constants.items())


def _is_of(launch: KernelLaunch, choice: Choice) -> bool:
    """Whether a launch ran with a configuration."""
    usual = {"num_ctas": 1, "maxnreg": None}
    listed = {**usual, **choice.options}
    return _has(launch, choice.constants) and _options(launch.given.options, listed) == _options(listed, listed)


def _is_same(first: Choice, second: Choice) -> bool:
    """Whether a list has a configuration twice."""
    return first.options == second.options and dict(first.constants) == dict(second.constants)


def _options(options: Mapping[str, Any], listed: Collection[str]) -> dict[str, Any]:
    """Those that the list sets, as Triton has them where a launch names none."""
    return {name: options.get(name, 1 if name == "num_ctas" else None) for name in LAUNCH_OPTIONS if name in listed}


def _equal(recorded: Any, listed: Any) -> bool:
    return type(recorded) is type(listed) and bool(recorded == listed)
