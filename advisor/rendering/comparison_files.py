"""A comparison as plain text, as a page, as Markdown for a pull request, and as SARIF; and the answer to one that has it: a kernel or an
entry, of which one prediction a GPU says faster or slower.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from advisor.rendering import comparison_words as words
from advisor.rendering import figures
from advisor.rendering.markdown import LIMIT, filled_markdown, fingerprint_rows
from advisor.rendering.page import filled
from advisor.result.comparison_schema import (
    BASE_IS_FASTER,
    BEST_OF_LISTS,
    PREDICTED_TAU,
    ComparisonResult,
    StaticRow,
    StaticSide,
    Subject,
    comparison_to_json,
    evidence,
)
from advisor.result.problem import ASKED
from advisor.result.schema import Finding, Latency
from advisor.system import grouped
from advisor.system.resources import phrase

NO_BYTES = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Characters that stand for no byte of any path."""
MARKER = "<!-- triton-advisor: compare -->"
"""Hidden first line: whoever posts the comment looks for it, and edits the comment that begins with it."""

SUMMARY_LIMIT = 900_000
"""GitHub takes a step summary of up to 1 MiB."""

_LENGTHS = ((400, 400, 100), (60, 400, 100), (0, 200, 100), (0, 60, 60), (0, 20, 40), (0, 8, 20), (0, 3, 10), (0, 0, 5), (0, 0, 0))
"""(unchanged rows, changed rows, subjects) shown at most, tried in turn until the text fits."""

FOLDED_FROM = 6_000
"""Characters of subjects from which on the others are folded: a reader takes in one screen or two."""


def to_text(comparison: ComparisonResult) -> str:
    """The comparison, a line per row."""
    lines = [
        f"{words.compared_text(comparison.base)} -> {words.compared_text(comparison.head)}",
        comparison.headline,
        *filter(None, (why(comparison.subjects), words.assumed_cache(comparison))),
    ]
    for subject in comparison.subjects:
        lines += ["", *_subject(subject, comparison.headline)]
    if lacking := words.untimed_line(comparison):
        hints = words.hints(comparison, lacking=True)
        how = "Say it, with your own values, by --arg NAME=VALUE, --signature NAME=TYPE, or --settings advisor.toml with:"
        lines += ["", lacking, *(f"  {line}" for line in ([how, *hints] if hints else []))]
    if commands := words.measuring(comparison):
        lines += ["", phrase("answer.measure"), *(f"  {line}" for line in commands)]
    if command := words.searching(comparison):
        lines += ["", phrase("answer.search"), f"  {command}"]
    lines += [f"the same under another name or in another file: {text}" for text in comparison.renamed]
    lines += words.around_kernels(comparison)
    lines += [f"skipped: {text}" for text in comparison.skipped]
    lines += ["", f"gate: {comparison.gate.sentence}"]
    return "\n".join(figures.clean(line) for line in lines) + "\n"


def to_comment(comparison: ComparisonResult) -> str:
    """The pull-request comment, at most `LIMIT` characters."""
    return MARKER + "\n" + _fitted(comparison, LIMIT - len(MARKER) - 1)


def to_summary(comparison: ComparisonResult) -> str:
    """The step summary: the comment without its marker, and with room for every row."""
    return _fitted(comparison, SUMMARY_LIMIT)


def _fitted(comparison: ComparisonResult, limit: int) -> str:
    """The longest of the versions that fit: everything; without unchanged rows; fewer rows of every subject; no subject."""
    many = len(comparison.subjects) >= words.OFTEN
    brief = [subject for subject in comparison.subjects if words.is_brief(subject) or (many and words.is_unchanged(subject))]
    order = sorted((item for item in comparison.subjects if item not in brief), key=words.rank)
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
            environment=fingerprint_rows,
            evidence=evidence,
            w=words,
            why=why,
            measure=phrase("answer.measure"),
        )
        if len(text) <= limit:
            break
    return text


SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "advice": "note", "info": "note"}
VERDICT_LEVELS = {
    "regressed": "error",
    "failed": "error",
    "cannot-launch": "error",
    "inconclusive": "warning",
    "predicted-regressed": "warning",
    "not comparable": "note",
    "spills": "warning",
    "no-longer-compiles": "warning",
}
LARGEST_RESULTS = 5_000
"""GitHub takes 25,000 results per run, and shows 5,000."""

