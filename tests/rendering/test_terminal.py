"""The result on a terminal and down a pipe."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from advisor.rendering import figures, markdown, page, terminal
from advisor.rendering.screen import LINES
from advisor.result.schema import Action, Latency, Result, SourceLine, SourceText
from tests.rendering.terminal import to_text

from . import factory
from .golden import compare


class FakeTerminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_table_matches_golden() -> None:
    result = factory.result((1, 64, 3072))
    compare("terminal_table.txt", to_text(result, report="advisor-out/report.html"))


def test_one_measured_launch_matches_golden() -> None:
    result = factory.result((64,), ("w13",), measured=True)
    compare("terminal_launch.txt", to_text(result, report="advisor-out/report.html"))


def test_every_launch_of_a_table_has_a_row_with_its_figures() -> None:
    result = factory.result()
    text = to_text(result)
    for tokens in factory.TOKENS:
        rows = re.findall(rf"^  M={tokens}\s.*tuning can win.*\n    bound .*tunable ceiling .*$", text, re.MULTILINE)
        assert len(rows) == 2, tokens
    assert "report:" not in text


def read_by_line(saving_us: float) -> Result:
    """A launch of 100 µs, bound 40 µs, of a kernel in source: two lines keep the integer units busy, and a finding saves something."""
    result = factory.result((64,), ("w13",))
    (launch,) = result.launches
    lines = [
        SourceLine(file="k.py", line=number, demand={"alu": 1.0}, time_us={"alu": us}) for number, us in ((7, 50.0), (8, 20.0), (9, 1.0))
    ]
    found = replace(launch.findings[0], saving_us=saving_us)
    slow = replace(
        launch,
        predicted=Latency(us=100.0, origin="predicted", source="model"),
        bound=Latency(us=40.0, origin="predicted", source="model"),
        config_binding_pipeline="alu",
        peak_pipeline="alu",
        share_of_peak=0.71,
        gap=(),
        findings=(found,),
        source_lines=tuple(lines),
    )
    text = SourceText(kernel=launch.kernel, file="k.py", first_line=7, lines=("    row = i // 3", "    col = i % 3", "    x = col"))
    return replace(result, launches=(slow,), sources=(text,))


def test_the_share_of_the_peak_is_the_one_efficiency_that_leads() -> None:
    result = read_by_line(50.0)
    assert "   71 % of integer units' peak   " in to_text(result)
    assert "<span>of peak</span>" in (html := page.to_html(result)) and "x the bound" not in html


@pytest.mark.parametrize(("saving_us", "named"), [(50.0, False), (1.0, True)])
def test_the_heaviest_lines_are_named_where_no_finding_explains_the_gap(saving_us: float, named: bool) -> None:
    text = to_text(read_by_line(saving_us))
    assert ("· k.py:7, 50.0 µs of alu: row = i // 3" in text) is named
    assert ("· k.py:8, 20.0 µs of alu: col = i % 3" in text) is named
    assert "k.py:9" not in text


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (95.0, 105.0, "±5.0 %"),
        (80.0, 125.0, "±22 %"),
        (90.0, 135.0, "−10/+35 %"),
        (65.0, 105.0, "−35/+5 %"),
        (100.0, 104.0, "±2.0 %"),
        (100.0, 112.0, "−0/+12 %"),
        (None, None, ""),
    ],
)
def test_an_interval_to_one_side_is_not_called_even(low: float | None, high: float | None, words: str) -> None:
    assert figures.interval(Latency(us=100.0, origin="predicted", source="a model", low_us=low, high_us=high)) == words


@pytest.mark.parametrize(
    ("speedup", "words"),
    [
        (1.34, "1.34x faster"),
        (0.94, "1.06x slower"),
        (0.5, "2.00x slower"),
        (1.004, "no faster"),
        (0.996, "no faster"),
        (0.0, "0.00x slower"),
    ],
)
def test_both_ways_count_how_many_times(speedup: float, words: str) -> None:
    assert figures.speedup_text(speedup) == words


@pytest.mark.parametrize("high", [1.05, 1.35])  # relative to the prediction; the low end is at 0.93
def test_columns_are_stable(high: float) -> None:
    result = factory.result()
    one = result.launches[0]
    one = replace(one, predicted=replace(one.predicted, high_us=high * one.predicted.us))
    text = to_text(replace(result, launches=(one, *result.launches[1:])))
    rows = [line for line in text.splitlines() if line.startswith("  M=")]
    for word in ("predicted", "tuning can win", " > "):
        assert len({row.index(word) for row in rows}) == 1, word


def test_pipe_gets_no_escapes_and_no_wrapping(plain_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = to_text(factory.result())
    assert "\x1b" not in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) > 120
    assert text == to_text(factory.result())


def test_a_narrow_terminal_breaks_lines_below_their_text_and_no_command(plain_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    sink, command = FakeTerminal(), "advisor advise k.py::kernel --gpu H100 --content 'index_ptr=random(…)' --arg n=1000000"
    result = factory.result(tuple(range(1, 31)))
    specify = Action(title="Specify", detail="work " * 30, saving_us=0.0, origin="predicted", launches=(), snippet=command)
    terminal.show(replace(result, actions=(specify,)), file=sink, details=False, report="r.html")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", sink.getvalue()).splitlines()
    assert f"     {command}" in lines and len(lines) <= LINES
    assert [line for line in lines if len(line) > 60] == [f"     {command}"]
    detail = lines[lines.index(f"     {command}") + 1 :][:3]
    assert [len(line) - len(line.lstrip()) for line in detail] == [5, 7, 7]


def test_terminal_gets_colours_and_no_color_takes_them(plain_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = FakeTerminal()
    terminal.show(factory.result((64,)), file=coloured)
    assert re.search(r"\x1b\[[0-9;]*3[0-9]", coloured.getvalue())
    monkeypatch.setenv("NO_COLOR", "1")
    plain = FakeTerminal()
    terminal.show(factory.result((64,)), file=plain)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", plain.getvalue())


def test_hostile_texts_are_neutralised(plain_environment: None) -> None:
    sink = FakeTerminal()
    terminal.show(factory.hostile(), file=sink)
    text = sink.getvalue()
    assert "\\x1b[31mred" in text
    assert "[bold red]markup[/]" in text
    assert "\x1b[31mred" not in text
    assert "\x1b[31mred" not in to_text(factory.hostile())


@pytest.mark.parametrize("code", [0x1B, 0xAD, 0x61C, 0x180E, 0x202E, 0x2066, 0x206F, 0x3164, 0xD800, 0xFEFF, 0xFFFB, 0xE0041])
def test_characters_nobody_sees_are_written_out(code: int) -> None:
    written = chr(code).encode("unicode_escape").decode()
    assert figures.clean(f"µ kernel{chr(code)}\n") == f"µ kernel{written}\\n"
    assert figures.clean(f"a\tb{chr(code)}\n", lines=True) == f"a\tb{written}\n"


def test_ascii_output_is_replaced_not_refused() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    terminal.show(factory.result((64,)), file=stream)
    assert b"502.9 us" in raw.getvalue()


def test_no_launches() -> None:
    assert "no launches" in to_text(factory.empty())


@pytest.mark.parametrize("measured", [True, False])
def test_current_says_where_it_comes_from(measured: bool) -> None:
    text = to_text(factory.result((64,), ("w13",), measured=measured))
    assert ("  measured " if measured else "  predicted ") in text


def test_faster_than_the_ceiling_is_said_in_words() -> None:
    result = factory.result((64,), ("w13",), measured=True)
    launch = result.launches[0]
    assert launch.measured is not None and launch.ceiling is not None
    fast = replace(launch, measured=replace(launch.measured, us=0.8 * launch.ceiling.us, low_us=None, high_us=None))
    text = to_text(replace(result, launches=(fast,)))
    assert "faster than the predicted ceiling" in text
    assert not re.search(r"\b1[0-9][1-9] %", text)


def test_faults_are_shown() -> None:
    result = factory.result((64,), ("w13",))
    launch = replace(result.launches[0], faults=("measured 3.1 µs is below the bound 4.0 µs",))
    assert "x fault: measured 3.1 µs is below" in to_text(replace(result, launches=(launch,)))


def test_a_recommendation_is_set_against_no_fault(plain_environment: None) -> None:
    result = factory.result((64,), ("w13",), measured=True)
    (launch,) = result.launches
    assert launch.measured is not None and re.search(r"\d\.\d\dx (faster|slower)", to_text(result))
    below = replace(launch, measured=replace(launch.measured, us=0.1 * launch.bound.us, low_us=None, high_us=None))
    faulty = replace(result, launches=(below,))
    for text in (to_text(faulty), markdown.to_markdown(faulty), page.to_html(faulty)):
        assert not re.search(r"\d\.\d\dx (faster|slower)", text)


def test_launch_without_ceiling_prediction_or_configuration() -> None:
    result: Result = factory.result((64,), ("w13",))
    bare = replace(
        result.launches[0],
        configuration=None,
        predicted=None,
        ceiling=None,
        ceiling_configuration=None,
        occupancy=None,
        efficiency=None,
        headroom=None,
        gap=(),
        findings=(),
    )
    text = to_text(replace(result, launches=(bare,)))
    assert "bound of configuration" in text
    assert "tuning can win" not in text.partition("bound of configuration")[2]


def test_the_first_of_a_ranking_is_not_called_the_first_of_a_list() -> None:
    """Of a kernel nobody says how it runs, the first-ranked configuration is shown, wherever it stands in the kernel's own list."""
    result: Result = factory.result((64,), ("w13",))
    unset = replace(result.launches[0], configuration=None, measured=None)
    assert "   best of its configurations   > BLOCK_SIZE_M" in to_text(replace(result, launches=(unset,)))


