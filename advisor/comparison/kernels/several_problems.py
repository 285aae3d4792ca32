"""A kernel that is compiled as it is launched, judged at several of its problems: a row each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from advisor.comparison.kernels.attempts import Compiling
from advisor.comparison.kernels.resources import Judged
from advisor.rendering.figures import sizes_text, types_text
from advisor.result.comparison_schema import ResourceRow, Resources
from advisor.result.schema import Problem
from advisor.system.resources import phrase

MOST_PROBLEMS = 4
"""Of a kernel that is compiled anew for each: four that span what is launched show which sizes gain and which lose."""


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