MOST_ANNOTATIONS = 10
"""GitHub shows as many of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """One result. `where` is what it is about within the file ("M=64 on H200"), and stays the same when the figures change."""

    rule: str
    level: str
    text: str
    path: str
    where: str
    line: int | None = None


def to_sarif(comparison: ComparisonResult) -> str:
    """SARIF text, ending in a newline."""
    reported: list[Reported] = []
    for subject in comparison.subjects:
        reported += _results(subject)
    reported = reported[:LARGEST_RESULTS]
    rules = sorted({item.rule for item in reported})
    numbers = {rule: number for number, rule in enumerate(rules)}
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "triton-advisor",
                "version": figures.clean(comparison.tool_version),
                "rules": [{"id": rule, "shortDescription": {"text": words.verdict_word(rule)}} for rule in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [
            {
                "ruleId": item.rule,
                "ruleIndex": numbers[item.rule],
                "level": item.level,
                "message": {"text": figures.clean(item.text)},
                "locations": [
                    {
                        "physicalLocation": {"artifactLocation": {"uri": _uri(item.path)}, "region": {"startLine": item.line or 1}},
                    }
                ],
                # Without the message: its figures change from one comparison to the next, and an alert would close and open anew.
                "partialFingerprints": {"advisor/v2": f"{item.rule}:{_uri(item.path)}:{figures.clean(item.where)[:120]}"},
            }
            for item in reported
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=False) + "\n"


def _uri(path: str) -> str:
    """A relative URI; nothing in a path can make it absolute or lead out of the tree."""
    spelled = NO_BYTES.sub("\ufffd", path).encode("utf-8", "surrogateescape")
    parts = [part for part in spelled.split(b"/") if part not in (b"", b".", b"..")]
    return "/".join(quote(part) for part in parts) or "unnamed"


def _results(subject: Subject) -> list[Reported]:
    path, name = subject.path.split("::")[0], subject.title.partition("::")[2]
    out: list[Reported] = []

    def add(verdict: str, text: str, where: str, line: int | None = None) -> None:
        rule = verdict.replace(" ", "-")
        out.append(Reported(rule=rule, level=VERDICT_LEVELS[verdict], text=text, path=path, where=where, line=line or subject.line))

    for row in subject.measured:
        if row.verdict in VERDICT_LEVELS:
            effect = f", {words.effect_text(row)} measured" if row.effect is not None else ""
            where = f"{row.label} on {row.gpu}"
            add(row.verdict, f"{where}: {row.verdict}{effect} ({row.reason})", f"{name} {where}")
    failed: dict[tuple[str, str], list[str]] = {}  # by GPU and reason: of a file that cannot be read it is one for all rows
    for static in subject.static:
        where = f"{static.label} on {static.gpu}"
        if static.verdict == "failed":
            failed.setdefault((static.gpu, static.reason), []).append(static.label)
        elif static.verdict in VERDICT_LEVELS:
            change = f", {words.change_text(static.change)}" if static.change is not None else ""
            text = f"{where}: {words.verdict_word(static.verdict)}{change} ({static.reason})"
            add(static.verdict, text + _to_try(static), f"{name} {where}", static.line)
        out += [
            _finding(item, f"{where}: ", path, f"{name} {where}", static.line or subject.line)
            for item in static.new_findings
            if item.severity != "info" and item.rule != static.verdict
        ]
    for (gpu, reason), labels in failed.items():
        add("failed", f"{words.labels_text(labels)} on {gpu}: {words.verdict_word('failed')} ({reason})", f"{name} {labels[0]} on {gpu}")
    issues = {item.evidence for item in subject.new_issues}
    for failure in subject.failures:
        if not any(evidence and evidence in failure.reason for evidence in issues):
            add(failure.condition, f"{name or subject.title} {failure.what}: {failure.reason}", f"{name} {failure.what}", failure.line)
    for compiled in subject.resources:
        where = f"{compiled.kernel} on {compiled.gpu}"
        before = compiled.base.spill_bytes if compiled.base is not None else 0
        after = compiled.head.spill_bytes if compiled.head is not None else None
        if after and after > (before or 0):
            text = f"{compiled.kernel} with {compiled.label} spills on {compiled.gpu}: {before} to {after} bytes per thread"
            add("spills", text, where)
        if compiled.base is not None and compiled.head is None and not compiled.unfinished and not subject.failures:
            add("no-longer-compiles", f"{compiled.kernel} on {compiled.gpu}: {compiled.reason}", where, compiled.line)
    return out + [_finding(item, "", path, item.scope, subject.line) for item in subject.new_issues]


def _to_try(row: StaticRow) -> str:
    """What would launch in place of what cannot; no other verdict needs that to be put right."""
    if row.verdict != "cannot-launch" or row.advice is None:
        return ""
    return f". To try: {words.advice_text(row.advice)}, {figures.microseconds(row.advice.latency.us)} µs {row.advice.latency.origin}"


def _finding(item: Finding, prefix: str, path: str, where: str, line: int | None) -> Reported:
    text = f"{prefix}{item.title}: {item.evidence}. {item.remedy[:1].upper()}{item.remedy[1:]}"
    of_subject = item.source_file is None or path.endswith(item.source_file) or item.source_file.endswith(path)
    return Reported(
        rule=figures.clean(item.rule),
        level=LEVELS[item.severity],
        text=text,
        path=path if of_subject else item.source_file or path,
        where=where,
        line=item.source_line or (line if of_subject else None),
    )


def to_annotations(comparison: ComparisonResult) -> str:
    """The same as commands of a GitHub workflow, which shows each beside its line."""
    commands = {"error": "error", "warning": "warning", "note": "notice"}
    findings = [result for subject in comparison.subjects for result in _results(subject)]
    return "".join(
        f"::{commands[item.level]} file={_escaped(item.path, ':,')},line={item.line or 1},title={_escaped(item.rule, ':,')}"
        f"::{_escaped(figures.clean(item.text))}\n"
        for item in sorted(findings, key=lambda finding: list(commands).index(finding.level))[:MOST_ANNOTATIONS]
    )


def _escaped(text: str, others: str = "") -> str:
    """A text without what ends a workflow command's value."""
    for character in f"%\r\n{others}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def to_page(comparison: ComparisonResult) -> str:
    """The page for this comparison."""
    subjects = [_view(subject, number) for number, subject in enumerate(sorted(comparison.subjects, key=words.rank), 1)]
    packed = base64.b64encode(comparison_to_json(comparison).encode("utf-8")).decode("ascii")
    context: dict[str, Any] = {
        "comparison": comparison,
        "subjects": subjects,
        "tiles": _tiles(comparison),
        "evidence": _evidence(comparison),
        "evidence_of": lambda view: evidence(view["measured"]),
        "fingerprints": [
            (name, fingerprint_rows(side.fingerprint))
            for name, side in (("base", comparison.base), ("head", comparison.head))
            if side.fingerprint is not None
        ],
        "download": Markup(f"data:application/json;base64,{packed}"),
        "w": words,
        "why": why(comparison.subjects),
        "certain_only": phrase("note.certain_only"),
        "scale": _scale,
        "config_lines": lambda configuration: list(figures.fields_of(configuration).items()) if configuration is not None else [],
    }
    return filled("comparison.html.jinja", **context)


