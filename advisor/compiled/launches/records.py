"""Kernel launches from records."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.compiled.guesses.inference import Given
from advisor.compiled.launches.launch import KernelLaunch
from advisor.python_source.source import SourceFile, parse_source
from advisor.rows.launches import LaunchRecords, RecordedLaunch, read_launches
from advisor.system import grouped
from advisor.system.errors import InputError, NothingMatchedError


@dataclass(frozen=True, kw_only=True)
class RecordedKernel:
    """A launch ready to be inspected, with how often it ran and how long it took where that was measured.

    Attributes:
        time_us: The median of the recorded times; None where all of them hold the launch from Python too.
        at_most_us: The least of those that do.
        cost_us: What all its runs took, about.
        tried: The trials of autotuners that differ from it in constants and options alone.
    """

    id: str
    launch: KernelLaunch
    count: int
    time_us: float | None
    device: str | None
    at_most_us: float | None = None
    cost_us: float = 0.0
    tried: tuple[KernelLaunch, ...] = ()


MOST_SHOWN = 80
"""Launches of a record that are looked at one by one; a page of as many stays below 2 MB, and a long run has 10,000."""


def heaviest(recorded: Sequence[RecordedKernel]) -> tuple[list[RecordedKernel], list[str]]:
    """The launches to look at, of every kernel its heaviest and then the heaviest of all, in their order; and where that leaves some out, a
    sentence of sums for each kernel, those that took most first."""
    if len(recorded) <= MOST_SHOWN:
        return list(recorded), []
    groups = grouped((launch.launch.kernel, launch) for launch in recorded)
    firsts = {id(group[0]) for group in groups.values()}
    kept = {id(element) for element in sorted(recorded, key=lambda entry: id(entry) not in firsts)[:MOST_SHOWN]}
    total_us = sum(record.cost_us for record in recorded)
    notes = [f"Of {len(recorded):,} launches with other arguments the {len(kept)} heaviest are shown; sums by kernel are of all."]
    for name, group in sorted(groups.items(), key=lambda item: (-sum(entry.cost_us for entry in item[1]), -sum(e.count for e in item[1]))):
        took_us = sum(entry.cost_us for entry in group)
        took = f", {took_us / 1000:,.3g} ms in all ({100 * took_us / total_us:.0f} % of what was timed)" if took_us else ""
        shown = sum(id(entry) in kept for entry in group)
        notes.append(
            f"{name}: {len(group):,} launches with other arguments ran {sum(e.count for e in group):,} times{took}; {shown} shown."
        )
    return [record for record in recorded if id(record) in kept], notes[: 1 + MOST_SUMS]


MOST_SUMS = 100
"""Kernels of a record whose sums are said."""


def record_target(path: str | Path) -> list[RecordedKernel]:
    """The launches of a record, the heaviest first: those that took most, or where nothing was timed ran most often over most bytes; trials
    of autotuners are left out.

    Raises:
        InputError: It is no record, or so damaged that no launch is left.
        NothingMatchedError: No launch in it has its source.
    """
    records = read_launches(path)
    files: dict[str, SourceFile] = {}
    launches, tried = [], defaultdict(list)
    for launch in records.launches:
        kernel = _recorded_kernel(records, launch, files)
        if kernel is not None and launch.tuning:
            tried[_work(launch)].append(kernel.launch)
        elif kernel is not None:
            launches.append((_work(launch), kernel))
    if not launches:
        trials = "all that was recorded are trials of autotuners" if tried else "no launch was recorded"
        why = "; ".join(records.problems[:2]) or trials
        if records.damaged:
            raise InputError(
                f"{path}: a damaged record, with no launch left that can be read", why, "a whole file of `advisor record`", "record again"
            )
        remedy = "record until the program launches what was chosen" if tried else "record a program that launches Triton kernels"
        raise NothingMatchedError(f"{path}: no launch that can be read", why, None, remedy)
    complete = (replace(kernel, tried=tuple(tried[work])) for work, kernel in launches)
    return sorted(complete, key=lambda k: (-k.cost_us, -k.count * sum(k.launch.sizes.values()), -k.count, k.id))


def _work(launch: RecordedLaunch) -> str:
    """What launches have in common that differ in constants and options alone."""
    shapes = {name: [tensor.get(key) for key in ("shape", "strides", "dtype", "same_as")] for name, tensor in launch.tensors.items()}
    return json.dumps([launch.kernel, launch.line, launch.source, launch.arguments, shapes, launch.contents], sort_keys=True)


def _recorded_kernel(records: LaunchRecords, launch: RecordedLaunch, files: dict[str, SourceFile]) -> RecordedKernel | None:
    if launch.source is None or launch.source not in records.sources:
        return None
    path, text = records.sources[launch.source]
    key = f"{launch.source}:{launch.files}:{sorted(launch.constants.items())!r}"
    if key not in files:
        parsed = parse_source(text, path)
        siblings = {records.sources[f][0]: records.sources[f][1] for f in launch.files if f in records.sources}
        files[key] = replace(parsed, values=dict(launch.constants), siblings=siblings, is_recorded=True)
    source = files[key]
    if launch.kernel not in source.definitions:
        return None
    return RecordedKernel(
        id=recorded_id(launch.kernel, launch.id),
        count=launch.count,
        device=launch.device,
        time_us=statistics.median(launch.times_us) if launch.times_us else None,
        at_most_us=min(launch.at_most_us, default=None),
        cost_us=launch.cost_us,
        launch=kernel_launch(launch, source),
    )


def recorded_id(kernel: str, launch: str) -> str:
    """Name of a recorded launch in results, by its kernel's name and its own in the record."""
    return f"{kernel}-{launch[:6]}"


def kernel_launch(launch: RecordedLaunch, source: SourceFile) -> KernelLaunch:
    """A recorded launch of a kernel that `source` defines, as it is inspected."""
    sizes: dict[str, int] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    divisible = {n for n, v in launch.arguments.items() if isinstance(v, int) and not isinstance(v, bool) and v % 16 == 0}
    for name, tensor in launch.tensors.items():
        sizes[name] = math.prod(int(n) for n in tensor.get("shape", ()))
        if "descriptor_shape" in tensor:
            shapes[name] = tuple(int(n) for n in tensor["descriptor_shape"])
        elif tensor.get("aligned"):
            divisible.add(name)
    function = source.functions.get(launch.kernel) or source.function(source.definitions[launch.kernel][0])
    ones = {n for n, v in launch.arguments.items() if type(v) is int and v == 1} - function.unfolded  # the runtime folds them
    types = {n: "constexpr" if n in ones else t for n, t in launch.signature.items()}
    constants = {**launch.constexprs, **{n: launch.arguments[n] for n in ones}}
    return KernelLaunch(
        source=source,
        kernel=launch.kernel,
        grid=launch.grid,
        contents=launch.contents,
        sizes=sizes,
        shapes=shapes,
        same={name: str(tensor["same_as"]) for name, tensor in launch.tensors.items() if "same_as" in tensor},
        divisible=frozenset(divisible) - function.unaligned,
        given=Given(types=types, constexprs=constants, options=launch.options, scalars=launch.arguments),
    )
