"""The HTML page: one file that opens offline, asks the network for nothing, and is complete without JavaScript.

Sentences and words are carried as `prose` says: a line ends neither within an option's name nor between a number and its unit. A browser
breaks lines after a hyphen, so that `--cache` is torn in two, and at every blank, so that `86 %` is. The style sheet keeps such words
together, not other characters in their place: what is copied from the page, or looked for on it, is what stands in the result.
"""

from __future__ import annotations

import base64
import gzip
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

from advisor.rendering import charts, figures, source_view, svg, views
from advisor.rendering.charts import Chart
from advisor.rendering.markdown import environment, fingerprint_rows
from advisor.rendering.views import group
from advisor.result import result_json
from advisor.result.schema import Result, SearchReport
from advisor.system.resources import folder, glossary

# Both are short, whatever a text from outside holds: what is kept together must fit a phone.
_TOGETHER = re.compile(
    r"(?<![\w-])--(?:[a-z][a-z0-9-]{0,30}|(?=\s))"  # --expert-parallel, and the -- before a command
    r"|[^\s&;<>]{0,24}\d (?:%|[µm]s|[kMGTP]?B(?:/s)?|[kMGTP]?FLOP(?:/s)?)(?![\w/])"  # −10/+35 %, 1.27 GB
)
_CODE = re.compile(r"`([^`\n]{1,200})`")


def prose(text: object) -> Markup:
    """A sentence from the result, escaped, unprintable characters written out, code between backticks set as such."""
    escaped = _CODE.sub(r"<code>\1</code>", str(escape(figures.clean(text, lines=True))))
    return Markup(_TOGETHER.sub(lambda words: f'<span class="together">{words.group()}</span>', escaped))


def term(word: str, key: str | None = None) -> Markup:
    """The word, and what it means (of `key` where that is another) as a tooltip; the bare word where nothing is said of it."""
    terms = glossary()
    meaning = terms.get(key or word) or terms.get((key or word).lower())
    return Markup('<abbr tabindex="0" title="{}">{}</abbr>').format(meaning, word) if meaning else escape(word)


SHOWN_AT_ONCE = 8
"""Launches listed in "Where the time goes" before the rest is folded."""
DETAILED = 36
"""Launches with a waterfall of their own; the rest stand in the table and in the JSON."""
TWIN_ROWS = 100
"""Rows that the table of a chart, or of the layers, has at most."""
LISTED = 40
"""Findings of one rule that are listed; the rest stand in the JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A chart as the page carries it: drawn for a screen and for a phone (`plotted`), and a table twin that its tooltips read."""

    chart: Chart
    plotted: Markup
    left_out: str  # rows of the twin that stand in the JSON only, in words


def to_html(result: Result, document: str | None = None) -> str:
    """The page for this result, whose JSON is `document` where the caller has written it already."""
    anchors = views.Anchors()
    groups = group(result.launches)
    launches = views.launch_views(result, anchors)
    worst = sorted(launches, key=lambda view: view.to_win, reverse=True)
    rules = views.rule_views(result, launches, anchors)
    sources = source_view.source_views(result, worst, rules, anchors)
    latency_charts = [charts.latency_over_sizes(part, number) for number, part in enumerate(groups, 1)]
    shown, left_out = _thinned(len(result.layers))
    context: dict[str, Any] = {
        "result": result,
        "symbols": Markup(svg.SYMBOLS),
        "launches": launches,
        "ranked": launches[0] if len(launches) == 1 and not result.actions and launches[0].launch.recommendation else None,
        "by_id": {view.launch.id: view for view in launches},
        "records": {launch.id: launch.recommendation.record for launch in result.launches if launch.recommendation is not None},
        "worst": worst[:DETAILED],
        "undetailed": max(0, len(worst) - DETAILED),
        "shown_at_once": SHOWN_AT_ONCE,
        "listed": LISTED,
        "detailed": {view.launch.id for view in worst[:DETAILED]},
        "sizes": _differing_sizes(result),
        # One program's figures say nothing of how long a launch takes.
        "timeless": bool(result.launches) and all(figures.of_one_program(launch, result) for launch in result.launches),
        "layers": result.layers[shown],
        "layers_left_out": left_out,
        "alone": figures.alone_texts(result),
        "origins": figures.origins(result),
        "counted": figures.counted(result),
        "summed": bool(launches) and result.verdict.current_us > 0 and not figures.of_several_steps(result),
        "rated": figures.rated(result),
        "sum_interval": figures.sum_interval(result),
        "bound": figures.shown_bound(result),
        "least_us": figures.least_us(result.launches),
        "work": figures.work_text(result),
        "ceiling_origins": figures.ceiling_origins(result),
        "operators": len({view.name for view in launches}) > 1 or any(view.apart for view in launches),
        "latency": [_drawing(chart) for chart in latency_charts if chart is not None],
        "rooflines": [_drawing(chart) for chart in charts.rooflines(groups)],
        "rules": rules,
        "sources": sources,
        "source_anchor": lambda item: source_view.source_anchor(item.finding, sources, item.view),
        "passed": views.passed_rules(result),
        # Where no trial was measured, nothing was searched: configurations were listed, and all looked at.
        "searched": any(search.study_name or any(trial.latency_us is not None for trial in search.trials) for search in result.searches),
        "undecided": _undecided(result),
        "searches": [_search_view(search, number) for number, search in enumerate(result.searches, 1)],
        "measurements": [view for view in launches if view.launch.measured_rounds is not None],
        "saved": figures.saved,
        "actions": figures.numbered(result.actions[:3]),
        "overlap": figures.overlap(result),
        "tuned": views.tuned_views(result.tuned),
        "where_run": figures.where_run(result),
        "fingerprint": fingerprint_rows(result.fingerprint, figures.where_run(result)),
        "faults": [(view, fault) for view in launches for fault in view.launch.faults],
        "download": _download(document or result_json.to_json(result)),
    }
    return filled("page.html.jinja", ("page.css",), **context)


