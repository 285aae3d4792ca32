"""A comparison as GitHub Markdown: the pull-request comment (at most 60,000 characters) and the step summary.

Changed rows first; unchanged rows are folded, and are the first to go where the text would be too long, which is then said.
"""

from __future__ import annotations

import html
from collections.abc import Container, Sequence

from advisor.rendering import comparison_words as words
from advisor.rendering import figures
from advisor.rendering.markdown import LIMIT, block, code, details, environment, escape
from advisor.result.comparison_schema import BASE_IS_FASTER, ComparisonResult, MeasuredRow, ResourceRow, StaticRow, Subject, evidence
from advisor.result.schema import Finding, Recommendation

MARKER = "<!-- triton-advisor: compare -->"
"""Hidden first line: whoever posts the comment looks for it, and edits the comment that begins with it."""

SUMMARY_LIMIT = 900_000
"""GitHub takes a step summary of up to 1 MiB."""

_LENGTHS = ((400, 400, 100), (60, 400, 100), (0, 200, 100), (0, 60, 60), (0, 20, 40), (0, 8, 20), (0, 3, 10), (0, 0, 5))
"""(unchanged rows, changed rows, subjects) shown at most, tried in turn until the text fits."""

FOLDED_FROM = 6_000
"""Characters of subjects from which on the others are folded: a reader takes in one screen or two."""
NOTES_SHOWN = 8
ISSUES_SHOWN = 12
NAMED = 8
HINTS_SHOWN = 20
COMPILED_SHOWN = 2
"""Compiled configurations of a kernel that are not folded, where not more of them matter."""


def to_comment(comparison: ComparisonResult, *, limit: int = LIMIT) -> str:
    """The pull-request comment, at most `limit` characters."""
    return MARKER + "\n" + _fitted(comparison, limit - len(MARKER) - 1)


def to_summary(comparison: ComparisonResult) -> str:
    """The step summary: the comment without its marker, and with room for every row."""
    return _fitted(comparison, SUMMARY_LIMIT)


def _fitted(comparison: ComparisonResult, limit: int) -> str:
    """The longest of the versions that fit: everything; without unchanged rows; fewer rows of every subject; no subject's rows."""
    for quiet, loud, subjects in _LENGTHS:
        text = _head(comparison) + _subjects(comparison, quiet, loud, subjects) + _tail(comparison)
        if len(text) <= limit:
            return text
    head, tail = _head(comparison), "\n\nEverything else was left out for length: see the page or the JSON.\n"
    return head[: limit - len(tail)] + tail if len(head) + len(tail) > limit else head + tail


def _head(comparison: ComparisonResult) -> str:
    mark = "❌" if comparison.gate.failed else "✅"
    lines = [
        f"### {escape(comparison.headline, longest=400)}\n",
        f"{mark} **Gate.** {escape(comparison.gate.sentence, longest=900)}\n",
        f"{code(words.compared_text(comparison.base))} → {code(words.compared_text(comparison.head))}"
        + (f" on {escape(', '.join(comparison.gpus), longest=200)}" if comparison.gpus else "")
        + "\n",
    ]
    means = []
    if comparison.measured_mean is not None:
        rows = (row for subject in comparison.subjects for row in subject.measured)
        means.append(f"{words.change_text(comparison.measured_mean)} {evidence(rows)}")
    if comparison.static_mean is not None:
        means.append(f"{words.change_text(comparison.static_mean)} predicted")
    if means:
        lines.append(f"Geometric mean of the changes: {', '.join(means)} (never gates).\n")
    lines += [f"> ⚠️ {escape(text, longest=400)}\n" for text in comparison.warnings[:5]]
    return "\n".join(lines) + "\n"


