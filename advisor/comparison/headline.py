"""Counts, means and the sentence that every surface begins with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from advisor.comparison_schema import MEASURED_WORDS, STATIC_WORDS, Subject, evidence


def counts(subjects: Sequence[Subject]) -> tuple[dict[str, int], dict[str, int]]:
    """Measured and static verdicts, counted, in the order of display."""
    measured = Counter(row.verdict for subject in subjects for row in subject.measured)
    static = Counter(row.verdict for subject in subjects for row in subject.static)
    return (
        {word: measured[word] for word in MEASURED_WORDS if measured[word]},  # type: ignore[index]
        {word: static[word] for word in STATIC_WORDS if static[word]},  # type: ignore[index]
    )


def means(subjects: Sequence[Subject]) -> tuple[float | None, float | None]:
    """Geometric means of the relative changes, measured and predicted; None where fewer than two rows have one."""
    measured = [row.effect.relative for subject in subjects for row in subject.measured if row.effect is not None]
    static = [row.change for subject in subjects for row in subject.static if row.change is not None]
    return _mean(measured), _mean(static)


def _mean(changes: Sequence[float]) -> float | None:
    logs = [math.log1p(change) for change in changes if change > -1]
    return math.expm1(sum(logs) / len(logs)) if len(logs) > 1 else None


def headline(subjects: Sequence[Subject], measured: dict[str, int], static: dict[str, int]) -> str:
    """One sentence: kernels that no longer compile first, of which no other verdict means much; then measured verdicts where something was
    run, else predictions, and that they are that."""
    rest = _verdicts(subjects, measured, static)
    lost = sum(map(_no_longer_compiles, subjects))
    which = "kernel no longer compiles" if lost == 1 else "kernels no longer compile"
    return f"{lost} {which} with what is known of {'its' if lost == 1 else 'their'} launches; {rest}" if lost else rest


def _no_longer_compiles(subject: Subject) -> bool:
    """Whether the head of a kernel was refused where its base was compiled with the same; a kernel that was removed gives no reason."""
    return any(row.base is not None and row.head is None and row.reason for row in subject.resources)


def _verdicts(subjects: Sequence[Subject], measured: dict[str, int], static: dict[str, int]) -> str:
    if measured:
        origin = evidence(row for subject in subjects for row in subject.measured)
        return ", ".join(f"{count} {word}" for word, count in measured.items()) + f" ({origin})"
    if static:
        listed = ", ".join(f"{count} {STATIC_WORDS[word]}" for word, count in static.items())
        return f"{listed}: predictions only, nothing was measured"
    if any(subject.resources for subject in subjects):
        return "Compiled resources only: nothing was measured, and no problems are named to predict for"
    if subjects:
        return f"{_listed(subjects)}: no row to compare"
    return "No kernel and no table changed"


_CHANGED = {"modified": "changed", "added": "new", "removed": "removed", "type changed": "changed", "compared": "compared"}


def _listed(subjects: Sequence[Subject]) -> str:
    """What changed of which kind, "1 changed table, 2 new kernels"; kernels and tables apart all are files."""
    kinds = Counter((_CHANGED[each.change], each.kind if each.kind in ("kernel", "table") else "file") for each in subjects)
    return ", ".join(f"{count} {word} {kind}{'s' if count > 1 else ''}" for (word, kind), count in kinds.items())