def _view(subject: Subject, number: int) -> dict[str, Any]:
    """A subject as the page shows it; `reasoned` are its static rows, each with why it has its verdict."""
    reasoned = words.reasoned(subject.static)
    return {
        "subject": subject,
        "anchor": f"subject-{number}",
        "sentence": words.subject_sentence(subject),
        "measured": words.measured_order(subject.measured),
        "static": [row for row, _ in reasoned],
        "reasoned": reasoned,
        "several_gpus": words.gpu_count(subject) > 1,
        "has_default": any(row.default is not None for row in subject.static),
        "has_rows": bool(subject.static or subject.measured),
    }


def _scale(row: StaticRow) -> float:
    """What a full bar of a row stands for, in microseconds: the slower side."""
    return max((side.predicted.us for side in (row.base, row.head) if side is not None and side.predicted is not None), default=1.0)


def _evidence(comparison: ComparisonResult) -> str:
    return evidence(row for subject in comparison.subjects for row in subject.measured)


def _tiles(comparison: ComparisonResult) -> list[tuple[str, str, int, str]]:
    """(kind of evidence, word, count, class) of every verdict that occurs."""
    classes = {
        "regressed": "far",
        "failed": "far",
        "cannot-launch": "far",
        "predicted-regressed": "room",
        "inconclusive": "room",
        "improved": "near",
        "predicted-improved": "near",
        "launches-again": "near",
    }
    measured = _evidence(comparison)
    tiles = [(measured, word, count, classes.get(word, "")) for word, count in comparison.measured_counts.items()]
    doubt = {"within-doubt": phrase("answer.within_doubt", count=comparison.static_counts.get("within-doubt", 0))}
    static = comparison.static_counts.items()
    tiles += [("predicted", doubt.get(word, words.verdict_word(word)), count, classes.get(word, "")) for word, count in static]
    return tiles


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


