"""The plots of a search, which the result keeps as plotly figures (plain dicts): drawn as charts of the page, without plotly."""

from __future__ import annotations

from typing import Any

from advisor.rendering import figures
from advisor.rendering.charts import Chart, Kind, Series

TWIN_ROWS = 200
_COLOURS = ("predicted", "ceiling", "bound", "measured")


def charts_of(plot: dict[str, Any], name: str, identifier: str) -> list[Chart]:
    """One chart for each pair of axes of a plotly figure of scatter traces, whose titles are those of the axes."""
    layout = _dict(plot.get("layout"))
    panels: dict[str, list[dict[str, Any]]] = {}
    for trace in map(_dict, _list(plot.get("data"))):
        if trace.get("type", "scatter") == "scatter" and _list(trace.get("x")):
            panels.setdefault(figures.clean(trace.get("xaxis") or "x"), []).append(trace)
    shared = _title(layout, "yaxis", "y")
    return [
        _panel(name, f"{identifier}-{number}", _title(layout, axis.replace("x", "xaxis", 1), "x"), shared, traces)
        for number, (axis, traces) in enumerate(panels.items(), 1)
    ]


def bars(plot: dict[str, Any]) -> list[tuple[str, str, float]]:
    """Name, value, and width in per cent of the longest, of each bar of a plotly figure of horizontal bars, the longest first."""
    found = [
        (figures.clean(name), float(value))
        for trace in map(_dict, _list(plot.get("data")))
        if trace.get("type") == "bar"
        for name, value in zip(_list(trace.get("y")), _list(trace.get("x")), strict=False)
        if isinstance(value, (int, float))
    ]
    longest = max((value for _, value in found), default=0.0) or 1.0
    return [(name, f"{value:.2f}", 100 * value / longest) for name, value in sorted(found, key=lambda pair: -pair[1])]


def _panel(name: str, identifier: str, x_title: str, y_title: str, traces: list[dict[str, Any]]) -> Chart:
    values = [value for trace in traces for value in _list(trace.get("x"))]
    named = any(not isinstance(value, (int, float)) for value in values)
    names = tuple(sorted({figures.clean(value) for value in values}, key=_in_order)) if named else ()
    series, rows, places = [], [], []
    for trace, colour in zip(traces, _COLOURS, strict=False):
        points = [
            (float(names.index(figures.clean(x)) if named else x), float(y), figures.clean(x), figures.clean(label))
            for x, y, label in zip(_list(trace.get("x")), _list(trace.get("y")), _labels(trace), strict=False)
            if isinstance(y, (int, float)) and (named or isinstance(x, (int, float)))
        ]
        kind: Kind = "line" if trace.get("mode") == "lines" else "points"
        called = figures.clean(trace.get("name") or "trial")
        xs, ys = tuple(point[0] for point in points), tuple(point[1] for point in points)
        series.append(Series(name=called, kind=kind, colour=colour, x=xs, y=ys))
        rows += [(x, f"{y:.4g}", label or called) for _, y, x, label in points]
        places += [(x, y) for x, y, _, _ in points]
    return Chart(
        id=identifier,
        title=x_title,
        summary=f"{name}: {y_title} over {x_title}",
        x_title=x_title,
        y_title=y_title,
        series=tuple(series),
        columns=(x_title, y_title, "which"),
        rows=tuple(rows[:TWIN_ROWS]),
        x_log=False,
        y_log=False,
        x_whole=all(isinstance(value, int) for value in values),
        x_names=names,
        places=tuple(places[:TWIN_ROWS]),
    )


def _labels(trace: dict[str, Any]) -> list[Any]:
    """The label of each point: its text, or the number of its trial, by which Optuna colours."""
    numbers = [f"trial {number}" for number in _list(_dict(trace.get("marker")).get("color"))]
    return _list(trace.get("text")) or numbers or [""] * len(_list(trace.get("x")))


def _in_order(name: str) -> tuple[float, str]:
    try:
        return float(name), ""
    except ValueError:
        return float("inf"), name


def _title(layout: dict[str, Any], axis: str, otherwise: str) -> str:
    title = _dict(layout.get(axis)).get("title") or {}
    return figures.clean((title.get("text") if isinstance(title, dict) else title) or otherwise)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else []
