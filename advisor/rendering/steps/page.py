"""A step of a model as one HTML page: opens offline, asks the network for nothing, needs no JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from markupsafe import Markup

from advisor.rendering.page import _environment
from advisor.rendering.steps import text
from advisor.result.step import StepResult
from advisor.system.resources import folder

SHADES = {"gemm": "#2463d6", "attention": "#7c3aed", "moe": "#178a55", "collective": "#b4531a", "norm": "#0f7f8c", "elementwise": "#717c8b"}
"""Of the bar, by kind of operator; a word stands beside each."""


def step_page(results: Sequence[StepResult], version: str) -> str:
    """The page: per step the verdict, what to do first, a bar of its time by kind, and a row per operator.

    Args:
        results: Steps of one model, as they were asked for.
        version: Of the advisor.
    """
    templates = folder("reports")
    css = (templates / "page.css").read_text(encoding="utf-8") + (templates / "comparison.css").read_text(encoding="utf-8")
    return (
        _environment(str(templates))
        .get_template("model.html.jinja")
        .render(
            title=results[0].model,
            command=results[0].command,
            version=version,
            steps=[(result, text.verdict(result), text.memory_line(result), kinds(result)) for result in results],
            columns=text.columns,
            words=text.WORDS,
            is_trace=text.is_trace,
            rows=text.rows,
            measured_columns=text.MEASURED,
            measured_rows=text.measured_rows,
            shades=SHADES,
            css=Markup(css),
            script=Markup((templates / "page.js").read_text(encoding="utf-8")),
        )
    )


def kinds(result: StepResult) -> list[tuple[str, float]]:
    """Shares of the step by kind of operator, the largest first; gaps that take time are one. What ran at the same time shares its time."""
    if text.is_trace(result):
        whole = sum(row.measured_us for row in result.measured)
        return [(row.kind, row.measured_us / whole) for row in result.measured]
    rows = sorted(result.operators, key=lambda row: row.kind)
    shares = [(kind, sum(max(row.share, 0.0) for row in group)) for kind, group in groupby(rows, key=lambda row: row.kind)]
    return sorted(shares, key=lambda pair: -pair[1])
