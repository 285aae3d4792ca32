"""A comparison as GitHub Markdown: the pull-request comment (at most 60,000 characters) and the step summary.

Changed rows first; unchanged rows are folded, and are the first to go where the text would be too long, which is then said.
"""

from __future__ import annotations

from advisor.rendering import comparison_words as words
from advisor.rendering.markdown import LIMIT, environment, filled_markdown
from advisor.result.comparison_schema import BASE_IS_FASTER, ComparisonResult, evidence

MARKER = "<!-- triton-advisor: compare -->"
"""Hidden first line: whoever posts the comment looks for it, and edits the comment that begins with it."""

SUMMARY_LIMIT = 900_000
"""GitHub takes a step summary of up to 1 MiB."""

_LENGTHS = ((400, 400, 100), (60, 400, 100), (0, 200, 100), (0, 60, 60), (0, 20, 40), (0, 8, 20), (0, 3, 10), (0, 0, 5), (0, 0, 0))
"""(unchanged rows, changed rows, subjects) shown at most, tried in turn until the text fits."""

FOLDED_FROM = 6_000
"""Characters of subjects from which on the others are folded: a reader takes in one screen or two."""


def to_comment(comparison: ComparisonResult, *, limit: int = LIMIT) -> str:
    """The pull-request comment, at most `limit` characters."""
    return MARKER + "\n" + _fitted(comparison, limit - len(MARKER) - 1)


def to_summary(comparison: ComparisonResult) -> str:
    """The step summary: the comment without its marker, and with room for every row."""
    return _fitted(comparison, SUMMARY_LIMIT)


def _fitted(comparison: ComparisonResult, limit: int) -> str:
    """The longest of the versions that fit: everything; without unchanged rows; fewer rows of every subject; no subject."""
    brief = [subject for subject in comparison.subjects if words.is_brief(subject)]
    order = sorted((each for each in comparison.subjects if each not in brief), key=words.rank)
    means = []
    if comparison.measured_mean is not None:
        rows = (row for subject in comparison.subjects for row in subject.measured)
        means.append(f"{words.change_text(comparison.measured_mean)} {evidence(rows)}")
    if comparison.static_mean is not None:
        means.append(f"{words.change_text(comparison.static_mean)} predicted")
    text = ""
    for quiet, loud, most in _LENGTHS:
        text = filled_markdown(
            "comment.md.jinja",
            comparison=comparison,
            subjects=order,
            brief=brief,
            common=words.common_notes(order[:most]),
            means=means,
            quiet=quiet,
            loud=loud,
            most=most,
            folded_from=FOLDED_FROM,
            base_is_faster=BASE_IS_FASTER,
            environment=environment,
            evidence=evidence,
            w=words,
        )
        if len(text) <= limit:
            break
    return text
