"""The result as GitHub Markdown."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from advisor.rendering import markdown
from advisor.rendering.page import to_html
from advisor.result.schema import Result

from . import factory
from .golden import compare


def outside_code(text: str) -> str:
    """The Markdown without its fenced blocks and code spans."""
    text = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)


def test_table_matches_golden() -> None:
    compare("markdown_table.md", markdown.to_markdown(factory.result((1, 64, 3072))))


def test_measured_and_searched_matches_golden() -> None:
    result = factory.result((64,), ("w13",), measured=True, searched=True)
    compare("markdown_launch.md", markdown.to_markdown(result))


@pytest.mark.parametrize(("measured", "said"), [(0, "predicted"), (1, "1 measured, 1 predicted"), (2, "measured")])
def test_the_ceiling_says_what_it_is_a_sum_of(measured: int, said: str) -> None:
    """A search may have reached the ceiling of some launches, and not of others."""
    result = factory.result((64, 256), ("w13",))
    reached = [replace(launch, ceiling=replace(launch.ceiling, origin="measured")) for launch in result.launches if launch.ceiling]
    result = replace(result, launches=(*reached[:measured], *result.launches[measured:]))
    assert f"ceiling ({said})" in markdown.to_markdown(result)
    tile = to_html(result).partition(">Tunable ceiling</abbr></h2>")[2].partition("</div>")[0]
    assert said in tile and ("predicted" in tile) == ("predicted" in said)


def test_hostile_texts_are_inert() -> None:
    text = outside_code(markdown.to_markdown(factory.hostile()))
    assert "<img" not in text and "<script" not in text
    assert "@someone" not in text  # a mention would notify people
    assert not re.search(r"(?<!\\)#1\b", text)
    tags = set(re.findall(r"<(/?\w+)", text))
    assert tags <= {"details", "/details", "summary", "/summary"}


def test_rows_of_a_table_have_equally_many_cells() -> None:
    for result in (factory.hostile(), factory.result((1, 64))):
        blocks = re.findall(r"(?:^\|.*\n)+", markdown.to_markdown(result), re.MULTILINE)
        assert blocks
        for block in blocks:
            assert len({line.count("|") for line in block.splitlines()}) == 1, block


@pytest.mark.parametrize("copies", [5, 12])
def test_limit_holds_and_is_said(copies: int) -> None:
    hostile = factory.hostile()
    many: Result = replace(
        hostile,
        launches=tuple(replace(launch, id=f"{launch.id}-{number}") for number in range(10 * copies) for launch in hostile.launches),
        searches=hostile.searches * copies,
        table_findings=hostile.table_findings * copies,
        exports=hostile.exports * copies,
    )
    text = markdown.to_markdown(many)
    assert len(text) <= markdown.LIMIT
    assert "rows left out for length" in text


def test_rows_that_change_nothing_go_first() -> None:
    result = factory.result(tuple(range(1, 601)), ("w13",))
    kept = {f"w13-M{tokens}" for tokens in range(430, 601)}
    launches = tuple(entry if entry.id in kept else replace(entry, recommendation=None, findings=()) for entry in result.launches)
    text = markdown.to_markdown(replace(result, launches=launches))
    assert len(text) <= markdown.LIMIT
    assert "M=600 |" in text
    found = re.search(r"(\d+) of 600 rows left out for length \((\d+) with nothing to change\)", text)
    assert found and found.group(1) == found.group(2)


def test_offline_is_said() -> None:
    assert "Nothing was run" in markdown.to_markdown(factory.result((1,)))
    assert "Nothing was run" not in markdown.to_markdown(factory.result((1,), measured=True))


def test_no_launches() -> None:
    assert "No launches." in markdown.to_markdown(factory.empty())


@pytest.mark.parametrize("text", ["`", "``a```b", "a`", "", " ", "a\nb", "a|b\\|c"])
def test_code_span_cannot_be_left(text: str) -> None:
    span = markdown.code(text)
    fence = re.match("`+", span)
    assert fence and span.endswith(fence.group())
    assert fence.group() not in span[len(fence.group()) : -len(fence.group())].strip()
    assert "\n" not in span and "|" not in span
