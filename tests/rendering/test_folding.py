"""Lines on a narrow terminal: continued, indented, never broken within a figure; and a pipe gets them as they are."""

import io
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from advisor.rendering.folding import FoldedLines, fold, reflow, width_of
from tests import loaded
from tests.rendering.terminal import printed_on_a_terminal

ROOT = Path(__file__).parents[2]
LATENCIES = "  predicted    307.2 µs −6/+15 %    ceiling    224.1 µs   bound    185.5 µs (dram)    73 % of ceiling"
ADVICE = "  > BLOCK_SIZE_M=16 BLOCK_SIZE_N=256 num_warps=8 num_stages=3       takes    224.1 µs (predicted, 1.37x faster)"
MIX = "  mix        fma 105, alu 89, control 18, conversion 16, shuffle 16, global 4, synchronisation 3"
PROSE = "  ? The L2 is taken as warm: it holds operands of 2 of the 4 launches at M = 64 (give --cache cold)."
BROKEN = re.compile(r"(\d|=|->|→)$|(ceiling|bound|predicted|takes|fma|alu)$|[!?>]$")
"""How no line may end: in a number that lacks its unit, in a word that lacks its number, in a mark."""


def folded(text, width):
    return [part.plain for part in fold(Text(text), width)]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100])
@pytest.mark.parametrize("text", [LATENCIES, ADVICE, MIX, PROSE])
def test_no_figure_is_broken(text, width):
    lines = folded(text, width)
    assert " ".join(lines).split() == text.split()
    assert all(line.startswith("      ") for line in lines[1:])
    if width >= 40:
        assert max(map(len, lines)) <= width
    assert not [line for line in lines[:-1] if BROKEN.search(re.sub(r"num_\w+=\d+$|BLOCK_\w+=\d+$", "", line))]


def test_a_line_is_broken_between_columns_rather_than_between_words():
    assert folded(LATENCIES, 70) == [LATENCIES[: LATENCIES.index("   bound")].rstrip(), "      bound    185.5 µs (dram)    73 % of ceiling"]
    # A first column that would fill less than half of the line does not end it.
    assert folded("  path  one two three four five", 20) == ["  path  one two", "     three four five"]


def test_a_line_that_fits_stays_as_it_is():
    line = Text(LATENCIES)
    assert fold(line, len(LATENCIES)) == [line] and fold(line, len(LATENCIES))[0] is line


def test_what_has_no_place_to_break_is_left_to_the_terminal():
    assert folded("  written: " + "x" * 50, 30) == ["  written:", "      " + "x" * 50]
    assert folded("x" * 50 + " y", 30) == ["x" * 50, "    y"]


def test_styles_stay_with_their_words():
    line = Text("  one two ").append("three four", style="bold").append(" five")
    parts = fold(line, 14)
    bold = [part.plain[span.start : span.end] for part in parts for span in part.spans if span.style == "bold"]
    assert " ".join(bold).split() == ["three", "four"]


def test_wide_characters_take_two_columns():
    assert folded("表表表 表表表", 10) == ["表表表", "  表表表"]


@given(st.lists(st.text(alphabet="ab1µ%=>.", min_size=1, max_size=12), min_size=1, max_size=30), st.integers(1, 60), st.data())
def test_nothing_is_lost(words, width, data):
    text = "".join(word + " " * data.draw(st.integers(1, 5)) for word in words).rstrip()
    assert " ".join(folded(text, width)).split() == words


def test_prose_is_broken_anew_and_headings_stay():
    text = "## Head\none two three four\nfive six\n\nseven"
    assert reflow(text, 40) == text
    assert reflow(text, 14) == "## Head\none two three\nfour five six\n\nseven"


def test_an_indented_line_is_a_line_of_its_own():
    assert reflow("examples of it:\n  run one two three\n  run two\nand so on", 16) == (
        "examples of it:\n  run one two\n    three\n  run two\nand so on"
    )


def test_what_an_entry_says_goes_on_in_its_own_column():
    entry = "  name  one two three four five\n        six seven\n  other  one"
    assert reflow(entry, 33) == entry
    assert reflow(entry, 20) == "  name  one two\n        three four\n        five six\n        seven\n  other  one"
    assert reflow(entry, 15) == "  name\n   one two\n   three four\n   five six\n   seven\n  other  one"  # too narrow for columns


@pytest.mark.parametrize("command", ["rank", "tune", "advise", "predict"])
def test_help_fits_a_narrow_terminal(command):
    shown = printed_on_a_terminal(command, "--help", environment={"NO_COLOR": "1", "TERM": "xterm"}, columns=80)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "")
    assert plain.startswith(f"Usage: advisor {command} ")
    assert max(map(len, plain.splitlines())) <= 80


def test_lines_are_folded_when_they_are_whole_and_escapes_pass():
    stream = io.StringIO()
    lines = FoldedLines(stream, 12)
    lines.write("one two ")
    assert stream.getvalue() == ""
    lines.write("three four\n\x1b[1mone two three four\x1b[0m\nbegun")
    lines.flush()
    assert stream.getvalue() == "one two\n   three\n   four\n\x1b[1mone two three four\x1b[0m\nbegun"


def test_a_pipe_has_no_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert width_of(io.StringIO()) is None


def on_a_terminal(columns, *arguments):
    """What a command prints on a terminal of so many columns (0: one that does not say), without escapes."""
    shown = printed_on_a_terminal(*arguments, environment={"TERM": "xterm-256color"}, columns=columns)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r\n", "\n")


def down_a_pipe(*arguments):
    done = subprocess.run([*loaded.python(), "-m", "advisor", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_commands_fit_the_terminal(tmp_path):
    table = "reports/examples/E=128,N=768,device_name=NVIDIA_H20.json"
    advise = ("advise", table, "--model", "Qwen3-30B-A3B", "--tokens", "64", "--output", str(tmp_path))
    for command in (advise, ("compare", "tests/data/compare/before.json", "tests/data/compare/after.json"), ("audit", "reports/examples")):
        piped = down_a_pipe(*command)
        assert max(map(len, piped.splitlines())) > 100
        for columns in (80, 100):
            shown = on_a_terminal(columns, *command)
            assert max(len(line) for line in shown.splitlines() if str(tmp_path) not in line) <= columns
            assert shown.split() == piped.split()
        assert on_a_terminal(0, *command) == on_a_terminal(1000, *command) == piped


def test_documents_are_not_folded():
    assert on_a_terminal(60, "gpus", "--format", "json") == down_a_pipe("gpus", "--format", "json")


def test_gpus_stand_below_each_launch_on_a_narrow_terminal(tmp_path):
    command = ("advise", "rms_norm", "--gpu", "H200", "--gpu", "B200", "--output", str(tmp_path))
    shown = on_a_terminal(80, *command)
    rows = shown[shown.index("Side by side") :].splitlines()
    head = next(row for row in rows if "latency" in row and "binding" in row)
    for gpu in ("H200", "B200"):
        row = next(row for row in rows if row.startswith(f"    {gpu}"))
        assert row[: head.index("  ceiling")].rstrip().endswith("best") and len(row) <= 80
    piped = down_a_pipe(*command)
    assert "H200" in next(row for row in piped[piped.index("Side by side") :].splitlines() if row.endswith("B200"))
