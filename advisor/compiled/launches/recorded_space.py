"""The configurations that a recorded launch was one of: the list of its kernel's autotuner, each as a launch with what was recorded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.compiled.compiler.kernel import OPTION_NAMES
from advisor.compiled.guesses.descriptors import own_blocks
from advisor.compiled.launches.configured import with_configuration
from advisor.compiled.launches.launch import KernelLaunch
from advisor.compiled.launches.launch_options import Choice, NamedLaunch, configurations_listed, list_notes
from advisor.compiled.launches.records import RecordedKernel
from advisor.gpus.hardware import GpuSpec, match_device_name
from advisor.python_source.launch_sites import grid_from_launches
from advisor.result.schema import LAUNCH_OPTIONS
from advisor.system.errors import agree, part

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