def test_words_stand_in_place_of_a_ratio_of_one_and_of_a_mixed_origin() -> None:
    result = factory.result((64, 1024), ("w13",))
    first, second = result.launches
    assert first.recommendation is not None
    first = replace(first, recommendation=replace(first.recommendation, speedup=1.001))
    text = to_text(replace(result, launches=(first, factory.launch(1024, measured=True))))
    assert "(predicted, no faster)" in text and "1.00x" not in text
    assert re.search(r"all 2 launches: [\d,.]+ µs ±[\d.]+ % \(1 measured, 1 predicted\)", text)
    assert "all 2 launches: predicted" in to_text(replace(result, launches=(first, second)))


def test_a_sum_says_how_many_launches_are_in_it() -> None:
    """Of three launches one cannot launch and one was measured below its bound."""
    result = factory.result((1, 64, 1024), ("w13",))
    stuck, fault, able = result.launches
    stuck = replace(stuck, predicted=None)
    fault = replace(fault, measured=Latency(us=fault.bound.us / 2, origin="measured", source="rows"))
    assert "\n  all 3 launches: " in to_text(result) and "sum of all 3 launches" in page.to_html(result)
    result = replace(result, launches=(stuck, fault, able))
    assert "\n  1 of 3 launches: " in to_text(result)
    assert "| predicted, 1 of 3 launches | ceiling" in markdown.to_markdown(result)
    assert "sum of 1 of 3 launches" in page.to_html(result)


