"""The results of many tables, or of one target on several GPUs, as one table, the worst first: as text, Markdown and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from advisor.rendering import figures
from advisor.rendering.markdown import escape
from advisor.rendering.page import filled
from advisor.rendering.step_text import aligned
from advisor.result.schema import Result

COLUMNS = ("GPU", "of ceiling", "latency", "ceiling", "binds", "cannot launch", "target")
ABOUT = "Worst first: latency and tunable ceiling of all launches, in µs."
LEFT = ("GPU", "binds", "target")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line: `cells` under `COLUMNS`, and the report's `page`, seen from the overview. `rank`: what cannot launch comes first, then what
    is furthest from its ceiling; those of which no ceiling is known last."""

    cells: tuple[str, ...]
    page: str
    rank: tuple[float, float]


def row_of(result: Result, name: str, page: str) -> Row:
    """The row of one result, under the name of its table or target."""
    verdict, launches = result.verdict, len(result.launches)
    stuck, share = sum(map(figures.stuck, result.launches)), verdict.percent_of_ceiling / 100
    runs = stuck < launches and verdict.current_us > 0
    cells = (
        result.gpu,
        figures.share_text(share or None) if runs else "-",
        f"{figures.microseconds(verdict.current_us)} {verdict.origin}" if runs else "-",
        figures.microseconds(verdict.ceiling_us) if runs and verdict.ceiling_us else "-",
        verdict.binding_pipeline,
        f"{stuck} of {launches}" if stuck else "-",
        name,
    )
    return Row(cells=cells, page=page, rank=(-stuck / max(launches, 1), share or 2.0))


def ordered(rows: Sequence[Row]) -> list[Row]:
    """The worst first."""
    return sorted(rows, key=lambda row: (row.rank, row.cells[-1], row.cells[0]))


def to_markdown(rows: Sequence[Row]) -> str:
    """The table for GitHub."""
    marks = ["---" if column in LEFT else "--:" for column in COLUMNS]
    lines = [COLUMNS, marks, *(map(escape, row.cells) for row in ordered(rows))]
    return f"{ABOUT}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def lines(rows: Sequence[Row]) -> list[Text]:
    """The lines of the table for a terminal."""
    head, *body = aligned([COLUMNS, *(row.cells for row in ordered(rows))], LEFT)
    return [Text(ABOUT, style="bold"), Text(f"  {head}", style="bold"), *(Text(f"  {line}") for line in body)]


def to_page(rows: Sequence[Row], *, title: str, command: str, version: str) -> str:
    """The page.

    Args:
        rows: One of each table and GPU.
        title: What the tables are, as a heading.
        command: The command line that repeats this.
        version: Of the advisor.
    """
    given = {"title": title, "command": command, "version": version}
    return filled("overview.html.jinja", **given, about=ABOUT, columns=COLUMNS, rows=ordered(rows), left=LEFT)
