"""The author's source on the page: bars on one scale, links between lines and findings, everything escaped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.rendering import source_view, views
from advisor.rendering.page import to_html
from advisor.result.schema import Finding, Result, SourceLine, SourceText

from . import factory

FILE = "/home/<b>me</b>/kernels.py"
TEXT = (
    "@triton.jit",
    "def k(a, b):",
    *(f"    # idle {i}" for i in range(12)),
    '    x = tl.load(a)  # <script>alert("x")</script>',
    "    y = tl.dot(x, x)",
    "    tl.store(b, y)",
)
LOAD, DOT = 100 + 14, 100 + 15


@pytest.fixture
def result() -> Result:
    return with_source()


def with_source() -> Result:
    """A launch whose lines are known, one of them with a finding."""
    whole = factory.result((64,), ("w13",))
    launch = whole.launches[0]
    lines = (
        SourceLine(file=FILE, line=LOAD, demand={"l2": 4e6}, time_us={"l2": 4.0}, exposed_us=1.0),
        SourceLine(file=FILE, line=DOT, demand={"tensor": 8e9, "alu": 10.0}, time_us={"tensor": 8.0, "alu": 0.001}),
        SourceLine(file="elsewhere.py", line=1, demand={"alu": 1.0}, time_us={"alu": 0.0001}),
    )
    finding = Finding(
        rule="narrow-access",
        severity="warning",
        title="Narrow",
        evidence="e",
        remedy="r",
        source_file=FILE,
        source_line=LOAD,
        saving_us=0.5,
        scope="kernel",
    )
    text = SourceText(kernel=launch.kernel, file=FILE, first_line=100, lines=TEXT)
    return replace(whole, launches=(replace(launch, source_lines=lines, findings=(finding,)),), sources=(text,))


def view_of(result: Result) -> source_view.SourceView:
    anchors = views.Anchors()
    launches = views.launch_views(result, anchors)
    (found,) = source_view.source_views(result, launches, views.rule_views(result, launches, anchors), anchors)
    return found


def test_bars_have_one_scale_and_small_columns_none(result: Result) -> None:
    shown = view_of(result)
    assert [name for name, _ in shown.columns] == ["tensor", "l2", source_view.EXPOSED]
    assert {name for name, _ in shown.totals} == {"tensor", "l2", source_view.EXPOSED}, "less than is shown is left out"
    rows = {row.number: row for row in shown.pieces[0].rows}
    assert [cell.width if cell else None for cell in rows[DOT].cells] == [100.0, None, None]
    assert [cell.width if cell else None for cell in rows[LOAD].cells] == [None, 50.0, 12.5]
    assert rows[LOAD].cells[1] is not None and "4 MB" in rows[LOAD].cells[1].title


def test_lines_and_findings_link_to_each_other(result: Result) -> None:
    page = to_html(result)
    shown = view_of(result)
    line = f"{shown.anchor}-1-L{LOAD}"
    assert f'id="{line}"' in page and f'href="#{line}"' in page
    row = next(row for row in shown.pieces[0].rows if row.number == LOAD)
    assert f'href="#{row.findings[0].anchor}"' in page and f'id="{row.findings[0].anchor}"' in page


def test_everything_is_escaped(result: Result) -> None:
    page = to_html(result)
    assert '<script>alert("x")' not in page and "<b>me</b>" not in page
    assert "&lt;script&gt;alert(" in page


def test_without_source_there_is_no_section(result: Result) -> None:
    assert 'id="source"' not in to_html(replace(result, sources=()))
    assert 'id="source"' not in to_html(factory.result((64,), ("w13",)))


def test_code_opens_at_the_hottest_line_and_every_bar_has_a_number(result: Result) -> None:
    shown = view_of(result)
    rows = [row for piece in shown.pieces for row in piece.rows]
    assert [row.number for row in rows if row.hottest] == [DOT]
    assert [(line.number, line.pipeline, line.us) for line in shown.hottest] == [(DOT, "tensor", 8.0), (LOAD, "l2", 4.0)]
    assert all(cell.text for row in rows for cell in row.cells if cell is not None)
    text = to_html(result)
    assert 'class="busy hottest"' in text and text.index("Hottest lines") < text.index('class="scroll source-scroll"')
