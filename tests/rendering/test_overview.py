"""Many results as one table, the worst first."""

from __future__ import annotations

from dataclasses import replace

from advisor.rendering import figures, overview
from advisor.rendering.overview import Row

from . import factory
from .test_page import Document


def row(table: str, gpu: str, share: float, *, stuck: float = 0.0) -> Row:
    cells = (gpu, f"{share:.0%}", "100.0 predicted", "50.0", "dram", "-", table)
    return Row(cells=cells, page=f"{table}/report.html", rank=(-stuck, share or 2.0))


ROWS = [
    row("a", "H100", 0.9),
    row("b", "H200", 0.5),
    row("c", "H200", 0.9),
    row("d", "H100", 0.95, stuck=0.25),
    row("e", "H20", 0.0),
    row("f", "H20", 0.0, stuck=1.0),
]


def test_the_worst_comes_first() -> None:
    assert [each.cells[-1] for each in overview.ordered(ROWS)] == ["f", "d", "b", "a", "c", "e"]


def test_the_row_of_a_result() -> None:
    result = factory.result()
    verdict, found = result.verdict, overview.row_of(result, "t.json", "t/report.html")
    assert found.cells[0] == result.gpu and found.cells[2].startswith(figures.microseconds(verdict.current_us))
    assert found.rank == (0.0, verdict.percent_of_ceiling / 100)
    nothing_fits = replace(result.launches[0].occupancy, resident_ctas_per_sm=0)
    launches = tuple(replace(each, predicted=None, measured=None, occupancy=nothing_fits) for each in result.launches)
    stuck = overview.row_of(replace(result, launches=launches), "t", "p")
    assert found.cells[5] == "-" and stuck.cells[1:4] == ("-", "-", "-") and stuck.cells[5] == f"{len(launches)} of {len(launches)}"


def test_every_surface_shows_all_rows_and_escapes_them() -> None:
    rows = [*ROWS, row(factory.ESCAPES, "H20", 0.1)]
    text = "\n".join(line.plain for line in overview.lines(rows))
    assert "\x1b" not in text and len(text.splitlines()) == 1 + 1 + len(rows)
    assert overview.to_markdown(rows).count("\n| ") == 2 + len(rows) and "\x1b" not in overview.to_markdown(rows)
    page = overview.to_page(rows, title=factory.HOSTILE, command="advisor advise tables", version="1")
    document = Document(page)
    links = {value for _, name, value in document.attributes if name in ("href", "src")}
    assert {each.page for each in ROWS} <= links and not any(name.startswith("on") for _, name, _ in document.attributes)
    assert len(document.scripts) == 1 and not {"iframe", "img"} & set(document.tags)
