"""The results of several GPUs as one table, a row per launch, and what each GPU makes of it: as text, Markdown and a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from advisor.rendering import figures
from advisor.rendering.grouping import told_apart
from advisor.rendering.markdown import escape
from advisor.rendering.page import filled
from advisor.result.schema import LaunchReport, Result

_Key = tuple[str, str, int]  # kernel and problem, configuration, how many before it are alike
MOST_ROWS = 60
COLUMNS = ("latency", "ceiling", "bound", "binding")
ABOUT = "Side by side: latency, tunable ceiling and bound in µs, and the pipeline that binds."
BEST = "best: which configuration is launched is not known; the latency is that of the best one."
_APART = "   "


def to_markdown(results: Sequence[Result]) -> str:
    """A GitHub table; empty where no result has a launch."""
    rows, notes = rows_of(results)
    if not rows:
        return ""
    header = ["launch", *(f"{escape(result.gpu)} {column}" for result in results for column in COLUMNS)]
    lines = [header, ["---", *["--:", "--:", "--:", "---"] * len(results)], *([escape(cell) for cell in row] for row in rows)]
    notes += [escape(text) for text in caveats(results)]
    return f"{ABOUT}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "".join(f"\n{note}\n" for note in notes)


def lines(results: Sequence[Result], width: int | None = None) -> list[Text]:
    """The lines of the table; none where no result has a launch. One wider than `width` columns has a line per GPU below each launch."""
    rows, notes = rows_of(results)
    if not rows:
        return []
    said = [Text(f"  {figures.clean(note)}") for note in [*notes, *caveats(results)]]
    beside = _beside(rows, results)
    if width is not None and max(len(line) for line in beside) > width:
        return [Text(ABOUT, style="bold"), *_below(rows, results), *said]
    return [Text(ABOUT, style="bold"), *beside, *said]


def _beside(rows: Sequence[Sequence[str]], results: Sequence[Result]) -> list[Text]:
    """A line per launch, the GPUs beside each other."""
    table = [["", *COLUMNS * len(results)], *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    head = " " * (2 + widths[0])
    for number, result in enumerate(results):
        own = widths[1 + len(COLUMNS) * number : 1 + len(COLUMNS) * (number + 1)]
        head += _APART + figures.clean(result.gpu).ljust(sum(own) + 2 * (len(own) - 1))
    out = [Text(head.rstrip(), style="bold")]
    for row in table:
        line = "  " + row[0].ljust(widths[0])
        for place, (cell, width) in enumerate(zip(row[1:], widths[1:], strict=True)):
            column = place % len(COLUMNS)
            line += (_APART if column == 0 else "  ") + (cell.ljust(width) if column == len(COLUMNS) - 1 else cell.rjust(width))
        out.append(Text(line.rstrip()))
    return out


def _below(rows: Sequence[Sequence[str]], results: Sequence[Result]) -> list[Text]:
    """A line per launch, and below it one for each GPU."""
    number = len(COLUMNS)
    own = [[row[1 + number * place : 1 + number * (place + 1)] for row in rows] for place in range(len(results))]
    names = [figures.clean(result.gpu) for result in results]
    cells = [("", *COLUMNS), *((name, *line) for name, side in zip(names, own, strict=True) for line in side)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]

    def line(first: str, others: Sequence[str]) -> str:
        middle = [cell.rjust(width) for cell, width in zip(others[:-1], widths[1:], strict=False)]
        return "  ".join([f"    {first.ljust(widths[0])}", *middle, others[-1]])

    out = [Text(line("", COLUMNS), style="bold")]
    for place, row in enumerate(rows):
        out.append(Text(f"  {row[0]}", style="bold"))
        out += [Text(line(name, side[place])) for name, side in zip(names, own, strict=True)]
    return out


def caveats(results: Sequence[Result]) -> list[str]:
    """Unknowns of some of the GPUs only, `B200: …`: figures that rest on less stand beside those that rest on more."""
    shared = shared_unknowns(results)
    return [f"{result.gpu}: {text}" for result in results for text in result.verdict.unknowns if text not in shared]


def shared_unknowns(results: Sequence[Result]) -> list[str]:
    """Unknowns of all GPUs, in the order of the first."""
    return [text for text in results[0].verdict.unknowns if all(text in result.verdict.unknowns for result in results)]


def rows_of(results: Sequence[Result]) -> tuple[list[list[str]], list[str]]:
    """The cells of each launch that any of the results has, its label and `COLUMNS` per result, and what is to be said below them."""
    sides = _by_problem(results)
    alike: dict[str, dict[_Key, LaunchReport]] = {}  # by problem: of each row the first launch there is
    for side in sides:
        for key, launch in side.items():
            alike.setdefault(key[0], {}).setdefault(key, launch)
    keys = list(dict.fromkeys(key for side in sides for key in side))
    apart = {key: text for rows in alike.values() for key, text in zip(rows, told_apart(list(rows.values())), strict=True)}
    rows = []
    for key in keys[:MOST_ROWS]:
        shown = alike[key[0]][key]
        label = (figures.name_of(shown), figures.sizes_text(shown.problem), figures.types_text(shown.problem), apart[key])
        cells = (cell for result, side in zip(results, sides, strict=True) for cell in _cells(side.get(key), result))
        rows.append([" ".join(filter(None, label)), *cells])
    left = len(keys) - len(rows)
    unset = any(figures.unset(launch) for side in sides for launch in side.values())
    return rows, [*([BEST] if unset else []), *([f"{left} more launches, in the reports."] if left else [])]


def _by_problem(results: Sequence[Result]) -> list[dict[_Key, LaunchReport]]:
    """Launches of each result by kernel and problem, and where those occur again in one of them also by configuration.

    Not by their ids, nor by configuration elsewhere: both may differ by GPU for what is one launch.
    """
    names = [[f"{launch.kernel} {launch.problem!r}" for launch in result.launches] for result in results]
    again = {name for side in names for name, number in Counter(side).items() if number > 1}
    sides = []
    for result, side in zip(results, names, strict=True):
        found: dict[_Key, LaunchReport] = {}
        seen: Counter[tuple[str, str]] = Counter()
        for launch, name in zip(result.launches, side, strict=True):
            configuration = launch.configuration.label() if name in again and launch.configuration is not None else ""
            found[name, configuration, seen[name, configuration]] = launch
            seen[name, configuration] += 1
        sides.append(found)
    return sides


def _cells(launch: LaunchReport | None, result: Result) -> tuple[str, ...]:
    if launch is None:
        return ("-",) * len(COLUMNS)
    now = figures.current(launch)
    latency = f"{figures.with_interval(now.us, now, unit='')} {now.origin}{', best' if figures.unset(launch) else ''}"
    return (
        "cannot launch" if figures.stuck(launch) else "not known" if figures.of_one_program(launch, result) else latency,
        figures.microseconds(launch.ceiling.us) if launch.ceiling is not None else "-",
        figures.microseconds(launch.bound.us),
        figures.clean(launch.binding_pipeline),
    )


MOST_BESIDE = 2
"""GPUs whose columns stand beside each other; of more the last would lie out of sight, and each has a line of its own."""


def to_page(results: Sequence[Result], pages: Sequence[str]) -> str:
    """The page for these results of one target.

    Args:
        results: One of each GPU; at least one.
        pages: Where the page of each is, seen from this one: `h200/report.html`.
    """
    rows, notes = rows_of(results)
    context: dict[str, Any] = {
        "first": results[0],
        "sides": list(zip(results, pages, strict=True)),
        "shared": shared_unknowns(results),
        "most_beside": MOST_BESIDE,
        "columns": COLUMNS,
        "rows": rows,
        "notes": notes,
    }
    return filled("side_by_side.html.jinja", **context)