def _subjects(comparison: ComparisonResult, quiet: int, loud: int, most: int) -> str:
    """The first subjects whole, those past `FOLDED_FROM` characters folded, and new and removed kernels of which nothing else is known in a
    line each."""
    brief = [subject for subject in comparison.subjects if words.is_brief(subject)]
    order = sorted((each for each in comparison.subjects if each not in brief), key=words.rank)
    common = words.common_notes(order[:most])
    text = ""
    for subject in order[:most]:
        sentence = words.subject_sentence(subject)
        body = _subject(subject, quiet, loud, common)
        if text and len(text) + len(body) > FOLDED_FROM:
            text += details(
                f"<code>{html.escape(figures.clean(subject.title))}</code>" + (f": {html.escape(sentence)}" if sentence else ""), body
            )
        else:
            text += f"#### {code(subject.title)}" + (f": {escape(sentence, longest=400)}" if sentence else "") + f"\n\n{body}"
    text += "".join(f"- Of {count} kernels: {escape(note, longest=500)}\n" for note, count in common.items()) + ("\n" if common else "")
    text += "".join(
        f"- {code(each.title)}: {escape('; '.join((words.subject_sentence(each), *each.notes[:1])))}\n" for each in brief[:most]
    )
    if comparison.renamed:
        more = f" and {len(comparison.renamed) - NAMED} more" if len(comparison.renamed) > NAMED else ""
        text += f"- The same under another name or in another file: {', '.join(map(code, comparison.renamed[:NAMED]))}{more}\n"
    if len(order) + len(brief) > most:
        text += f"\n{len(order) + len(brief) - most} of {len(order) + len(brief)} changed files left out for length.\n\n"
    return text + ("\n" if brief or comparison.renamed else "")


def _subject(subject: Subject, quiet: int, loud: int, common: Container[str]) -> str:
    parts = []
    if subject.measured:
        parts.append(_measured(subject, quiet, loud))
    if subject.static:
        parts.append(_static(subject, quiet, loud))
    parts += [_resources(subject), _configurations(subject), _issues(subject)]
    notes = [note for note in subject.notes if words.of_any(note, subject) not in common]
    shown = notes[:NOTES_SHOWN]
    parts += [f"- {escape(note, longest=500)}\n" for note in shown]  # after a blank line, wherever the list begins
    if len(notes) > len(shown):
        parts.append(f"- and {len(notes) - len(shown)} more notes, on the page\n")
    return "".join(parts) + "\n"


# ------------------------------------------------------------------------------------------------------------ measured


def _measured(subject: Subject, quiet: int, loud: int) -> str:
    rows = words.measured_order(subject.measured)
    changed = [row for row in rows if row.verdict not in words.QUIET]
    same = [row for row in rows if row.verdict in words.QUIET]
    header = (
        f"| {evidence(rows)} | GPU | base µs | head µs | Δ [99 % interval] | of ceiling (predicted) | verdict |\n"
        "|---|---|--:|--:|--:|--:|---|\n"
    )
    text = ""
    if changed:
        text += header + "".join(_measured_line(row) for row in changed[:loud]) + _left_out(len(changed) - loud) + "\n"
    text += _causes([row for row in changed if row.verdict == "regressed"][:3])
    text += "".join(f"> **Fault:** {escape(fault)}\n\n" for row in rows for fault in row.faults[:1])[:2000]
    return text + _folded(same, quiet, header, _measured_line, f"unchanged ({evidence(same)})")


def _measured_line(row: MeasuredRow) -> str:
    share = f"{words.share_text(row.ceiling, row.base)} → {words.share_text(row.ceiling, row.head)}"
    verdict = f"{words.MARKS[row.verdict]} **{row.verdict}**".strip()
    if row.verdict in ("inconclusive", "not comparable", "failed"):
        verdict += f": {escape(row.reason)}"
    times = [words.latency_text(row.base), words.latency_text(row.head), words.effect_text(row)]
    cells = [escape(row.label), escape(row.gpu), *times, share, verdict]
    return "| " + " | ".join(cells) + " |\n"


def _causes(rows: list[MeasuredRow]) -> str:
    text = ""
    for row in rows:
        if row.likely_cause:
            text += f"- Likely cause of {escape(row.label)}: " + "; ".join(_finding(item) for item in row.likely_cause[:3]) + "\n"
        if row.advice is not None:
            text += f"- To try for {escape(row.label)}: {_advice(row.advice)}\n"
    return text + "\n" if text else ""


# -------------------------------------------------------------------------------------------------------------- static


