"""The author's source with a bar per line and per pipeline, ready for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.rendering import figures
from advisor.rendering.views import Anchors, FindingView, LaunchView, RuleView
from advisor.result.schema import PIPELINE_UNITS, PIPELINES, Finding, Result, SourceLine, SourceText
from advisor.system import grouped

EXPOSED = "waiting"
"""Name of the column of load latency that nothing hides: no pipeline, but time all the same."""
LEAST_SHOWN_US = 0.005
"""Microseconds from which on a bar has a number: less would read 0.00."""
HOTTEST = 5
"""Lines that stand above the code, by their time."""
LEAST_COLUMN = 0.002
"""Share of the longest column's time from which on a pipeline has a column of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One line's demand on one pipeline: the bar's width in per cent of the longest line of all, the time, and the demand in words."""

    width: float
    text: str  # microseconds, empty where there is next to nothing
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of source; `cells` in the order of the columns, empty where nothing is asked."""

    number: int
    text: str
    cells: tuple[Cell | None, ...]
    findings: tuple[FindingView, ...]
    busy: bool
    hottest: bool  # the box of code opens at it


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A function of one file."""

    file: str
    first: int
    last: int
    rows: tuple[Row, ...]
    us: float  # of all lines and pipelines


@dataclass(frozen=True, slots=True, kw_only=True)
class HotLine:
    """A line, and the pipeline that it needs longest."""

    piece: int  # number of the piece, from 1
    number: int
    text: str
    us: float
    pipeline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """The source of one kernel with the demand of one of its launches; `columns` are (pipeline, µs of all lines)."""

    view: LaunchView
    anchor: str
    columns: tuple[tuple[str, float], ...]
    totals: tuple[tuple[str, float], ...]  # with the columns that are too small to be shown
    pieces: tuple[Piece, ...]
    others: int  # launches of the kernel that are not shown
    hottest: tuple[HotLine, ...]


def source_views(result: Result, worst: list[LaunchView], rules: list[RuleView], anchors: Anchors) -> list[SourceView]:
    """One per kernel, with the launch that has most to win; kernels in the order of `worst`."""
    by_kernel = grouped((view.launch.kernel, view) for view in worst if view.launch.source_lines)
    shown = []
    for kernel, views in by_kernel.items():
        texts = [piece for piece in result.sources if piece.kernel == kernel]
        if texts:
            shown.append(_source_view(views[0], texts, len(views) - 1, rules, anchors))
    return shown


def _source_view(view: LaunchView, texts: list[SourceText], others: int, rules: list[RuleView], anchors: Anchors) -> SourceView:
    lines = {(line.file, line.line): line for line in view.launch.source_lines}
    names = [n for n in PIPELINES if any(line.time_us.get(n, 0.0) > 0 for line in lines.values())]
    if any(line.exposed_us > 0 for line in lines.values()):
        names.append(EXPOSED)
    totals = tuple((name, sum(_time(line, name) for line in lines.values())) for name in names)
    most = max((us for _, us in totals), default=0.0)
    columns = tuple((name, us) for name, us in totals if us >= LEAST_COLUMN * most)
    names = [name for name, _ in columns]
    longest = max((_time(line, name) for line in lines.values() for name in names), default=0.0) or 1.0
    marks: dict[tuple[str, int], list[FindingView]] = {}
    for rule in rules:
        for item in rule.items:
            if item.view is view and item.finding.source_file and item.finding.source_line:
                marks.setdefault((item.finding.source_file, item.finding.source_line), []).append(item)
    pieces = sorted((_piece(text, lines, names, longest, marks) for text in texts), key=lambda piece: -piece.us)
    return SourceView(
        view=view,
        anchor=anchors.make("source", view.launch.kernel),
        columns=columns,
        totals=tuple((name, us) for name, us in totals if us >= LEAST_SHOWN_US),
        pieces=tuple(pieces),
        others=others,
        hottest=_hottest(pieces, lines, names),
    )


def _hottest(pieces: Sequence[Piece], lines: Mapping[tuple[str, int], SourceLine], names: list[str]) -> tuple[HotLine, ...]:
    """The lines that take longest on any pipeline, the longest first."""
    hottest = []
    for number, piece in enumerate(pieces, 1):
        for row in piece.rows:
            line = lines.get((piece.file, row.number))
            us, name = max(((_time(line, name), name) for name in names if line is not None), default=(0.0, ""))
            if us >= LEAST_SHOWN_US:
                hottest.append(HotLine(piece=number, number=row.number, text=row.text.strip(), us=us, pipeline=name))
    return tuple(sorted(hottest, key=lambda line: -line.us)[:HOTTEST])


def _piece(
    text: SourceText,
    lines: Mapping[tuple[str, int], SourceLine],
    names: list[str],
    longest: float,
    marks: Mapping[tuple[str, int], list[FindingView]],
) -> Piece:
    rows: list[Row] = []
    us = 0.0
    heat = {line.line: max((_time(line, name) for name in names), default=0.0) for line in lines.values() if line.file == text.file}
    hottest = max((n for n in heat if text.first_line <= n < text.first_line + len(text.lines)), key=lambda n: heat[n], default=None)
    for number, row in enumerate(text.lines, text.first_line):
        line = lines.get((text.file, number))
        cells = tuple(_cell(line, name, longest) for name in names)
        us += sum(_time(line, name) for name in names) if line is not None else 0.0
        rows.append(
            Row(
                number=number,
                text=figures.clean(row.expandtabs(4)),
                cells=cells,
                findings=tuple(marks.get((text.file, number), ())),
                busy=any(cell is not None for cell in cells),
                hottest=number == hottest,
            )
        )
    return Piece(file=text.file, first=text.first_line, last=text.first_line + len(text.lines) - 1, rows=tuple(rows), us=us)


def _time(line: SourceLine, name: str) -> float:
    return line.exposed_us if name == EXPOSED else line.time_us.get(name, 0.0)


def _cell(line: SourceLine | None, name: str, longest: float) -> Cell | None:
    if line is None or _time(line, name) <= 0:
        return None
    us = _time(line, name)
    unit_text = "of load latency not hidden" if name == EXPOSED else figures.quantity(line.demand[name], PIPELINE_UNITS[name])
    text = figures.microseconds(us) if us >= LEAST_SHOWN_US else "<0.01"
    return Cell(width=100 * us / longest, text=text, title=f"{name}: {figures.microseconds(us)} µs, {unit_text}")


def source_anchor(finding: Finding, shown: list[SourceView], view: LaunchView | None) -> str | None:
    """The line of the shown source that a finding stands at; None where it is not shown."""
    for item in shown:
        if view is not None and item.view.launch.kernel == view.launch.kernel and finding.source_line is not None:
            for number, piece in enumerate(item.pieces, 1):
                if piece.file == finding.source_file and any(r.number == finding.source_line for r in piece.rows):
                    return f"{item.anchor}-{number}-L{finding.source_line}"
    return None
