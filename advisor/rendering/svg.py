"""Charts as inline SVG: what readers without JavaScript, and printers, see. Colours come from the page's style sheet."""

from __future__ import annotations

import html
import math
from collections.abc import Callable

from advisor.rendering import figures
from advisor.rendering.charts import Chart, Series

WIDTH, HEIGHT = 880, 380
LEFT, RIGHT, TOP, BOTTOM = 68, 18, 34, 48
_LEGEND_CHARACTER = 6.6  # average width of a character of the legend, in user units

Scale = Callable[[float], float]


def draw(chart: Chart) -> str:
    """The chart as an `<svg>` element."""
    xs = [x for series in chart.series for x in series.x]
    ys = [y for series in chart.series for y in (*series.y, *series.low)]
    if not xs:
        return ""
    low_x, high_x = padded(min(xs), max(xs), chart.x_log)
    low_y, high_y = padded(min(ys), max(ys), chart.y_log)
    legend, legend_height = _legend(chart)
    top = TOP + legend_height - 14
    across = _scale(low_x, high_x, LEFT, WIDTH - RIGHT, chart.x_log)
    up = _scale(low_y, high_y, HEIGHT - BOTTOM, top, chart.y_log)
    parts = [
        f'<svg class="static" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(chart.summary)}">',
        *legend,
        *_x_axis(chart, low_x, high_x, across, top),
        *_y_axis(chart, low_y, high_y, up, top),
    ]
    for series in chart.series:
        parts += _series(series, across, up)
    parts.append("</svg>")
    return "".join(parts)


def padded(low: float, high: float, log: bool) -> tuple[float, float]:
    """The ends of an axis that shows these values, with a little room."""
    if log:
        low, high = max(low, 1e-300), max(high, 1e-300)
        pad = max(0.03 * math.log10(high / low), 0.04)
        return low / 10**pad, high * 10**pad
    pad = max(0.05 * (high - low), 0.02 * abs(high), 1e-9)
    return low - pad, high + pad


def _scale(low: float, high: float, start: float, end: float, log: bool) -> Scale:
    if log:
        first, span = math.log10(low), math.log10(high) - math.log10(low)
        return lambda value: start + (end - start) * (math.log10(max(value, 1e-300)) - first) / span
    return lambda value: start + (end - start) * (value - low) / (high - low)


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


def _x_axis(chart: Chart, low: float, high: float, across: Scale, top: float) -> list[str]:
    bottom = HEIGHT - BOTTOM
    values = list(chart.x_ticks) or ticks(low, high, chart.x_log, chart.x_whole)
    parts, places = [], list[tuple[float, float]]()
    for value in sorted(values, key=lambda value: _rank(value, values)):
        x = across(value)
        text = tick_text(value, exact=bool(chart.x_ticks))
        half = max(34, 8 + _LEGEND_CHARACTER * len(text)) / 2
        if any(abs(x - other) < half + its_half for other, its_half in places):  # labels would touch
            continue
        places.append((x, half))
        parts.append(f'<path class="grid" d="M{x:.1f} {top}V{bottom}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{text}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    title = html.escape(chart.x_title)
    parts.append(f'<text class="axis" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{title}</text>')
    return parts


def _rank(value: float, values: list[float]) -> int:
    """The ends of an axis are labelled first, then powers of two, then the others."""
    if value in (values[0], values[-1]):
        return 0
    return 1 if value > 0 and math.log2(value).is_integer() else 2


def _y_axis(chart: Chart, low: float, high: float, up: Scale, top: float) -> list[str]:
    parts, last = [], math.inf
    for value in ticks(low, high, chart.y_log):
        y = up(value)
        if last - y < 16:
            continue
        last = y
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick_text(value)}</text>')
    middle = (top + HEIGHT - BOTTOM) / 2
    title = html.escape(chart.y_title)
    parts.append(f'<text class="axis" transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">{title}</text>')
    return parts


def tick_text(value: float, *, exact: bool = False) -> str:
    """A tick's label, escaped: with a decimal prefix from 10,000 on, or every digit of the whole number that it is."""
    if exact:
        return f"{value:.0f}"
    return html.escape(figures.quantity(value)) if abs(value) >= 10_000 else f"{value:g}"


def _legend(chart: Chart) -> tuple[list[str], int]:
    """The names of the series, in rows above the chart, and the height they take."""
    parts, x, y = [], float(LEFT), 14
    for series in chart.series:
        wide = 30 + _LEGEND_CHARACTER * len(series.name)
        if x + wide > WIDTH - RIGHT and x > LEFT:
            x, y = float(LEFT), y + 18
        if series.kind == "line":
            mark = f'<path class="line s-{series.colour}{_dash(series)}" d="M{x:.1f} {y - 4}h18"/>'
        elif series.kind == "band":
            mark = f'<rect class="band s-{series.colour}" x="{x:.1f}" y="{y - 10}" width="18" height="11"/>'
        else:
            mark = _mark(series, x + 9, y - 4)
        parts.append(f'{mark}<text class="tick" x="{x + 23:.1f}" y="{y}">{html.escape(series.name)}</text>')
        x += wide + 8
    return parts, y


def _dash(series: Series) -> str:
    return "" if series.dash == "solid" else f" {series.dash}"


def _series(series: Series, across: Scale, up: Scale) -> list[str]:
    points = [(across(x), up(y)) for x, y in zip(series.x, series.y, strict=True)]
    if series.kind == "band":
        back = [(across(x), up(y)) for x, y in zip(series.x, series.low, strict=True)][::-1]
        return [f'<path class="band s-{series.colour}" d="{_path([*points, *back])}Z"/>']
    if series.kind == "line":
        parts = [f'<path class="line s-{series.colour}{_dash(series)}" d="{_path(points)}"/>']
        if series.colour in ("measured", "predicted"):
            parts += [_mark(series, x, y) for x, y in points]
        return parts
    labels = series.labels or ("",) * len(points)
    return [_mark(series, x, y, label) for (x, y), label in zip(points, labels, strict=True)]


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _mark(series: Series, x: float, y: float, label: str = "") -> str:
    style = f"mark s-{series.colour}{' hollow' if series.hollow else ''}"
    title = f"<title>{html.escape(label)}</title>" if label else ""
    shapes = {
        "circle": f"M{x - 3.5:.1f} {y:.1f}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z",
        "square": f"M{x - 3.3:.1f} {y - 3.3:.1f}h6.6v6.6h-6.6Z",
        "diamond": f"M{x:.1f} {y - 4.6:.1f}l4.6 4.6l-4.6 4.6l-4.6 -4.6Z",
        "triangle": f"M{x:.1f} {y - 5.5:.1f}l5 9h-10Z",
    }
    return f'<path class="{style}" d="{shapes[series.symbol]}">{title}</path>'
