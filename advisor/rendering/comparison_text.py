"""A comparison as plain text: rows unwrapped, no escapes, so that a pipe and a terminal read the same."""

from __future__ import annotations

from advisor.comparison_schema import ComparisonResult, StaticSide, Subject, evidence

from . import comparison_words as words
from . import figures


def to_text(comparison: ComparisonResult) -> str:
    """The comparison, a line per row."""
    lines = [
        f"{words.compared_text(comparison.base)} -> {words.compared_text(comparison.head)}",
        comparison.headline,
    ]
    for subject in comparison.subjects:
        lines += ["", *_subject(subject)]
    lines += [f"skipped: {text}" for text in comparison.skipped]
    lines += ["", f"gate: {comparison.gate.sentence}"]
    return "\n".join(figures.clean(line) for line in lines) + "\n"


def _side(side: StaticSide | None) -> str:
    """`12.3 µs predicted`, `cannot launch`, or `-` where there is no such side."""
    return f"{words.side_text(side)} µs predicted" if side is not None and side.predicted is not None else words.side_text(side)


def _subject(subject: Subject) -> list[str]:
    lines = [f"{subject.title}: {words.subject_sentence(subject)}".rstrip(": ")]
    for row in words.measured_order(subject.measured):
        lines.append(
            f"  {row.verdict:<20} {row.label}  {row.gpu}  {words.latency_text(row.base)} -> {words.latency_text(row.head)} µs"
            f" {evidence([row])}  {words.effect_text(row)}  ({row.reason})"
        )
        lines += [f"    {fault}" for fault in row.faults]
    for static in words.static_order(subject.static):
        change = ", ".join(words.configuration_change(static))
        against = "default" if static.compared_with == "default" else "base"
        before = static.default if static.compared_with == "default" else static.base
        lines.append(
            f"  {words.verdict_word(static.verdict):<20} {static.label}  {static.gpu}  {_side(before)} ({against}) -> "
            f"{_side(static.head)}  {words.change_text(static.change)}"
            f"  ceiling {words.latency_text(static.ceiling)}" + (f"  {change}" if change else "")
            + (f"  ({static.reason})" if static.verdict in words.REASONED else "")
        )
    for compiled in subject.resources:
        cells = ", ".join(f"{name} {base} -> {head}" for name, base, head in words.resource_cells(compiled))
        lines.append(f"  compiled for {compiled.gpu} with {compiled.label}: {cells}" + (f" ({compiled.reason})" if compiled.reason else ""))
    for word, items in (("added", subject.configurations_added), ("removed", subject.configurations_removed)):
        lines += [f"  configuration {word}: {text}" for text in items]
    for word, issues in (("new", subject.new_issues), ("cured", subject.cured_issues)):
        lines += [f"  {word} {issue.severity}: {issue.rule}: {issue.evidence}" for issue in issues]
    return lines + [f"  note: {note}" for note in subject.notes]
