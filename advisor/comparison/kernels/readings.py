"""Two versions of a file as they are read for each GPU: branches on the architecture decide configurations and launches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.comparison.kernels.kernel_version import KernelVersion, launches_elsewhere, versions
from advisor.gpus.hardware import GpuSpec
from advisor.python_source.source import SourceFile
from advisor.result.comparison_schema import Subject
from advisor.system import grouped

Sides = tuple[Mapping[str, KernelVersion], Mapping[str, KernelVersion]]
"""The kernels of base and head, by name."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Both versions as they are read for some GPUs, which are alike in what they are compiled for."""

    gpus: tuple[GpuSpec, ...]
    sides: Sides


def readings(
    base: SourceFile | None,
    head: SourceFile | None,
    gpus: Sequence[GpuSpec],
    launchers: Sequence[Sequence[tuple[str, SourceFile]]],
    origins: Mapping[str, tuple[str, SourceFile]],
    left: Collection[str],
) -> list[Reading]:
    """One reading for each compile target of the GPUs; without any, one for no target.

    Args:
        base, head: The file's versions.
        gpus: What is compiled for.
        launchers: Of base and head, other files that launch kernels of the file, each with its path.
        origins: Kernels that lay in another file of the base, each with that file's path, and the file.
        left: Kernels of the base that lie in another file of the head.
    """
    targets: dict[tuple[str | None, int | str | None], list[GpuSpec]] = grouped((gpu.triton_target[:2], gpu) for gpu in gpus)
    pairs = []
    for target, group in (targets or {(None, None): []}).items():
        elsewhere = [launches_elsewhere((where, source.on(*target)) for where, source in launcher) for launcher in launchers]
        before = versions(base.on(*target), elsewhere[0]) if base is not None else {}
        after = versions(head.on(*target), elsewhere[1]) if head is not None else {}
        moved = {file: versions(source.on(*target), elsewhere[0]) for file, source in dict(origins.values()).items()}
        came = {name: moved[file][name] for name, (file, _) in origins.items() if name in moved[file]}
        kept = {name: version for name, version in before.items() if name not in left}
        pairs.append(Reading(tuple(group), ({**kept, **came}, after)))
    return pairs


def of_kernel(all_readings: Sequence[Reading], old: str, new: str) -> list[Reading]:
    """The readings with those as one that have the same definition of a kernel, of the name `old` in the base and `new` in the head, and
    list the same configurations of it."""
    alike: dict[object, Reading] = {}
    for item in all_readings:
        pair = (item.sides[0].get(old), item.sides[1].get(new))
        key = tuple((version.named, version.problem, version.function.line) if version is not None else None for version in pair)
        alike[key] = replace(alike[key], gpus=(*alike[key].gpus, *item.gpus)) if key in alike else item
    return list(alike.values())


def as_one(parts: Sequence[tuple[Sequence[GpuSpec], Subject]]) -> Subject:
    """What there is to say of a kernel that reads otherwise for some GPUs, as one: notes that do not hold for all say for which they do."""
    if len(parts) == 1:
        return parts[0][1]
    first = parts[0][1]
    common = [note for note in first.notes if all(note in part.notes for _, part in parts)]
    notes = []
    for gpus, item in parts:
        names = ", ".join(gpu.name for gpu in gpus)
        counts = item.configurations
        differs = counts != first.configurations
        notes += [f"On {names}: {counts[0]} → {counts[1]} configurations."] if differs else []
        notes += [f"On {names}: {note}" for note in item.notes if note not in common]
    first_listed = next((part for _, part in parts if part.configurations_added or part.configurations_removed), first)
    return replace(
        first_listed,
        static=tuple(row for _, part in parts for row in part.static),
        resources=tuple(row for _, part in parts for row in part.resources),
        failures=tuple(dict.fromkeys(failure for _, part in parts for failure in part.failures)),
        hint=next((part.hint for _, part in parts if part.hint), ""),
        configurations=first.configurations if first_listed is first else first_listed.configurations,
        notes=tuple(dict.fromkeys([*common, *notes])),
    )
