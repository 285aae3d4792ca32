"""The results of many tables, of one GPU or several, as one table, a line each, the worst first: as text, Markdown and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from advisor.rendering import figures
from advisor.rendering.markdown import escape
from advisor.rendering.page import filled
from advisor.result.schema import Origin, Result

COLUMNS = ("GPU", "of ceiling", "latency", "ceiling", "binds", "cannot launch", "table")
GPU_COLUMNS = ("GPU", "tables", "of ceiling", "cannot launch", "worst table")
ABOUT = "Worst first: latency and tunable ceiling of all launches of a table, in µs."
RIGHT = {"of ceiling", "latency", "ceiling", "cannot launch", "tables"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the overview: one result."""

    table: str  # path below the folder
    page: str  # its report's, seen from the overview
    gpu: str
    share: float  # ceiling / latency; 0: not known
    current_us: float
    ceiling_us: float
    origin: Origin
    binding: str
    stuck: int  # launches that cannot run
    launches: int


def row_of(result: Result, table: str, page: str) -> Row:
    """The row of one table's result."""
    verdict = result.verdict
    return Row(
        table=table,
        page=page,
        gpu=result.gpu,
        share=verdict.percent_of_ceiling / 100,
        current_us=verdict.current_us,
        ceiling_us=verdict.ceiling_us,
        origin=verdict.origin,
        binding=verdict.binding_pipeline,
        stuck=sum(map(figures.stuck, result.launches)),
        launches=len(result.launches),
    )


def ordered(rows: Sequence[Row]) -> list[Row]:
    """The worst first: what cannot launch, then by the share of the ceiling; those of which none is known last."""
    return sorted(rows, key=lambda row: (-row.stuck / max(row.launches, 1), row.share or 2.0, row.table, row.gpu))


def cells(row: Row) -> tuple[str, ...]:
    """The cells of a row, one for each of `COLUMNS`."""
    runs = row.stuck < row.launches
    return (
        row.gpu,
        (figures.share_text(row.share or None) if runs else "") or "-",
        f"{figures.microseconds(row.current_us)} {row.origin}" if runs else "-",
        figures.microseconds(row.ceiling_us) if runs and row.ceiling_us else "-",
        row.binding,
        f"{row.stuck} of {row.launches}" if row.stuck else "-",
        row.table,
    )


def gpu_cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """A line for each GPU, the worst first; none where there is only one."""
    gpus: dict[str, list[Row]] = {}
    for row in ordered(rows):
        gpus.setdefault(row.gpu, []).append(row)
    found = []
    for gpu, own in gpus.items():
        rated = [row for row in own if row.share]
        now = sum(row.current_us for row in rated)
        share = sum(row.share * row.current_us for row in rated) / now if now else 0.0
        stuck, launches = sum(row.stuck for row in own), sum(row.launches for row in own)
        line = (gpu, str(len(own)), figures.share_text(share or None) or "-", f"{stuck} of {launches}" if stuck else "-", own[0].table)
        found.append((-stuck / max(launches, 1), share or 2.0, line))
    return [line for *_, line in sorted(found)] if len(found) > 1 else []


def tables(rows: Sequence[Row]) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Both tables, each with its columns: GPUs, where there are several, and rows."""
    gpus = gpu_cells(rows)
    return [*([(GPU_COLUMNS, gpus)] if gpus else []), (COLUMNS, [cells(row) for row in ordered(rows)])]


def to_markdown(rows: Sequence[Row]) -> str:
    """The tables for GitHub."""
    out = f"{ABOUT}\n"
    for columns, lines_ in tables(rows):
        marks = ["--:" if column in RIGHT else "---" for column in columns]
        out += "\n" + "".join(f"| {' | '.join(line)} |\n" for line in [columns, marks, *(map(escape, line) for line in lines_)])
    return out


def lines(rows: Sequence[Row]) -> list[Text]:
    """The lines of the tables for a terminal."""
    out = [Text(ABOUT, style="bold")]
    for columns, body in tables(rows):
        out += [Text("")] if columns == COLUMNS and len(out) > 1 else []
        shown = [columns, *(tuple(map(figures.clean, line)) for line in body)]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        for number, line in enumerate(shown):
            padded = (
                cell.rjust(width) if column in RIGHT else cell.ljust(width)
                for cell, width, column in zip(line, widths, columns, strict=True)
            )
            out.append(Text(f"  {'  '.join(padded)}".rstrip(), style="bold" if number == 0 else ""))
    return out


def to_page(rows: Sequence[Row], *, title: str, command: str, version: str) -> str:
    """The page.

    Args:
        rows: One of each table and GPU.
        title: What the tables are, as a heading.
        command: The command line that repeats this.
        version: Of the advisor.
    """
    return filled(
        "overview.html.jinja",
        title=title,
        command=command,
        version=version,
        about=ABOUT,
        columns=COLUMNS,
        rows=[(row.page, cells(row)) for row in ordered(rows)],
        gpu_columns=GPU_COLUMNS,
        gpus=gpu_cells(rows),
        right=RIGHT,
    )