def _static(rows: Sequence[StaticRow], headline: str) -> str:
    """The line of a row, or of several that are alike, with why it is so, where the headline does not say it."""
    row = rows[0]
    reason = "" if row.cause and row.verdict not in words.REASONED and row.cause in headline else words.reason_of(row)
    verdict = f"{words.verdict_word(row.verdict):<20}"
    if len(rows) > 1:
        why = row.reason if row.verdict == "failed" else "the same configurations on both sides"
        return f"{verdict} {words.labels_text([item.label for item in rows])}  {row.gpu}  ({why})"
    against, before = ("default", row.default) if row.compared_with == "default" else ("base", row.base)
    parts = [
        f"{verdict} {row.label}",
        row.gpu,
        f"{_side(before)} ({against}) -> {_side(row.head)}",
        words.change_text(row.change),
        f"ceiling {_with_unit(row.ceiling)}" if row.ceiling is not None else "",
        ", ".join(words.configuration_change(row)),
        f"({reason})" if reason else "",
    ]
    return "  ".join(filter(None, parts))


def _subject(subject: Subject, headline: str) -> list[str]:
    lines = [f"{subject.title}: {words.subject_sentence(subject)}".rstrip(": ")]
    for row in words.measured_order(subject.measured):
        lines.append(
            f"  {row.verdict:<20} {row.label}  {row.gpu}  {words.latency_text(row.base)} -> {words.latency_text(row.head)} µs"
            f" {evidence([row])}  {words.effect_text(row)}  ({row.reason})"
        )
        lines += [f"    {fault}" for fault in row.faults]
    faster = {row.gpu for row in subject.static if row.verdict == "predicted-improved"}  # there no count of the code is against it
    for compiled in subject.resources:
        resources, instructions = (
            ", ".join(f"{name.partition(words.INSTRUCTIONS)[0]} {base} -> {head}" for name, base, head in words.unlike(part))
            for part in words.compiled_cells(compiled)
        )
        same_work = words.SAME_WORK * any(words.SAME_WORK in name for name, _, _ in words.resource_cells(compiled))
        whose = f" {words.whose_code(compiled)}" * bool(same_work)
        counts = f"instructions in the code{whose}{same_work} (what loops repeat counts once): {instructions}" if instructions else ""
        cells = resources if resources and compiled.gpu in faster else "; ".join(filter(None, (resources, counts)))
        cells = cells or (words.the_same(compiled) if compiled.base is not None and compiled.head is not None else "")
        what = f"  compiled for {compiled.gpu} with {compiled.label}"
        lines.append(f"{what}: {cells}" + (f" ({compiled.reason})" if cells else compiled.reason) * bool(compiled.reason))
    for word, items in (("added", subject.configurations_added), ("removed", subject.configurations_removed)):
        shown = words.first_listed(items)
        lines += [f"  configuration {word}: {text}" for text in shown]
        lines += [f"  configurations {word}: {len(items) - len(shown)} more"] * (len(items) > len(shown))
    for word, issues in (("new", subject.new_issues), ("cured", subject.cured_issues)):
        lines += [f"  {word} {issue.severity}: {issue.rule}: {issue.evidence}" for issue in issues]
    lines += [f"  note: {note}" for note in subject.notes]
    rows = sorted(words.static_order(words.timed_rows(subject.static)), key=_is_untouched)
    return lines + [f"  {_static(list(alike), headline)}" for _, alike in groupby(rows, key=_likeness)]


FACTOR_FROM = 1.5
"""Times as long from which on a change is a factor, and no share."""
MOST_GPUS = 2


def answering(subjects: Sequence[Subject]) -> Sequence[StaticRow]:
    """The rows that are the answer, one a GPU, those within doubt last; none where something was measured, or several rows of a GPU say
    something."""
    rows = [row for subject in subjects for row in subject.static if row.verdict != "cannot-tell"]
    rows.sort(key=_is_doubtful)
    sure = all(row.verdict in ("predicted-improved", "predicted-regressed", "within-doubt") and _sides(row) is not None for row in rows)
    sure = sure and all(abs(row.change or 0.0) >= PREDICTED_TAU for row in rows if _is_doubtful(row))
    verdicts = {row.verdict for row in rows} - {"within-doubt"}
    alone = len({row.gpu for row in rows}) == len(rows) <= MOST_GPUS and len(verdicts) <= 1
    return rows if sure and alone and not any(subject.measured for subject in subjects) else ()


