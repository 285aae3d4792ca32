"""Routing files."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.system.errors import InputError
from advisor.tables.routing import Routing, check_routing, crowded, read_routing


@pytest.mark.parametrize("text", ["[3, 0, 5]", "3\n0\n5\n", "3,0,5", "tokens\n3\n0\n5", "\ufeff[3,0,5]"[1:]])
def test_formats(tmp_path: Path, text: str) -> None:
    path = tmp_path / "routing.txt"
    path.write_text(text)
    assert read_routing(path, 3) == (3, 0, 5)
    with pytest.raises(InputError, match="E=4"):
        read_routing(path, 4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[0, 0]",
        "[-1, 2]",
        "[1.5, 2]",
        "[true, 2]",
        '["1", 2]',
        "[NaN, 1]",
        "[1, 2",
        '{"tokens": [1, 2]}',
        "1\ntwo",
        "1.5\n2",
        "-1\n2",
        f"[{2**31}, 1]",
        "[" * 100_000,
    ],
)
def test_bad_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "routing.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_routing(path, 2)
    assert "routing.json" in str(caught.value) and "\n" not in str(caught.value) and caught.value.remedy


def test_places(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.json"):
        with pytest.raises(InputError):
            read_routing(path)
    assert check_routing((1, 2), None) == (1, 2)


@pytest.mark.parametrize(
    ("loads", "top_k", "possible"),
    [
        ((512, 0, 0, 0), 8, False),
        ((5, 1, 1, 1), 2, False),
        ((4, 2, 1, 1), 2, True),
        ((7, 0, 0, 0), 1, True),
        ((3, 3, 3, 3), 4, True),
    ],
)
def test_more_slots_of_an_expert_than_there_are_tokens_can_only_be_of_one_rank(loads: tuple[int, ...], top_k: int, possible: bool) -> None:
    said = crowded(check_routing(loads, 4), top_k)
    assert (said is None) == possible
    assert said is None or ("Expert 0" in said and "one rank" in said)


@pytest.mark.parametrize(
    ("text", "printed", "exponent"),
    [
        ("balanced", "balanced", 0.0),
        ("Uniform ", "balanced", 0.0),
        ("random", "random", -1.0),
        ("power_law_1.20", "power_law:1.20", 1.2),
        ("power_law:0.5", "power_law:0.5", 0.5),
        ("[3, 0, 5]", "3 0 5", 0.0),
        ("3 0 5", "3 0 5", 0.0),
    ],
)
def test_a_routing_is_read_and_printed_in_one_way(text: str, printed: str, exponent: float) -> None:
    found = Routing.read(text)
    assert (str(found), found.exponent) == (printed, exponent) and Routing.read(str(found)) == found


@pytest.mark.parametrize("text", ["", "skewed", "power_law", "power_law:12", "3 -1", "0 0", "2.5 1"])
def test_what_is_no_routing_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        Routing.read(text)


def test_slots_are_one_for_each_expert() -> None:
    with pytest.raises(InputError, match="E=4"):
        Routing.read("3 0 5", experts=4)
