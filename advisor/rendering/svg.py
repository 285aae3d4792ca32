"""Charts as inline SVG, drawn for a width; colours come from the page's style sheet, tooltips and zoom from its script.

What the script needs stands in the drawing: `data-at` has the place of each row of the chart's table twin, and `data-x`, `data-y`
the ends of the axes. The marks are `<use>` of the symbols that `SYMBOLS` defines once per page.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import dataclass

from advisor.rendering import figures
from advisor.rendering.charts import Chart, Series

WIDE, NARROW, PANEL = (880, 380), (400, 320), (300, 230)
"""Width and height in user units: on a screen, on a phone, and one of several beside each other."""
RIGHT, TOP, BOTTOM = 18, 34, 48
DENSE = 150
"""Points from which on a line has no marks, and marks of a cloud that lie on each other are one."""
_CHARACTER = 6.6  # average width of a character of 12 px, in user units

SYMBOLS = (
    '<svg width="0" height="0" class="symbols" aria-hidden="true"><defs>'
    '<path id="mark-circle" d="M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z"/><path id="mark-square" d="M-3.3 -3.3h6.6v6.6h-6.6Z"/>'
    '<path id="mark-diamond" d="M0 -4.6l4.6 4.6l-4.6 4.6l-4.6 -4.6Z"/><path id="mark-triangle" d="M0 -5.5l5 9h-10Z"/></defs></svg>'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Values from `low` to `high` at user units from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        """Where a value stands, in user units."""
        share: Callable[[float], float] = (lambda x: math.log10(max(x, 1e-300))) if self.log else float
        return self.start + (self.end - self.start) * (share(value) - share(self.low)) / (share(self.high) - share(self.low))

    def data(self) -> str:
        """The ends, for the page's script."""
        return f"{self.low:.6g} {self.high:.6g} {self.start:g} {self.end:g} {'log' if self.log else 'linear'}"


def draw(chart: Chart, size: tuple[int, int] = WIDE, style: str = "") -> str:
    """The chart as an `<svg>` element; empty where it shows nothing."""
    xs = [x for series in chart.series for x in series.x]
    ys = [y for series in chart.series for y in (*series.y, *series.low)]
    if not xs:
        return ""
    width, height = size
    low_y, high_y = padded(min(ys), max(ys), chart.y_log)
    marks = [(value, tick_text(value)) for value in ticks(low_y, high_y, chart.y_log)]
    left = 34 + _CHARACTER * max((len(html.unescape(text)) for _, text in marks), default=1)
    legend, legend_height = _legend(chart, left, width)
    top = TOP + legend_height - 14
    low_x, high_x = (-0.5, len(chart.x_names) - 0.5) if chart.x_names else padded(min(xs), max(xs), chart.x_log)
    across = Axis(low=low_x, high=high_x, start=round(left), end=width - RIGHT, log=chart.x_log)
    up = Axis(low=low_y, high=high_y, start=height - BOTTOM, end=top, log=chart.y_log)
    area = f'x="{across.start}" y="{top}" width="{across.end - across.start}" height="{up.start - top}"'
    view = f'viewBox="{across.start} {top} {across.end - across.start} {up.start - top}"'
    places = ";".join("" if at is None else f"{across(at[0]):.0f}{'' if at[1] is None else f',{up(at[1]):.0f}'}" for at in chart.places)
    zoom = "" if chart.x_names else f' data-x="{across.data()}" data-y="{up.data()}"'
    return "".join(
        (
            f'<svg class="static{style}" viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(chart.summary)}"'
            f' data-at="{places}"{zoom}>',
            *legend,
            *_x_axis(chart, across, top, height),
            *_y_axis(chart, up, across, marks),
            f'<svg class="area" {area} {view}>',
            *(part for series in chart.series for part in _series(series, across, up)),
            "</svg></svg>",
        )
    )


def padded(low: float, high: float, log: bool) -> tuple[float, float]:
    """The ends of an axis that shows these values, with a little room."""
    if log:
        low, high = max(low, 1e-300), max(high, 1e-300)
        pad = max(0.03 * math.log10(high / low), 0.04)
        return low / 10**pad, high * 10**pad
    pad = max(0.05 * (high - low), 0.02 * abs(high), 1e-9)
    return low - pad, high + pad