def filled(template: str, sheets: Sequence[str] = ("page.css", "comparison.css"), **values: Any) -> str:
    """A page: one of the templates in `reports/` with these values, its style sheets and the script."""
    templates = folder("reports")
    css = "".join((templates / sheet).read_text(encoding="utf-8") for sheet in sheets)
    script = Markup((templates / "page.js").read_text(encoding="utf-8"))
    return _environment(str(templates)).get_template(template).render(values, css=Markup(css), script=script)


@cache  # templates are compiled once, for however many pages
def _environment(templates: str) -> Environment:
    jinja = environment(templates, autoescape=True, finalize=_printable)
    jinja.filters |= {
        "bound_words": figures.bound_words,
        "unit_peak": figures.unit_peak,
        "us": figures.microseconds,
        "interval": figures.interval,
        "interval_words": figures.interval_words,
        "percent": figures.percent,
        "probability": figures.probability,
        "prose": prose,
        "term": term,
        "share": figures.share_text,
        "quantity": figures.quantity,
        "unit": figures.unit_name,
        "speedup": figures.speedup_text,
        "speedup_word": figures.speedup_word,
        "types": figures.types_text,
        "source": figures.source_text,
        "per_cent_css": lambda number: f"{min(100.0, max(0.0, number)):.2f}%",
        "entry_text": views.table_entry_text,
        "figure_value": _figure_value,
        "median": statistics.median,
    }
    jinja.globals |= {"configuration_rows": views.configuration_rows, "share_of": figures.share_of, "saving": figures.saving}
    return jinja


def _printable(value: object) -> object:
    """Every text that a template prints: unprintable characters written out; escaping follows."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return figures.clean(value, lines=True)
    return value


def _figure_value(value: float | int | str) -> str:
    """A figure of a GPU: counts and sizes in full, so that they can be held against their source; rates with a decimal prefix."""
    if isinstance(value, float):
        return figures.quantity(value) if abs(value) >= 100_000 else f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else value


def _differing_sizes(result: Result) -> list[str]:
    """The sizes that are not the same in every launch, in order; the one that names it for a single launch."""
    names = list(dict.fromkeys(name for launch in result.launches for name in launch.problem.sizes))
    differing = [name for name in names if len({launch.problem.sizes.get(name) for launch in result.launches}) > 1]
    return differing or (["M"] if "M" in names else names[:1])


def _undecided(result: Result) -> str:
    """A sentence on launches that a search has latencies for, but none of what runs: what it found has nothing to be held against."""
    known = {launch.id for launch in result.launches if launch.measured is not None}
    undecided = {search.launch for search in result.searches if any(trial.latency_us is not None for trial in search.trials)}
    if undecided <= known:
        return ""
    some, them = (
        ("", "") if known.isdisjoint(undecided) else (f" for {len(undecided - known)} of {len(result.launches)} launches", " for them")
    )
    return f"What the search found{some} was not compared with what runs, so that nothing is recommended{them}."


def _drawing(chart: Chart, *sizes: tuple[int, int]) -> Drawing:
    shown, left_out = _thinned(len(chart.rows))
    chart = replace(chart, rows=chart.rows[shown], places=chart.places[shown])
    drawn = "".join(svg.draw(chart, size) for size in sizes) or svg.draw(chart, svg.WIDE, " wide") + svg.draw(chart, svg.NARROW, " narrow")
    return Drawing(chart=chart, plotted=Markup(drawn), left_out=left_out)


def _thinned(rows: int) -> tuple[slice, str]:
    """At most `TWIN_ROWS` of a table's rows, evenly chosen, and what is to be said of that; what is drawn is all of them."""
    step = max(math.ceil(rows / TWIN_ROWS), 1)
    return slice(None, None, step), f"1 of {step} rows; the others stand in result.json" if step > 1 else ""


def _search_view(search: SearchReport, number: int) -> dict[str, Any]:
    """A search and its charts."""
    best = charts.best_so_far(search, number)
    return {
        "search": search,
        "best": _drawing(best) if best is not None else None,
        "slices": tuple(_drawing(chart, svg.PANEL) for chart in charts.slices(search, number)),
    }


def _download(document: str) -> Markup:
    """The result as a data: address, which needs neither a network nor JavaScript; compressed, for the page would be as long again."""
    packed = base64.b64encode(gzip.compress(document.encode("utf-8"), compresslevel=9, mtime=0)).decode("ascii")
    return Markup(f"data:application/gzip;base64,{packed}")