def answer(subjects: Sequence[Subject]) -> str:
    """`Predicted about 6x faster on H100 (253.5 → 43.3 µs; 80 % intervals 198 to 310 → 39.5 to 77.4): BLOCK 128 → 4096; not
    measured`; empty: there is no such answer."""
    rows = answering(subjects)
    if not rows:
        return ""
    subject = next(item for item in subjects if rows[0] in item.static)
    launched = [change for row in subject.resources for change in row.changed]
    configured = [side.configuration if side is not None else None for side in (rows[0].base, rows[0].head)]
    changes = list(dict.fromkeys(launched or (figures.changes(configured[0], configured[1]) if configured[1] is not None else [])))
    name = "" if subject.resources else f" at {rows[0].label}"
    best = phrase("answer.best_listed") if changes and rows[0].label.startswith(BEST_OF_LISTS) else ""
    causes = "; ".join(filter(None, (rows[0].cause, best + ", ".join(changes))))
    changed = f": {causes}" if causes else ""
    states = " and ".join(sorted({problem.cache for row in rows for problem in row.problems}))
    cache = phrase("answer.cache", state=states) if states else ""
    kind = "undecided" if _is_doubtful(rows[0]) else "predicted"
    whose = f"{'in ' * (kind == 'undecided')}{subject.title.rpartition('::')[2]} " if len(subjects) > 1 else ""
    groups = grouped((_is_doubtful(row), f"{_on_gpu(row)}{name}") for row in rows)
    what = phrase("answer.besides").join(" and ".join(group) for group in groups.values())
    return phrase(f"answer.{kind}", what=f"{whose}{what}", changed=changed, cache=cache)


def _is_doubtful(row: StaticRow) -> bool:
    return row.verdict == "within-doubt"


def why(subjects: Sequence[Subject]) -> str:
    """Why the answer is within doubt, where it is, and what limits its sides, where it is known of both; of several GPUs on the first."""
    rows = answering(subjects)
    if not rows:  # the one row that says something may say that the sides are too near each other
        timed = [row for subject in subjects for row in words.timed_rows(subject.static)]
        alone = len(timed) == 1 and timed[0].verdict == "within-doubt" and not any(subject.measured for subject in subjects)
        rows = timed if alone else []
    if not rows or rows[0].base is None or rows[0].head is None:
        return ""
    reason = rows[0].reason.partition(";")[0] if rows[0].verdict == "within-doubt" else ""
    reason = "" if f"±{words.doubt_text(rows[0])[1]}" in reason else reason  # the headline says so
    before, after = _limited(rows[0].base), _limited(rows[0].head)
    on = f" on {rows[0].gpu}" if len(rows) > 1 else ""
    kernel = next((subject.title.rpartition("::")[2] for subject in subjects if rows[0] in subject.static), "")
    on = f" of {kernel}{on}" if len(subjects) > 1 and kernel else on
    key = "answer.why" if before != after else "answer.why_alike"
    limits = phrase(key, on=on, before=_within(before), after=_within(after)) if before and after else ""
    return " ".join(filter(None, (f"{reason[:1].upper()}{reason[1:]}." if reason else "", limits)))


def _within(sentence: str) -> str:
    """As it stands within another: `memory-bound`, but `L2-bound`."""
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def _limited(side: StaticSide) -> str:
    us, share = side.predicted.us if side.predicted is not None else 0.0, side.share_of_peak or 0
    if share >= 1 and side.peak_pipeline in ASKED:
        return ""  # more is asked of it than it gives in that time: the L1 gives some
    return figures.limited_by(side.peak_pipeline, figures.share_text(share), share, us, side.trips_in_turn)


def _on_gpu(row: StaticRow) -> str:
    sides = _sides(row)
    assert sides is not None
    before, after = sides
    ends = [
        f"{figures.microseconds(side.low_us)} to {figures.microseconds(side.high_us)}" for side in sides if side.low_us and side.high_us
    ]
    interval = f"; {100 * (after.coverage or 0):.0f} % intervals {' → '.join(ends)}" if len(ends) == 2 else ""
    us = f"{figures.microseconds(before.us)} → {figures.microseconds(after.us)} µs{interval}"
    if row.verdict == "within-doubt":
        change = words.change_text(row.change)
        return phrase("answer.undecided_on", gpu=row.gpu, change=change, doubt=words.doubt_text(row)[1], times=us)
    times = max(before.us, after.us) / min(before.us, after.us)
    word = "slower" if after.us > before.us else "faster"
    much = f"about {times:.0f}x" if times >= 3 else f"about {times:.1f}x" if times >= FACTOR_FROM else f"{100 * abs(row.change or 0):.0f} %"
    return f"{much} {word} on {row.gpu} ({us})"


def _sides(row: StaticRow) -> tuple[Latency, Latency] | None:
    """The latencies of both sides; None: one is not known, or what stands against it is no base."""
    if row.compared_with != "base" or row.base is None or row.head is None or row.base.predicted is None or row.head.predicted is None:
        return None
    return row.base.predicted, row.head.predicted
