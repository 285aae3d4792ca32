"""Two versions of a file as they are read for each GPU, where branches on the architecture decide configurations and launches; and a kernel
judged at several of its problems."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.comparison.kernels.attempts import Compiling
from advisor.comparison.kernels.kernel_version import KernelVersion, launches_elsewhere, versions
from advisor.comparison.kernels.resources import Judged
from advisor.gpus.hardware import GpuSpec
from advisor.python_source.source import SourceFile
from advisor.rendering.figures import sizes_text, types_text
from advisor.result.comparison_schema import ResourceRow, Resources, Subject
from advisor.result.schema import Problem
from advisor.system import grouped
from advisor.system.resources import phrase

Sides = tuple[Mapping[str, KernelVersion], Mapping[str, KernelVersion]]
"""The kernels of base and head, by name."""
MOST_PROBLEMS = 4
"""Of a kernel that is compiled anew for each: four that span what is launched show which sizes gain and which lose."""


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


def judged_at_each(judge: Callable[[Problem | None, bool], Judged], problems: Sequence[Problem], compiling: Compiling) -> Judged:
    """What is said of a kernel at the first `MOST_PROBLEMS` of its problems together.

    A resource row is of all problems that have the same code, a prediction is of one.

    Args:
        judge: What is said at a problem, of which it is told whether that is the first.
        problems: Those that are known; none: the kernel is judged at what its launch says.
        compiling: Of which nothing is taken for a problem whose code is that of an earlier one.
    """
    result = judge(next(iter(problems), None), True)
    if not result.predicted:
        return result
    rows, predicted, notes, failures = [*result.rows], [*result.predicted], [*result.notes], [*result.failures]
    launched = [(row.problems, row.label) for row in predicted]
    alike = 0
    for number, problem in enumerate(problems[1:MOST_PROBLEMS], 1):
        at, left = f"{sizes_text(problem)} {types_text(problem)}", compiling.left
        other = judge(problem, False)
        fresh = [row for row in other.predicted if (row.problems, row.label) not in launched]
        if not other.predicted:
            reasons = [*other.notes, *(row.reason for row in other.rows if row.reason), *(failure.reason for failure in other.failures)]
            notes.append(phrase("answer.unpredicted_at", sizes=at, why=next(iter(reasons), "")))
        elif not fresh:
            alike += 1
        notes += other.notes if fresh else ()
        labels = {(row.gpu, row.label) for row in predicted}
        predicted += [
            replace(
                row, id=f"{row.id}-{number}", label=f"{row.label} {types_text(problem)}" if (row.gpu, row.label) in labels else row.label
            )
            for row in fresh
        ]
        launched += [(row.problems, row.label) for row in fresh]
        failures += [failure for failure in other.failures if failure not in failures]
        compiled = len(rows)
        for row in other.rows if fresh else ():
            same = next((place for place, known in enumerate(rows) if _code(known) == _code(row)), None)
            if same is None:
                rows.append(replace(row, label=f"{row.label} at {at}"))
            elif _by_grid(rows[same]) and not _by_grid(row):
                rows[same] = replace(row, label=rows[same].label)
        if len(rows) == compiled:
            compiling.left = left
    if alike:
        notes.append(phrase("answer.same_launch", count=alike, whole=len(problems)))
    if len(problems) > MOST_PROBLEMS:
        notes.append(phrase("answer.problems_left", most=MOST_PROBLEMS, whole=len(problems)))
    return replace(result, rows=tuple(rows), predicted=tuple(predicted), notes=tuple(dict.fromkeys(notes)), failures=tuple(failures))


def _code(row: ResourceRow) -> tuple[object, ...]:
    """What a row says of the code, whatever the grid."""

    def of_cta(side: Resources | None) -> Resources | None:
        return replace(side, resident_ctas_per_sm=None, resident_warps_per_sm=None, limiter=None) if side is not None else None

    return row.gpu, row.changed, of_cta(row.base), of_cta(row.head), row.reason


def _by_grid(row: ResourceRow) -> bool:
    """Whether a side's grid has fewer CTAs than its code allows on an SM."""
    return any(side is not None and side.limiter == "grid" for side in (row.base, row.head))
