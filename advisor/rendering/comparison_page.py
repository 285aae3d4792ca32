"""A comparison as one HTML page with both sides: opens offline, asks the network for nothing, complete without JavaScript."""

from __future__ import annotations

import base64
from typing import Any

from markupsafe import Markup

from advisor.rendering import comparison_words as words
from advisor.rendering import figures
from advisor.rendering.markdown import environment as fingerprint_rows
from advisor.rendering.page import filled
from advisor.result.comparison_schema import ComparisonResult, StaticRow, Subject, comparison_to_json, evidence


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
    tiles += [("predicted", words.verdict_word(word), count, classes.get(word, "")) for word, count in comparison.static_counts.items()]
    return tiles
