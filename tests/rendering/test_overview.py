"""Many tables as one: the worst first, and a line for each GPU."""

from __future__ import annotations

from dataclasses import replace

from advisor.rendering import overview
from advisor.rendering.overview import Row

from . import factory
from .test_page import Document


def row(table: str, gpu: str, share: float, *, stuck: int = 0, us: float = 100.0) -> Row:
    return Row(
        table=table,
        page=f"{table}/report.html",
        gpu=gpu,
        share=share,
        current_us=us,
        ceiling_us=us * share,
        origin="predicted",
        binding="dram",
        stuck=stuck,
        launches=4,
    )


ROWS = [
    row("a", "H100", 0.9),
    row("b", "H200", 0.5, us=300.0),
    row("c", "H200", 0.9),
    row("d", "H100", 0.95, stuck=1),
    row("e", "H20", 0.0),
    row("f", "H20", 0.0, stuck=4),
]


def test_the_worst_comes_first() -> None:
    assert [each.table for each in overview.ordered(ROWS)] == ["f", "d", "b", "a", "c", "e"]
    assert overview.cells(ROWS[1]) == ("H200", "50 %", "300.0 predicted", "150.0", "dram", "-", "b")
    assert overview.cells(ROWS[5])[1:6] == ("-", "-", "-", "dram", "4 of 4")


def test_gpus_have_a_line_each_with_their_worst_table() -> None:
    assert overview.gpu_cells(ROWS) == [
        ("H20", "2", "-", "4 of 8", "f"),
        ("H100", "2", "92 %", "1 of 8", "d"),
        ("H200", "2", "60 %", "-", "b"),
    ]
    assert overview.gpu_cells(ROWS[1:3]) == []


def test_the_row_of_a_result() -> None:
    result = factory.result()
    found = overview.row_of(result, "t.json", "t/report.html")
    assert (found.share * 100, found.current_us, found.gpu) == (
        result.verdict.percent_of_ceiling,
        result.verdict.current_us,
        result.gpu,
    )
    nothing_fits = replace(result.launches[0].occupancy, resident_ctas_per_sm=0)
    launches = tuple(replace(each, predicted=None, measured=None, occupancy=nothing_fits) for each in result.launches)
    stuck = replace(result, launches=launches)
    assert (found.stuck, overview.row_of(stuck, "t", "p").stuck) == (0, len(result.launches))


def test_every_surface_shows_all_rows_and_escapes_them() -> None:
    rows = [*ROWS, row(factory.ESCAPES, "H20", 0.1)]
    text = "\n".join(line.plain for line in overview.lines(rows))
    assert "\x1b" not in text and len(text.splitlines()) == 1 + 1 + 3 + 1 + 1 + len(rows)
    assert overview.to_markdown(rows).count("\n| ") == 2 * 2 + 3 + len(rows) and "\x1b" not in overview.to_markdown(rows)
    page = overview.to_page(rows, title=factory.HOSTILE, command="advisor advise tables", version="1")
    document = Document(page)
    links = {value for _, name, value in document.attributes if name in ("href", "src")}
    assert {f"{each.page}" for each in ROWS} <= links and not any(name.startswith("on") for _, name, _ in document.attributes)
    assert len(document.scripts) == 1 and not {"iframe", "img"} & set(document.tags)
