"""Charts as plotly figures, written as plain dicts: importing plotly costs more time than the whole page may take.

Colours are names of CSS properties (`--c-bound`); the page's script replaces them, so that figures follow the theme.
"""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path
from typing import Any

from advisor.rendering import figures, svg
from advisor.rendering.charts import Chart, Series

_TAGS = re.compile(r"<(?!/?(?:br|b|i|extra)>)")
TWIN_ROWS = 200
_SYMBOLS = {"circle": "circle", "square": "square", "diamond": "diamond", "triangle": "triangle-up"}


def library() -> str | None:
    """The source of plotly.js that the installed plotly carries, safe inside a script element; None without it."""
    found = importlib.util.find_spec("plotly")  # finds it without importing it
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "package_data"
    for name in ("plotly-basic.min.js", "plotly.min.js"):
        if (folder / name).is_file():
            source = (folder / name).read_text(encoding="utf-8")
            return source.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    return None


def figure(chart: Chart) -> dict[str, Any]:
    """The chart as `{data, layout}`, with the axes of its SVG drawing."""
    data = [trace for series in chart.series for trace in _traces(series, chart)]
    xs = [x for series in chart.series for x in series.x]
    ys = [y for series in chart.series for y in (*series.y, *series.low)]
    if not xs:
        return {"data": data, "layout": {}}
    return {
        "data": data,
        "layout": {
            "xaxis": _axis(chart.x_title, xs, chart.x_log, list(chart.x_ticks), whole=chart.x_whole),
            "yaxis": _axis(chart.y_title, ys, chart.y_log, []),
        },
    }


def foreign(plot: dict[str, Any]) -> dict[str, Any]:
    """Someone else's figure (Optuna's): in the colours of the page, markup in its texts made inert."""
    layout = {key: value for key, value in _inert(plot.get("layout") or {}).items() if key != "template"}
    layout["colorway"] = ["--c-predicted", "--c-ceiling"]
    numbers = [x for trace in plot.get("data") or [] for x in _listed(trace.get("x")) if isinstance(x, (int, float))]
    if numbers and _title(layout, "xaxis", "") == "Trial":
        layout["xaxis"] = {**layout["xaxis"], **_axis("Trial", numbers, False, [], whole=True)}
    data = _inert(plot.get("data") or [])
    for trace in data:
        if trace.get("orientation") == "h" and trace.get("text"):  # room for the figure beyond the longest bar
            longest = max((x for x in _listed(trace.get("x")) if isinstance(x, (int, float))), default=0)
            layout["xaxis"] = {**(layout.get("xaxis") or {}), "range": [0, 1.25 * longest or 1]}
        marker = trace.get("marker") or {}
        if marker.get("colorscale"):
            marker["colorscale"] = [[0, "--c-loss"], [1, "--c-predicted"]]
        trials = [number for number in _listed(marker.get("color")) if isinstance(number, int)]
        if trials and marker.get("colorbar"):  # Optuna colours by the number of the trial
            marker["colorbar"] |= {"tickmode": "array", "tickvals": svg.ticks(0, max(*trials, 1), False, whole=True)}
    return {"data": data, "layout": layout}


def twin(plot: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The columns and rows of a table that says what someone else's figure shows, at most `TWIN_ROWS` of them."""
    rows: list[tuple[str, ...]] = []
    for trace in plot.get("data") or []:
        xs, ys = _listed(trace.get("x")), _listed(trace.get("y"))
        name = figures.clean(trace.get("name") or trace.get("type") or "trace")
        rows += [(name, _cell(x), _cell(y)) for x, y in zip(xs, ys, strict=False)]
    layout = plot.get("layout") or {}
    return ("series", _title(layout, "xaxis", "x"), _title(layout, "yaxis", "y")), rows[:TWIN_ROWS]


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else []


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else figures.clean(value)


def _title(layout: dict[str, Any], axis: str, otherwise: str) -> str:
    title = (layout.get(axis) or {}).get("title") or {}
    text = title.get("text") if isinstance(title, dict) else title
    return figures.clean(text or otherwise)


def _inert(value: Any) -> Any:
    if isinstance(value, str):
        return _TAGS.sub("&lt;", figures.clean(value, lines=True))
    if isinstance(value, dict):
        return {key: _inert(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_inert(part) for part in value]
    return value


def _traces(series: Series, chart: Chart) -> list[dict[str, Any]]:
    colour = f"--c-{series.colour}"
    common = {"type": "scatter", "name": _inert(series.name), "x": list(series.x)}
    if series.kind == "band":
        edge = {**common, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "legendgroup": series.name}
        lower = {**edge, "y": list(series.low), "showlegend": False}
        upper = {**edge, "y": list(series.y), "fill": "tonexty", "fillcolor": f"{colour}-band"}
        return [lower, upper]
    unit = "%{y:.3s}FLOP/s" if "FLOP" in chart.y_title else "%{y:,.4~r} µs"
    trace = {**common, "y": list(series.y), "hovertemplate": unit}
    if series.labels:
        trace |= {"text": [_inert(label) for label in series.labels]}
        trace["hovertemplate"] = "<b>%{text}</b><br>%{x:.3~g} FLOP/B<br>" + unit
    if series.kind == "points":
        marker = {"symbol": _SYMBOLS[series.symbol] + ("-open" if series.hollow else ""), "size": 9, "color": colour}
        return [{**trace, "mode": "markers", "marker": {**marker, "line": {"width": 1.5, "color": colour}}}]
    line = {"color": colour, "width": 2, "dash": series.dash}
    dots = series.colour in ("measured", "predicted")
    marker = {"color": colour, "size": 6}
    return [{**trace, "mode": "lines+markers" if dots else "lines", "line": line, "marker": marker}]


def _axis(title: str, values: list[float], log: bool, marks: list[float], whole: bool = False) -> dict[str, Any]:
    low, high = svg.padded(min(values), max(values), log)
    exact, marks = bool(marks), marks or svg.ticks(low, high, log, whole)
    return {
        "title": {"text": _inert(title)},
        "type": "log" if log else "linear",
        "range": [math.log10(low), math.log10(high)] if log else [low, high],
        "tickmode": "array",
        "tickvals": marks,
        "ticktext": [svg.tick_text(mark, exact=exact) for mark in marks],
    }