def ticks(low: float, high: float, log: bool, whole: bool = False) -> list[float]:
    """Round values within the axis: decades, with 2 and 5 between where there are few; or about six even steps, of whole numbers.

    A logarithmic axis on which fewer than three such decades, twos and fives fall has even steps too.
    """
    if not log:
        step = 10 ** math.floor(math.log10((high - low) / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 7)
        step = max(step, 1) if whole else step
        return [step * index for index in range(math.ceil(low / step), math.floor(high / step) + 1)]
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    within = math.log10(high / low)
    factors = (1, 2, 5) if within <= 4 else (1,)
    values = [factor * 10.0**decade for decade in decades for factor in factors]
    every = math.ceil(within / 10) if within > 10 else 1
    marks = [value for value in values if low <= value <= high][::every]
    return marks if len(marks) >= 3 else ticks(low, high, False, whole)


def _x_axis(chart: Chart, across: Axis, top: float, height: int) -> list[str]:
    bottom = height - BOTTOM
    names = dict(enumerate(chart.x_names))
    values: list[float] = [float(name) for name in names] or list(chart.x_ticks)
    values = values or ticks(across.low, across.high, chart.x_log, chart.x_whole)
    parts, places = ['<g class="x-ticks">'], list[tuple[float, float]]()
    for value in sorted(values, key=lambda value: _rank(value, values)):
        x = across(value)
        text = html.escape(names[int(value)]) if names else tick_text(value, exact=bool(chart.x_ticks))
        half = max(34, 8 + _CHARACTER * len(text)) / 2
        if any(abs(x - other) < half + its_half for other, its_half in places):  # labels would touch
            continue
        places.append((x, half))
        parts.append(f'<path class="grid" d="M{x:.1f} {top}V{bottom}"/><text x="{x:.1f}" y="{bottom + 17}">{text}</text>')
    parts.append(f'</g><text class="axis" x="{(across.start + across.end) / 2:g}" y="{height - 8}">{html.escape(chart.x_title)}</text>')
    return parts


def _rank(value: float, values: list[float]) -> int:
    """The ends of an axis are labelled first, then powers of two, then the others."""
    if value in (values[0], values[-1]):
        return 0
    return 1 if value > 0 and math.log2(value).is_integer() else 2


def _y_axis(chart: Chart, up: Axis, across: Axis, marks: list[tuple[float, str]]) -> list[str]:
    parts, last = ['<g class="y-ticks">'], math.inf
    for value, text in marks:
        y = up(value)
        if last - y < 16:
            continue
        last = y
        parts.append(
            f'<path class="grid" d="M{across.start} {y:.1f}H{across.end}"/><text x="{across.start - 8}" y="{y + 4:.1f}">{text}</text>'
        )
    middle = (up.start + up.end) / 2
    parts.append(f'</g><text class="axis" transform="translate(14 {middle:g}) rotate(-90)">{html.escape(chart.y_title)}</text>')
    return parts


def tick_text(value: float, *, exact: bool = False) -> str:
    """A tick's label, escaped: with a decimal prefix from 10,000 on, or every digit of the whole number that it is."""
    if exact:
        return f"{value:.0f}"
    return html.escape(figures.quantity(value)) if abs(value) >= 10_000 else f"{value:g}"


def _legend(chart: Chart, left: float, width: int) -> tuple[list[str], int]:
    """The names of the series, in rows above the chart, and the height they take; none for a chart of one series."""
    if len(chart.series) == 1:
        return [], 0
    wanted = sum(38 + _CHARACTER * len(series.name) for series in chart.series)
    start = left if left + wanted < width else 8.0
    parts, x, y = [], start, 14
    longest = int((width - start - RIGHT - 30) / (1.2 * _CHARACTER))  # of wide letters
    for series in chart.series:
        name = series.name if len(series.name) <= longest else series.name[: longest - 1] + "…"
        wide = 30 + _CHARACTER * len(name)
        if x + wide > width - RIGHT and x > start:
            x, y = start, y + 18
        if series.kind == "line":
            mark = f'<path class="line s-{series.colour}{_dash(series)}" d="M{x:.1f} {y - 4}h18"/>'
        elif series.kind == "band":
            mark = f'<rect class="band s-{series.colour}" x="{x:.1f}" y="{y - 10}" width="18" height="11"/>'
        else:
            mark = _marks(series, [(x + 9, y - 4.0)])
        parts.append(f'{mark}<text class="name" x="{x + 23:.1f}" y="{y}">{html.escape(name)}</text>')
        x += wide + 8
    return parts, y


def _dash(series: Series) -> str:
    return "" if series.dash == "solid" else f" {series.dash}"


def _series(series: Series, across: Axis, up: Axis) -> list[str]:
    points = [(across(x), up(y)) for x, y in zip(series.x, series.y, strict=True)]
    if series.kind == "band":
        back = [(across(x), up(y)) for x, y in zip(series.x, series.low, strict=True)][::-1]
        return [f'<path class="band s-{series.colour}" d="{_path([*points, *back])}Z"/>']
    if series.kind == "line":
        line = f'<path class="line s-{series.colour}{_dash(series)}" d="{_path(points)}"/>'
        return [line, _marks(series, points)] if series.colour in ("measured", "predicted") and len(points) <= DENSE else [line]
    return [_marks(series, points)]


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _marks(series: Series, points: list[tuple[float, float]]) -> str:
    if len(points) > DENSE:  # many lie on each other: one for each user unit
        points = list(dict.fromkeys((round(x), round(y)) for x, y in points))
    uses = "".join(f'<use href="#mark-{series.symbol}" x="{x:.5g}" y="{y:.5g}"/>' for x, y in points)
    return f'<g class="mark s-{series.colour}{" hollow" if series.hollow else ""}">{uses}</g>'
