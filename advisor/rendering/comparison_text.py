"""A comparison as plain text: rows unwrapped, no escapes, so that a pipe and a terminal read the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from advisor.rendering import comparison_words as words
from advisor.rendering import figures
from advisor.result.comparison_schema import ComparisonResult, StaticRow, StaticSide, Subject, evidence
from advisor.result.schema import Latency


def to_text(comparison: ComparisonResult) -> str:
    """The comparison, a line per row."""
    lines = [
        f"{words.compared_text(comparison.base)} -> {words.compared_text(comparison.head)}",
        comparison.headline,
    ]
    for subject in comparison.subjects:
        lines += ["", *_subject(subject)]
    lines += [f"the same under another name or in another file: {text}" for text in comparison.renamed]
    lines += [f"skipped: {text}" for text in comparison.skipped]
    lines += ["", f"gate: {comparison.gate.sentence}"]
    return "\n".join(figures.clean(line) for line in lines) + "\n"


def _with_unit(latency: Latency | None) -> str:
    """`12.3 µs`, or `-` where there is none."""
    return f"{words.latency_text(latency)} µs" if latency is not None else words.latency_text(latency)


def _side(side: StaticSide | None) -> str:
    """`12.3 µs predicted`, `cannot launch`, or `-` where there is no such side."""
    return f"{_with_unit(side.predicted)} predicted" if side is not None and side.predicted is not None else words.side_text(side)


def _is_untouched(row: StaticRow) -> bool:
    """Whether a row has the same configuration on both sides, and takes as long."""
    return row.verdict == "predicted-unchanged" and not row.changed


def _likeness(row: StaticRow) -> tuple[str, ...]:
    """Alike of two rows that say the same: those of a file that cannot be read, and those that are untouched."""
    if row.verdict == "failed":
        return row.verdict, row.gpu, row.reason
    return (row.verdict, row.gpu) if _is_untouched(row) else (row.verdict, row.gpu, row.id)


def _static(rows: Sequence[StaticRow]) -> str:
    """The line of a row, or of several that are alike."""
    row = rows[0]
    verdict = f"{words.verdict_word(row.verdict):<20}"
    if len(rows) > 1:
        why = row.reason if row.verdict == "failed" else "the same configurations on both sides"
        return f"{verdict} {words.labels_text([each.label for each in rows])}  {row.gpu}  ({why})"
    against, before = ("default", row.default) if row.compared_with == "default" else ("base", row.base)
    parts = [
        f"{verdict} {row.label}",
        row.gpu,
        f"{_side(before)} ({against}) -> {_side(row.head)}",
        words.change_text(row.change),
        f"ceiling {_with_unit(row.ceiling)}",
        ", ".join(words.configuration_change(row)),
        f"({row.reason})" if row.verdict in words.REASONED else "",
    ]
    return "  ".join(filter(None, parts))


def _subject(subject: Subject) -> list[str]:
    lines = [f"{subject.title}: {words.subject_sentence(subject)}".rstrip(": ")]
    for row in words.measured_order(subject.measured):
        lines.append(
            f"  {row.verdict:<20} {row.label}  {row.gpu}  {words.latency_text(row.base)} -> {words.latency_text(row.head)} µs"
            f" {evidence([row])}  {words.effect_text(row)}  ({row.reason})"
        )
        lines += [f"    {fault}" for fault in row.faults]
    rows = sorted(words.static_order(subject.static), key=_is_untouched)
    for _, alike in groupby(rows, key=_likeness):
        lines.append(f"  {_static(list(alike))}")
    for compiled in subject.resources:
        cells = ", ".join(f"{name} {base} -> {head}" for name, base, head in words.resource_cells(compiled))
        lines.append(f"  compiled for {compiled.gpu} with {compiled.label}: {cells}" + (f" ({compiled.reason})" if compiled.reason else ""))
    for word, items in (("added", subject.configurations_added), ("removed", subject.configurations_removed)):
        lines += [f"  configuration {word}: {text}" for text in items]
    for word, issues in (("new", subject.new_issues), ("cured", subject.cured_issues)):
        lines += [f"  {word} {issue.severity}: {issue.rule}: {issue.evidence}" for issue in issues]
    return lines + [f"  note: {note}" for note in subject.notes]