def _static(subject: Subject, quiet: int, loud: int) -> str:
    rows = words.static_order(subject.static)
    changed = [row for row in rows if row.verdict not in words.QUIET]
    same = [row for row in rows if row.verdict in words.QUIET]
    table, gpu = subject.kind == "table", words.gpu_count(subject) > 1
    header = (
        f"| predicted |{' GPU |' if gpu else ''}{' default µs |' if table else ''} base µs | head µs | interval | Δ | ceiling µs "
        "| of ceiling | verdict | change |\n"
        f"|---|{'---|' if gpu else ''}{'--:|' if table else ''}--:|--:|--:|--:|--:|--:|---|---|\n"
    )

    reasons = {id(row): reason for row, reason in zip([*changed, *same], words.reasons([*changed, *same]), strict=True)}

    def line(row: StaticRow) -> str:
        return _static_line(row, reasons[id(row)], table, gpu)

    text = ""
    if changed:
        text += header + "".join(map(line, changed[:loud])) + _left_out(len(changed) - loud) + "\n"
    text += _named("Looks worse than what it replaces", words.worse(rows), _how_much_worse)
    text += _named("Predicted slower than the stack's default", words.below_default(rows), _against_default)
    text += _why(changed)
    return text + _folded(
        same,
        quiet,
        header,
        line,
        "predicted unchanged, or within doubt" if any(row.verdict == "within-doubt" for row in same) else "predicted unchanged",
    )


def _static_line(row: StaticRow, reason: str, table: bool, gpu: bool) -> str:
    head = row.head.predicted if row.head is not None else None
    before = row.base.predicted if row.base is not None else None
    delta = words.change_text(row.change) + (" (to default)" if row.compared_with == "default" and row.change is not None else "")
    mark = words.MARKS[row.verdict]
    cells = [
        escape(row.label),
        *([escape(row.gpu)] if gpu else []),
        *([words.side_text(row.default)] if table else []),
        words.side_text(row.base),
        words.side_text(row.head),
        words.interval_text(head),
        delta,
        words.latency_text(row.ceiling),
        f"{words.share_text(row.ceiling, before)} → {words.share_text(row.ceiling, head)}",
        f"{mark} **{words.verdict_word(row.verdict)}**".strip() + (f": {escape(reason)}" if reason else ""),
        code(", ".join(words.configuration_change(row)) or "none") if row.changed else "",
    ]
    return "| " + " | ".join(cells) + " |\n"


def _how_much_worse(row: StaticRow) -> str:
    return words.change_text(row.change) if row.change is not None else words.verdict_word(row.verdict)


def _against_default(row: StaticRow) -> str:
    head = row.head.predicted if row.head is not None else None
    default = row.default.predicted if row.default is not None else None
    return words.change_text(head.us / default.us - 1) if head is not None and default is not None else ""


def _named(title: str, rows: list[StaticRow], value) -> str:  # type: ignore[no-untyped-def]
    if not rows:
        return ""
    listed = ", ".join(f"{escape(row.label)} on {escape(row.gpu)} ({value(row)})" for row in rows[:NAMED])
    more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    return f"**{title}:** {listed}{more}\n\n"


def _why(rows: list[StaticRow]) -> str:
    """New findings of what got worse, with what to try; and what got cured."""
    text = ""
    for row in words.worse(rows)[:3]:
        if row.new_findings:
            causes = "; ".join(_finding(item) for item in row.new_findings[:3])
            text += f"- Likely cause at {escape(row.label)} on {escape(row.gpu)}: {causes}\n"
        if row.advice is not None:
            text += f"- To try at {escape(row.label)} on {escape(row.gpu)}: {_advice(row.advice)}\n"
    cured: dict[str, int] = {}
    for row in rows:
        for item in row.cured_findings:
            cured[item.rule] = cured.get(item.rule, 0) + 1
    if cured:
        listed = ", ".join(f"{code(rule)} ({count})" for rule, count in sorted(cured.items(), key=lambda pair: -pair[1])[:NAMED])
        text += f"- Findings cured in these rows: {listed}\n"
    return text + "\n" if text else ""


def _finding(item: Finding) -> str:
    source = f" at {code(figures.source_text(item))}" if item.source_file else ""
    said = f"{item.title}: {item.evidence}" if item.evidence else item.title  # the evidence alone may go on from the title
    return f"{code(item.rule)} {escape(said)}{source}"


def _advice(advice: Recommendation) -> str:
    source = "what the base had, " if advice.reason == BASE_IS_FASTER else ""
    return f"{source}{code(words.advice_text(advice))}: {figures.microseconds(advice.latency.us)} µs {advice.latency.origin}"


