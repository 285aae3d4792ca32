"""A step of a model as one HTML page: opens offline, asks the network for nothing, needs no JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, groupby

from markupsafe import Markup

from advisor.rendering.charts import Chart, Dash, Series
from advisor.rendering.page import _drawing, _environment
from advisor.rendering.steps import text
from advisor.rendering.svg import SYMBOLS
from advisor.result.step import StepResult
from advisor.system.resources import folder

SHADES = {
    "gemm": "#2463d6",
    "attention": "#7c3aed",
    "moe": "#178a55",
    "collective": "#b4531a",
    "norm": "#0f7f8c",
    "elementwise": "#717c8b",
    "unknown": "#b0226b",
    "gaps": "#c97a12",
}
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
            shade=shade,
            overview=text.overview(results),
            drawing=_drawing(curve(results)),
            symbols=Markup(SYMBOLS),
            css=Markup(css),
            script=Markup((templates / "page.js").read_text(encoding="utf-8")),
        )
    )


COLOURS: tuple[tuple[str, Dash], ...] = (
    ("predicted", "solid"),
    ("measured", "dash"),
    ("ceiling", "dot"),
    ("bound", "solid"),
    ("recommended", "dash"),
)
"""Of the curves of several GPUs."""


def curve(results: Sequence[StepResult]) -> Chart:
    """Latency over the tokens of a step, a line per GPU and the 80 % interval of a single one; no series where there are no two sizes."""
    gpus = dict.fromkeys(result.gpu for result in results)
    series = []
    for gpu, (colour, dash) in zip(gpus, cycle(COLOURS), strict=False):
        mine = sorted((result for result in results if result.gpu == gpu), key=lambda result: result.tokens)
        x = tuple(float(result.tokens) for result in mine)
        if len(set(x)) > 1:
            ms, low, high = (tuple(getattr(result.step, name) / 1e3 for result in mine) for name in ("us", "low_us", "high_us"))
            if len(gpus) == 1:
                series.append(Series(name="80 % interval", kind="band", colour=colour, x=x, y=high, low=low))
            series.append(Series(name=gpu, kind="line", colour=colour, dash=dash, x=x, y=ms))
    rows = tuple((f"{r.tokens}", r.gpu, f"{r.step.us / 1e3:.3g}", f"{r.tokens_per_s:,.0f}") for r in results)
    return Chart(
        id="steps",
        title="Latency over the tokens of a step",
        summary=f"Latency in milliseconds over the tokens of a step, both logarithmic: {', '.join(gpus)}",
        x_title="tokens of a step",
        y_title="latency (ms)",
        series=tuple(series),
        columns=("tokens", "GPU", "ms", "tokens/s"),
        rows=rows,
        x_ticks=tuple(sorted({float(result.tokens) for result in results})),
        places=tuple((float(result.tokens), result.step.us / 1e3) for result in results),
    )


def shade(kind: str) -> str:
    """The background of a kind in CSS; hatched where the kind is not predicted."""
    colour = SHADES[kind.partition(",")[0]]
    return f"repeating-linear-gradient(45deg, {colour} 0 3px, transparent 3px 6px)" if "," in kind else colour


LEAST_SHARE = 5e-4
"""Of a kind of operator in the bar's key: less is 0.0 %."""


def kinds(result: StepResult) -> list[tuple[str, float]]:
    """Shares of the step by kind of operator, the largest first; gaps that take time are one. What ran at the same time shares its time."""
    if text.is_trace(result):
        whole = sum(row.measured_us for row in result.measured)
        return [(row.kind, row.measured_us / whole) for row in result.measured]
    rows = sorted(result.operators, key=lambda row: row.kind)
    shares = [(kind, sum(max(row.share, 0.0) for row in group)) for kind, group in groupby(rows, key=lambda row: row.kind)]
    return sorted((pair for pair in shares if pair[1] >= LEAST_SHARE), key=lambda pair: -pair[1])