def test_console_of_rich_is_not_shared() -> None:
    """Rich keeps a global console; ours must not change it."""
    before = Console().soft_wrap
    to_text(factory.empty())
    assert Console().soft_wrap == before


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0.00"),
        (0.0123, "0.01"),
        (-1e-9, "0.00"),
        (1.234, "1.23"),
        (9.996, "10.0"),
        (12.34, "12.3"),
        (999.96, "1,000"),
        (12345.6, "12,346"),
    ],
)
def test_microseconds_keep_the_digits_that_matter(us: float, text: str) -> None:
    assert figures.microseconds(us) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "-"), (0.0, "<1 %"), (0.451, "45 %"), (0.996, "99 %"), (1.0, "100 %"), (1.004, "100 %"), (1.2, "beyond")],
)
def test_share_is_never_more_than_all(share: float | None, text: str) -> None:
    assert figures.share_text(share) == text


def test_what_is_slower_for_its_entry_is_no_riddle() -> None:
    """An entry serves w13 and w2: what is recommended for both may cost one of them a little."""
    result = factory.result((64,), ("w13",))
    (launch,) = result.launches
    assert launch.recommendation is not None
    losing = replace(launch, recommendation=replace(launch.recommendation, speedup=0.97))
    words = "1.03x slower, but others that share its entry gain more)"
    assert words in to_text(replace(result, launches=(replace(losing, decision="M64"),)))
    assert "gain more" not in to_text(replace(result, launches=(replace(losing, decision=None),)))
    assert "gain more" not in to_text(replace(result, launches=(replace(launch, decision="M64"),)))


def test_nothing_that_rounding_left_is_shown_as_a_quantity() -> None:
    assert figures.quantity(1e-19, "bytes") == "0 B" and figures.quantity(0.5, "bytes") == "0.5 B"