def _folded(rows, most: int, header: str, line, word: str) -> str:  # type: ignore[no-untyped-def]
    """Unchanged rows: folded, cut to `most`, and said how many there are."""
    if not rows:
        return ""
    if most == 0:
        return f"{len(rows)} rows {word}, left out for length.\n\n"
    title = f"{len(rows)} {'row' if len(rows) == 1 else 'rows'} {word}"
    return details(title, header + "".join(line(row) for row in rows[:most]) + _left_out(len(rows) - most))


def _left_out(count: int) -> str:
    return f"\n{count} rows left out for length.\n" if count > 0 else ""


# ------------------------------------------------------------------------------------- resources, configurations, audit


def _resources(subject: Subject) -> str:
    """What matters, and as much of the rest as makes a few; the others folded."""
    first = sorted(subject.resources, key=lambda row: not words.resources_matter(row))
    shown = max(COMPILED_SHOWN, sum(map(words.resources_matter, first)))
    text = _compiled(first[:shown])
    rest = len(first) - shown
    if rest > 0:
        title = f"{rest} more compiled {'configuration' if rest == 1 else 'configurations'}: as many CTAs per SM, and no other spills"
        text += details(title, _compiled(first[shown:]))
    return text


def _compiled(rows: Sequence[ResourceRow]) -> str:
    text = ""
    for row in rows:
        cells = words.resource_cells(row)
        differing = [(name, base, head) for name, base, head in cells if base != head]
        title = f"Compiled for {escape(row.gpu)} with {code(row.label)}"
        if row.reason:
            text += f"- {title}: {escape(row.reason)}\n"
        if not differing and not row.reason:
            text += f"- {title}: the same resources and instructions\n"
        elif differing:
            body = "| compiled | base | head |\n|---|--:|--:|\n" + "".join(
                f"| {escape(name)} | {base} | {'**' + head + '**' if base != head else head} |\n" for name, base, head in cells
            )
            text += f"\n{title}:\n\n{body}\n"
    return text + "\n" if text else ""


def _configurations(subject: Subject) -> str:
    text = ""
    for word, items in (("Added", subject.configurations_added), ("Removed", subject.configurations_removed)):
        if items:
            listed = ", ".join(code(item) for item in items[:NAMED])
            text += f"- {word} configurations: {listed}" + (f" and {len(items) - NAMED} more" if len(items) > NAMED else "") + "\n"
    return text + "\n" if text else ""


def _issues(subject: Subject) -> str:
    """What the audit finds now and did not, and the reverse."""
    text = ""
    for word, issues in (("new", subject.new_issues), ("cured", subject.cured_issues)):
        for issue in issues[:ISSUES_SHOWN]:
            remedy = f" {escape(issue.remedy[:1].upper() + issue.remedy[1:])}" if word == "new" else ""
            text += f"- Audit, {word} {issue.severity}: {code(issue.rule)} {escape(issue.evidence, longest=500)}.{remedy}\n"
        if len(issues) > ISSUES_SHOWN:
            text += f"- and {len(issues) - ISSUES_SHOWN} more {word} issues\n"
    return text + "\n" if text else ""


# ---------------------------------------------------------------------------------------------------------------- tail


def _tail(comparison: ComparisonResult) -> str:
    rows = ""
    for name, side in (("base", comparison.base), ("head", comparison.head)):
        if side.fingerprint is not None:
            values = ", ".join(f"{key} {value}" for key, value in environment(side.fingerprint))
            rows += f"| {name} | {escape(values, longest=600)} |\n"
    body = "| | |\n|---|---|\n"
    body += f"| predictions | {escape(comparison.predictor)}, 80 % intervals; both sides by the same model |\n"
    body += f"| sandbox | {escape(comparison.room, longest=400)} |\n" if comparison.room else ""
    body += f"| advisor | {escape(comparison.tool_version)} |\n{rows}\n{block(comparison.command or 'advisor compare', 'sh')}"
    text = ""
    if comparison.skipped:
        listed = "".join(f"- {escape(item, longest=300)}\n" for item in comparison.skipped[:20])
        more = f"- and {len(comparison.skipped) - 20} more\n" if len(comparison.skipped) > 20 else ""
        text += details(f"{len(comparison.skipped)} changed files that were not compared", listed + more)
    if hints := [subject.hint for subject in comparison.subjects if subject.hint]:
        lines = block("\n".join(hints[:HINTS_SHOWN]), "toml")
        text += details("To have kernels judged at your own sizes, put at the top of advisor.toml (that of the base counts)", lines)
    return text + details("Environment and the command to repeat it", body)
