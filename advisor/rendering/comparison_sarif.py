"""A comparison as SARIF 2.1.0: findings and gate-relevant verdicts, at the file (and line) they belong to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from advisor.rendering import comparison_words as words
from advisor.rendering import figures
from advisor.result.comparison_schema import ComparisonResult, StaticRow, Subject
from advisor.result.schema import Finding

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
    found: list[Reported] = []
    for subject in comparison.subjects:
        found += _results(subject)
    found = found[:LARGEST_RESULTS]
    rules = sorted({each.rule for each in found})
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
                "ruleId": each.rule,
                "ruleIndex": numbers[each.rule],
                "level": each.level,
                "message": {"text": figures.clean(each.text)},
                "locations": [
                    {
                        "physicalLocation": {"artifactLocation": {"uri": _uri(each.path)}, "region": {"startLine": each.line or 1}},
                    }
                ],
                # Without the message: its figures change from one comparison to the next, and an alert would close and open anew.
                "partialFingerprints": {"advisor/v2": f"{each.rule}:{_uri(each.path)}:{figures.clean(each.where)[:120]}"},
            }
            for each in found
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=False) + "\n"


def _uri(path: str) -> str:
    """A relative URI; nothing in a path can make it absolute or lead out of the tree."""
    parts = [part for part in path.encode("utf-8", "surrogateescape").split(b"/") if part not in (b"", b".", b"..")]
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
    for each in subject.failures:
        if not any(evidence and evidence in each.reason for evidence in issues):
            add(each.condition, f"{name or subject.title} {each.what}: {each.reason}", f"{name} {each.what}", each.line)
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
    own = item.source_file is None or path.endswith(item.source_file) or item.source_file.endswith(path)
    return Reported(
        rule=figures.clean(item.rule),
        level=LEVELS[item.severity],
        text=text,
        path=path if own else item.source_file or path,
        where=where,
        line=item.source_line or (line if own else None),
    )


def to_annotations(comparison: ComparisonResult) -> str:
    """The same as commands of a GitHub workflow, which shows each beside its line."""
    commands = {"error": "error", "warning": "warning", "note": "notice"}
    found = [each for subject in comparison.subjects for each in _results(subject)]
    return "".join(
        f"::{commands[each.level]} file={_escaped(each.path, ':,')},line={each.line or 1},title={_escaped(each.rule, ':,')}"
        f"::{_escaped(figures.clean(each.text))}\n"
        for each in sorted(found, key=lambda each: list(commands).index(each.level))[:MOST_ANNOTATIONS]
    )


def _escaped(text: str, others: str = "") -> str:
    """A text without what ends a workflow command's value."""
    for character in f"%\r\n{others}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
